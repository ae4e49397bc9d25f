"""Finds the class of each kind of cluster; a kind's module is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dray.clusters.protocol import Cluster
from dray.errors import ClusterError, DrayError
from dray.job.options import kinds


def make(kind: str, name: str, settings: Mapping[str, Any], data: Path, cache: Path) -> Cluster:
    """Make the cluster of this kind; its module is imported on first use. One of another package
    that cannot be made is as good as one that does not answer: all others go on."""
    try:
        cluster: Cluster = factory_of(kind)(name, settings, data, cache)
    except Exception as error:
        if kind in kinds.BUILT_IN:
            raise
        said = error.message if isinstance(error, DrayError) else repr(error)
        raise ClusterError(
            f"{name} is of kind {kind}, which cannot be used: {said}",
            hint="Repair or uninstall the package that it comes from.",
        ) from error
    return cluster


def factory_of(kind: str) -> Callable[..., Any]:
    factory = kinds.find(kind).cluster
    if callable(factory):
        return factory
    module, _, attribute = factory.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def modules() -> list[str]:
    """Name the modules of the built-in kinds."""
    factories = [kinds.find(name).cluster for name in kinds.BUILT_IN]
    return [one.partition(":")[0] for one in factories if isinstance(one, str)]
