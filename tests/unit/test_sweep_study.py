"""The files of a sweep: many processes at once, killed ones, answers that are lost, damage."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.queues.machine import queue_view
from dray.node.formats import files
from dray.node.formats.wire import Refusal
from dray.node.jobs.jobdir import JobDir
from dray.node.jobs.policy import Decision
from dray.node.metrics.sources import Point
from dray.node.root import sweeps as root_sweeps
from dray.node.root.root import Root
from dray.node.schedulers.local import Local, overview
from dray.node.schedulers.slots import Held, slots_of
from dray.node.sweeps import asking, trial
from dray.node.sweeps import study as studies
from dray.node.sweeps.study import Study, Taken

SPACE = [
    {"name": "lr", "kind": "float", "low": 1e-5, "high": 1e-1, "log": True},
    {"name": "--act", "kind": "choice", "values": ["elu", "relu"]},
]
RECORD: Any = {
    "version": 1,
    "id": "policy-7f3k",
    "created": 12.0,
    "space": SPACE,
    "sampler": "tpe",
    "seed": 7,
    "metric": "reward",
    "mode": "max",
    "repeats": 1,
    "stop": None,
    "stop_if": [],
    "max_failures": None,
}
PART: Any = {"id": "policy-7f3k", "first": 0, "count": 40, "at_once": None}


def begun(root: Path, **changes: Any) -> Study:
    study = Study(str(root), "policy-7f3k")
    study.begin({**RECORD, **changes}, PART)
    return Study(str(root), "policy-7f3k")


def described(root: Path, number: int = 3, **changes: Any) -> tuple[JobDir, Any]:
    """A trial's job that has not begun."""
    job_dir = JobDir(str(root / "jobs" / f"policy-7f3k.{number}"))
    Path(job_dir.path).mkdir(parents=True, exist_ok=True)
    job = {
        "id": job_dir.id,
        "command": ["python", "train.py", "--lr={lr}"],
        "resources": {"gpus": 2.0, "nodes": 1},
        "resume": {"grace": 1.0, "backoff": 1.0},
        "outputs": [],
        "retries": 0,
        "resumed_after": 0,
        "env": {"WANDB_RUN_GROUP": "mine"},
        "sweep": {"id": "policy-7f3k", "trial": number},
        **changes,
    }
    files.write_json(job_dir.job, job)
    return job_dir, job


def test_a_sweep_is_begun_once(tmp_path: Path) -> None:
    study = begun(tmp_path)
    study.begin(RECORD, PART)  # its answer was lost
    assert study.parts() == [PART]
    with pytest.raises(Taken, match="another sweep"):
        Study(str(tmp_path), "policy-7f3k").begin({**RECORD, "created": 13.0}, PART)
    with pytest.raises(Taken, match="somebody else has just added"):
        study.begin(RECORD, {**PART, "id": "policy-7f3k-2"})
    study.close()
    study.begin(RECORD, {**PART, "id": "policy-7f3k-2", "first": 40})
    assert [one["first"] for one in study.parts()] == [0, 40]
    assert not study.is_closed()  # whoever adds trials wants them to start


def run_trials(work: tuple[str, int, int]) -> list[dict[str, Any]]:
    """What eight processes do at once: ask, tell, ask again."""
    root, first, count = work
    study = Study(root, "policy-7f3k")
    given = []
    for number in range(first, first + count):
        found = trial.parameters_for(study, RECORD, number)
        study.tell(number, {"state": "done", "value": -abs(found["values"]["lr"] - 1e-3)})
        given.append(found["values"])
    return given


def test_eight_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    begun(tmp_path)
    work = [(str(tmp_path), first, 25) for first in range(0, 200, 25)]
    with multiprocessing.get_context("fork").Pool(8) as pool:
        given = [values for some in pool.map(run_trials, work) for values in some]
    study = Study(str(tmp_path), "policy-7f3k")
    assert {number: one["values"] for number, one in study.trials().items()} == dict(
        enumerate(given)
    )
    assert len(study.results()) == 200
    left = [path.name for path in (tmp_path / "sweeps/policy-7f3k").rglob("*")]
    assert not [name for name in left if name.startswith(".") or name.endswith(".tmp")]


def ask_for_seven(root: str) -> dict[str, Any]:
    study = Study(root, "policy-7f3k")
    study._record = {**RECORD, "seed": os.getpid()}  # each would choose other values
    values: dict[str, Any] = trial.parameters_for(study, study._record, 7)["values"]
    return values


