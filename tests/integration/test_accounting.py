"""Slurm that keeps books: how a batch job ended that could not say it itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc, started, wait_for
from tests.contract.test_contract import python
from tests.integration.test_slurm import ON, far, field, scheduler_id  # noqa: F401
from tests.rigs.host import Host

pytestmark = pytest.mark.slurm

NOT_FINAL = ("", "PENDING", "RUNNING", "COMPLETING")


@pytest.fixture(scope="module")
def hpc(cluster_host: Host, rig_folder: Path) -> Iterator[Hpc]:
    yield from started(rig_folder / "books", cluster_host, accounting=True)


def in_the_books(hpc: Hpc, number: str) -> str:
    """The state once it is final: the books are a moment late."""
    words = ("sacct", "-nPX", "--format=State", "--jobs", number)
    final = wait_for(lambda: (now := hpc.slurm.call(*words).strip()) not in NOT_FINAL and now)
    return str(final)


def test_who_cancelled_it(far: Dray, hpc: Hpc) -> None:  # noqa: F811
    hpc.offer(far, extra=["--hold"])
    job = far.run(*ON, *python("pass"))
    hpc.slurm.call("scancel", scheduler_id(far, job))
    assert in_the_books(hpc, scheduler_id(far, job)).startswith("CANCELLED by")
    shown = far.wait(job)
    reason = f"cancelled in Slurm by {hpc.host.user} before it ran"
    assert (shown["state"], shown["reason"]) == ("stopped", reason)


def test_a_batch_script_that_fails_before_the_attempt(far: Dray, hpc: Hpc) -> None:  # noqa: F811
    hpc.offer(far, setup=["echo no licence", "exit 9"])
    job = far.run(*ON, *python("pass"))
    assert in_the_books(hpc, scheduler_id(far, job)) == "FAILED"
    shown = far.wait(job)
    assert shown["state"] == "failed"
    assert shown["reason"] == "its batch script ended with exit code 9 before it ran: no licence"


def test_a_node_that_fails_for_good(far: Dray, hpc: Hpc) -> None:  # noqa: F811
    hpc.offer(far, setup=["sleep 60"], extra=["--no-requeue"])
    job = far.run(*ON, *python("pass"))
    number = scheduler_id(far, job)
    wait_for(lambda: field(hpc, number, "JobState") == "RUNNING")
    node = f"NodeName={field(hpc, number, 'NodeList')}"
    hpc.slurm.call("scontrol", "update", node, "State=DOWN", "Reason=test")  # back by itself, soon
    assert in_the_books(hpc, number) == "NODE_FAIL"
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("lost", "its node failed before it ran")


def test_one_query_for_any_number_of_jobs(far: Dray, hpc: Hpc, tmp_path: Path) -> None:  # noqa: F811
    queries = tmp_path / "queries"
    for name, script in (
        ("sacct", f'echo "$@" >> {queries}; exec /usr/bin/sacct "$@"'),
        ("python", f'PATH={tmp_path}:$PATH exec python3 "$@"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    hpc.offer(far, extra=["--hold"], python=str(tmp_path / "python"))
    jobs = [far.run(*ON, *python("pass")) for _ in range(3)]
    numbers = [scheduler_id(far, job) for job in jobs]
    hpc.slurm.call("scancel", *numbers)
    for number in numbers:
        in_the_books(hpc, number)
    far("ps")
    (query,) = queries.read_text().splitlines()
    assert query.endswith(",".join(sorted(numbers)))
    assert {far.show(job)["state"] for job in jobs} == {"stopped"}
