"""The kinds of cluster: what each one's settings are, and where the class is that reaches it.

A kind is looked up by name, and its module imported on first use; so a listing imports no kind that
no file names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from dray.job.options.option import Option


class Kind(NamedTuple):
    """``cluster`` makes a cluster from its name, its settings, dray's data and its cache folder:
    see dray.clusters.protocol. It is named as module:attribute, so that reading settings does not
    import what acts on them."""

    options: tuple[Option, ...]
    cluster: str | Callable[..., Any]


BUILT_IN = {
    "local": "dray.clusters.options.local:KIND",
    "slurm": "dray.clusters.options.slurm:KIND",
    "pbs": "dray.clusters.options.pbs:KIND",
}


def find(name: str) -> Kind:
    """Return the kind of this name."""
    module, _, attribute = BUILT_IN[name].partition(":")
    kind: Kind = getattr(importlib.import_module(module), attribute)
    return kind


class _BuiltIn(Mapping[str, tuple[Option, ...]]):
    def __getitem__(self, name: str) -> tuple[Option, ...]:
        if name not in BUILT_IN:
            raise KeyError(name)
        return find(name).options

    def __iter__(self) -> Iterator[str]:
        return iter(BUILT_IN)

    def __len__(self) -> int:
        return len(BUILT_IN)


CLUSTERS: Mapping[str, tuple[Option, ...]] = _BuiltIn()  # the options of the built-in kinds
