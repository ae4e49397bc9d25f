"""The kinds of cluster: what each one's settings are, and where the class is that reaches it.

A kind is looked up by name, and its module imported on first use; so a listing imports no kind that
no file names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping

from dray.job.options.option import Option
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
    "ssh": "dray.clusters.options.ssh:KIND",
    "kubernetes": "dray.clusters.options.kubernetes:KIND",
    "ray": "dray.clusters.options.ray:KIND",
}


GROUP = "dray.clusters"  # where other packages announce theirs


def names() -> list[str]:
    """List the built-in kinds, then those of other packages; none of those is imported."""
    return [*BUILT_IN, *announced()]


def is_known(name: str) -> bool:
    """Return whether there is a kind of this name; for a built-in one, no package is searched."""
    return name in BUILT_IN or name in announced()


def announced() -> dict[str, Any]:
    """List the entry points of other packages; a built-in name cannot be taken."""
    from dray import plugins  # not for a listing

    return plugins.announced(GROUP, BUILT_IN)


def find(name: str) -> Kind:
    """Return the kind of this name; raise ConfigError where its package is missing or broken."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        found: Any = getattr(importlib.import_module(module), attribute)
    else:
        found = load(name)
    kind: Kind = found
    return kind


def load(name: str) -> Kind:
    """Import the kind that another package announces."""
    from dray import plugins
    from dray.errors import ConfigError

    others = announced()
    if name not in others:
        raise ConfigError(
            f"there is no kind of cluster '{name}'",
            hint="Install the package that has it where dray is installed.",
        )
    kind = plugins.load(others[name], "the kind of cluster")
    if not isinstance(kind, Kind):
        raise ConfigError(f"{others[name].value} is not a kind of cluster: {Kind.__module__}.Kind")
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
