"""Several trials in one batch job: what is planned, divided and decided."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clusters.protocol import Cluster
from dray.clusters.slurm import array_script, make_array_plan, make_plan
from dray.errors import Refused, UsageError
from dray.job.model import Capabilities, JobArray, JobSpec, Resources
from dray.launcher.resuming import alone
from dray.launcher.sweep_dealing import Load, arrays_of, limited, size_of_array
from dray.launcher.sweep_packing import packed
from dray.node.agent import shared_jobs
from dray.node.attempt import member, task
from dray.node.jobs import arrays, policy
from dray.node.jobs.arrays import ArrayDir
from dray.node.processes import dividing
from dray.node.schedulers.slurm import Slurm, array_name, number_of, parse_queue, split_name
from dray.records import replace
from dray.store import SweepRow
from dray.sweep.options import per_node

JOB = JobSpec(
    id="policy-7f3k",
    name="policy",
    command=("python", "train.py"),
    resources=Resources(gpus=2, cpus=10, memory=8 * 2**30, time=3600),
    sweep={"id": "policy-7f3k", "at_once": 8, "per_node": 4, "first": 100},
)
SLASH = "\x1f"


# -- what is asked for ----------------------------------------------------------------------------


def test_the_batch_job_asks_for_all_and_a_trial_alone_for_its_part() -> None:
    plan = make_array_plan(JobArray(JOB, trials=50), "hpc", {})
    script, one = plan.files["batch.sh"], plan.files["job.sh"]
    assert "#SBATCH --job-name=policy-7f3k:4\n" in script
    assert "#SBATCH --array=0-49:4%2\n" in script
    assert "#SBATCH --gres=gpu:2\n" in script
    assert "#SBATCH --cpus-per-task=10\n" in script
    assert "#SBATCH --mem=8192M\n" in script
    assert " task '@ROOT@/arrays/policy-7f3k'\n" in script
    assert "#SBATCH --gres=gpu:1\n" in one
    assert "#SBATCH --cpus-per-task=2\n" in one
    assert "#SBATCH --mem=2048M\n" in one
    assert " attempt '@ROOT@/jobs/@JOB@'\n" in one
    assert json.loads(plan.files["job.json"])["sweep"]["per_node"] == 4


def test_an_array_whose_jobs_share_nothing_is_as_before() -> None:
    script = array_script(JobArray(replace(JOB, sweep={"id": "x", "first": 0}), trials=3), {})
    assert "#SBATCH --job-name=policy-7f3k\n" in script
    assert "#SBATCH --array=0-2\n" in script


def test_a_trial_that_is_resumed_has_a_batch_job_of_its_own() -> None:
    last = list(JobArray(JOB, trials=50).jobs())[17]
    assert (last.resources.gpus, last.resources.cpus) == (0.5, 2)
    assert last.sweep["trial"] == 117
    again = make_plan(replace(last, sweep=alone(last.sweep)), "hpc", {})
    assert "#SBATCH --gres=gpu:1\n" in again.files["batch.sh"]
    assert arrays.per_node_of(json.loads(again.files["job.json"])) == 1


@pytest.mark.parametrize(("most", "size"), [(1000, 1000), (1001, 1000), (3, 3), (1, 1)])
def test_only_the_last_batch_job_of_an_array_is_not_full(most: int, size: int) -> None:
    assert size_of_array(most, {"per_node": 4}) == size


class FakeQueue:
    array_size = 10


class FakeCluster:
    name = "hpc"
    queue = FakeQueue()

    def __init__(self, **can: Any) -> None:
        self.capabilities = Capabilities(limits_at_once=True, **can)


def load(job: JobSpec = JOB, **can: Any) -> Load:
    return Load(cast("Any", None), cast("Cluster", FakeCluster(**can)), replace(job, sweep={}))


def test_trials_are_dealt_into_arrays_of_full_batch_jobs() -> None:
    shared = packed(load(shared_batch_jobs=True), 4)
    assert shared.common.resources == JOB.resources
    (one,) = limited([shared], "policy-7f3k", 8)
    row = SweepRow("policy-7f3k", "hpc", "", 0.0, {}, [])
    found = [array for _, array in arrays_of(row, [one._replace(trials=19)])]
    assert [(array.size, array.per_node, array.at_once) for array in found] == [
        (8, 4, 8),
        (8, 4, 8),
        (3, 4, 8),
    ]


def test_fewer_at_once_than_share_a_batch_job_are_refused() -> None:
    with pytest.raises(UsageError, match="4 trials share a batch job on hpc, and only 3"):
        limited([packed(load(shared_batch_jobs=True), 4)], "x", 3)


@pytest.mark.parametrize(("at_once", "told"), [(4, 4), (7, 4), (8, 8), (11, 8)])
def test_whole_batch_jobs_run_at_once(at_once: int, told: int) -> None:
    (found,) = limited([packed(load(shared_batch_jobs=True), 4)], "x", at_once)
    assert found.common.sweep["at_once"] == told


def test_where_parts_are_given_out_each_trial_asks_for_its_own() -> None:
    found = packed(load(gpu_fractions=True), 4)
    assert (found.per_node, found.common.resources.gpus) == (1, 0.5)
    assert found.common.resources.cpus == 2
    assert found.common.notes == (
        "hpc gives out parts of a node: each trial asks for 0.5 GPU and 2 CPUs",
    )
    assert limited([found], "x", None)[0].common.sweep == {"id": "x", "at_once": None}


@pytest.mark.parametrize(
    ("resources", "launch", "can", "message"),
    [
        (Resources(gpus=3), "none", {}, "3 GPUs cannot be divided among 2 trials on hpc"),
        (Resources(gpus=2), "none", {"whole_nodes": True}, "trials cannot share a batch job"),
        (Resources(gpus=2, nodes=2), "none", {}, "started once, on one node"),
        (Resources(gpus=2), "torchrun", {"shared_batch_jobs": True}, "started once, on one node"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    resources: Resources, launch: str, can: dict[str, bool], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        packed(load(replace(JOB, resources=resources, launch=launch), **can), 2)


def test_how_many_may_share() -> None:
    assert per_node("4") == 4
    for wrong in ("0", "-1", "101", "x"):
        with pytest.raises(ValueError, match=r"\w"):
            per_node(wrong)


# -- what the queue says --------------------------------------------------------------------------


def line(number: str, indices: str, name: str, state: str) -> str:
    return SLASH.join((number, indices, name, state, "None", "N/A"))


def test_the_queue_knows_each_trial_of_a_batch_job() -> None:
    text = "\n".join(
        [
            line("14", "8-48:4%2", "policy-7f3k:4", "PENDING"),
            line("14", "0", "policy-7f3k:4", "RUNNING"),
            line("14", "4", "policy-7f3k:4", "COMPLETING"),
            line("20", "N/A", "policy-7f3k.2", "RUNNING"),  # resumed alone
            line("19", "4", "policy-7f3k:4", "PENDING"),  # submitted by the one before
        ]
    )
    found = parse_queue(text)
    assert found["policy-7f3k.1"]["state"] == "running"
    assert found["policy-7f3k.1"]["per_node"] == 4
    assert "per_node" not in found["policy-7f3k.2"]
    assert number_of(found["policy-7f3k.2"], "policy-7f3k.2") == "20"
    assert number_of(found["policy-7f3k.17"], "policy-7f3k.17") == "14_16"
    assert number_of(found["policy-7f3k.6"], "policy-7f3k.6") == "19_4"
    assert found["policy-7f3k.6"]["state"] == "waiting"


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING"])
@pytest.mark.parametrize("alone", ["2", "20"])
def test_a_batch_job_of_its_own_counts_for_one_that_was_resumed_alone(
    alone: str, state: str
) -> None:
    """Whether what the others share was queued before it or after it."""
    rows = [
        line(alone, "N/A", "policy-7f3k.1", state),
        line("14", "0", "policy-7f3k:4", "PENDING"),
    ]
    for text in ("\n".join(rows), "\n".join(reversed(rows))):
        found = parse_queue(text)
        assert number_of(found["policy-7f3k.1"], "policy-7f3k.1") == alone
        assert "per_node" not in found["policy-7f3k.1"]
        assert number_of(found["policy-7f3k.2"], "policy-7f3k.2") == "14_0"


@pytest.mark.parametrize("name", ["walk", "walk:0", "walk:1", "walk:101", "walk:9999", ":4"])
def test_other_names_are_of_arrays_that_share_nothing(name: str) -> None:
    assert split_name(name) == (name, 1)


def test_a_name_tells_how_many_share() -> None:
    assert split_name(array_name("walk-7f3k", 12)) == ("walk-7f3k", 12)
    assert array_name("walk-7f3k", 1) == "walk-7f3k"


# -- on the node ----------------------------------------------------------------------------------


@given(st.integers(1, 100), st.integers(1, 300), st.sets(st.integers(0, 299)))
def test_every_trial_is_in_one_batch_job(many: int, size: int, removed: set[int]) -> None:
    there = set(range(size)) - removed
    tasks = {arrays.first_in_task(index, many) for index in range(size)}
    found = [one for first in sorted(tasks) for one in arrays.in_task(first, many, there)]
    assert found == sorted(there)


@given(st.integers(1, 16), st.integers(2, 16))
def test_gpus_and_cpus_are_divided_without_a_rest(number: int, many: int) -> None:
    env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(number)))}
    parts = task.divide(env, list(range(number)), number, many)
    assert len(parts) == many
    assert {one for part in parts for one in part.gpus or ()} == set(
        env["CUDA_VISIBLE_DEVICES"].split(",")
    )
    assert all(part.gpus for part in parts)
    if number >= many:
        assert [one for part in parts for one in part.cpus] == list(range(number))
        assert sum(len(part.gpus or ()) for part in parts) == number
    else:
        assert not any(part.cpus for part in parts)


def test_where_nobody_says_which_gpus_there_are_none_are_named() -> None:
    (first, _) = task.divide({"HOME": "/"}, [0, 1], None, 2)
    assert first.environment({"HOME": "/"}) == {"HOME": "/"}
    assert first.cpus == []


def test_cpus_that_others_use_too_stay_together() -> None:
    assert dividing.divide_cpus(range(64), 8, 2) == [[], []]
    assert dividing.divide_cpus([4, 5, 6, 7], 4, 2) == [[4, 5], [6, 7]]


def test_they_go_on_with_the_first() -> None:
    found = task.decide_together(
        [policy.Decision(delay=60.0), policy.Decision(delay=5.0, whole=True)]
    )
    assert (found.again, found.delay, found.whole) == (True, 5.0, True)


def test_the_exit_code_is_that_of_all() -> None:
    done: Any = {"state": "done"}
    assert task.exit_code([done, done]) == 0
    assert task.exit_code([done, {"state": "failed"}]) == 1
    assert task.exit_code([done, None]) == 1


@pytest.fixture
def array(tmp_path: Path) -> ArrayDir:
    """Ten trials by fours, of which none has begun."""
    folder = tmp_path / "arrays/policy-7f3k"
    folder.mkdir(parents=True)
    (tmp_path / "jobs").mkdir()
    common = {**JOB.to_dict(), "count": 10}
    (folder / "job.json").write_text(json.dumps(common))
    return ArrayDir(str(tmp_path), "policy-7f3k")


def test_a_description_has_the_part_of_one(array: ArrayDir) -> None:
    own = array.description_of(9)
    assert own is not None
    assert own["resources"]["gpus"] == 0.5
    assert own["resources"]["memory"] == 2 * 2**30
    assert own["sweep"]["trial"] == 109
    assert (array.task_of(9), array.sharing(9)) == (8, [8, 9])
    array.remove_jobs([8])
    assert array.sharing(9) == [9]


def test_a_batch_job_is_over_with_its_last_trial(array: ArrayDir) -> None:
    array.stop_jobs([8])
    assert not shared_jobs.is_over(array, 8)
    job_dir = array.make_job(9)
    assert not shared_jobs.is_over(array, 8)
    described = json.loads(Path(job_dir.job).read_text())
    described["sweep"] = alone(described["sweep"])
    Path(job_dir.job).write_text(json.dumps(described))  # as resuming it does
    assert shared_jobs.is_over(array, 8)
    assert not task.is_shared(job_dir)


def test_one_that_waits_is_ended_though_its_batch_job_stays(array: ArrayDir) -> None:
    job_dir = array.make_job(1)
    assert shared_jobs.request_stop(job_dir, now=False)
    shared_jobs.end_if_waiting(job_dir, {"id": "14", "state": "running"})
    assert job_dir.ended() is None
    shared_jobs.end_if_waiting(job_dir, {"id": "14", "state": "waiting"})
    end = job_dir.ended()
    assert end is not None
    assert (end["state"], end["reason"]) == ("stopped", "stopped on request")


class FakeSlurm(Slurm):
    def own_index(self) -> int:
        return 8

    def own_number(self) -> str:
        return "14_8"


def cannot_start(array: ArrayDir, number: int, monkeypatch: pytest.MonkeyPatch) -> task.Task:
    """Run a batch job of two, the second of which cannot be started; the first leaves a file."""
    real = subprocess.Popen

    def start(words: list[str], **more: Any) -> subprocess.Popen[bytes]:
        if words[-3].endswith(".9"):
            raise OSError(number, os.strerror(number))
        code = f"open({words[-3] + '/begun'!r}, 'w')"
        return real([sys.executable, "-c", code], **more)

    monkeypatch.setattr(task.subprocess, "Popen", start)
    monkeypatch.setattr(task, "TICK", 0.05)
    described = array.description()
    assert described is not None
    found = task.Task(array, described, FakeSlurm())
    found._run_members([array.make_job(index) for index in (8, 9)])
    assert Path(array.job_dir(8).path, "begun").exists()
    return found


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_one_that_the_node_has_no_room_for_does_not_end_the_others(
    array: ArrayDir, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    assert cannot_start(array, number, monkeypatch).deferred == ["policy-7f3k.9"]
    assert array.job_dir(9).ended() is None


def test_one_that_cannot_be_started_anywhere_fails(
    array: ArrayDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cannot_start(array, errno.ENOENT, monkeypatch).deferred == []
    end = array.job_dir(9).ended()
    assert end is not None
    assert end["state"] == "failed"
    assert end["reason"].startswith("its supervisor could not be started: ")


def test_no_attempt_begins_where_the_task_was_gone_before_it_was_looked_for(
    array: ArrayDir,
) -> None:
    job_dir = array.make_job(8)
    gone = subprocess.Popen(["true"])
    gone.wait()
    described = job_dir.description()
    assert described is not None
    assert member.Member(job_dir, described, FakeSlurm(), gone.pid).run() == 0
    end = job_dir.ended()
    assert end is not None
    assert (end["state"], end["reason"]) == ("lost", member.KILLED)
    assert job_dir.numbers() == []


@pytest.mark.parametrize("wrong", [None, 0, 1, -4, 101, 2.5, "4", True, [4], {}])
def test_a_number_that_is_none_is_one(wrong: object) -> None:
    assert arrays.per_node_of({"sweep": {"per_node": wrong}}) == 1
    assert arrays.per_node_of({"sweep": wrong}) == 1


def test_one_that_was_interrupted_early_says_what_it_waits_for() -> None:
    row: Any = {"id": "14", "state": "running", "per_node": 4}
    early: Any = [{"number": 1, "outcome": "interrupted", "cause": "time"}]
    assert "share its allocation" in shared_jobs.why_held(row, early)
    crashed: Any = [{"number": 1, "outcome": "failed"}]
    assert not shared_jobs.why_held(row, crashed)
    assert not shared_jobs.why_held({"id": "14", "state": "running"}, early)
