"""Divides a job among the commands in it. Pure."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

GPUS = "CUDA_VISIBLE_DEVICES"
PEER = "DRAY_PEER_"
HERE = "127.0.0.1"  # all of them are on one machine


def divide_gpus(visible: "Sequence[str]", wanted: "Sequence[Optional[int]]") -> "List[List[str]]":
    """Return the GPUs of each command. Those that say how many they want get them in order; where
    none does, the GPUs are divided evenly, and of too few each is shared."""
    if any(one is not None for one in wanted):
        found, start = [], 0
        for one in wanted:
            found.append(list(visible[start : start + (one or 0)]))
            start += one or 0
        return found
    many, number = len(wanted), len(visible)
    if number >= many:
        return [list(visible[n * number // many : (n + 1) * number // many]) for n in range(many)]
    return [[visible[n % number]] if visible else [] for n in range(many)]


def visible_gpus(env: "Dict[str, str]") -> "Optional[List[str]]":
    """Return the GPUs that the job has; None where it does not say which."""
    found = env.get(GPUS)
    return None if found is None else [one for one in found.split(",") if one]


def peers(names: "Sequence[str]") -> "Dict[str, str]":
    """Return the variables by which commands that are started together find each other."""
    return {PEER + name.upper().replace("-", "_").replace(".", "_"): HERE for name in names}


def exit_code(codes: "Dict[str, int]", lead: str) -> int:
    """Return the code for all: the lead's, else that of the first to fail. ``codes`` are in the
    order in which they have ended."""
    if lead in codes:
        return codes[lead]
    return next((code for code in codes.values() if code), 0)
