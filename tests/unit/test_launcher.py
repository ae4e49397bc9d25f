"""The verbs over clusters that are only in memory: what they do where one fails, hangs or lies."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dray import background
from dray.api import parse_settings
from dray.clusters.protocol import Cluster
from dray.errors import ClusterError, NotFound, Refused, TimedOut
from dray.job.model import DESCRIPTION_VERSION, JobSpec, JobState, Plan
from dray.launcher import JobFilter, Launcher
from dray.launcher.asking import ask_each
from dray.testing import FakeCluster, Trouble, launcher

TRAIN = ["python", "train.py"]


@pytest.fixture
def hpc() -> FakeCluster:
    return FakeCluster("hpc")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def verbs(tmp_path: Path, hpc: FakeCluster, said: list[str]) -> Launcher:
    return launcher(tmp_path, hpc, say=said.append)


def run(verbs: Launcher) -> str:
    return verbs.run(TRAIN, snapshot=False)


def listed(verbs: Launcher, **which: Any) -> dict[str, str]:
    return {row.id: row.state for row in verbs.listing(**which).rows}


def a_fake(name: str) -> Cluster:
    return FakeCluster(name)  # the type checker sees that it is one


# -- submitting -----------------------------------------------------------------------------------


def test_a_job_from_its_submission_to_its_end(verbs: Launcher, hpc: FakeCluster) -> None:
    job = run(verbs)
    assert verbs.show(job).state == "queued"
    hpc.start(job)
    assert listed(verbs) == {job: "running"}
    hpc.end(job, "failed", exit_code=3)
    ended = verbs.wait(job)
    assert (ended.state, ended.reason, len(ended.attempts)) == ("failed", "exit code 3", 1)


def test_the_code_comes_with_the_job(verbs: Launcher, hpc: FakeCluster) -> None:
    (verbs.config.project / "train.py").write_text("print(1)")
    job = verbs.run(TRAIN)
    assert hpc.jobs[job].spec.snapshot in hpc.snapshots
    plan, code = verbs.plan(TRAIN)
    assert code is not None
    assert plan.job.snapshot == code.id == hpc.jobs[job].spec.snapshot


def test_what_a_cluster_cannot_give_is_refused_before(tmp_path: Path) -> None:
    small = FakeCluster("small", gpus=0)
    verbs = launcher(tmp_path, small)
    config = verbs.config._replace(job={**verbs.config.job, **parse_settings({"gpus": 1})})
    with pytest.raises(Refused, match="1 GPU asked for, of 0"):
        Launcher(config, clusters={"small": small}).run(TRAIN, snapshot=False)
    assert small.asked == []


def test_without_a_connection_nothing_is_submitted(verbs: Launcher, hpc: FakeCluster) -> None:
    hpc.break_next("submit", Trouble.FAIL)
    with pytest.raises(ClusterError, match="no connection"):
        run(verbs)
    assert (hpc.jobs, listed(verbs)) == ({}, {})


def test_a_job_whose_answer_is_lost_is_known(verbs: Launcher, hpc: FakeCluster) -> None:
    hpc.break_next("submit", Trouble.LOSE)
    with pytest.raises(ClusterError, match="broke"):
        run(verbs)
    (job,) = hpc.jobs
    assert listed(verbs) == {job: "queued"}


def test_a_job_whose_fate_is_not_known_yet_is_found_later(
    verbs: Launcher, hpc: FakeCluster, said: list[str]
) -> None:
    hpc.break_next("submit", Trouble.LOSE)
    hpc.break_next("status", Trouble.FAIL)
    with pytest.raises(ClusterError, match="broke"):
        run(verbs)
    (job,) = hpc.jobs
    assert said == [f"{job} may have been submitted: dray ps tells once hpc answers"]
    assert verbs.show(job).state == "queued"


def test_a_submission_that_is_repeated_is_made_once(hpc: FakeCluster, verbs: Launcher) -> None:
    job = run(verbs)
    hpc.start(job)
    spec, private = hpc.jobs[job].spec, hpc.jobs[job].private
    hpc.queue.submit(hpc.plan(spec), private, None, lambda done, total: None)
    assert verbs.show(job).state == "running"


def test_many_jobs_are_one_array_or_as_many_as_it_takes(tmp_path: Path) -> None:
    few = FakeCluster("few", array_size=2)
    verbs = launcher(tmp_path, few)
    ids = verbs.run_many([["echo", str(number)] for number in range(3)], snapshot=False)
    assert few.asked.count("submit") == 2
    assert [few.jobs[one].spec.command for one in ids] == [("echo", str(n)) for n in range(3)]
    assert ids[0].endswith(".0")
    assert ids[1].endswith(".1")
    array = ids[0].partition(".")[0]
    assert verbs.find_all([array]) == ids[:2]


def test_what_is_planned_is_what_is_sent(verbs: Launcher, hpc: FakeCluster) -> None:
    sent: list[Plan] = []
    submit = hpc.queue.submit

    def note(plan: Plan, *rest: Any) -> None:
        sent.append(plan)
        submit(plan, *rest)

    hpc.queue.submit = note  # type: ignore[method-assign]
    commands = [["echo", "a"], ["echo", "b"]]
    (planned,) = verbs.plan_many(commands, snapshot=False)
    assert (hpc.jobs, verbs.listing().rows) == ({}, [])
    verbs.run_many(commands, snapshot=False)
    told = [[one.job.command for one in plan.each] for plan in (planned, sent[0])]
    assert told == [[("echo", "a"), ("echo", "b")]] * 2
    plan, _ = verbs.plan(TRAIN, snapshot=False)
    run(verbs)
    same = {"id": plan.job.id, "created": plan.job.created}
    assert replace(sent[1].job, **same) == plan.job


def test_an_array_that_fails_leaves_nothing(verbs: Launcher, hpc: FakeCluster) -> None:
    hpc.break_next("submit", Trouble.FAIL)
    with pytest.raises(ClusterError):
        verbs.run_many([["true"], ["false"]], snapshot=False)
    assert listed(verbs) == {}


# -- looking --------------------------------------------------------------------------------------


def test_a_cluster_that_does_not_answer_is_shown_as_last_seen(
    verbs: Launcher, hpc: FakeCluster, said: list[str]
) -> None:
    job = run(verbs)
    hpc.start(job)
    hpc.break_next("status", Trouble.FAIL)
    assert listed(verbs) == {job: "queued"}
    assert said == ["no connection to hpc; jobs on hpc are shown as last seen"]
    assert listed(verbs) == {job: "running"}


def test_a_listing_can_be_narrowed(verbs: Launcher, hpc: FakeCluster) -> None:
    one, other = verbs.run(["echo", "apple"], snapshot=False), run(verbs)
    hpc.end(other, "failed")
    assert listed(verbs, job_filter=JobFilter(text="APPLE")) == {one: "queued"}
    assert listed(verbs, job_filter=JobFilter(states=["failed"])) == {other: "failed"}


def test_a_job_whose_directory_is_gone_is_lost(verbs: Launcher, hpc: FakeCluster) -> None:
    job = run(verbs)
    del hpc.jobs[job]
    assert verbs.show(job).reason == "its directory on hpc is gone"
    with pytest.raises(NotFound, match="is gone"):
        list(verbs.logs(job))


def test_a_job_that_was_stopped_stays_so_without_a_directory(
    verbs: Launcher, hpc: FakeCluster
) -> None:
    """It may never have had one: it was stopped before it started."""
    job = run(verbs)
    verbs.stop(job)
    del hpc.jobs[job]
    assert verbs.show(job).state == "stopped"
    with pytest.raises(NotFound, match="is gone"):
        list(verbs.logs(job))


def test_jobs_of_another_machine_are_found(tmp_path: Path, hpc: FakeCluster) -> None:
    job = run(launcher(tmp_path / "one", hpc))
    assert listed(launcher(tmp_path / "two", hpc)) == {job: "queued"}
    verbs = launcher(tmp_path / "three", FakeCluster("other"), hpc)
    assert listed(verbs, on="hpc", everything=True) == {job: "queued"}


def test_waiting_has_an_end(verbs: Launcher) -> None:
    job = run(verbs)
    with pytest.raises(TimedOut, match="is still queued"):
        verbs.wait(job, timeout=0.0)


# -- several clusters -----------------------------------------------------------------------------


@pytest.fixture
def pair() -> tuple[FakeCluster, FakeCluster]:
    return FakeCluster("one"), FakeCluster("two")


def on_both(tmp_path: Path, pair: tuple[FakeCluster, FakeCluster], say: Callable[[str], None]):  # type: ignore[no-untyped-def]
    verbs = launcher(tmp_path, *pair, say=say)
    other = verbs.config._replace(job={"job.on": "two"})
    clusters = {one.name: one for one in pair}
    return verbs, run(verbs), run(Launcher(other, clusters=clusters))


def test_one_that_hangs_is_asked_beside_the_other(
    tmp_path: Path, pair: tuple[FakeCluster, FakeCluster], said: list[str]
) -> None:
    hanging, fine = pair
    verbs, first, second = on_both(tmp_path, pair, said.append)
    fine.start(second)
    hanging.break_next("status", Trouble.HANG)
    asked = fine.queue.status

    def answer_and_end_the_other(ids: Any, *, brief: bool = False) -> Any:
        threading.Timer(0.01, hanging.hang_up).start()  # its connection times out
        return asked(ids, brief=brief)

    fine.queue.status = answer_and_end_the_other  # type: ignore[method-assign]
    assert listed(verbs) == {first: "queued", second: "running"}
    assert said == ["no connection to one: it hung; jobs on one are shown as last seen"]


def test_those_that_need_a_password_are_asked_again_with_somebody_there(
    tmp_path: Path, pair: tuple[FakeCluster, FakeCluster], said: list[str]
) -> None:
    verbs, first, second = on_both(tmp_path, pair, said.append)
    for one in pair:
        one.start(*one.jobs)
        one.break_next("status", Trouble.LOGIN)
    assert listed(verbs) == {first: "running", second: "running"}
    assert [one.asked.count("status") for one in pair] == [2, 2]
    assert said == []


def test_whatever_ends_the_caller_hangs_up(pair: tuple[FakeCluster, FakeCluster]) -> None:
    hanging = pair[0]
    hanging.break_next("status", Trouble.HANG)

    def interrupted(cluster: Cluster, answer: Callable[[], object]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_each(pair, lambda one: one.queue.status(["job-1"]), interrupted)
    assert hanging._hung_up.is_set()
    assert [one.may_ask for one in pair] == [True, True]


# -- outputs --------------------------------------------------------------------------------------


def test_logs_over_all_attempts(verbs: Launcher, hpc: FakeCluster) -> None:
    job = run(verbs)
    hpc.start(job)
    hpc.write(job, b"one\ntwo\n")
    hpc.end(job, "failed", exit_code=1)
    verbs.resume(job)
    hpc.start(job)
    hpc.write(job, b"three\n")
    assert list(verbs.logs(job)) == [(1, b"one\ntwo\n"), (2, b"three\n")]
    assert list(verbs.logs(job, tail=2)) == [(1, b"two\n"), (2, b"three\n")]
    assert list(verbs.logs(job, grep=re.compile("t"), attempt=1)) == [(1, b"two\n")]
    assert verbs.last_lines(verbs.show(job)) == ["three"]
    with pytest.raises(NotFound, match="has no attempt 3: its attempts are"):
        verbs.logs(job, attempt=3)
    with pytest.raises(NotFound, match="has no rank 1"):
        verbs.logs(job, rank=1)


def test_the_end_of_an_output_that_cannot_be_had_is_nothing(
    verbs: Launcher, hpc: FakeCluster
) -> None:
    job = run(verbs)
    hpc.start(job)
    view = verbs.show(job)
    hpc.break_next("log", Trouble.FAIL)
    assert verbs.last_lines(view) == []


def test_outputs_are_pulled(verbs: Launcher, hpc: FakeCluster, tmp_path: Path) -> None:
    job = run(verbs)
    hpc.jobs[job].outputs.update({"model_1.pt": b"weights", "log.txt": b"text"})
    pulled = verbs.pull(job, tmp_path / "here")
    assert (pulled.copied, pulled.files) == (2, 2)
    assert (tmp_path / "here/model_1.pt").read_bytes() == b"weights"
    assert verbs.pull(job, tmp_path / "here").copied == 0


# -- changing -------------------------------------------------------------------------------------


def test_only_an_ended_job_is_resumed(verbs: Launcher, hpc: FakeCluster) -> None:
    job = run(verbs)
    with pytest.raises(Refused, match="goes on by itself"):
        verbs.resume(job)
    hpc.start(job)
    hpc.end(job, "failed", exit_code=1)
    assert verbs.resume(job) == job
    assert (verbs.show(job).state, hpc.jobs[job].spec.resumed_after) == ("queued", 1)
    hpc.start(job)
    hpc.end(job, "done")
    with pytest.raises(Refused, match="is done"):
        verbs.resume(job)


def test_a_resume_whose_answer_is_lost_can_be_seen(verbs: Launcher, hpc: FakeCluster) -> None:
    job = run(verbs)
    hpc.start(job)
    hpc.end(job, "failed")
    verbs.show(job)
    hpc.break_next("resume", Trouble.LOSE)
    with pytest.raises(ClusterError):
        verbs.resume(job)
    assert verbs.show(job).state == "queued"


def test_stopping_and_removing(verbs: Launcher, hpc: FakeCluster) -> None:
    jobs = [run(verbs), run(verbs)]
    with pytest.raises(Refused, match="has not ended"):
        verbs.remove_all(jobs)
    assert [view.state for view in verbs.stop_all(jobs)] == [JobState.STOPPED] * 2
    with pytest.raises(Refused, match="nothing to stop"):
        verbs.stop(jobs[0])
    assert verbs.remove_all(jobs) == jobs
    assert (hpc.jobs, listed(verbs)) == ({}, {})


def test_a_stop_that_has_begun_is_not_given_back(
    verbs: Launcher, hpc: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes with the job, and another one would be the user's own process's to open:
    that would ask for the stop again."""
    job = run(verbs)
    stop = hpc.queue.stop

    def lose_the_connection(ids: Any, *, now: bool) -> None:
        stop(ids, now=now)
        background.require_foreground()

    monkeypatch.setattr(hpc.queue, "stop", lose_the_connection)
    monkeypatch.setattr(background, "_postponed", None)
    monkeypatch.setattr(background, "_can_give_back", True)  # as in the warm process
    assert verbs.stop(job).state is JobState.STOPPED


def test_the_fake_refuses_what_it_does_not_know(hpc: FakeCluster) -> None:
    with pytest.raises(NotFound):
        hpc.files.read_log("nobody-1", 1)
    with pytest.raises(NotFound):
        hpc.queue.stop(["nobody-1"], now=True)
    assert hpc.queue.status(["nobody-1"]).jobs == {}


def test_a_job_of_a_newer_dray_elsewhere_is_shown_and_not_resumed(
    tmp_path: Path, verbs: Launcher, hpc: FakeCluster
) -> None:
    job = run(verbs)
    hpc.start(job)
    hpc.end(job, "failed", exit_code=3)
    hpc.jobs[job].spec = replace(hpc.jobs[job].spec, version=DESCRIPTION_VERSION + 1)
    elsewhere = launcher(tmp_path / "elsewhere", hpc)
    assert elsewhere.show(job).state == "failed"
    with pytest.raises(Refused, match="newer dray"):
        elsewhere.resume(job)


def test_a_description_without_a_version_is_of_the_first() -> None:
    record = JobSpec(id="early-1", name="early", command=("true",)).to_dict()
    assert record["version"] == DESCRIPTION_VERSION
    del record["version"]
    assert JobSpec.from_dict(record).version == 1
