"""Tells what commands that are started together know of each other, and whose end is the job's.
Pure."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Sequence

PEER = "DRAY_PEER_"
HERE = "127.0.0.1"  # all of them are on one machine


def peers(names: "Sequence[str]") -> "Dict[str, str]":
    """Return the variables by which commands that are started together find each other."""
    return {PEER + name.upper().replace("-", "_").replace(".", "_"): HERE for name in names}


def exit_code(codes: "Dict[str, int]", lead: str) -> int:
    """Return the code for all: the lead's, else that of the first to fail. ``codes`` are in the
    order in which they have ended."""
    if lead in codes:
        return codes[lead]
    return next((code for code in codes.values() if code), 0)
