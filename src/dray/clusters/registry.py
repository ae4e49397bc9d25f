"""Finds the class of each kind of cluster; a kind's module is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dray.clusters.protocol import Cluster
from dray.job.options import kinds


def make(kind: str, name: str, settings: Mapping[str, Any], data: Path, cache: Path) -> Cluster:
    """Make the cluster of this kind; its module is imported on first use."""
    factory = kinds.find(kind).cluster
    if isinstance(factory, str):
        module, _, attribute = factory.partition(":")
        factory = getattr(importlib.import_module(module), attribute)
    cluster: Cluster = factory(name, settings, data, cache)
    return cluster


def modules() -> list[str]:
    """Name the modules of the built-in kinds."""
    factories = [kinds.find(name).cluster for name in kinds.BUILT_IN]
    return [one.partition(":")[0] for one in factories if isinstance(one, str)]