def test_all_who_ask_for_one_configuration_get_the_same(tmp_path: Path) -> None:
    begun(tmp_path)
    with multiprocessing.get_context("fork").Pool(8) as pool:
        given = pool.map(ask_for_seven, [str(tmp_path)] * 16)
    assert all(one == given[0] for one in given)


def test_a_trial_that_was_killed_before_its_start_keeps_its_parameters(tmp_path: Path) -> None:
    study = begun(tmp_path)
    first = trial.parameters_for(study, RECORD, 3)  # and killed here: job.json is not written
    study.close()  # nor does it matter that nothing new may start
    job_dir, job = described(tmp_path)
    assert trial.ask(job_dir, job) is None
    assert job["sweep"]["values"] == first["values"]
    assert files.read_record(job_dir.job) == json.loads(json.dumps(job))
    assert trial.ask(job_dir, job) is None  # the next attempt asks nobody
    assert job["command"].count("--act") == 1


def test_a_link_whose_answer_is_lost_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = begun(tmp_path)
    real = os.link

    def link(source: str, target: str) -> None:
        real(source, target)
        raise OSError(5, "the server's answer was lost")

    monkeypatch.setattr(os, "link", link)
    given = study.give(4, {"values": {"lr": 1e-3}, "by": "tpe"})
    monkeypatch.undo()
    assert study.parameters(4) == given
    assert study.give(4, {"values": {"lr": 0.1}, "by": "tpe"}) == given


def test_a_filled_trial_is_an_ordinary_job(tmp_path: Path) -> None:
    begun(tmp_path, repeats=2, stop_if=["Loss > 3"])
    job_dir, job = described(tmp_path, 5, metrics={"main": ["own"]})
    assert trial.ask(job_dir, job) is None
    values = job["sweep"]["values"]
    assert Study(str(tmp_path), "policy-7f3k").parameters(2) == {"values": values, "by": "start-up"}
    assert job["command"] == [
        "python",
        "train.py",
        f"--lr={values['lr']!r}",
        "--act",
        values["--act"],
    ]
    assert job["env"]["DRAY_SWEEP"] == "policy-7f3k"
    assert job["env"]["DRAY_TRIAL"] == "5"
    assert json.loads(job["env"]["DRAY_PARAMS"]) == values
    assert job["env"]["WANDB_RUN_ID"] == "policy-7f3k.5"
    assert job["env"]["WANDB_RUN_GROUP"] == "mine"  # what the user says counts
    assert job["metrics"]["main"] == ["reward", "Loss", "own"]
    described_again = JobDir(job_dir.path).description()
    assert described_again is not None
    assert described_again["command"] == job["command"]


@pytest.mark.parametrize(
    ("value", "end", "state", "reason"),
    [
        (9.0, "done", "pruned", "stop_if: Loss > 3 (step 4)"),
        (2.0, "done", "done", "its own"),
        (9.0, "failed", "failed", "its own"),
    ],
)
def test_a_condition_that_holds_at_the_last_look_counts(
    tmp_path: Path, value: float, end: str, state: str, reason: str
) -> None:
    """The trial has ended by itself, before the supervisor has looked at all."""
    study = begun(tmp_path, stop_if=["Loss > 3"])
    job_dir, job = described(tmp_path)
    assert trial.ask(job_dir, job) is None
    followed = trial.Following(job_dir, job)
    watch: Any = None
    followed.note(Point("Loss", 4, value, 0.0))
    followed.look(watch, last=True)
    followed.write(watch)
    for _ in range(2):  # it was killed before its end was written down
        trial.tell_end(job_dir, job, Decision(end, "its own"))
        told = study.result(3)
        assert (told["state"], told["reason"]) == (state, reason)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_no_new_configuration_starts_in_a_sweep_that_is_closed(
    tmp_path: Path, sampler: str
) -> None:
    study = begun(tmp_path, sampler=sampler)
    study.close()
    job_dir, job = described(tmp_path)
    end = trial.ask(job_dir, job)
    assert end is not None
    assert (end.state, end.reason) == ("stopped", trial.CLOSED)
    assert study.parameters(3) is None


def test_a_trial_that_the_user_asks_for_starts_in_a_closed_sweep(tmp_path: Path) -> None:
    study = begun(tmp_path, max_failures=0)
    study.tell(0, {"state": "failed"})
    study.close()
    job_dir, job = described(tmp_path)
    job["sweep"] = {**job["sweep"], "asked_for": True}
    assert trial.ask(job_dir, job) is None
    assert job["sweep"]["values"] == study.parameters(3)["values"]


