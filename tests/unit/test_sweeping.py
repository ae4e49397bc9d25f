"""Sweeps as the laptop has them, over a cluster that is only in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dray.cli import sweep as cli
from dray.errors import ClusterError, NotFound, Refused, UsageError
from dray.job.model import JobState
from dray.launcher import Launcher, sweeping
from dray.launcher.sweep_checks import notes_on_metric, require_metric
from dray.launcher.sweep_views import Part, as_submitted, most_promising, state_of
from dray.node.sweeps.trial import as_filled
from dray.reporter import Reporter
from dray.sweep import table
from dray.sweep.space import from_flag, whole
from dray.sweep.study import Stop, Study
from dray.testing import FakeCluster, Trouble, launcher

TRAIN = ["python", "train.py", "--lr={lr}"]
STUDY = Study(id="", space=whole([from_flag("lr=1e-5..1e-1:log"), from_flag("--act=a,b")]), seed=3)


@pytest.fixture
def hpc() -> FakeCluster:
    return FakeCluster("hpc", array_size=4)


@pytest.fixture
def verbs(tmp_path: Path, hpc: FakeCluster) -> Launcher:
    return launcher(tmp_path, hpc)


def start(verbs: Launcher, study: Study = STUDY, trials: int | None = 6, **how: Any) -> str:
    return verbs.sweeping.start(study, TRAIN, trials, snapshot=False, **how)


def begin(hpc: FakeCluster, sweep: str, number: int, job: str, **values: Any) -> None:
    """Let a trial have asked for its parameters."""
    given = {"lr": 1e-3, "--act": "a", **values}
    hpc.sweeps[sweep]["trials"][str(number)] = {"values": given, "by": "tpe"}
    spec = hpc.jobs[job].spec
    record = as_filled(spec.to_dict(), hpc.sweeps[sweep]["study"], given)
    hpc.jobs[job].spec = type(spec).from_dict(record or spec.to_dict())
    hpc.start(job)


def test_trials_are_arrays_of_what_the_cluster_takes(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs)
    assert sorted(hpc.jobs) == [f"{sweep}-2.0", f"{sweep}-2.1"] + [f"{sweep}.{n}" for n in range(4)]
    assert hpc.jobs[f"{sweep}-2.1"].spec.sweep == {"id": sweep, "at_once": None, "trial": 5}
    assert [one["first"] for one in hpc.sweeps[sweep]["parts"]] == [0, 4]
    assert hpc.sweeps[sweep]["study"]["seed"] == 3
    assert verbs.find_all([sweep]) == [f"{sweep}.{n}" for n in range(4)] + [
        f"{sweep}-2.0",
        f"{sweep}-2.1",
    ]
    assert [one.number for one in verbs.sweeping.look(sweep).trials] == list(range(6))
    assert verbs.sweeping.add(sweep, 1) == 1
    assert hpc.jobs[f"{sweep}-3.0"].spec.sweep["trial"] == 6
    assert verbs.sweeping.find(sweep[:-1]) == sweep


def test_a_sweep_whose_answer_is_lost_is_known(verbs: Launcher, hpc: FakeCluster) -> None:
    hpc.break_next("submit", Trouble.LOSE)
    with pytest.raises(ClusterError, match="broke"):
        start(verbs, trials=3)
    (sweep,) = hpc.sweeps
    assert [one.id for one in verbs.sweeping.known()] == [sweep]
    assert {one.state for one in verbs.sweeping.look(sweep).trials} == {"queued"}


def test_a_sweep_that_was_not_submitted_is_forgotten(verbs: Launcher, hpc: FakeCluster) -> None:
    hpc.break_next("submit", Trouble.FAIL)
    with pytest.raises(ClusterError, match="no connection"):
        start(verbs)
    assert verbs.sweeping.known() == []
    assert verbs.listing().rows == []
    with pytest.raises(NotFound, match="no sweep"):
        verbs.sweeping.find("train")


def test_a_sweep_whose_submission_was_cut_off_is_forgotten(
    verbs: Launcher, hpc: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dray was killed after it had written the sweep down, and before its jobs."""
    store = verbs.context.open_store()
    sweep = start(verbs)
    (row,) = verbs.sweeping.known()
    store.save_sweep(row._replace(id="cut-off", parts=[{**row.parts[0], "id": "cut-off"}]))
    with pytest.raises(NotFound, match="no sweep"):  # it may be about to be submitted
        verbs.sweeping.look("cut-off")
    assert len(verbs.sweeping.known()) == 2
    monkeypatch.setattr(sweeping, "CUT_OFF", 0.0)
    with pytest.raises(NotFound, match="cut-off was never submitted"):
        verbs.sweeping.look("cut-off")
    assert [one.id for one in verbs.sweeping.known()] == [sweep]
    hpc.sweeps.clear()
    with pytest.raises(NotFound, match="no sweep"):  # its jobs are known
        verbs.sweeping.look(sweep)
    assert [one.id for one in verbs.sweeping.known()] == [sweep]


