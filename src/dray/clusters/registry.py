"""Finds the class of each kind of cluster; a kind's module is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.clusters.protocol import Cluster
from dray.config.reading import ClusterConfig
from dray.job.model import Capabilities
from dray.job.options import kinds

if TYPE_CHECKING:
    from dray.clusters.local import LocalCluster
    from dray.clusters.pbs import PbsCluster
    from dray.clusters.slurm import SlurmCluster

    def _are_clusters(local: LocalCluster, slurm: SlurmCluster, pbs: PbsCluster) -> list[Cluster]:
        return [local, slurm, pbs]


def capabilities_of(kind: str) -> Capabilities:
    """What clusters of this kind can do; nothing is asked of any of them."""
    declared: Capabilities = _class_of(kind).capabilities
    return declared


def roots_here(clusters: Iterable[ClusterConfig], data: Path) -> list[str | Path]:
    """Where on this machine these clusters keep their jobs, of those that do."""
    roots = (_class_of(one.kind).root_here(one.name, one.settings, data) for one in clusters)
    return [root for root in roots if root is not None]


def make(kind: str, name: str, settings: Mapping[str, Any], data: Path, cache: Path) -> Cluster:
    """Make the cluster of this kind; its module is imported on first use."""
    cluster: Cluster = _class_of(kind)(name, settings, data, cache)
    return cluster


def modules() -> list[str]:
    """Name the modules of the built-in kinds."""
    factories = [kinds.find(name).cluster for name in kinds.BUILT_IN]
    return [one.partition(":")[0] for one in factories if isinstance(one, str)]


def _class_of(kind: str) -> Any:
    factory = kinds.find(kind).cluster
    if not isinstance(factory, str):
        return factory
    module, _, attribute = factory.partition(":")
    return getattr(importlib.import_module(module), attribute)
