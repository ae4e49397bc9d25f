"""The commands of sessions, by which they are known from jobs. Pure, and quick to import.

That of a session for shells only waits, and is a loop of a shell: an image need not have a Python.
"""

from ..processes.environment import RUN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Sequence

NAME = "dray-session"  # of the command that waits
NEVER = "never"
OVER = "session-over"  # the file that ends it, which says why
LAB = ("-m", "dray_node", "lab")  # the module is on the path of every Python in a job

SCRIPT = """\
over="${DRAY_OUTPUTS%/*}/attempts/$(printf %03d "$DRAY_ATTEMPT")/NAME"
if [ -n "$DRAY_CONTAINER" ]; then over=RUN/NAME; fi
until [ -e "$over" ]; do sleep 1; done
while IFS= read -r line; do printf '%s\\n' "$line"; done <"$over"
""".replace("NAME", OVER).replace("RUN", RUN)


def command_of_session(idle: "Optional[float]") -> "List[str]":
    """Return the command of a session that ends after so many seconds without use; None: never."""
    return ["/bin/sh", "-c", SCRIPT, NAME, NEVER if idle is None else "{:g}".format(idle)]


def is_held(words: "Sequence[str]") -> bool:
    """Return whether this is the command of a session for shells."""
    return len(words) > 4 and tuple(words[:2]) == ("/bin/sh", "-c") and words[3] == NAME


def idle_of(words: "Sequence[str]") -> "Optional[float]":
    """Return after how many seconds without use the session ends; None for never."""
    try:
        return None if words[4] == NEVER else max(float(words[4]), 0.0)
    except ValueError:
        return 0.0


def lab_at(words: "Sequence[str]") -> int:
    """Return where in a job's command the word ``lab`` is; 0 where it is no notebook server."""
    places = range(1, len(words) - len(LAB) + 1)
    found = (at for at in places if tuple(words[at : at + len(LAB)]) == LAB)
    return next(found, 1 - len(LAB)) + len(LAB) - 1


def is_session(words: "Sequence[str]") -> bool:
    """Return whether people work beside this command; any other one is a job's own."""
    return is_held(words) or lab_at(words) > 0
