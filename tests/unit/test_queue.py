"""Resources are handed out as asked for, and never twice."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.jobs.jobdir import JobDir
from dray.node.schedulers.local import Local
from dray.node.schedulers.queue import EPSILON, NeverFits, Queue, allot, pick_gpus, shortage

Record = dict[str, Any]


def wish(gpus: float = 0.0, cpus: int = 1, memory: int | None = None) -> Record:
    return {"gpus": gpus, "cpus": cpus, "memory": memory}


def holds(*gpus: int, share: float = 1.0, cpus: int = 0, memory: int | None = None) -> Record:
    return {"gpus": list(gpus), "share": share, "cpus": cpus, "memory": memory}


MACHINE = {"cpus": 8, "gpus": 2, "memory": 1000}


@pytest.mark.parametrize(
    ("granted", "wanted", "given"),
    [
        ([], 0, []),
        ([], 1, [0]),
        ([], 2, [0, 1]),
        ([holds(0)], 1, [1]),
        ([holds(1)], 1, [0]),
        ([holds(0)], 2, None),
        ([holds(0, 1)], 1, None),
        ([holds(0, 1)], 0, []),
        # fractions go together, so that whole GPUs stay free
        ([], 0.5, [0]),
        ([holds(1, share=0.5)], 0.5, [1]),
        ([holds(1, share=0.5)], 0.6, [0]),
        ([holds(0, share=0.25), holds(1, share=0.5)], 0.5, [1]),
        ([holds(0, share=0.5), holds(1, share=0.75)], 0.5, [0]),
        ([holds(0, share=0.6), holds(1, share=0.6)], 0.5, None),
        ([holds(0), holds(1, share=0.9)], 0.2, None),
        # a shared GPU is not a whole one
        ([holds(0, share=0.1)], 1, [1]),
        ([holds(0, share=0.1)], 2, None),
        # three thirds are one, whatever floats make of it
        ([holds(1), holds(0, share=1 / 3), holds(0, share=1 / 3)], 1 / 3, [0]),
        # a grant of a machine that once had more
        ([holds(5)], 2, [0, 1]),
    ],
)
def test_gpus(granted: list[Record], wanted: float, given: list[int] | None) -> None:
    assert pick_gpus(2, granted, wanted) == given


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (wish(gpus=3), "3 GPUs asked for, this machine has 2"),
        (wish(cpus=9), "more cpus asked for than this machine has"),
        (wish(memory=1001), "more memory asked for than this machine has"),
    ],
)
def test_what_never_fits_is_not_waited_for(wanted: Record, message: str) -> None:
    with pytest.raises(NeverFits, match=message):
        allot(MACHINE, [], wanted)


def test_no_fraction_without_a_gpu() -> None:
    with pytest.raises(NeverFits, match=r"0\.5 GPUs asked for, this machine has 0"):
        allot({"cpus": 8, "gpus": 0, "memory": None}, [], wish(gpus=0.5))


@pytest.mark.parametrize(
    ("granted", "wanted", "fits"),
    [
        ([holds(cpus=4)], wish(cpus=4), True),
        ([holds(cpus=4)], wish(cpus=5), False),
        ([holds(memory=600)], wish(memory=400), True),
        ([holds(memory=600)], wish(memory=401), False),
        ([holds(memory=None)], wish(memory=1000), True),
        ([holds(memory=1000)], wish(memory=None), True),
        ([holds(0, 1)], wish(gpus=0.5), False),
    ],
)
def test_what_is_held_is_not_given_again(granted: list[Record], wanted: Record, fits: bool) -> None:
    assert (allot(MACHINE, granted, wanted) is not None) is fits


def test_what_is_given_is_written_down() -> None:
    assert allot(MACHINE, [], wish(gpus=2, cpus=3, memory=7)) == holds(0, 1, cpus=3, memory=7)
    assert allot(MACHINE, [], wish(gpus=0.5)) == holds(0, share=0.5, cpus=1)


def test_a_machine_that_says_nothing_of_its_memory_does_not_count_it() -> None:
    assert allot({"cpus": 1, "gpus": 0, "memory": None}, [], wish(memory=2**60)) is not None


WISHES = st.builds(
    wish,
    st.sampled_from([0.0, 0.01, 0.1, 0.25, 1 / 3, 0.5, 0.9, 1.0, 2.0, 3.0]),
    st.integers(1, 4),
    st.none() | st.integers(1, 500),
)
# A job comes, or (False) the oldest one that still runs goes.
STORIES = st.lists(WISHES | st.just(False), max_size=60)


@given(st.integers(0, 4), STORIES)
def test_nothing_is_ever_given_twice(gpus: int, story: list[Record | bool]) -> None:
    machine = {"cpus": 6, "gpus": gpus, "memory": 1000}
    granted: list[Record] = []
    for step in story:
        if isinstance(step, bool):
            granted = granted[1:]
            continue
        try:
            given = allot(machine, granted, step)
        except NeverFits:
            assert step["gpus"] > gpus
            continue
        if given is not None:
            granted.append(given)
            check_given(step, given)
        check_machine(machine, granted)


def check_given(wanted: Record, given: Record) -> None:
    whole = int(wanted["gpus"]) if wanted["gpus"] >= 1 else (1 if wanted["gpus"] else 0)
    assert len(set(given["gpus"])) == len(given["gpus"]) == whole
    assert given["share"] == (wanted["gpus"] if wanted["gpus"] < 1 else 1.0)


def check_machine(machine: Record, granted: list[Record]) -> None:
    for index in range(machine["gpus"]):
        holders = [one for one in granted if index in one["gpus"]]
        assert sum(one["share"] for one in holders) <= 1 + EPSILON
        assert len(holders) == 1 or all(one["share"] < 1 for one in holders)
    assert all(0 <= index < machine["gpus"] for one in granted for index in one["gpus"])
    assert sum(one["cpus"] for one in granted) <= machine["cpus"]
    assert sum(one["memory"] or 0 for one in granted) <= machine["memory"]


@pytest.mark.parametrize(
    ("held", "wanted", "told"),
    [
        ({}, wish(gpus=1, cpus=8), ""),
        ({"a": holds(0, 1)}, wish(), ""),
        ({"a": holds(0, 1)}, wish(gpus=1), "waiting for 1 GPU: 2 of 2 taken by a"),
        ({"a": holds(0, share=0.5)}, wish(gpus=2), "waiting for 2 GPUs: 0.5 of 2 taken by a"),
        (
            {"a": holds(cpus=4), "b": holds(cpus=3), "c": holds(0)},
            wish(cpus=2),
            "waiting for 2 CPUs: 7 of 8 taken by a, b",
        ),
        (
            {f"j{n}": holds(cpus=1) for n in range(8)},
            wish(cpus=1),
            "waiting for 1 CPU: 8 of 8 taken by j0, j1, j2, and 5 more",
        ),
        ({}, wish(cpus=9), "more cpus asked for than this machine has"),
    ],
)
def test_what_a_job_waits_for_is_told(held: dict[str, Record], wanted: Record, told: str) -> None:
    assert shortage(MACHINE, held, wanted) == told


def test_memory_that_is_waited_for_is_told_in_gigabytes() -> None:
    machine = {"cpus": 8, "gpus": 0, "memory": 4 << 30}
    told = shortage(machine, {"a": holds(memory=3 << 30)}, wish(memory=2 << 30))
    assert told == "waiting for 2.0 GB of memory: 3 of 4 taken by a"


# -- a disk that fails ----------------------------------------------------------------------------


def open_below(folder: Path) -> list[str]:
    """What this process has open there: a lock would last as long."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # that of the listing itself
            continue
        if path.startswith(str(folder)):
            found.append(path)
    return found


def fail_on(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Let no file below such a path be locked."""
    real = fcntl.flock

    def flock(fd: int, how: int) -> None:
        if part in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, "Input/output error")
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_ticket_that_cannot_be_locked_is_not_kept_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent goes on for long: those behind it would wait for that."""
    queue = Queue(str(tmp_path))
    queue.make()
    fail_on(monkeypatch, "/tickets/")
    with pytest.raises(OSError, match="Input/output error"):
        queue.take_ticket("walk-7f3k", {"gpus": 0, "cpus": 1, "memory": None})
    assert open_below(tmp_path) == []


def test_a_job_that_cannot_be_taken_over_is_not_kept_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_dir = JobDir(str(tmp_path / "jobs/walk-7f3k"))
    os.makedirs(job_dir.path)
    fail_on(monkeypatch, "/alive")
    with pytest.raises(OSError, match="Input/output error"):
        Local(str(tmp_path)).submit(job_dir.script)
    assert open_below(tmp_path) == []
