"""Plans what is built from a folder or a Dockerfile, and in which order.

Isaac Lab keeps several Dockerfiles in one folder, its profiles: ``Dockerfile.PROFILE``, with the
values of their arguments in ``.env.base`` and ``.env.PROFILE``. One may build on another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template
from typing import NamedTuple

from dray.errors import NotFound, UsageError, nearest

DOCKERFILES = ("Dockerfile", "Containerfile")
BASE = "base"
PREFIX = "isaac-lab-"  # an image is named after its profile
ASSIGNMENT = re.compile(
    r"""\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*
        (?:'([^']*)'|"([^"]*)"|(.*?))\s*(?:\s\#.*)?""",
    re.X,
)
ARGUMENTS = re.compile(r"^\s*ARG\s+(.+)$", re.M | re.I)
STANDS_ON = re.compile(rf"^\s*FROM\s+(?:--\S+\s+)*{PREFIX}([\w.-]+)", re.M | re.I)


class Build(NamedTuple):
    tag: str
    dockerfile: Path
    context: Path
    arguments: Mapping[str, str]
    platform: str = ""  # the engine's own where it is not said
    text: str = ""  # of a Dockerfile of dray's own, which is no file yet

    def words(self, engine: str) -> list[str]:
        # podman's own format has no SHELL, which Dockerfiles written for docker use.
        flags = ["--format", "docker"] if engine == "podman" else []
        flags += ["--platform", self.platform] if self.platform else []
        flags += ["--file", str(self.dockerfile), "--tag", self.tag]
        for name, value in self.arguments.items():
            flags += ["--build-arg", f"{name}={value}"]
        return [engine, "build", *flags]


def plan(
    where: Path, tag: str | None, profile: str | None, arguments: Mapping[str, str]
) -> list[Build]:
    """Return the builds in their order; the last one is what was asked for."""
    if not where.exists():
        raise NotFound(f"there is no {where} to build from")
    own = dockerfile_in(where)
    profiles = profiles_in(where)
    if own is not None and profile is None:
        return [Build(tag or name_after(own.parent), own, own.parent, dict(arguments))]
    if profiles is None:
        raise nothing_in(where, profile)
    builds = [build_of(profiles, name, arguments) for name in chain(profiles, profile or BASE)]
    return [*builds[:-1], builds[-1]._replace(tag=tag or builds[-1].tag)]


def nothing_in(where: Path, profile: str | None) -> UsageError:
    if profile is not None:
        return UsageError(
            f"there are no profiles in {where}",
            hint="Isaac Lab has them: Dockerfile.base and .env.base, in its folder docker.",
        )
    return UsageError(
        f"there is neither a {' nor a '.join(DOCKERFILES)} in {where}",
        hint="Name the folder or the file: dray image build docker/Dockerfile.train",
    )


def dockerfile_in(where: Path) -> Path | None:
    if where.is_file():
        return where
    return next((where / name for name in DOCKERFILES if (where / name).is_file()), None)


def name_after(folder: Path) -> str:
    """Name an image after its folder, in the letters that engines allow."""
    return re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "image"


def profiles_in(where: Path) -> Path | None:
    """Return the folder with the profiles: this one, or docker/ in it."""
    for folder in (where, where / "docker"):
        if all((folder / name).is_file() for name in (f"Dockerfile.{BASE}", f".env.{BASE}")):
            return folder
    return None


def chain(folder: Path, profile: str, above: tuple[str, ...] = ()) -> list[str]:
    """Return the profiles that this one builds on, and itself."""
    known = sorted(path.name.removeprefix("Dockerfile.") for path in folder.glob("Dockerfile.*"))
    if profile not in known:
        raise NotFound(
            f"{folder} has no profile '{profile}'.{nearest(profile, known)}",
            hint=f"It has {', '.join(known)}.",
        )
    if profile in above:
        raise UsageError(f"in {folder}, the profiles {' and '.join(above)} stand on each other")
    found = STANDS_ON.findall(dockerfile(folder, profile).read_text("utf-8"))
    below = [one for one in found if one in known]
    every = [name for one in below for name in chain(folder, one, (*above, profile))]
    return [*dict.fromkeys(every), profile]


def dockerfile(folder: Path, profile: str) -> Path:
    return folder / f"Dockerfile.{profile}"


def build_of(folder: Path, profile: str, arguments: Mapping[str, str]) -> Build:
    values = environment(folder, profile)
    path = dockerfile(folder, profile)
    return Build(
        tag=f"{PREFIX}{profile}{values.get('DOCKER_NAME_SUFFIX', '')}",
        dockerfile=path,
        context=folder.resolve().parent,
        arguments={**filled(declared(path.read_text("utf-8")), profile, values), **arguments},
    )


def environment(folder: Path, profile: str) -> dict[str, str]:
    """Return what .env.base sets, and what .env.PROFILE sets in its place."""
    values: dict[str, str] = {}
    for name in dict.fromkeys((BASE, profile)):
        path = folder / f".env.{name}"
        for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
            found = ASSIGNMENT.fullmatch(line)
            if found and found[2] is not None:
                values[found[1]] = found[2]
            elif found:
                given = found[3] or found[4] or ""
                values[found[1]] = Template(given).safe_substitute(values)
    return values


def declared(text: str) -> list[str]:
    """Return the arguments that a Dockerfile takes."""
    words = [word for line in ARGUMENTS.findall(text) for word in line.split()]
    return [name for name in (word.partition("=")[0] for word in words) if name.isidentifier()]


def filled(names: Iterable[str], profile: str, values: Mapping[str, str]) -> dict[str, str]:
    """Fill in arguments as Isaac Lab's docker-compose.yaml does: X_ARG is X, DOCKER_X or
    PROFILE_X."""
    found = {}
    for name in names:
        stem = name.removesuffix("_ARG")
        for source in (name, stem, f"DOCKER_{stem}", f"{profile.upper()}_{stem}"):
            if source in values:
                found[name] = values[source]
                break
    return found
