"""The error tree. Each family has an exit code; each error says what happened and what to do.

    DrayError
    ├── UsageError         2   a flag or argument that cannot be used
    │   └── ConfigError    2   a setting in a file: names file, line and key
    ├── NotFound           3   no such job, cluster, attempt
    ├── Refused            4   the cluster cannot do what the job asks for
    ├── SnapshotError      5   the code could not be frozen
    ├── StoreError         6   dray's own database
    ├── ClusterError       7   the cluster did not answer as it should
    ├── StorageError       8   no space, no permission, read-only
    └── TimedOut           9   ``wait --timeout`` ran out

Exit code 1 is kept for "the job failed" (``wait``, ``run --follow``), 130 for Ctrl-C.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable


class DrayError(Exception):
    """Something dray can explain. ``hint`` is what to do; ``transient`` says a retry may help."""

    exit_code = 7
    transient = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(DrayError):
    """A flag or argument that cannot be used."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting that cannot be used: file, line and key are named."""


class NotFound(DrayError):
    """No such job, cluster or attempt."""

    exit_code = 3


class Refused(DrayError):
    """What is asked for cannot be done: more GPUs than there are, a command that is missing."""

    exit_code = 4


class ImageMissing(Refused):
    """The cluster does not have the job's image, nor is it being made."""


class SnapshotError(DrayError):
    """The code could not be frozen."""

    exit_code = 5


class StoreError(DrayError):
    """dray's own database cannot be used."""

    exit_code = 6


class StoreBusy(StoreError):
    """Another process holds the database."""

    transient = True


class ClusterError(DrayError):
    """The cluster did not answer as it should."""

    exit_code = 7


class LoginNeeded(ClusterError):
    """The cluster answers only somebody who can be asked for a password, and nobody may be."""


class StorageError(DrayError):
    """No space, no permission, or a read-only file system."""

    exit_code = 8


class TimedOut(DrayError):
    """``wait --timeout`` ran out."""

    exit_code = 9
    transient = True


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` or nothing, to be appended to a sentence."""
    import difflib  # only for a mistake

    found = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f" Did you mean '{found[0]}'?" if found else ""


NOT_ALLOWED = (
    "You may not write there: check the owner, or set another root for the cluster, or DRAY_HOME."
)
STORAGE_HINTS = {
    errno.ENOSPC: "The disk is full: free some space (dray rm removes old jobs) and try again.",
    errno.EDQUOT: "Your disk quota is used up: free some space (dray rm removes old jobs).",
    errno.EROFS: "The file system is read-only: set another root for the cluster, or DRAY_HOME.",
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
}


def from_os_error(error: OSError) -> DrayError:
    """Turn an error of the operating system into a sentence with a way out."""
    where = error.filename if isinstance(error.filename, str) else ""
    text = f"{error.strerror or error}{f': {where}' if where else ''}"
    hint = STORAGE_HINTS.get(error.errno or 0)
    return StorageError(text, hint=hint) if hint else ClusterError(text)
