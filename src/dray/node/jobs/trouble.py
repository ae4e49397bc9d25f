"""Trouble of a node: what keeps an attempt from starting and is the fault of neither the command
nor dray. A disk is full, a file server does not answer, no memory is left. It may pass, and another
node may not have it."""

import errno
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, TypeVar

    from ..formats.records import Outcome

    T = TypeVar("T")

CAUSE = "node"  # of an attempt that was interrupted by it
LOST = "lost node"  # of one that has lost a node, or is about to
ERRORS = (
    errno.EAGAIN,
    errno.EBUSY,
    errno.EDQUOT,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.EMFILE,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENODEV,
    errno.ENOLCK,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.ENOTCONN,
    errno.ENXIO,
    errno.EREMOTEIO,
    errno.EROFS,
    errno.ESHUTDOWN,
    errno.ESTALE,
    errno.ETIMEDOUT,
)
PATIENCE = 60.0  # seconds to wait for a disk that is full, or away, for a moment


def is_of_node(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in ERRORS


def interruption(reason: str) -> "Outcome":
    """Return the outcome of an attempt that the node did not let start."""
    return {
        "outcome": "interrupted",
        "cause": CAUSE,
        "reason": reason,
        "exit_code": None,
        "signal": None,
    }


def with_retries(act: "Callable[[], T]", patience: float = PATIENCE) -> "T":
    """Call ``act`` and return its result. Try again while the node has trouble that may pass in a
    moment."""
    until = time.monotonic() + patience
    while True:
        try:
            return act()
        except OSError as error:
            if not is_of_node(error) or time.monotonic() > until:
                raise
            time.sleep(1.0)
