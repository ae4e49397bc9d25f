"""Tells why a command did not start, and whether trying again may help."""

from ..checkpoints import origin
from ..code import inputs, worktree
from ..jobs import trouble
from ..processes import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..formats.records import Outcome

FAILURES = (
    origin.NothingToGoOnFrom,
    inputs.Missing,
    worktree.CannotPrepare,
    process.CannotContain,
    process.CannotStart,
    OSError,
)


def why_not_started(error: Exception) -> "Outcome":
    """Return the outcome of an attempt whose command did not start. Trouble of the node is not a
    failure of the command. What another attempt would meet again, such as a damaged pack or a
    missing program, is hopeless."""
    reason = str(error)
    if isinstance(error, worktree.CannotPrepare):
        reason = "no work tree: " + reason
    if getattr(error, "of_node", False) or trouble.is_of_node(error):
        return trouble.interruption("its node could not start it: " + reason)
    missing = isinstance(error, process.CannotStart)
    return {
        "outcome": "failed",
        "reason": reason,
        "exit_code": 127 if missing else None,
        "signal": None,
        "hopeless": missing or getattr(error, "permanent", False),
    }
