"""Finds the class of each kind of cluster; a kind's module is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from dray.clusters.protocol import Cluster
from dray.config.reading import ClusterConfig
from dray.errors import ClusterError, DrayError
from dray.job.model import Capabilities
from dray.job.options import kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dray.clusters.kubernetes import KubernetesCluster
    from dray.clusters.local import LocalCluster
    from dray.clusters.pbs import PbsCluster
    from dray.clusters.slurm import SlurmCluster
    from dray.clusters.ssh import SshCluster
    from dray.clusters.suggestion import Suggestion

    def _are_clusters(
        local: LocalCluster,
        slurm: SlurmCluster,
        pbs: PbsCluster,
        ssh: SshCluster,
        kubernetes: KubernetesCluster,
    ) -> list[Cluster]:
        return [local, slurm, pbs, ssh, kubernetes]


def capabilities_of(kind: str) -> Capabilities:
    """Return what clusters of this kind can do, without asking any of them."""
    declared: Capabilities = getattr(class_of(kind), "capabilities", Capabilities())
    return declared


def suggest(kind: str, settings: Mapping[str, Any], *, asks: bool) -> Suggestion:
    """Find out settings for a new cluster of this kind; ``asks``: the cluster may be contacted."""
    from dray.clusters.suggestion import Suggestion  # only for a new cluster

    find = getattr(class_of(kind), "suggest", None)
    found: Suggestion = find(settings, asks=asks) if find else Suggestion({})
    return found


def roots_here(clusters: Iterable[ClusterConfig], data: Path) -> list[str | Path]:
    """Return where on this machine these clusters keep their jobs; those elsewhere are left out."""
    found: list[str | Path] = []
    for one in clusters:
        with suppress(ClusterError):  # of a package that cannot be used: it keeps nothing here
            root = root_here(one, data)
            found += [root] if root is not None else []
    return found


def root_here(cluster: ClusterConfig, data: Path) -> str | Path | None:
    """Return where on this machine the cluster keeps its jobs. A class of another package may not
    say, or fail: that is None."""
    find = getattr(class_of(cluster.kind), "root_here", None)
    try:
        root: str | Path | None = find(cluster.name, cluster.settings, data) if find else None
    except Exception as error:
        if cluster.kind in kinds.BUILT_IN:
            raise
        raise unusable(cluster.kind, cluster.name, error) from error
    return root


def make(kind: str, name: str, settings: Mapping[str, Any], data: Path, cache: Path) -> Cluster:
    """Make the cluster of this kind; its module is imported on first use. A failure of another
    package's class is reported like a cluster that does not answer, so that the others go on."""
    cluster_class = class_of(kind, name)
    try:
        cluster: Cluster = cluster_class(name, settings, data, cache)
    except Exception as error:
        if kind in kinds.BUILT_IN:
            raise
        raise unusable(kind, name, error) from error
    return cluster


def class_of(kind: str, name: str = "") -> Any:
    """Import the class of this kind, for the cluster of this name."""
    try:
        factory = kinds.find(kind).cluster
        if not isinstance(factory, str):
            return factory
        module, _, attribute = factory.partition(":")
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        if kind in kinds.BUILT_IN:
            raise
        raise unusable(kind, name, error) from error


def unusable(kind: str, name: str, error: Exception) -> ClusterError:
    said = error.message if isinstance(error, DrayError) else repr(error)
    about = f"{name} is of kind {kind}, which" if name else f"the kind {kind}"
    return ClusterError(
        f"{about} cannot be used: {said}",
        hint="Repair or uninstall the package that it comes from.",
    )


def modules() -> list[str]:
    """Name the modules of the built-in kinds."""
    factories = [kinds.find(name).cluster for name in kinds.BUILT_IN]
    return [one.partition(":")[0] for one in factories if isinstance(one, str)]
