"""Writes a new cluster to the user's config file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dray.cli.terminal import multiline, say, tell
from dray.clusters import registry
from dray.errors import UsageError
from dray.job.options.kinds import find as find_kind


def require_name(name: str, kind: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise UsageError(f"'{name}': a cluster's name is of letters, digits, '-' and '_'")
    if name == "local" and not registry.capabilities_of(kind).is_local:
        raise UsageError("'local' is this machine", hint="Choose another name.")


def write(
    path: Path,
    name: str,
    kind: str,
    settings: Mapping[str, Any],
    notes: tuple[str, ...] = (),
    *,
    replace: bool,
) -> None:
    from dray.config import editing

    order = [option.name for option in find_kind(kind).options]
    sorted_settings = {key: settings[key] for key in order if key in settings}
    text = editing.cluster_table(name, kind, sorted_settings, notes)
    editing.add_cluster(path, name, text, replace=replace)
    say(f"added to {path}:")
    tell_tables(text)


def tell_tables(text: str) -> None:
    """Print tables of TOML. Nothing in them has to be spelled, so the output can be used as a
    file."""
    tell(multiline(text.removesuffix("\n")))
