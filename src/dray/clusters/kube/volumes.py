"""The volumes that every pod mounts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.agent.facts import Problem
from dray.clusters.kube.names import value_at
from dray.clusters.options.kubernetes import KUBE_ROOT, VOLUMES
from dray.errors import ConfigError
from dray.records import NamedTuple

MANY = "ReadWriteMany"
ONE_POD = "ReadWriteOncePod"


class Volume(NamedTuple):
    kind: str  # pvc, nfs or host
    source: str  # the claim's name, the server, or the path on the node
    path: str  # where pods see it
    export: str = ""  # the server's folder
    is_readonly: bool = False

    def described(self, name: str) -> dict[str, Any]:
        """Describe it in a pod's spec."""
        if self.kind == "pvc":
            claim = {"claimName": self.source}
            return {"name": name, "persistentVolumeClaim": claim}
        if self.kind == "nfs":
            return {"name": name, "nfs": {"server": self.source, "path": self.export}}
        return {"name": name, "hostPath": {"path": self.source}}

    def mount(self, name: str) -> dict[str, Any]:
        more = {"readOnly": True} if self.is_readonly else {}
        return {"name": name, "mountPath": self.path, **more}


def parse(text: str) -> Volume:
    """Read a volume of the settings, which were checked when they were read."""
    is_readonly = text.endswith(":ro")
    kind, *parts = text.removesuffix(":ro").split(":")
    export = parts[1] if kind == "nfs" else ""
    return Volume(kind, parts[0], parts[-1].rstrip("/") or "/", export, is_readonly)


def of(settings: Mapping[str, Any]) -> list[Volume]:
    return [parse(one) for one in VOLUMES.of(settings)]


def root_of(settings: Mapping[str, Any]) -> str:
    """Return the folder of jobs and code; raise ConfigError where no volume can hold it."""
    usable = [one for one in of(settings) if not one.is_readonly]
    if not usable:
        raise ConfigError(
            "no volume is set for jobs and code",
            hint='Name one that your pods share: volumes = ["pvc:CLAIM:/path"]',
        )
    root = KUBE_ROOT.of(settings) or f"{usable[0].path.rstrip('/')}/dray"
    if not any(is_below(root, one.path) for one in usable):
        paths = ", ".join(one.path for one in usable)
        raise ConfigError(
            f"the root {root} is in none of the volumes ({paths})",
            hint="What is not in a volume is gone with its pod.",
        )
    return str(root)


def claim_of_root(settings: Mapping[str, Any]) -> str:
    """Return the claim on which jobs and code are; '' where that is no claim."""
    root = root_of(settings)
    holding = [one for one in of(settings) if is_below(root, one.path) and not one.is_readonly]
    inmost = max(holding, key=lambda one: len(one.path))
    return inmost.source if inmost.kind == "pvc" else ""


def modes_of(claim: Mapping[str, Any]) -> list[str]:
    """Return how a claim may be mounted, as far as that is known."""
    found = value_at(claim, "spec", "accessModes")
    return [str(one) for one in found] if isinstance(found, list) else []


def is_for_one_node(modes: Sequence[str]) -> bool:
    return bool(modes) and MANY not in modes


def find_problem(modes: Sequence[str]) -> Problem | None:
    """Return why jobs cannot use the claim that they are on."""
    if modes and set(modes) <= {ONE_POD, "ReadOnlyMany"}:
        advice = "Name a claim that is ReadWriteMany in volumes; see kubectl get pvc."
        return Problem(f"only one pod at a time may write to its volume ({ONE_POD})", advice)
    return None


def is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
