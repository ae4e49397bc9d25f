"""Pushes images to a registry, with the user's own docker or podman and its login."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from dray.clusters.protocol import Cluster
from dray.errors import Refused, UsageError
from dray.images import contents, engine
from dray.job.options.values import image as image_name
from dray.programs import calling


def require_kept(cluster: Cluster) -> None:
    """Refuse where a cluster keeps no images of its own."""
    if cluster.capabilities.registry_images:
        raise Refused(
            f"{cluster.name} keeps no images: its nodes pull them from a registry, by name",
            hint=f"dray image push NAME --on {cluster.name} --to REGISTRY/NAME:TAG puts one there.",
        )


def target_of(name: str, to: str | None) -> str:
    """Return the name in a registry: the one that is asked for, or the image's own."""
    if to is None and not names_registry(name):
        raise UsageError(
            f"{name} names no registry", hint="Say where it goes: --to REGISTRY/NAME:TAG"
        )
    try:
        return image_name(to or name)
    except ValueError as error:
        raise UsageError(f"--to: {error}") from error


def names_registry(name: str) -> bool:
    """Return whether a name begins with a registry's, as docker tells it: with a dot or a port."""
    first, slash, _ = name.partition("/")
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def push(reference: str, to: str | None) -> str:
    """Push an image; return its name in the registry, with its digest where the engine tells it."""
    if contents.is_archive(reference):
        raise Refused(
            f"{reference} is an archive, and a registry takes images of docker or podman",
            hint="Load it first: docker load --input FILE, or podman load --input FILE",
        )
    target = target_of(reference, to)
    found = engine.find(reference)
    run(found.engine, "tag", found.id, target)
    with tempfile.TemporaryDirectory() as folder:
        # podman compresses what it pushes, so that its own digest is not that of the registry.
        file = Path(folder, "digest")
        is_podman = "podman" in calling.ask([found.engine, "--version"]).output.lower()
        run(found.engine, "push", *(["--digestfile", str(file)] if is_podman else []), target)
        if is_podman:
            return f"{repository_of(target)}@{file.read_text().strip()}"
    return pinned(found.engine, target)


def run(program: str, *words: str) -> None:
    code = calling.show([program, *words])
    if code:
        raise Refused(
            f"'{program} {' '.join(words)}' failed with exit code {code}",
            hint=f"What it says above tells why; '{program} login' logs in to a registry.",
        )


def pinned(program: str, target: str) -> str:
    """Return the name with the digest of what was pushed. A node that has an image of this tag does
    not ask the registry for a newer one."""
    ended = calling.ask([program, "image", "inspect", "--", target])
    repository = repository_of(target)
    try:
        digests = json.loads(ended.output)[0].get("RepoDigests") or []
    except (ValueError, LookupError, AttributeError):
        return target
    return next((str(one) for one in digests if str(one).startswith(f"{repository}@")), target)


def repository_of(name: str) -> str:
    """Return the name without its tag."""
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