def test_too_many_failures_close_a_sweep(tmp_path: Path) -> None:
    study = begun(tmp_path, max_failures=1)
    study.tell(0, {"state": "failed"})
    job_dir, job = described(tmp_path, 2)
    assert trial.ask(job_dir, job) is None
    study.tell(1, {"state": "failed"})
    job_dir, job = described(tmp_path, 3)
    end = trial.ask(job_dir, job)
    assert end is not None
    assert end.state == "stopped"
    assert "2 trials of the sweep have failed, more than max_failures = 1" in end.reason


def test_one_failure_may_close_a_sweep(tmp_path: Path) -> None:
    begun(tmp_path, max_failures=0).tell(0, {"state": "failed"})
    end = trial.ask(*described(tmp_path, 1))
    assert end is not None
    assert "1 trial of the sweep has failed, more than max_failures = 0" in end.reason


@pytest.mark.parametrize("content", ["", "{", "[]", '{"values": 3}', '{"state": "odd"}', "\0\xff"])
def test_what_cannot_be_read_is_not_there_yet(tmp_path: Path, content: str) -> None:
    study = begun(tmp_path)
    folder = tmp_path / "sweeps/policy-7f3k"
    for path in ("results/1.json", "trials/1.json", "known.json", "others.json"):
        (folder / path).write_text(content, "latin-1")
    study.tell(2, {"state": "done", "value": 1.0})
    study.give(2, {"values": {"lr": 1e-3, "--act": "elu"}, "by": "x"})
    again = Study(str(tmp_path), "policy-7f3k")
    assert set(again.results()) == {2}
    assert set(again.trials()) == {2}
    assert asking.choose(RECORD, 5, again.trials(), again.results())["values"]