def test_what_a_cluster_takes_of_a_sweep_stays(
    tmp_path: Path, hpc: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two arrays is refused: the first is a sweep, and can be added to."""
    said: list[str] = []
    verbs = launcher(tmp_path, hpc, say=said.append)
    real = hpc.queue.submit

    def submit(plan: Any, *more: Any) -> None:
        if plan.job.id.endswith("-2"):
            raise Refused("hpc: too many jobs")
        real(plan, *more)

    monkeypatch.setattr(hpc.queue, "submit", submit)
    sweep = start(verbs, trials=6)
    assert said[0] == "only 4 of 6 trials were submitted: hpc: too many jobs"
    assert said[1].startswith(f"dray sweep add {sweep} 2 submits the others")
    assert verbs.sweeping.sizes_of(sweep) == {"hpc": 4}
    with pytest.raises(Refused, match="too many"):
        verbs.sweeping.add(sweep, 2)
    assert verbs.sweeping.sizes_of(sweep) == {"hpc": 4}
    monkeypatch.undo()
    assert verbs.sweeping.add(sweep, 2) == 2
    assert [one.number for one in verbs.sweeping.look(sweep).trials] == list(range(6))


def test_an_array_ends_where_its_trials_do() -> None:
    """The first one was cut after two trials, and another has gone on behind them."""
    parts = (Part("a", 0, 30), Part("a-2", 2, 4))
    rows: Any = dict.fromkeys(["a.0", "a.1", "a-2.0", "a-2.1", "a-2.2"])
    told = {"results": {"2": {"state": "done"}, "5": {"state": "done"}}}
    assert [one.size for one in as_submitted(parts, rows, {"": told})] == [2, 4]
    assert [one.size for one in as_submitted(parts, {}, {})] == [0, 0]


def test_a_trial_is_told_from_its_files_and_its_job(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs, trials=3)
    results = hpc.sweeps[sweep]["results"]
    begin(hpc, sweep, 0, f"{sweep}.0")
    hpc.end(f"{sweep}.0", "done")
    results["0"] = {"state": "done", "value": 3.5, "step": 7, "gpu_seconds": 60.0}
    begin(hpc, sweep, 1, f"{sweep}.1", **{"--act": "b"})
    results["1"] = {"state": "running", "rungs": {"5": None}}
    first, second, third = verbs.sweeping.look(sweep).trials
    assert (first.state, first.value, first.step, first.gpu_seconds) == ("done", 3.5, 7, 60.0)
    assert first.values == {"lr": 1e-3, "--act": "a"}
    assert (second.state, second.values["--act"]) == ("running", "b")
    assert (third.state, third.values) == ("queued", {})
    shown = verbs.show(f"{sweep}.0")
    assert shown.spec.command == ("python", "train.py", "--lr=0.001", "--act", "a")
    assert json.loads(shown.spec.env["DRAY_PARAMS"]) == first.values
    found = verbs.sweeping.look(sweep)
    assert verbs.sweeping.command_of(found, first) == shown.spec.command


@pytest.mark.parametrize("damaged", [{}, {"values": {"lr": 1e-3}}])
def test_a_trial_whose_parameters_are_damaged_has_no_command(
    verbs: Launcher, hpc: FakeCluster, damaged: dict[str, Any]
) -> None:
    sweep = start(verbs, trials=3)
    begin(hpc, sweep, 0, f"{sweep}.0")
    hpc.end(f"{sweep}.0", "done")
    hpc.sweeps[sweep]["results"]["0"] = {"state": "done", "value": 3.5, "step": 7}
    hpc.sweeps[sweep]["trials"]["0"] = damaged
    found = verbs.sweeping.look(sweep)
    with pytest.raises(ClusterError, match=f"parameters of trial 0 of {sweep} cannot be read"):
        verbs.sweeping.command_of(found, found.trials[0])


@pytest.mark.parametrize("seconds", [1e308, -60.0, 1e14])
def test_gpu_time_that_cannot_be_is_damage(
    verbs: Launcher, hpc: FakeCluster, seconds: float
) -> None:
    """The numbers of several trials are added up, and shown."""
    sweep = start(verbs, trials=2)
    for number in (0, 1):
        begin(hpc, sweep, number, f"{sweep}.{number}")
        hpc.end(f"{sweep}.{number}", "done")
        result = {"state": "done", "value": 3.5, "step": 7, "gpu_seconds": seconds}
        hpc.sweeps[sweep]["results"][str(number)] = result
    found = verbs.sweeping.look(sweep)
    assert [one.gpu_seconds for one in found.trials] == [0.0, 0.0]
    assert "its result is damaged: gpu_seconds" in found.trials[0].reason
    assert "of GPU time" not in table.summary(found.study, found.trials)


@pytest.mark.parametrize(
    "values",
    [
        {"lr": 5.0, "--act": "a"},
        {"lr": "1e-3; rm", "--act": "a"},
        {"lr": 1e-3, "--act": "$(reboot)"},
        {"lr": 1e-3},
        {},
    ],
)
def test_a_cluster_cannot_put_words_into_a_command(
    verbs: Launcher, hpc: FakeCluster, values: dict[str, Any]
) -> None:
    """Values that are not of the space are no values; the command stays as it was submitted."""
    sweep = start(verbs, trials=1)
    hpc.sweeps[sweep]["trials"]["0"] = {"values": values, "by": "tpe"}
    job = hpc.jobs[f"{sweep}.0"]
    command = ("sh", "-c", "reboot")
    told = {**job.spec.to_dict(), "command": command, "sweep": {**job.spec.sweep, "values": values}}
    job.spec = type(job.spec).from_dict(told)
    hpc.start(f"{sweep}.0")
    assert verbs.sweeping.look(sweep).trials[0].values == {}
    assert verbs.show(f"{sweep}.0").spec.command == tuple(TRAIN)


def test_damaged_files_hide_no_trial(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs, trials=2)
    hpc.sweeps[sweep]["results"] = {"0": {"state": "done", "value": {}}, "1": 7}
    hpc.sweeps[sweep]["trials"] = []
    found = verbs.sweeping.look(sweep).trials
    assert "damaged" in found[0].reason
    assert found[1].state == "queued"


@pytest.mark.parametrize(
    ("job", "result", "state"),
    [
        ("queued", "", "queued"),
        ("running", "pruned", "running"),  # it goes on
        ("stopped", "pruned", "pruned"),
        ("stopped", "", "stopped"),
        ("lost", "running", "failed"),
        ("done", "done", "done"),
        ("", "done", "done"),  # its job was removed
        ("", "", "queued"),
    ],
)
def test_a_trials_state(job: str, result: str, state: str) -> None:
    assert state_of(job, result) == state


def test_the_most_promising_came_farthest(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs, trials=4)
    rungs = ({"5": 9.0}, {"5": 1.0, "15": 2.0}, {"5": 1.0, "15": 3.0}, {"5": 4.0})
    for number, told in enumerate(rungs):
        hpc.sweeps[sweep]["results"][str(number)] = {"state": "pruned", "rungs": told}
        hpc.start(f"{sweep}.{number}")
        hpc.end(f"{sweep}.{number}", "stopped")
    found = most_promising(verbs.sweeping.look(sweep), 3)
    assert [one.number for one in found] == [2, 1, 0]
    assert verbs.sweeping.go_on(sweep, 1) == [f"{sweep}.2"]
    assert hpc.jobs[f"{sweep}.2"].state is JobState.QUEUED


def test_what_a_condition_has_ended_does_not_go_on(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs, trials=3)
    met: Any = {"state": "pruned", "rungs": {"5": 9.0}, "reason": "stop_if: nan (step 6)"}
    results = hpc.sweeps[sweep]["results"]
    for number in range(3):
        results[str(number)] = met
        hpc.start(f"{sweep}.{number}")
        hpc.end(f"{sweep}.{number}", "stopped")
    with pytest.raises(Refused, match="nothing to go on with; 3 trials that stop_if has ended"):
        verbs.sweeping.go_on(sweep, 3)
    results["1"] = {**met, "rungs": {"5": 1.0}, "reason": "pruned at step 5: 1 is not among"}
    assert verbs.sweeping.go_on(sweep, 3) == [f"{sweep}.1"]


def test_stopping_closes_and_stops(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs, trials=3)
    hpc.start(f"{sweep}.0")
    assert verbs.sweeping.stop(sweep, waiting=True) == 2
    assert hpc.sweeps[sweep]["closed"] is True
    assert hpc.jobs[f"{sweep}.0"].state is JobState.RUNNING
    assert verbs.sweeping.stop(sweep) == 1
    assert verbs.sweeping.stop(sweep) == 0
    with pytest.raises(Refused, match="nothing to go on with"):
        verbs.sweeping.go_on(sweep, 1)


def test_a_stopped_sweep_is_opened_by_adding_to_it(tmp_path: Path, hpc: FakeCluster) -> None:
    said: list[str] = []
    verbs = launcher(tmp_path, hpc, say=said.append)
    sweep = start(verbs, trials=2)
    verbs.sweeping.stop(sweep)
    assert verbs.sweeping.look(sweep).why_closed == "it was stopped"
    verbs.sweeping.add(sweep, 1)
    assert said[-1] == f"{sweep} was stopped, and is open again"


def test_nothing_is_added_where_too_many_have_failed(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs, STUDY._replace(max_failures=1), 3)
    for number in range(2):
        assert not verbs.sweeping.look(sweep).why_closed
        hpc.sweeps[sweep]["results"][str(number)] = {"state": "failed"}
    assert verbs.sweeping.look(sweep).why_closed == "2 trials failed, more than max_failures = 1"
    with pytest.raises(Refused, match="would start: 2 trials failed"):
        verbs.sweeping.add(sweep, 1)


def test_what_is_removed_is_no_sweep_any_more(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs, trials=5)
    verbs.sweeping.stop(sweep)
    verbs.remove_all([f"{sweep}.{n}" for n in range(4)])
    assert verbs.sweeping.known()
    verbs.remove_all([f"{sweep}-2.0"])
    assert verbs.sweeping.known() == []


def test_repeats_that_cannot_differ_are_told(tmp_path: Path, hpc: FakeCluster) -> None:
    said: list[str] = []
    verbs = launcher(tmp_path, hpc, say=said.append)
    study = STUDY._replace(repeats=2)
    verbs.sweeping.start(study, ["true", "--seed={seed}"], 1)
    assert said == []
    sweep = verbs.sweeping.start(study, ["true"], 1)
    assert "DRAY_SEED" in said[0]
    job = f"{sweep}.1"
    record = as_filled(hpc.jobs[job].spec.to_dict(), study.to_dict(), {"lr": 1e-3, "--act": "a"})
    assert record is not None
    assert record["env"]["DRAY_SEED"] == str(study.seed + 1)


def test_a_grid_has_an_end(verbs: Launcher) -> None:
    grid = STUDY._replace(sampler="grid", space=whole([from_flag("lr=1,2,3")]))
    sweep = start(verbs, grid, None)
    assert len(verbs.sweeping.look(sweep).trials) == 3
    with pytest.raises(UsageError, match="only 0 points left"):
        verbs.sweeping.add(sweep, 1)
    with pytest.raises(UsageError, match="3 points, and 4 are asked for"):
        start(verbs, grid, 4)


def test_what_is_told_to_run_at_once_is_what_does(verbs: Launcher, hpc: FakeCluster) -> None:
    hpc.capabilities = hpc.capabilities._replace(limits_at_once=True, shared_batch_jobs=True)
    sweep = start(verbs, at_once=3, per_node=2)  # two arrays
    assert verbs.sweeping.at_once_of(sweep) == 2
    assert cli.begun(STUDY, sweep, {"hpc": 6}, 2)[0] == "6 trials of 2 parameters, 2 at once"
    assert verbs.sweeping.at_once_of(start(verbs)) is None


@pytest.mark.parametrize(
    ("stop", "steps"),
    [
        (Stop("pbt", total=100), "pbt at step 10, 20, 30, 40, …"),
        (Stop("pbt", first=10, total=50), "pbt at step 10, 20, 30, 40"),
        (Stop("asha", total=27), "asha at step 1, 3, 9"),
    ],
)
def test_further_comparisons_are_not_hidden(stop: Stop, steps: str) -> None:
    told = cli.begun(STUDY._replace(stop=stop), "x", {"hpc": 6}, None)[0]
    assert told.endswith(f"compared by {steps}")


def test_what_a_cluster_cannot_do_is_refused(verbs: Launcher, hpc: FakeCluster) -> None:
    with pytest.raises(Refused, match="how many trials run at once"):
        start(verbs, at_once=2)
    with pytest.raises(UsageError, match="when trials are compared"):
        start(verbs, STUDY._replace(stop=Stop("asha")))
    with pytest.raises(UsageError, match="stands for nothing"):
        verbs.sweeping.start(STUDY, ["x", "{lrr}"], 3)
    assert hpc.jobs == {}


def test_what_is_added_to_a_sweep_that_was_cut_off_has_its_code(
    verbs: Launcher, hpc: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = hpc.queue.submit
    (verbs.context.config.project / "train.py").write_text("print()")

    def submit(plan: Any, *more: Any) -> None:
        real(plan, *more)
        raise KeyboardInterrupt

    monkeypatch.setattr(hpc.queue, "submit", submit)
    with pytest.raises(KeyboardInterrupt):
        verbs.sweeping.start(STUDY, TRAIN, 3)
    monkeypatch.undo()
    (sweep,) = hpc.sweeps
    code = hpc.jobs[f"{sweep}.0"].spec.snapshot
    assert code
    verbs.sweeping.add(sweep, 1)
    assert hpc.jobs[f"{sweep}-2.0"].spec.snapshot == code


def test_a_metric_that_the_pattern_does_not_read_is_refused_before_anything_is_there(
    tmp_path: Path, hpc: FakeCluster
) -> None:
    config = launcher(tmp_path, hpc).context.config
    job = {**config.job, "job.metrics.pattern": r"reward: ([-0-9.e]+)"}
    verbs = Launcher(config._replace(job=job), Reporter(), {hpc.name: hpc})
    with pytest.raises(UsageError, match="is not what metrics"):
        start(verbs, STUDY._replace(metric="loss"))
    assert not hpc.jobs
    assert start(verbs, STUDY._replace(metric="mean_reward"))


def test_a_cluster_that_is_not_there_or_has_no_trial_is_told(
    tmp_path: Path, hpc: FakeCluster
) -> None:
    verbs = launcher(tmp_path, hpc, FakeCluster("box"))
    sweep = start(verbs)
    assert len(verbs.sweeping.look(sweep, "hpc").trials) == 6
    assert [one.id for one in verbs.sweeping.known("hpc")] == [sweep]
    for ask in (verbs.sweeping.look, lambda _, on: verbs.sweeping.known(on)):
        with pytest.raises(NotFound, match=r"no cluster 'hpd'.*hpc"):
            ask(sweep, "hpd")
    with pytest.raises(UsageError, match=f"{sweep} is on hpc, not on box"):
        verbs.sweeping.look(sweep, "box")
    assert verbs.sweeping.known("box") == []


def test_reasons_of_failures_fit_the_terminal_and_do_not_act_on_it(
    verbs: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "width", lambda: 40)
    seen = verbs.sweeping.look(start(verbs))
    reasons = ["\x1b[2J\nfake " * 20, "a", "a", "b", "c"]
    trials = tuple(
        one._replace(state="failed", reason=reason, values={"lr": 1.0})
        for one, reason in zip(seen.trials, reasons, strict=False)
    )
    told = cli.failure_lines(seen._replace(trials=trials))
    assert told[0] == "2 failed: a"
    assert told[1].startswith(r"1 failed: \x1b[2J\nfake")
    assert told[1].endswith("…")
    assert (len(told[1]), told[1].isprintable()) == (40, True)
    assert told[3].startswith("1 failed for other reasons: --json")


def test_a_sweep_is_not_resumed_as_a_whole(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs, trials=3)
    begin(hpc, sweep, 1, f"{sweep}.1")
    hpc.end(f"{sweep}.1", "failed", exit_code=1)
    verbs.sweeping.look(sweep)
    with pytest.raises(UsageError, match="3 jobs, and they are resumed one by one") as refused:
        verbs.resume(sweep)
    assert f"dray resume {sweep}.1." in refused.value.hint
    assert f"dray sweep go-on {sweep} --best" in refused.value.hint


def test_what_is_named_and_what_is_read_from_the_log_are_compared() -> None:
    pattern = r"it (?P<step>\d+) reward: ([-0-9.e]+)"
    alike = STUDY._replace(metric="Train/mean_reward", stop_if=("nan",))
    other = STUDY._replace(metric="loss", stop_if=("loss > 5",))
    for study, read in [
        (STUDY, None), (STUDY, pattern), (alike, pattern), (other, None),
        (other, "([0-9.]+)$"),  # it has no other name
    ]:  # fmt: skip
        require_metric(study, read)
        assert not notes_on_metric(study, read)
    with pytest.raises(UsageError, match="loss is not what metrics") as refused:
        require_metric(other, pattern)
    assert "--metric reward" in refused.value.hint
    (note,) = notes_on_metric(STUDY._replace(stop_if=("reward < 1", "loss > 5")), pattern)
    assert note.startswith("--stop-if 'loss > 5' never holds")


def test_no_more_is_added_than_can_be_read_back(verbs: Launcher, hpc: FakeCluster) -> None:
    sweep = start(verbs, STUDY._replace(repeats=2), 1)
    before = dict(hpc.jobs)
    with pytest.raises(UsageError, match="at most 1,000,000 trials, and these would be 1,000,002"):
        verbs.sweeping.add(sweep, 500_000)
    assert hpc.jobs == before


def test_a_sampler_that_optuna_may_not_have_is_told_before_trials_fail(
    tmp_path: Path, hpc: FakeCluster
) -> None:
    said: list[str] = []
    verbs = launcher(tmp_path, hpc, say=said.append)
    start(verbs, STUDY._replace(sampler="optuna:CmaEsSampler,sigma0=0.1"), 1)
    assert said == []
    start(verbs, STUDY._replace(sampler="optuna:CmaSampler"), 1)
    assert "trials fail unless the Optuna there has a sampler of that name" in said[0]
    assert said[0].endswith("Did you mean 'CmaEsSampler'?")
