"""Decides which settings of a project's dray.toml are used before the user trusts the file.

A project's file may say what a job needs. Where programs are started, what is run there outside the
job, and which secrets go out is the user's to say: in the config file of their own, or by trusting
the project's file as it is now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from dray import plain_files
from dray.config.reading import ClusterConfig, Document, FileSettings
from dray.config.toml_lines import Key, show_key
from dray.errors import ConfigError
from dray.node.formats import files
from dray.project import strangers
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOLD = 10  # settings that an error names


class Untrusted(NamedTuple):
    """Settings of a project's file that are not used: all of them if other users can change it."""

    file: Path
    keys: Mapping[Key, int] = MappingProxyType({})  # with the lines
    strangers: str = ""

    @property
    def warning(self) -> str:
        """A warning, in one line."""
        if self.strangers:
            return f"{self.file} {self.strangers}: it is not used (see dray trust)"
        keys = ", ".join(map(show_key, list(self.keys)[:3]))
        more = f" and {len(self.keys) - 3} more" if len(self.keys) > 3 else ""
        return f"{self.file} is not trusted: {keys}{more} not used (see dray trust)"

    @property
    def error(self) -> ConfigError:
        import shlex  # only for a mistake

        path = shlex.quote(str(self.file))  # a command to copy, and a name that others chose
        hint = f"Look at the file; if it may decide this: dray trust {path}"
        if self.strangers:
            return ConfigError(f"{self.file} {self.strangers}: it is not used", hint=hint)
        told = [f"  {self.file}:{line}: {show_key(key)}" for key, line in self.keys.items()]
        more = [f"  and {len(told) - TOLD} more"] if len(told) > TOLD else []
        listing = "\n".join([*told[:TOLD], *more])
        return ConfigError(
            f"{self.file} is not trusted, and sets what only your own config.toml or a file that "
            f"you trust may set:\n{listing}",
            hint=hint,
        )


# -- pure ---------------------------------------------------------------------------------------


def settings_in_force(
    document: Document | None, own: FileSettings, records: Records
) -> tuple[FileSettings, Untrusted | None]:
    """Return which settings of the project's file are used, whether or not the user trusts it, and
    which are not."""
    if document is None:
        return FileSettings(), None
    if document.strangers and not records.hold(document):
        return FileSettings(), Untrusted(document.path, strangers=document.strangers)
    found = document.settings(kinds_of(own))
    used, keys = split_by_trust(found, own)
    if not keys or records.hold(document):
        return found, None
    lines = {key: document.line(key) for key in keys}
    return used, Untrusted(document.path, dict(sorted(lines.items(), key=lambda one: one[1])))


def kinds_of(own: FileSettings) -> dict[str, str]:
    return {name: cluster.kind for name, cluster in own.clusters.items()}


def split_by_trust(found: FileSettings, own: FileSettings) -> tuple[FileSettings, list[Key]]:
    """Return the settings that are harmless, or that the user's own file has as well; and the keys
    of the rest."""
    from dray.job import options  # only where there is a project's file

    keys: list[Key] = []
    harmless = {one.key for one in (*options.JOB, *options.SNAPSHOT) if one.harmless}
    settings = {}
    for key, value in found.settings.items():
        if key in harmless or is_in_own(value, own.settings.get(key)):
            settings[key] = value
        else:
            keys.append(tuple(key.split(".")))
    clusters = {}
    for name, cluster in found.clusters.items():
        mine = own.clusters.get(name)
        if mine is None or mine.kind != cluster.kind:
            keys.append(("clusters", name))
            continue
        kept = usable_settings(cluster, mine)
        clusters[name] = cluster._replace(settings=kept)
        keys += [("clusters", name, key) for key in cluster.settings if key not in kept]
    return FileSettings(settings, clusters), keys


def usable_settings(cluster: ClusterConfig, own: ClusterConfig) -> dict[str, Any]:
    from dray.job.options import kinds

    known = kinds.find(cluster.kind).options if cluster.settings else ()
    harmless = {one.name for one in known if one.harmless}
    return {
        key: value
        for key, value in cluster.settings.items()
        if key in harmless or (key in own.settings and own.settings[key] == value)
    }


def is_in_own(value: Any, own: Any) -> bool:
    """Return whether the user's own file has the same value, or a list that contains it."""
    if isinstance(value, tuple) and isinstance(own, tuple):
        return set(value) <= set(own)
    return bool(value == own)


def effects(document: Document, own: FileSettings) -> list[tuple[int, Key, Any]]:
    """Return what trusting this file changes: each setting with its line, and its value as
    written."""
    kinds = kinds_of(own)
    keys = split_by_trust(document.settings(kinds), own)[1]
    if document.strangers:
        keys = [(name,) for name in document.tables]
    found = (leaf for key in keys for leaf in leaves(key, document.value(key)))
    return sorted((document.line(key), key, value) for key, value in found)


def leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if not isinstance(value, dict) or not value:
        yield key, value
    else:
        for name, below in value.items():
            yield from leaves((*key, name), below)


# -- acting -------------------------------------------------------------------------------------


class Records:
    """The files that the user trusts: for each, by its real path, a hash of the content."""

    def __init__(self, data: Path) -> None:
        self.folder = data / "trusted"

    def hold(self, document: Document) -> bool:
        try:
            content, status = plain_files.read(self._place(document.path))
        except OSError:
            return False
        return not strangers(status) and content.split()[:1] == [self._digest(document.content)]

    def add(self, document: Document) -> None:
        """Trust this content, in the place of what was trusted at this path before."""
        files.make_folder(str(self.folder))
        line = self._digest(document.content) + b"  " + self._real(document.path) + b"\n"
        files.write_bytes(str(self._place(document.path)), line)

    def revoke(self, path: Path) -> bool:
        """Stop trusting the file; return whether it was trusted."""
        with suppress(FileNotFoundError):
            self._place(path).unlink()
            return True
        return False

    def _place(self, path: Path) -> Path:
        return self.folder / self._digest(self._real(path)).decode()

    def _real(self, path: Path) -> bytes:
        """Return the path with its folder resolved. If the file itself is a link, it is not
        followed: a clone must not borrow the trust in another project's file."""
        folder, name = os.path.split(os.path.abspath(path))
        return os.fsencode(os.path.join(os.path.realpath(folder), name))

    def _digest(self, content: bytes) -> bytes:
        import hashlib  # with OpenSSL: not for a listing

        return hashlib.sha256(content).hexdigest().encode()