def test_nobody_goes_on_with_a_choice_that_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another trial was quicker, and what it has written cannot be read."""
    monkeypatch.setattr(studies, "UNSEEN", -1.0)
    study, own = begun(tmp_path), {"values": {"lr": 1e-3, "--act": "elu"}, "by": "x"}
    path = tmp_path / "sweeps/policy-7f3k/trials/4.json"
    path.write_text("{")
    with pytest.raises(ValueError, match=r"4\.json is damaged"):
        study.give(4, own)  # type: ignore[arg-type]
    monkeypatch.setattr(files, "exists", lambda _: False)  # as a network's file system may have it
    with pytest.raises(OSError, match="cannot be seen yet"):
        study.give(4, own)  # type: ignore[arg-type]


def test_a_damaged_sweep_fails_its_trials_and_says_where(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "sweeps/policy-7f3k/sweep.json").write_text("{")
    job_dir, job = described(tmp_path)
    end = trial.ask(job_dir, job)
    assert end is not None
    assert end.state == "failed"
    assert "sweep.json" in end.reason
    broken = {**RECORD, "space": [{"name": "x", "kind": "odd"}]}
    (tmp_path / "sweeps/policy-7f3k/sweep.json").write_text(json.dumps(broken))
    end = trial.ask(*described(tmp_path))
    assert end is not None
    assert end.state == "failed"


def test_results_are_read_again_only_where_they_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = begun(tmp_path)
    for number in range(30):
        study.tell(number, {"state": "running"})
    first = Study(str(tmp_path), "policy-7f3k")
    assert len(first.results()) == 30
    first.keep_cache()
    study.tell(4, {"state": "done", "value": 2.0})
    read: list[str] = []
    real = files.read_record

    def reading(path: str, *more: Any) -> Any:
        read.append(os.path.basename(path))
        return real(path, *more)

    monkeypatch.setattr(files, "read_record", reading)
    second = Study(str(tmp_path), "policy-7f3k")
    assert second.results()[4] == {"state": "done", "value": 2.0}
    assert [name for name in read if name[0].isdigit()] == ["4.json"]


def test_a_trial_that_waits_for_others_of_its_sweep_says_so(tmp_path: Path) -> None:
    """On a machine behind SSH, which tells by its rows and its overview."""
    begun(tmp_path)
    sweep = {"id": "policy-7f3k", "trial": 3, "at_once": 2}
    job_dir, _ = described(tmp_path, 3, sweep=sweep)
    slots = slots_of(str(tmp_path), "policy-7f3k")
    slots.make()
    alive = files.open_lock(job_dir.alive)
    assert files.try_lock(alive)
    ticket = slots.take_ticket(job_dir.id, {"cpus": 1, "gpus": 0.0, "memory": None})
    try:
        row = json.loads(Local(str(tmp_path)).read_queue())[job_dir.id]
        (told,) = overview(str(tmp_path), None)["jobs"]
    finally:
        os.close(alive)
        os.close(ticket)
    assert (row["state"], row["why"]) == ("waiting", "held: 2 of its sweep at once")
    assert (told["job"], told["state"], told["held"]) == (job_dir.id, "waiting", row["why"])
    entry = queue_view({"capacity": {}, "jobs": [told]}, told["owner"], 0.0).entries[0]
    assert entry.is_held
    assert Held(str(tmp_path)).why(job_dir.id, sweep) == ""  # its keeper is gone


def test_other_clusters_results_count(tmp_path: Path) -> None:
    study = begun(tmp_path)
    others = {
        "trials": {"50": {"values": {"lr": 1e-3, "--act": "elu"}, "by": "tpe"}, "x": {}},
        "results": {"50": {"state": "done", "value": 3.0}, "²": {}, "9" * 5000: {}},
    }
    files.write_json(str(tmp_path / "sweeps/policy-7f3k/others.json"), others)
    assert study.results()[50]["value"] == 3.0
    assert study.trials()[50]["values"]["--act"] == "elu"


def test_trials_that_were_not_submitted_are_forgotten(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    root.begin_sweep(RECORD, PART)
    more: Any = {**PART, "id": "policy-7f3k-2", "first": 40}
    root.begin_sweep(RECORD, more)
    root.withdraw_sweep("policy-7f3k", {**more, "id": "another"})  # somebody else's
    assert len(root.sweep_files("policy-7f3k")["parts"]) == 2
    root.withdraw_sweep("policy-7f3k", more)
    assert root.sweep_files("policy-7f3k")["parts"] == [PART]
    described(tmp_path, 0)
    (tmp_path / "arrays/policy-7f3k").mkdir(parents=True)
    root.withdraw_sweep("policy-7f3k", PART)  # it is one array, of which a job has begun
    assert root.sweep_files("policy-7f3k")["parts"] == [PART]
    (tmp_path / "arrays/policy-7f3k").rmdir()
    described(tmp_path, 1)
    root.withdraw_sweep("policy-7f3k", PART)  # two jobs were submitted, one by one
    assert root.sweep_files("policy-7f3k")["parts"] == [{**PART, "count": 2}]
    root.begin_sweep(RECORD, PART)  # and then the whole again
    assert root.sweep_files("policy-7f3k")["parts"] == [PART]
    root.remove(["policy-7f3k.0", "policy-7f3k.1"])
    root.begin_sweep(RECORD, PART)
    root.withdraw_sweep("policy-7f3k", PART)
    assert not (tmp_path / "sweeps/policy-7f3k").exists()


def test_a_root_tells_of_its_sweeps_and_removes_them_with_their_last_job(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    root.begin_sweep(RECORD, PART)
    found = root.sweep_files("policy-7f3k")
    assert found["parts"] == [PART]
    assert found["closed"] is False
    root.close_sweep("policy-7f3k")
    assert root.sweep_files("policy-7f3k")["closed"] is True
    for number in (0, 1):
        described(tmp_path, number)
    root.remove(["policy-7f3k.0"])
    assert root.sweep_files("policy-7f3k")
    root.remove(["policy-7f3k.1"])
    with pytest.raises(Refusal, match="no sweep"):
        root.sweep_files("policy-7f3k")
    for odd in ("../jobs", "", 3):
        with pytest.raises(Refusal):
            root.sweep_files(odd)
    with pytest.raises(Refusal):
        root.begin_sweep({"id": "x"}, PART)


def test_a_sweep_whose_submission_was_cut_off_is_removed_a_day_later(tmp_path: Path) -> None:
    study = Study(str(tmp_path), "left-7f3k")
    part: Any = {"id": "left-7f3k", "first": 0, "count": 2, "at_once": None}
    record: Any = {"id": "left-7f3k", "created": 1.0, "space": [], "seed": 1, "repeats": 1}
    study.begin(record, part)
    root_sweeps.prune_abandoned(str(tmp_path))
    assert os.path.exists(study.path), "its submission may be under way"
    for one in (study.path, f"{study.path}/parts"):
        os.utime(one, (1.0, 1.0))
    (tmp_path / "arrays/left-7f3k").mkdir(parents=True)
    root_sweeps.prune_abandoned(str(tmp_path))
    assert os.path.exists(study.path), "its trials wait in the queue"
    (tmp_path / "arrays/left-7f3k").rmdir()
    root_sweeps.prune_abandoned(str(tmp_path))
    assert not os.path.exists(study.path)
