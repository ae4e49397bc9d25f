"""Sweeps, on this machine and on a real Slurm: trials ask for their parameters when they start."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.rigs.link import Link

PYTHON = sys.executable
# Reports a reward, and saves how far it has come. What it is told decides how it goes on:
# "slow" waits behind half of its steps until somebody ends it, "crash" fails.
TRAINER = """
import json, os, pathlib, signal, sys, time
import dray.training as t

own = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
reward, steps, how = float(own["reward"]), int(own.get("steps", 20)), own.get("how", "")
out = pathlib.Path(t.outputs())
with (out / "params.txt").open("a") as seen:
    seen.write(os.environ["DRAY_PARAMS"] + "\\n")
if how == "crash":
    sys.exit(3)
if how == "killed" and t.attempt() == 1:
    os.kill(os.getppid(), signal.SIGKILL)
begin = t.resume_path()
first = int(pathlib.Path(begin).read_text()) + 1 if begin else 1
for step in range(first, steps + 1):
    t.report(step=step, reward=reward)
    if how == "slow" and step == steps // 2 and not begin:
        (out / "model_1.txt").write_text(str(step))
        while True:
            time.sleep(0.1)
(out / "model_2.txt").write_text(str(steps))
print("trial", os.environ["DRAY_TRIAL"], "of", os.environ["DRAY_SWEEP"])
"""
RESUMES = ("--checkpoint", "model_*.txt", "--checkpoint-number", r"model_(\d+)")

# The one metric is better with another seed, the other one is not; 4 is the best by both.
TWO_METRICS = """
import sys
import dray.training as t

own = dict(word.split("=", 1) for word in sys.argv[1:])
reward = int(own["reward"])
for step in range(1, 21):
    t.report(step=step, reward=reward + int(own["seed"]), **{"Loss/energy": reward**2 % 16})
