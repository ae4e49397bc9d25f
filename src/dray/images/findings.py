"""What this machine has to build images with, for ``doctor``."""

from __future__ import annotations

import shutil

from dray.clusters.container_findings import numbers, pair_findings
from dray.images.engine import ENGINES
from dray.job.model import Finding
from dray.node.containers.runtime import version_of as version_of_program
from dray.programs import calling


def image_findings() -> list[Finding]:
    found = {name: version_of(name) for name in ENGINES if shutil.which(name)}
    detail = ", ".join(f"{name} {one}" for name, one in found.items())
    apptainer = shutil.which("apptainer")
    return [
        Finding(ok=True, what="images", detail=detail or "neither docker nor podman here"),
        *pair_findings(found.get("docker", ""), version_of_program(apptainer) if apptainer else ""),
    ]


def version_of(engine: str) -> str:
    """Return an engine's version: Docker version 28.2.2, build e6534b4 → 28.2.2. Its daemon need
    not answer."""
    said = calling.ask([engine, "--version"]).output
    return ".".join(str(one) for one in numbers(said))
