"""Named moments at which the fault suite kills the process, as a power cut would.

``DRAY_FAULT=<moment>`` makes the process that reaches it end by SIGKILL; without that variable
nothing happens. Every moment is listed here, so that the suite can go through all of them.
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


def reach(moment: str) -> None:
    if os.environ.get("DRAY_FAULT") == moment:
        os.kill(os.getpid(), signal.SIGKILL)


def requested() -> "Dict[str, str]":
    """What a child needs in its environment to meet the same fate."""
    moment = os.environ.get("DRAY_FAULT")
    return {"DRAY_FAULT": moment} if moment else {}
