"""Five thousand schedules, the same world by Hypothesis, and that they find faults at all."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from dray.clusters.kube import api, lost_nodes
from dray.node.agent import agent, jobs, status
from dray.node.attempt import keeper, loop, outcomes, pod, task
from dray.node.formats import files
from dray.node.jobs import jobdir, policy, states
from dray.node.schedulers import queue
from tests.simulation import schedule, truth
from tests.simulation.batch_kinds import BatchKind
from tests.simulation.kinds import KINDS
from tests.simulation.machine import Cluster
from tests.simulation.schedule import play
from tests.simulation.truth import KNOWN

pytestmark = pytest.mark.simulation

SCHEDULES = 5_000  # make simulate FIRST=5000 MINUTES=60 goes on from there
SHARING_SCHEDULES = 500  # of trials that share batch jobs
BLOCK = 250
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        *(("", first) for first in range(0, SCHEDULES, BLOCK)),
        *(("per-node", first) for first in range(0, SHARING_SCHEDULES, BLOCK)),
    ],
)
def test_no_schedule_violates_an_invariant(kind: str, first: int) -> None:
    words = [sys.executable, "-m", "tests.simulation", f"--first={first}", f"--count={BLOCK}"]
    words += [f"--kind={kind}"] if kind else []
    ended = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_invariant_is_looked_at() -> None:
    assert KNOWN == ()


@pytest.mark.parametrize("kind", sorted(set(schedule.KINDS)))
def test_the_same_seed_does_the_same(kind: str) -> None:
    seed = next(seed for seed in range(100) if kind_of(seed) == kind)
    assert traced(seed) == traced(seed)


def kind_of(seed: int) -> str:
    from random import Random

    return Random(seed).choice(schedule.KINDS)


def traced(seed: int) -> list[str]:
    lines: list[str] = []
    play(seed, lines.append)
    # Names that are made from the folder, which is another one each time.
    return [re.sub(r"dray-agent-\w+|%3D\w{16}|dray-simulation-.*", "", line) for line in lines]


def test_hypothesis_finds_no_violation() -> None:
    run_state_machine_as_test(
        Cluster,
        settings=settings(
            max_examples=500,
            stateful_step_count=25,
            derandomize=True,  # new schedules are looked for by make simulate
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# -- that it finds what is wrong ------------------------------------------------------------------


def keep_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """No end removes them."""
    real = files.remove

    def remove(path: str) -> None:
        if not path.endswith("secrets.json"):
            real(path)

    monkeypatch.setattr(files, "remove", remove)


def drop_secrets_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at a job removes them."""
    real = status.status_of

    def status_of(one: Any, job_dir: Any, queued: Any) -> Any:
        files.remove(job_dir.secrets)
        return real(one, job_dir, queued)

    monkeypatch.setattr(status, "status_of", status_of)


def submit_on_every_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether an earlier try was queued."""
    monkeypatch.setattr(agent.Agent, "already_queued", lambda self, job: None)
    monkeypatch.setattr(jobdir.JobDir, "known_number", lambda self: None)


def lock_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batch jobs of a job may run at once, and a retry submits again."""
    monkeypatch.setattr(files, "try_lock", lambda fd, shared=False: True)
    submit_on_every_retry(monkeypatch)


def forget_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A done attempt counts as interrupted."""
    real = policy.decide

    def decide(job: Any, attempts: Any) -> Any:
        changed = [
            dict(one, outcome="interrupted") if one["outcome"] == "done" else one
            for one in attempts
        ]
        return real(job, changed)

    monkeypatch.setattr(policy, "decide", decide)


def retry_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "after_crash", lambda job, attempts: policy.Decision())


def forget_the_total_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobdir.budget, "left", lambda job, attempts: None)


def lie_about_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash is written down as success."""
    real = files.write_json

    def write_json(path: str, value: Any, durable: bool = True) -> None:
        if path.endswith("outcome.json") and value.get("outcome") == "failed":
            value = dict(value, outcome="done", exit_code=0)
        real(path, value, durable)

    monkeypatch.setattr(files, "write_json", write_json)


def forget_running_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is read as if it were empty."""
    for kind in KINDS.values():
        if issubclass(kind, BatchKind):
            monkeypatch.setattr(kind.scheduler, "parse_queue", lambda self, text: {})
    monkeypatch.setattr(states.FileFacts, "is_beating", False)


def lose_what_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a job that has ended is removed with its end."""
    real = outcomes.end_job

    def end_job(job_dir: Any, end: Any) -> None:
        real(job_dir, end)
        files.remove_tree(job_dir.path)

    monkeypatch.setattr(loop, "end_job", end_job)


