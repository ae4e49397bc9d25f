"""Finds the RayClusters of a namespace, as settings that can be written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.kube.names import is_name, text_at, value_at
from dray.clusters.kube.suggesting import is_plain
from dray.clusters.kuberay.looking import Namespace
from dray.clusters.kuberay.state import state_of
from dray.config.migration.found import Found
from dray.config.migration.ray_list import PYTHON, ROOT
from dray.job.options import shared

# -- pure ---------------------------------------------------------------------------------------


def found_in(
    clusters: Sequence[Mapping[str, Any]], source: str, where: Mapping[str, Any]
) -> list[Found]:
    """Return the settings of each RayCluster; ``where``: those of kubectl, which all have."""
    named = [one for one in clusters if is_name(text_at(one, "metadata", "name"))]
    return [one_found(one, source, where) for one in named]


def one_found(cluster: Mapping[str, Any], source: str, where: Mapping[str, Any]) -> Found:
    name = text_at(cluster, "metadata", "name")
    settings = {"kuberay": name, **where}
    notes = [state_note(cluster)]
    root = root_in(shared_path(cluster))
    if root:
        settings["root"] = root
    else:
        notes.append(f"root: {ROOT}")
    notes.append(f"python: {PYTHON}")
    plain = name.replace(".", "-")
    return Found(source, plain, "ray", settings, notes=tuple(notes), needs="kuberay")


def root_in(path: str) -> str:
    """Return the folder for jobs and code in a volume; '' where its path cannot be written."""
    try:
        return shared.ROOT.parse(f"{path.rstrip('/')}/dray") if path else ""
    except ValueError:
        return ""


def state_note(cluster: Mapping[str, Any]) -> str:
    state = state_of(cluster)
    workers = f"{state.workers} of {state.wanted} workers"
    return f"ready, {workers}" if state.is_ready else f"not ready: {workers}"


def shared_path(cluster: Mapping[str, Any]) -> str:
    """Return where all pods of a RayCluster mount the same claim; '' where they do not."""
    groups = value_at(cluster, "spec", "workerGroupSpecs")
    listed = groups if isinstance(groups, list) else []
    pods = [value_at(cluster, "spec", "headGroupSpec", "template")]
    pods += [value_at(one, "template") for one in listed]
    mounts = [claims_of(one) for one in pods]
    common = [one for one in mounts[0] if all(one in other for other in mounts)]
    return common[0][1] if common else ""


def claims_of(template: Any) -> list[tuple[str, str]]:
    """Return the claims that the first container of a pod mounts, each with its path."""
    volumes = value_at(template, "spec", "volumes")
    claims = {
        text_at(one, "name"): text_at(one, "persistentVolumeClaim", "claimName")
        for one in (volumes if isinstance(volumes, list) else ())
    }
    containers = value_at(template, "spec", "containers")
    first = containers[0] if isinstance(containers, list) and containers else None
    mounts = value_at(first, "volumeMounts")
    return [
        (claims[text_at(one, "name")], text_at(one, "mountPath"))
        for one in (mounts if isinstance(mounts, list) else ())
        if claims.get(text_at(one, "name"))
        and is_plain(text_at(one, "mountPath"))
        and not text_at(one, "subPath")
        and value_at(one, "readOnly") is not True
    ]


# -- acting -------------------------------------------------------------------------------------


def discover(space: Namespace, where: Mapping[str, Any]) -> list[Found]:
    """Look at the namespace; ``where``: the settings of kubectl."""
    return found_in(space.clusters(), f"namespace {space.name}", where)