"""


@pytest.fixture
def far(dray: Dray, hpc: Hpc) -> Dray:
    dray.write("train.py", TRAINER)
    hpc.offer(dray)
    return dray


def start(dray: Dray, on: str, *flags: str, command: tuple[str, ...] = ()) -> str:
    words = ("--on", on, "--metric", "reward", *flags, "--", PYTHON, "train.py", *command)
    ended = dray("sweep", "start", *words)
    sweep = ended.stdout.strip()
    assert "\n" not in sweep
    return sweep


def status(dray: Dray, sweep: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dray("sweep", "status", "--json", sweep).stdout)
    return found


def trials(dray: Dray, sweep: str) -> list[dict[str, Any]]:
    """The trials as they are now, in their order."""
    found = [one for c in status(dray, sweep)["configurations"] for one in c["trials"]]
    return sorted(found, key=lambda one: one["number"])


def wait_until_all_are_done(dray: Dray, sweep: str) -> None:
    """Wait for all trials; where one is not done, tell why, with its log."""
    dray("wait", "--timeout", "100s", sweep, check=False)
    odd = [one["job"] for one in trials(dray, sweep) if one["state"] != "done"]
    assert not odd, "\n".join(dray("show", job).stdout + dray.log(job) for job in odd)


def jobs_on(dray: Dray, on: str) -> Path:
    return dray.jobs if on == "hpc" else dray.home / "dray/local/jobs"


def study_folder(dray: Dray, sweep: str) -> Path:
    return dray.jobs.parent / "sweeps" / sweep


@pytest.mark.parametrize("on", ["local", "hpc"])
def test_twenty_trials_from_start_to_removal(far: Dray, on: str) -> None:
    far.jobs = jobs_on(far, on)
    space = ("--space", "reward=0..10:float", "--space", "steps=20..30:int", "--space", "kind=a,b")
    sweep = start(far, on, "--trials", "20", "--seed", "1", *space)
    wait_until_all_are_done(far, sweep)
    found = trials(far, sweep)
    assert [one["number"] for one in found] == list(range(20))
    assert {one["state"] for one in found} == {"done"}
    assert len({one["values"]["reward"] for one in found}) == 20
    for one in found:
        assert one["value"] == pytest.approx(one["values"]["reward"])
        assert one["step"] == one["values"]["steps"]
        assert 0 <= one["values"]["reward"] <= 10
    # Each is an ordinary job, with its command filled in.
    third = far.show(f"{sweep}.3")
    value = found[3]["values"]["reward"]
    assert f"reward={value!r}" in third["command"]
    assert third["env"]["DRAY_TRIAL"] == "3"
    assert far.log(f"{sweep}.3") == f"trial 3 of {sweep}\n"
    # The best is known, and can be run again.
    best = max(found, key=lambda one: float(one["value"]))
    command = far("sweep", "best", "-n", "1", "--command", sweep).stdout
    assert f"reward={best['values']['reward']!r}" in command
    shown = far("sweep", "best", sweep).stdout
    assert f".{best['number']} " in shown.split("\n")[2]
    assert "done 20" in far("sweep", "status", sweep).stdout
    columns = far("sweep", "status", "--columns", "reward", sweep).stdout.split("\n")
    assert columns[2].split() == ["TRIAL", "VALUE", "STEP", "STATE", "reward"]
    assert all(row.split()[1] == row.split()[-1] for row in columns[3:13])
    assert sweep in far("sweep", "status").stdout
    # What was submitted together is removed together.
    assert study_folder(far, sweep).is_dir()
    far("rm", sweep)
    assert not study_folder(far, sweep).exists()
    assert sweep not in far("sweep", "status").stdout
    assert not [name for name in os.listdir(far.jobs) if not name.startswith(".")]


@pytest.mark.parametrize("on", ["local", "hpc"])
def test_a_trial_that_does_badly_is_pruned_and_can_go_on(far: Dray, on: str) -> None:
    """The first trial is better than the second, which waits half-way until somebody ends it."""
    space = ("--space", "reward=9,2", "--space", "how=fast,slow", "--sampler", "grid")
    flags = ("--stop", "asha", "--stop-first", "5", "--trials", "1", *RESUMES)
    sweep = start(far, on, *flags, *space)  # reward=9 fast
    far("wait", "--timeout", "100s", sweep)
    assert [one["rungs"] for one in trials(far, sweep)] == [{"5": 9.0, "15": 9.0}]
    far("sweep", "add", sweep, "3")  # 9 slow, 2 fast, 2 slow
    last = f"{sweep}-2.2"
    ended = far.wait(last)
    assert ended["state"] == "stopped"
    assert ended["reason"].startswith("pruned at step 5: 2 is not among the best third of ")
    pruned = trials(far, sweep)[3]
    assert (pruned["state"], pruned["job"], pruned["value"]) == ("pruned", last, 2.0)
    assert pruned["rungs"] == {"5": 2.0}
    # A promoted one goes on from its checkpoint, and is not pruned a second time.
    far("stop", f"{sweep}-2.0")
    (resumed,) = far("sweep", "go-on", sweep, "--best", "1").stdout.split()
    ended = far.wait(resumed)
    assert ended["state"] == "done"
    assert ended["attempts"][-1]["from_checkpoint"] == "model_1.txt"
    values = {one["job"]: one for one in trials(far, sweep)}[resumed]
    assert values["rungs"] == {"5": 2.0, "15": 2.0}
    far("sweep", "stop", "--now", sweep)


@pytest.mark.parametrize("on", ["local", "hpc"])
def test_too_many_failures_close_a_sweep(far: Dray, on: str) -> None:
    sweep = start(
        far, on, "--trials", "5", "--at-once", "1", "--max-failures", "1",
        "--space", "reward=0..1:float", command=("how=crash",),
    )  # fmt: skip
    far("wait", "--timeout", "100s", sweep, check=False)
    found = trials(far, sweep)
    assert sorted(one["state"] for one in found) == ["failed"] * 2 + ["stopped"] * 3
    reasons = {one["reason"] for one in found if one["state"] == "stopped"}
    (reason,) = reasons
    assert reason.endswith("2 trials of the sweep have failed, more than max_failures = 1")
    assert not [one for one in found if one["state"] == "stopped" and one["values"]]
    shown = far("sweep", "status", sweep).stdout
    assert "closed, 2 trials failed, more than max_" in shown
    (why,) = {one["reason"] for one in found if one["state"] == "failed"}
    assert f"\n2 failed: {why}\n" in shown
    assert status(far, sweep)["failures"] == [{"reason": why, "trials": 2}]
    for words in (("status", sweep), ("status",), ("best", sweep), ("picture", sweep)):
        wrong = far("sweep", *words, "--on", f"{on}x", check=False)
        assert f"there is no cluster '{on}x'" in wrong.stderr
        assert f"'{on}'" in wrong.stderr
    wrong = far("sweep", "export", sweep, "--csv", "-", "--on", f"{on}x", check=False)
    assert (wrong.stdout, wrong.returncode == 0) == ("", False)
    assert "they are resumed one by one" in far("resume", sweep, check=False).stderr
    refused = far("sweep", "add", sweep, "1", check=False)
    assert "would start" in refused.stderr


@pytest.mark.parametrize("on", ["local", "hpc"])
def test_a_stopped_trial_is_resumed_with_the_same_parameters(far: Dray, on: str) -> None:
    command = ("how=slow",)
    sweep = start(
        far, on, "--trials", "2", "--space", "reward=0..1:float", *RESUMES, command=command
    )
    job = f"{sweep}.1"
    out = jobs_on(far, on)
    wait_for(lambda: (out / job / "outputs/model_1.txt").exists(), 60)
    far("stop", job)
    assert trials(far, sweep)[1]["state"] == "stopped"
    far("resume", job)
    assert far.wait(job)["state"] == "done"
    seen = (out / job / "outputs/params.txt").read_text().splitlines()
    assert len(seen) == 2
    assert seen[0] == seen[1]
    value = trials(far, sweep)[1]["values"]["reward"]
    assert json.loads(seen[0]) == {"reward": value}
    far("sweep", "stop", "--now", sweep)
    assert "closed" in far("sweep", "status", sweep).stdout


def test_a_trial_that_is_killed_goes_on_with_the_same_parameters(dray: Dray) -> None:
    dray.write("train.py", TRAINER)
    sweep = start(
        dray,
        "local",
        "--trials",
        "1",
        "--space",
        "reward=0..1:float",
        *RESUMES,
        command=("how=killed",),
    )
    ended = dray.wait(f"{sweep}.0")
    assert ended["state"] == "done"
    assert [one["outcome"] for one in ended["attempts"]] == ["lost", "done"]
    seen = (dray.job_dir(f"{sweep}.0") / "outputs/params.txt").read_text().splitlines()
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_only_some_run_at_once_on_this_machine(dray: Dray) -> None:
    """Other jobs need not wait behind those that wait for a place in their sweep."""
    dray.write("train.py", TRAINER)
    dray.configure("[clusters.local]\ncpus = 8\n")
    sweep = start(
        dray, "local", "--trials", "4", "--at-once", "2", "--space", "reward=0..1:float", *RESUMES,
        command=("how=slow",),
    )  # fmt: skip

    def running() -> list[str]:
        return [one["job"] for one in trials(dray, sweep) if one["state"] == "running"]

    wait_for(lambda: len(running()) == 2)
    other = dray.run("--no-snapshot", "--", "true")
    assert dray.wait(other)["state"] == "done"
    assert len(running()) == 2
    held = [one for one in trials(dray, sweep) if one["state"] == "queued"]
    assert [one["reason"] for one in held] == ["held: 2 of its sweep at once"] * 2
    assert "held: 2 of its sweep at once" in dray("why", held[0]["job"]).stdout
    assert "number" not in dray("why", held[0]["job"]).stdout  # nobody is in front of it
    assert "waiting: 2 (2 yours), running: 2 (2 yours)" in dray("queue").stdout
    first = running()[0]
    dray("stop", first)
    wait_for(lambda: len(running()) == 2)
    dray("sweep", "stop", "--waiting", sweep)
    assert len(running()) == 2
    dray("stop", "--now", sweep)
    assert {one["state"] for one in trials(dray, sweep)} == {"stopped"}
    (never_begun,) = (one["job"] for one in trials(dray, sweep) if not one["values"])
    dray("resume", never_begun)  # which the user asks for, though the sweep is closed
    wait_for(lambda: running() == [never_begun])
    dray("stop", "--now", never_begun)


def test_a_start_that_is_interrupted_leaves_a_sweep_that_can_be_used(dray: Dray) -> None:
    """This machine takes trials one by one: Ctrl-C leaves some, which are the sweep then."""
    dray.write("train.py", TRAINER)
    flags = ("--name", "intr", "--trials", "30", "--at-once", "1", "--sampler", "random")
    trainer = ("--space", "reward=1..9:float", "--", PYTHON, "train.py", "how=slow")
    words = ("sweep", "start", "--metric", "reward", *flags, *trainer)
    said = dray.interrupted(lambda: len(dray.job_names()) >= 3, *words)
    there = dray.job_names()
    sweep, number = there[0].partition(".")[0], len(there)
    assert 3 <= number < 30
    assert f"{number} of 30 trials of {sweep} are submitted" in said
    assert f"dray sweep add {sweep} {30 - number}" in said
    assert [one["job"] for one in trials(dray, sweep)] == [f"{sweep}.{n}" for n in range(number)]
    dray("sweep", "add", sweep, "1")
    assert [one["number"] for one in trials(dray, sweep)] == list(range(number + 1))
    dray("sweep", "stop", "--now", sweep)
    assert {one["state"] for one in trials(dray, sweep)} == {"stopped"}


def test_trials_that_were_never_submitted_are_not_counted(dray: Dray, tmp_path: Path) -> None:
    """Killed after the first of them, and given up by dray a minute later."""
    dray.write("train.py", TRAINER)
    words = ("--metric", "reward", "--space", "reward=1..9:float", "--trials", "5")
    fault = f"run:job-committed@{tmp_path / 'killed'}"
    dray("sweep", "start", *words, "--", PYTHON, "train.py", check=False, DRAY_FAULT=fault)
    (first,) = dray.job_names()
    sweep = first.partition(".")[0]
    with sqlite3.connect(next(dray.home.glob("dray/**/store.db"))) as store:
        store.execute("UPDATE jobs SET created = created - 100")
    store.close()
    dray("wait", "--timeout", "100s", first, check=False)
    wait_for(lambda: [one["job"] for one in trials(dray, sweep)] == [first])
    dray("sweep", "stop", sweep)


def test_repeats_have_the_same_values_and_other_seeds(dray: Dray) -> None:
    dray.write("train.py", TRAINER)
    sweep = start(
        dray, "local", "--trials", "2", "--repeats", "3", "--seed", "40",
        "--space", "reward=0..1:float",
        command=("reward={reward}", "seed={seed}", "repeat={repeat}"),
    )  # fmt: skip
    dray("wait", "--timeout", "100s", sweep)
    found = trials(dray, sweep)
    assert [one["configuration"] for one in found] == [0, 0, 0, 1, 1, 1]
    assert len({one["values"]["reward"] for one in found}) == 2
    commands = [dray.show(one["job"])["command"] for one in found]
    assert [words[-2:] for words in commands[:3]] == [
        [f"seed={40 + repeat}", f"repeat={repeat}"] for repeat in range(3)
    ]
    assert " ± " in dray("sweep", "status", sweep).stdout


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_a_parameter_that_is_not_always_there(dray: Dray, sampler: str) -> None:
    """It is in the command and in DRAY_PARAMS where it is there, and a dash in the table."""
    dray.write("train.py", TRAINER)
    flags = ("--sampler", sampler, "--space", "opt=sgd,adam", "--trials", "3")
    flags += ("--space", "beta=1,2:when=opt:adam", "--space", "twice==beta*2")
    sweep = start(dray, "local", *flags, command=("reward=1",))
    wait_until_all_are_done(dray, sweep)
    found = trials(dray, sweep)
    told = [one["values"] for one in found]
    assert all(("beta" in one) == ("twice" in one) == (one["opt"] == "adam") for one in told)
    if sampler == "grid":
        assert [one.get("beta") for one in told] == [None, 1, 2]
    for one in found:
        (seen,) = (jobs_on(dray, "local") / one["job"] / "outputs").glob("**/params.txt")
        assert json.loads(seen.read_text()) == one["values"]
        words = dray("show", one["job"], "--json").stdout
        assert ("beta=" in words) == ("beta" in one["values"])
    rows = dray("sweep", "status", sweep).stdout
    assert ("-" in rows.split()) == any(one["opt"] == "sgd" for one in told)
    more = dray("sweep", "start", *flags, "--", PYTHON, "train.py", "{beta}", check=False)
    assert more.returncode == 2
    assert "the parameter 'beta' is not always there" in more.stderr


def test_several_metrics_at_once(dray: Dray) -> None:
    """Both are followed, and averaged over repeats; the best are the Pareto front."""
    dray.write("train.py", TWO_METRICS)
    flags = ("--metric", "reward", "--metric", "Loss/energy", "--mode", "max,min")
    flags += ("--sampler", "grid", "--repeats", "2", "--space", "reward=1,2,3,4", "--seed", "0")
    words = (*flags, "--", PYTHON, "train.py", "seed={seed}")
    sweep = dray("sweep", "start", *words).stdout.strip()
    wait_until_all_are_done(dray, sweep)
    found = status(dray, sweep)["configurations"]
    told = [[one["value"] for one in of["objectives"]] for of in found]
    assert told == [[1.5, 1.0], [2.5, 4.0], [3.5, 9.0], [4.5, 0.0]]
    assert [one["rank"] for one in found] == [2, 2, 2, 1]
    assert all(one["value"] == one["objectives"][0] for of in found for one in of["trials"])
    shown = dray("sweep", "status", sweep).stdout
    assert "max reward, min Loss/energy" in shown
    assert "reward" in shown.splitlines()[2]
    assert "energy" in shown.splitlines()[2]
    best = dray("sweep", "best", sweep).stdout
    assert "the Pareto front, 1 of 4" in best
    assert "4.5 ± 0.71" in best
    only = json.loads(dray("sweep", "best", "--json", sweep).stdout)["configurations"]
    assert [one["number"] for one in only] == [3]
    assert dray("sweep", "best", "--command", sweep).stdout.count("reward=4") == 1
    table = dray("sweep", "export", sweep, "--csv", "-").stdout.splitlines()
    assert ",reward,Loss/energy,step," in table[0]
    dray("sweep", "export", sweep, "--tensorboard", "board")
    assert len(list((dray.project / "board").iterdir())) == 8
    assert (
        "'energy' is no metric"
        in dray("sweep", "picture", sweep, "--metric", "energy", check=False).stderr
    )


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ((), "tpe learns from one metric"),
        (("--sampler", "quasi", "--stop", "asha", "--stop-total", "9"), "compares trials by one"),
        (("--sampler", "quasi", "--mode", "max,min,max"), "is for 3 metrics, and there are 2"),
    ],
)
def test_what_needs_one_metric_is_refused_before_anything_is_submitted(
    dray: Dray, flags: tuple[str, ...], why: str
) -> None:
    both = ("--metric", "reward", "--metric", "energy", "--space", "reward=0..1:float")
    words = (*both, *flags, "--", PYTHON, "train.py")
    ended = dray("sweep", "start", *words, check=False)
    assert ended.returncode == 2
    assert why in ended.stderr
    assert "no sweeps" in dray("sweep", "status").stderr


def test_a_condition_ends_a_trial(dray: Dray) -> None:
    dray.write("train.py", TRAINER)
    sweep = start(
        dray, "local", "--trials", "1", "--space", "reward=1..2:float",
        "--stop-if", "reward > 0.5 after 3", *RESUMES, command=("how=slow",),
    )  # fmt: skip
    ended = dray.wait(f"{sweep}.0")
    assert (ended["state"], ended["reason"]) == (
        "stopped",
        "stop_if: reward > 0.5 after 3 (step 3)",
    )
    assert (dray.job_dir(f"{sweep}.0") / "outputs/model_1.txt").exists()


def test_a_wrong_name_of_a_metric_is_told_with_those_that_are_there(dray: Dray) -> None:
    dray.write("train.py", TRAINER)
    names = ("--stop-if", "Losss > 3", "--metric", "rewards")
    words = ("--trials", "1", "--space", "reward=1..2:float", *names, "--", PYTHON, "train.py")
    sweep = dray("sweep", "start", *words).stdout.strip()
    dray("wait", "--timeout", "100s", sweep)
    for verb in ("status", "best"):
        assert "1 done without a value of 'rewards'" in dray("sweep", verb, sweep).stdout
    shown = dray("sweep", "status", sweep).stdout
    assert "stop_if Losss > 3: no trial has reported 'Losss'; there is reward" in shown
    dray("sweep", "stop", sweep)
    added = dray("sweep", "add", sweep, "1")
    assert f"{sweep} was stopped, and is open again" in added.stderr
    assert "closed" not in dray("sweep", "status", sweep).stdout
    dray("wait", "--timeout", "100s", sweep)


def test_a_file_describes_a_sweep(dray: Dray) -> None:
    dray.write("train.py", TRAINER)
    dray.write(
        "sweep.toml",
        f"""
        [sweep]
        name = "policy"
        trials = 2
        metric = "reward"
        command = ["{PYTHON}", "train.py"]
        [sweep.space]
        reward = [1.5, 2.5]
        [job]
        retries = 1
        """,
    )
    sweep = dray("sweep", "start", "sweep.toml", "--sampler", "grid").stdout.strip()
    assert sweep.startswith("policy-")
    dray("wait", "--timeout", "100s", sweep)
    assert [one["value"] for one in trials(dray, sweep)] == [1.5, 2.5]
    assert dray.show(f"{sweep}.1")["retries"] == 1
    dray.write("sweep.toml", '[sweep]\n[sweep.space]\nx = [1]\n[job]\nsecrets = ["KEY"]\n')
    refused = dray("sweep", "start", "sweep.toml", "--", "true", check=False)
    assert refused.returncode == 2
    assert "job.secrets is not taken from a sweep's file" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--", "true"), "nothing to vary"),
        (("--space", "x=1..2:float", "--", "true", "{y}"), "stands for nothing"),
        (("--space", "x=1..2:float"), "no command"),
        (("--space", "x=1..2:float", "--stop", "asha", "--", "true"), "when trials are compared"),
        (("--space", "x=1..2:float", "--sampler", "grid", "--", "true"), "no step"),
        (("--space", "x=1,2", "--sampler", "optuna:GridSampler", "--", "true"), "GridSampler"),
        (("--space", "x=1..2:float", "--stop-if", "odd", "--", "true"), "is not a condition"),
        (("--space", "x=1,2", "--space", "x=3,4", "--", "true"), "'x' is there twice"),
        (
            ("--space=x=1,2", "--stop=asha", "--stop-first=9", "--stop-total=9", "--", "true"),
            "would never be compared",
        ),
    ],
)
def test_what_cannot_run_is_refused_at_once(
    dray: Dray, words: tuple[str, ...], message: str
) -> None:
    ended = dray("sweep", "start", *words, check=False)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert not ended.stdout
    assert "no jobs" in dray("ps").stderr


def test_a_thousand_trials_are_one_small_array(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, extra=["--hold"])
    space = ("--space", "lr=1e-5..1e-1:log", "--space", "reward=0..1:float")
    sweep = start(far, "hpc", "--trials", "1000", "--at-once", "8", *space)
    try:
        queued = hpc.slurm.call("squeue", "-h", "-r", "-n", sweep, "-o", "%i").split()
        assert len(queued) == 1000
        folder = far.jobs.parent / "arrays" / sweep
        assert (folder / "job.json").stat().st_size < 10_000
        assert "#SBATCH --array=0-999%8\n" in (folder / "batch.sh").read_text()
        assert not any(far.jobs.iterdir())
        found = trials(far, sweep)
        assert len(found) == 1000
        assert {one["state"] for one in found} == {"queued"}
        assert far.show(f"{sweep}.700")["state"] == "queued"
        far("sweep", "add", sweep, "2")
        assert [one["job"] for one in trials(far, sweep)][1000:] == [
            f"{sweep}-2.0",
            f"{sweep}-2.1",
        ]
    finally:
        far("sweep", "stop", "--now", sweep)
    assert {one["state"] for one in trials(far, sweep)} == {"stopped"}
    assert not hpc.slurm.call("squeue", "-h", "-n", f"{sweep},{sweep}-2")


def test_what_slurm_refuses_leaves_nothing(far: Dray, hpc: Hpc) -> None:
    sweep = start(far, "hpc", "--trials", "1", "--space", "reward=0..1:float")
    hpc.offer(far, partition="nosuch")
    refused = far("sweep", "add", sweep, "3", check=False)
    assert "partition" in refused.stderr
    words = ("--on", "hpc", "--space", "x=1,2", "--", "true")
    assert "partition" in far("sweep", "start", *words, check=False).stderr
    hpc.offer(far)
    far("wait", "--timeout", "100s", sweep)
    assert [one["number"] for one in trials(far, sweep)] == [0]
    assert [one.split()[0] for one in far("sweep", "status").stdout.splitlines()[1:]] == [sweep]
    assert os.listdir(far.jobs.parent / "sweeps") == [sweep]


@pytest.mark.parametrize("on", ["pbs", "box"])
def test_where_there_are_no_arrays_trials_are_jobs_one_by_one(
    dray: Dray, hpc: Hpc, on: str
) -> None:
    dray.write("train.py", TRAINER)
    (hpc.offer_pbs if on == "pbs" else hpc.offer_box)(dray)
    sweep = start(dray, on, "--trials", "3", "--space", "reward=0..1:float")
    dray("wait", "--timeout", "100s", sweep)
    found = trials(dray, sweep)
    assert [one["state"] for one in found] == ["done"] * 3
    assert [one["value"] for one in found] == [one["values"]["reward"] for one in found]
    assert "trial      1 of" in dray("show", f"{sweep}.1").stdout


def test_another_machine_finds_a_sweep(far: Dray, hpc: Hpc, tmp_path: Path) -> None:
    sweep = start(far, "hpc", "--trials", "2", "--space", "reward=0..1:float")
    far("wait", "--timeout", "100s", sweep)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = Dray(elsewhere, far.project)
    other.env.update({key: far.env[key] for key in ("PATH", "XDG_RUNTIME_DIR")})
    config = Path(other.env["DRAY_HOME"], "config.toml")
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text(Path(far.env["DRAY_HOME"], "config.toml").read_text())
    told = other("sweep", "status", "--on", "hpc", sweep).stdout
    assert "done 2" in told
    wait_for(other.nothing_runs)


def test_a_submission_whose_answer_is_lost_is_found_again(far: Dray, hpc: Hpc, link: Link) -> None:
    """The link breaks once the array is on its way: Slurm has it once, and dray knows it."""
    far("doctor", "hpc")
    done = threading.Event()

    def cut_once_written() -> None:
        while not done.is_set():
            if any((far.jobs.parent / "arrays").glob("*/batch.sh")):
                link.cut()
                return

    watcher = threading.Thread(target=cut_once_written)
    watcher.start()
    sweep = start(far, "hpc", "--trials", "3", "--space", "reward=0..1:float")
    done.set()
    watcher.join()
    far("wait", "--timeout", "100s", sweep)
    found = trials(far, sweep)
    assert [one["state"] for one in found] == ["done"] * 3
    assert os.listdir(far.jobs.parent / "arrays") == [sweep]
    for one in found:
        assert len(far.show(one["job"])["attempts"]) == 1
