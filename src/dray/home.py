"""Where dray keeps its own files on the laptop."""

from __future__ import annotations

import os
from pathlib import Path

from dray.records import NamedTuple


class Home(NamedTuple):
    """The folders for settings, for what must not be lost, and for what can be made again."""

    config: Path
    data: Path
    cache: Path

    @property
    def store(self) -> Path:
        return self.data / "store.db"

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"


def find_home() -> Home:
    own = os.environ.get("DRAY_HOME")
    if own:
        home = Path(own).absolute()
        return Home(home, home, home / "cache")
    return Home(
        _xdg("XDG_CONFIG_HOME", ".config"),
        _xdg("XDG_DATA_HOME", ".local/share"),
        _xdg("XDG_CACHE_HOME", ".cache"),
    )


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG rules: a relative path is to be ignored.
    base = Path(value) if value.startswith("/") else Path.home() / default
    return base / "dray"
