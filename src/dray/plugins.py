"""What other packages announce by entry point: recipes and kinds of cluster.

Only what is installed counts. Python itself looks into the folder that it was started in
(``python -m dray``), and a cloned project must not bring code of its own that way.
"""

from __future__ import annotations

import os
from collections.abc import Container
from typing import Any

from dray.errors import ConfigError


def announced(group: str, taken: Container[str]) -> dict[str, Any]:
    """List the entry points of other packages by name; a built-in name cannot be taken."""
    from importlib.metadata import entry_points  # reads every installed package: not for each job

    found = {one.name: one for one in entry_points(group=group) if is_installed(one)}
    return {name: found[name] for name in sorted(found) if name not in taken}


def is_installed(entry: Any) -> bool:
    """Tell whether a package lies elsewhere than in the folder that dray was started in."""
    package = getattr(entry, "dist", None)
    if package is None:
        return True
    try:
        return not os.path.samefile(package.locate_file(""), os.curdir)
    except OSError:  # in an archive, or in a folder that has been removed
        return True


def load(entry: Any, what: str) -> Any:
    """Import what an entry point names; a package that is broken is told by name."""
    try:
        return entry.load()
    except Exception as error:
        raise ConfigError(
            f"{what} '{entry.name}' of {entry.value} cannot be loaded: {error!r}",
            hint="Repair or uninstall the package that it comes from.",
        ) from error
