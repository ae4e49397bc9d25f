"""Finds the class of each kind of cluster; a kind's module is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dray.clusters.protocol import Cluster

KINDS = {
    "local": "dray.clusters.local:LocalCluster",
    "slurm": "dray.clusters.slurm:SlurmCluster",
    "pbs": "dray.clusters.pbs:PbsCluster",
    "ssh": "dray.clusters.ssh:SshCluster",
}


def make(kind: str, name: str, settings: Mapping[str, Any], data: Path, cache: Path) -> Cluster:
    """The cluster of this kind; its module is imported on first use."""
    module, _, attribute = KINDS[kind].partition(":")
    factory = getattr(importlib.import_module(module), attribute)
    cluster: Cluster = factory(name, settings, data, cache)
    return cluster
