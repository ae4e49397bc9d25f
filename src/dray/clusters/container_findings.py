"""Turns what was found on a machine into what ``doctor`` says of containers. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from dray.job.model import Finding
from dray.node.containers.container import NO_FUSE, NO_NAMESPACES
from dray.node.containers.known import RUNTIMES

# docker 25 changed what it saves, and Apptainer reads that since 1.3.4.
NEW_ARCHIVES, READS_THEM = (25,), (1, 3, 4)


def findings(facts: Mapping[str, Any]) -> list[Finding]:
    """Return what ``doctor`` says of a machine's containers, from the facts of ``runtimes``; an
    empty list where there is no runtime."""
    if not facts:
        titles = " nor ".join(runtime.title for runtime in RUNTIMES)
        detail = f"neither {titles} here; a module may bring one (setting modules)"
        return [Finding(ok=True, what="containers", detail=detail)]
    found = ", ".join(f"{name} {version}" for name, version in facts["runtimes"].items())
    mode = " with setuid" if facts["setuid"] else ""
    return [
        Finding(ok=True, what="containers", detail=found + mode),
        *([] if facts["setuid"] else without_privilege(facts)),
        *([fakeroot(facts)] if uses_fakeroot(facts["runtimes"]) else []),
    ]


def uses_fakeroot(names: Collection[str]) -> bool:
    """Return whether one of these runtimes builds with fakeroot."""
    return any(set(runtime.names) & set(names) for runtime in RUNTIMES if runtime.uses_fakeroot)


def without_privilege(facts: Mapping[str, Any]) -> list[Finding]:
    """Check what a runtime without root's privilege needs: user namespaces and FUSE."""
    return [
        Finding(
            ok=facts["namespaces"],
            what="namespaces",
            detail="users may make their own"
            if facts["namespaces"]
            else "users may not make their own: no container will start",
            advice="" if facts["namespaces"] else sentence(NO_NAMESPACES),
        ),
        Finding(
            ok=facts["fuse"],
            what="fuse",
            detail="/dev/fuse can be opened"
            if facts["fuse"]
            else "/dev/fuse cannot be opened: image files will not start",
            advice="" if facts["fuse"] else sentence(NO_FUSE),
        ),
    ]


def fakeroot(facts: Mapping[str, Any]) -> Finding:
    """Say whether fakeroot is set up. Never a failure: only a Dockerfile-like build on this machine
    would need it, converting does not."""
    detail = "you have numbers for other users (/etc/subuid)"
    if not facts["subuid"]:
        detail = "no entry for you in /etc/subuid and /etc/subgid: images are made without it"
    return Finding(ok=True, what="fakeroot", detail=detail)


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def bad_pair(docker: str, apptainer: str) -> str:
    """Return why these versions do not work together, or ''."""
    if not docker or not apptainer:
        return ""
    if numbers(docker) < NEW_ARCHIVES or numbers(apptainer) >= READS_THEM:
        return ""
    return f"Apptainer {apptainer} does not read what docker {docker} saves"


def pair_findings(docker: str, apptainer: str) -> list[Finding]:
    """Warn those who call Apptainer themselves of a bad pair of versions. dray is not affected: it
    passes Apptainer layers, which every version reads."""
    problem = bad_pair(docker, apptainer)
    if not problem:
        return []
    advice = (
        "dray goes around that. For apptainer build docker-daemon:… and Isaac Lab's container.sh "
        "push: update Apptainer to 1.3.4 or newer, or build with podman."
    )
    return [Finding(ok=True, what="versions", detail=problem, advice=advice)]


def numbers(version: str) -> tuple[int, ...]:
    """Parse a version: 1.3.4-1.el9 → (1, 3, 4)."""
    return tuple(int(one) for one in re.findall(r"\d+", version)[:3])
