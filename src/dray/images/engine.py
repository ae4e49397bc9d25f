"""Images of docker and podman: lists them, and reads their layers."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dray.errors import NotFound, Refused, nearest
from dray.images import archive, contents, partial_export
from dray.images.archive import Layers
from dray.images.building import Build
from dray.programs import calling

ENGINES = ("docker", "podman")
# An image is saved as docker does it, by both.
SAVE = {"docker": ("save",), "podman": ("save", "--quiet", "--format", "docker-archive")}
NO_IMAGE = re.compile(r"no such (image|object)|image not known|not found", re.I)
UNUSABLE = (
    (
        re.compile(r"permission denied", re.I),
        "may not be used by you",
        "Join its group and log in again: sudo usermod -aG docker $USER. podman needs no rights.",
    ),
    (
        re.compile(r"cannot connect to podman|podman machine", re.I),
        "has no machine running",
        "Start it: podman machine start",
    ),
    (
        re.compile(r"cannot connect|daemon running|error during connect|failed to connect", re.I),
        "has no daemon running",
        "Start it (Docker Desktop, or sudo systemctl start docker); podman needs none.",
    ),
)


class Image(NamedTuple):
    """``read`` yields the wanted ones of its layers."""

    id: str  # the digest of its config, or of its manifest where docker keeps images that way
    name: str
    architecture: str
    size: int
    layers: tuple[str, ...]  # digests of the uncompressed tars, the lowest first
    config: str
    read: Callable[[frozenset[str]], AbstractContextManager[Layers]]
    engine: str = ""  # the one that has it; none where it is in an archive


class Unusable(Refused):
    """The engine is installed and does not answer."""


def find(reference: str) -> Image:
    """Find an image by its name or id, in the first engine that has it, or in an archive."""
    if contents.is_archive(reference):
        return from_archive(reference)
    problems = {}
    for engine in installed():
        try:
            found = inspect(engine, reference)
        except Unusable as problem:
            problems[engine] = problem
        else:
            if found is not None:
                return found
    raise missing(reference, problems)


def installed() -> list[str]:
    found = [engine for engine in ENGINES if shutil.which(engine)]
    if not found:
        raise Refused(
            "there is neither docker nor podman on this machine",
            hint="Install one of them; podman needs no daemon and no rights. A file that one of "
            "them saved elsewhere can be named, too: docker-archive:FILE",
        )
    return found


def missing(reference: str, problems: Mapping[str, Unusable]) -> Refused | NotFound:
    asked = [engine for engine in installed() if engine not in problems]
    if not asked:
        return next(iter(problems.values()))
    names = [name for engine in asked for name in listing(engine)]
    others = "".join(f" {one.message}: {one.hint}" for one in problems.values())
    return NotFound(
        f"there is no image '{reference}' in {' or '.join(asked)}.{nearest(reference, names)}",
        hint=f"{asked[0]} images lists them, dray image build makes one.{others}",
    )


def listing(engine: str) -> list[str]:
    """Return the names of the engine's images."""
    ended = calling.ask([engine, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"])
    return [short(name) for name in ended.output.split() if "<none>" not in name]


def inspect(engine: str, reference: str) -> Image | None:
    ended = calling.ask([engine, "image", "inspect", "--", reference])
    if ended.code == 0:
        return described(engine, json.loads(ended.output)[0], reference)
    problem = explained(engine, ended.errors)
    if not isinstance(problem, Unusable) and NO_IMAGE.search(ended.errors):
        return None
    raise problem


def explained(engine: str, errors: str) -> Refused:
    """Turn an engine's error output into an error with advice."""
    for pattern, what, hint in UNUSABLE:
        if pattern.search(errors):
            return Unusable(f"{engine} {what}", hint=hint)
    said = [line.strip() for line in errors.splitlines() if line.strip()]
    return Refused(f"{engine} failed: {said[-1] if said else 'it does not say why'}")


def described(engine: str, record: Mapping[str, Any], reference: str) -> Image:
    number = f"sha256:{str(record['Id']).removeprefix('sha256:')}"
    layers = tuple(record["RootFS"].get("Layers") or ())
    return Image(
        id=number,
        name=name_of(record.get("RepoTags") or [], reference, number),
        architecture=str(record.get("Architecture", "")),
        size=int(record.get("Size", 0)),
        layers=layers,
        config=config_of(record, layers),
        read=partial(reading, engine, number, layers),
        engine=engine,
    )


def config_of(record: Mapping[str, Any], layers: Sequence[str]) -> str:
    """Rebuild an image's own config: engines print all of it that a container needs."""
    config = {
        "architecture": record.get("Architecture", ""),
        "os": record.get("Os", "linux"),
        "config": {key: value for key, value in (record.get("Config") or {}).items() if value},
        "rootfs": {"type": "layers", "diff_ids": list(layers)},
    }
    if record.get("Created"):
        config["created"] = record["Created"]
    return json.dumps(config)


def name_of(tags: Sequence[str], reference: str, number: str) -> str:
    """Return the image's name as it was asked for, if that is a name, with its tag."""
    names = [short(tag) for tag in tags]
    asked = [name for name in names if short(reference) in (name, name.rpartition(":")[0])]
    return next(iter(asked or names), number.removeprefix("sha256:")[:12])


def short(name: str) -> str:
    """Remove the registry that an engine adds by itself."""
    return re.sub(r"^(localhost|docker\.io/library|docker\.io)/", "", name)


@contextmanager
def reading(
    engine: str, number: str, layers: Sequence[str], wanted: frozenset[str]
) -> Iterator[Layers]:
    if engine == "podman" and wanted < set(layers):
        with partial_export.exported(number, layers, wanted) as found:
            if found is not None:
                yield contents.from_folder(*found, wanted)
                return
    with calling.writing([engine, *SAVE[engine], number]) as saving:
        try:
            yield archive.layers(saving.output, wanted)
        except archive.Incomplete as error:
            said = saving.failure()
            if said is None:
                raise
            raise explained(engine, said) from error


def from_archive(reference: str) -> Image:
    path, name = contents.located(reference)
    found = contents.look(path, name)
    return Image(
        id=found.id,
        name=short(found.name) or path.name,
        architecture=found.architecture,
        size=contents.size(path),
        layers=found.layers,
        config=found.config.decode("utf-8"),
        read=partial(contents.reading, path, found.known),
    )


def usable() -> str:
    """Return the engine to build with: the first that answers."""
    problems = []
    for engine in installed():
        ended = calling.ask([engine, "version"])
        if ended.code == 0:
            return engine
        problems.append(explained(engine, ended.errors))
    raise problems[0]


def written(what: Build, folder: Path) -> Build:
    """Write a Dockerfile of dray's own, in a folder that has nothing else."""
    folder.mkdir()
    (folder / what.dockerfile.name).write_text(what.text, "utf-8")
    return what._replace(dockerfile=folder / what.dockerfile.name, context=folder)


def ensure(engine: str, reference: str, platform: str = "") -> None:
    """Pull an image that is not here."""
    if inspect(engine, reference) is not None:
        return
    flags = ["--platform", platform] if platform else []
    if calling.show([engine, "pull", *flags, "--", reference]):
        raise Refused(f"{engine} has no {reference}, and cannot pull it: it says why above")


def user_of(engine: str, reference: str) -> str | None:
    """Return whom containers of an image belong to, '' for root; None where there is no such
    image."""
    image = inspect(engine, reference)
    return None if image is None else str(json.loads(image.config)["config"].get("User", ""))


def build(engine: str, what: Build) -> str:
    """Build an image and return its id. The engine's own output goes to stderr, for people."""
    with tempfile.TemporaryDirectory() as folder:
        number = Path(folder, "id")
        if what.text:
            what = written(what, Path(folder, "own"))
        code = calling.show([*what.words(engine), "--iidfile", str(number), str(what.context)])
        if code:
            raise Refused(
                f"{engine} could not build {what.tag} from {what.dockerfile} (exit code {code})",
                hint="What it says above tells why.",
            )
        return number.read_text().strip()