def remove_only_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "remove_tree", lambda path: [])


def leave_locks_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.Lock, "__exit__", lambda self, *details: None)


def never_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumption is answered, and nothing is submitted."""
    monkeypatch.setitem(agent.VERBS, "resume", lambda one, request: {"scheduler_id": "1"})


def trust_any_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Job in place of another takes the Secret of that for its own, which goes with the other."""
    monkeypatch.setattr(api.Cluster, "_has_secret", lambda self, described: True)


def leave_lost_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes a pod of a dead node out of Kubernetes."""
    monkeypatch.setattr(lost_nodes, "give_up", lambda cluster, pods: None)


def end_pods_as_if_nothing_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that is told to end says that its job is done."""
    monkeypatch.setattr(pod, "INTERRUPTED", 0)


def count_no_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is always free."""
    monkeypatch.setattr(queue.Queue, "granted", lambda self: [])


def stay_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticket is kept by whoever has got a grant."""
    monkeypatch.setattr(queue.Queue, "leave", lambda self, ticket: None)


def let_the_job_end_with_its_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor whose keeper is gone holds the lock, and does not go on."""
    monkeypatch.setattr(keeper.Keeper, "keep", stuck(keeper.Keeper.keep))


def stuck(real: Callable[[Any], None]) -> Callable[[Any], None]:
    def keep(one: Any) -> None:
        if one.grant is not None:
            time.sleep(1e6)
        real(one)

    return keep


def leave_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial whose process was killed goes on beside the command that this has left."""
    monkeypatch.setattr(task.Task, "_clear_after", lambda *_: True)


def begin_sweeps_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep is written down before it is one's turn: who was refused may withdraw it."""
    real = jobs.snapshots.stage

    def stage(one: Any, request: Any) -> Any:
        missing = real(one, request)
        if not missing and request.get("study"):
            one.root.begin_sweep(request["study"], request["part"])
        return missing

    monkeypatch.setattr(jobs.snapshots, "stage", stage)
    monkeypatch.setattr(jobs, "begin_sweep", lambda *_: None)


Plant = Callable[[pytest.MonkeyPatch], None]
ANY = ""
PLANTED_ON: list[tuple[str, Plant, set[str]]] = [
    ("kubernetes", trust_any_secret, {truth.ENDS, truth.RESUMES}),
    ("kubernetes", leave_lost_pods, {truth.ENDS}),
    ("kubernetes", end_pods_as_if_nothing_was, {truth.HAPPENED}),
    ("ssh", count_no_grants, {truth.GPU_TWICE}),
    ("ssh", stay_in_line, {truth.ENDS}),
    ("ssh", let_the_job_end_with_its_keeper, {truth.ENDS}),
    ("shared", stay_in_line, {truth.ENDS}),
    ("per-node", leave_what_is_left, {truth.AT_ONCE}),
    ("per-node", begin_sweeps_early, {truth.HAPPENED}),
]
PLANTED: list[tuple[Plant, set[str]]] = [
    (keep_secrets, {truth.SECRET_LEFT}),
    (drop_secrets_early, {truth.SECRET_MISSING}),
    (submit_on_every_retry, {truth.DOUBLED}),
    (lock_nothing, {truth.AT_ONCE}),
    (forget_the_end, {truth.AGAIN}),
    (retry_forever, {truth.RETRIES}),
    (forget_the_total_time, {truth.BUDGET}),
    (lie_about_the_end, {truth.HAPPENED}),
    (forget_running_jobs, {truth.STILL_RUNS}),
    (lose_what_was_accepted, {truth.GONE}),
    (remove_only_the_end, {truth.LEFT}),
    (leave_locks_open, {truth.LEAK}),
    (never_come_back, {truth.RESUMES}),
]
SOON = 400  # schedules
ALL_PLANTED = [*((ANY, *one) for one in PLANTED), *PLANTED_ON]


@pytest.mark.parametrize(
    ("kind", "plant", "expected"),
    ALL_PLANTED,
    ids=["-".join(filter(None, (kind, plant.__name__))) for kind, plant, _ in ALL_PLANTED],
)
def test_a_planted_fault_is_found(
    kind: str, plant: Plant, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(SOON):
        found = {violation.invariant for violation in play(seed, only=kind).violations}
        if found & expected:
            return
    pytest.fail(f"not found within {SOON} schedules")


def test_every_call_is_as_it_was_afterwards() -> None:
    import builtins
    import os
    import time

    before = (os.open, os.replace, time.time, builtins.open, agent.Agent.serve)
    play(0)
    assert before == (os.open, os.replace, time.time, builtins.open, agent.Agent.serve)
