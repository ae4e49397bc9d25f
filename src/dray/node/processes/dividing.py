"""Divides what a job has on its node among the commands, or the jobs, that share it. Pure."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Sequence

GPUS = "CUDA_VISIBLE_DEVICES"


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


def divide_cpus(usable: "Iterable[int]", own: "Optional[int]", many: int) -> "List[List[int]]":
    """Return the CPUs of each of so many; of each none where they stay together. ``usable`` are
    those that a process may run on, ``own`` is how many of them the job has: where these differ,
    others use the same ones, and nobody can tell which are whose."""
    cpus = sorted(usable)
    number = len(cpus)
    if number != own or number < many:
        return [[] for _ in range(many)]
    return [cpus[n * number // many : (n + 1) * number // many] for n in range(many)]
