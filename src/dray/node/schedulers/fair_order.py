"""Everybody's first GPU before anybody's second: the order of a lab that shares GPUs.

For each owner, jobs by priority and then by age take that person's first, second, … GPU. A job's
rank is the number of the first GPU that it takes; of two with the same rank, the one that takes
fewer comes first, then the older one. Pure, and in the order that it is given jobs of equal age.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence, Tuple

    # owner, priority (the higher, the earlier), time at which it came, GPUs
    Job = Tuple[str, float, float, float]
    Taking = Tuple[str, float, float]  # owner, time at which it came, GPUs

NAME = "fair-gpu"
RUNS = 1.0  # the priority of those that run


def ranks(jobs: "Sequence[Job]") -> "List[Tuple[int, int]]":
    """Return (rank, index of the job), in the order in which jobs are to have GPUs. A job that asks
    for none takes nobody's place, and has rank 0."""
    taken = {}  # type: dict[str, float]
    found = []
    for index in sorted(range(len(jobs)), key=lambda at: (-jobs[at][1], jobs[at][2], at)):
        owner, _, came, gpus = jobs[index]
        first = taken.get(owner, 0.0)
        taken[owner] = first + gpus
        rank = int(first) + 1 if gpus else 0
        found.append(((rank, first + gpus, came, index), rank, index))
    return [(rank, index) for _, rank, index in sorted(found)]


def is_agreed(orders: "Sequence[object]") -> bool:
    """Return whether all who wait go by this rule. Whoever does not know it, or has not chosen it,
    goes by age, and all have to go by the same: else two could wait for each other."""
    return bool(orders) and all(one == NAME for one in orders)


def line(running: "Sequence[Taking]", waiting: "Sequence[Taking]") -> "List[int]":
    """Return the indices of those that wait, in the order in which they are to have GPUs. Those
    that run keep theirs, which count as their owners' first ones."""
    jobs = [(owner, RUNS, 0.0, gpus) for owner, _, gpus in running]
    jobs += [(owner, 0.0, came, gpus) for owner, came, gpus in waiting]
    before = len(running)
    return [index - before for _, index in ranks(jobs) if index >= before]


def fitting(order: "Sequence[float]", gpus: float) -> int:
    """Return how many of these amounts, from the first on, the GPUs suffice for."""
    used = 0.0
    for place, amount in enumerate(order):
        used += amount
        if used > gpus + 1e-6:
            return place
    return len(order)
