"""Records what a pull has written, so that the next one knows which files it may replace.

A folder that a pull has made, or found empty, is marked as the job's: all in it is the job's, and
none of it is code. In any other folder only files that an earlier pull has written, and nobody has
changed since, are replaced; dray keeps a list of them among its own files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dray.errors import UsageError
from dray.landing import OUTPUTS_MARK, Landing, Stamp
from dray.node.code.packs import hash_of
from dray.node.formats import files
from dray.records import NamedTuple

LONGEST_MARK = 200


class Pulled(NamedTuple):
    """``left`` are files that were not brought, because they could do harm here."""

    folder: Path
    copied: int
    files: int  # in all
    size: int  # bytes copied
    left: tuple[str, ...]


def mark_outputs(landing: Landing, job_id: str) -> bool:
    """Return whether the folder is this job's alone; an empty one becomes so."""
    found = landing.read(OUTPUTS_MARK, LONGEST_MARK)
    if found is not None:
        marked = found.decode("utf-8", "replace").strip()
        if marked != job_id:
            raise UsageError(
                f"{landing.folder} holds the outputs of {marked}",
                hint="Choose another folder: dray pull JOB FOLDER",
            )
        return True
    if any(landing.folder.iterdir()):
        return False
    files.write_bytes(str(landing.folder / OUTPUTS_MARK), f"{job_id}\n".encode(), durable=False)
    return True


class Receipts:
    """The files that earlier pulls have written into one folder."""

    def __init__(self, data: Path, folder: Path) -> None:
        self._file = data / "pulled" / hash_of(os.fsencode(folder.resolve()))
        self._known: Mapping[str, list[object]] | None = None
        self.all_is_ours = False

    def owns(self, path: str, stamp: Stamp) -> bool:
        """Return whether the file that is there may be replaced."""
        return self.all_is_ours or self.known().get(path) == list(stamp)

    def known(self) -> Mapping[str, list[object]]:
        if self._known is None:
            found = files.read_json(str(self._file))
            self._known = found if isinstance(found, dict) else {}
        return self._known

    def add(self, placed: Mapping[str, Stamp]) -> None:
        if placed:
            files.make_folder(str(self._file.parent))
            added = {path: list(stamp) for path, stamp in placed.items()}
            files.write_json(str(self._file), {**self.known(), **added}, durable=False)
