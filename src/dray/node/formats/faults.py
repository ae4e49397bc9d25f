"""Named moments at which the fault suite kills the process, as a power cut would.

``DRAY_FAULT=<moment>@<file>`` makes the first process that reaches it end by SIGKILL; the file
records that it happened, so that it happens once. Without that variable nothing happens. Every
moment is listed here, so that the suite can go through all of them.
"""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

MOMENTS = (
    "run:intent-stored",
    "run:packs-written",
    "run:job-committed",
    "run:keeper-started",
    "keeper:started",
    "keeper:granted",
    "keeper:attempt-ended",
    "keeper:before-end",
    "supervisor:started",
    "supervisor:unpacked",
    "supervisor:command-started",
    "supervisor:command-ended",
    "supervisor:outcome-written",
)

# Of a batch job that several jobs share, between the ends of these and its own.
TASK_MOMENTS = ("task:members-ended", "task:queued-again")

# On Kubernetes, where the laptop creates the Job once the job's directory is there.
KUBERNETES_MOMENTS = ("run:directory-sent", "run:job-created")


def reach(moment: str) -> None:
    wanted, _, token = os.environ.get("DRAY_FAULT", "").partition("@")
    if wanted != moment:
        return
    try:
        os.close(os.open(token, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def requested() -> "Dict[str, str]":
    """Return the variables that a child needs to be killed at the same moment."""
    moment = os.environ.get("DRAY_FAULT")
    return {"DRAY_FAULT": moment} if moment else {}
