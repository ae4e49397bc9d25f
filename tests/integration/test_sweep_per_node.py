"""Several trials of a sweep in one allocation of a real Slurm: each stays a job of its own."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dray.node.formats.faults import TASK_MOMENTS
from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import parent_of
from tests.integration.test_sweeps import start, trials

pytestmark = pytest.mark.slurm

# Tells which GPUs it has, and saves; then waits until its own gate is open, or "all". Each attempt
# leaves its mark, so that none passes unseen. What the gate says decides on its end.
TRAINER = """
import json, os, pathlib, sys, time
import dray.training as t

out, trial, begin = pathlib.Path(t.outputs()), os.environ["DRAY_TRIAL"], t.resume_path()
print("gpus", os.environ.get("CUDA_VISIBLE_DEVICES"), "of trial", trial, flush=True)
pathlib.Path(FOLDER, f"{trial}-{t.attempt()}").write_text(json.dumps(
    {"gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "from": bool(begin), "pid": os.getpid(),
     "parent": os.getppid(), "number": os.environ.get("SLURM_ARRAY_TASK_ID")}))
t.report(step=1, reward=float(sys.argv[1].split("=")[1]))
(out / "model_1.txt").write_text("1")
gates = [pathlib.Path(FOLDER, name) for name in (f"open-{trial}", "open-all")]
while not any(one.exists() for one in gates):
    time.sleep(0.1)
said = [one.read_text() for one in gates if one.exists()][0]
sys.exit(int(said or "0"))
"""
RESUMES = ("--checkpoint", "model_*.txt", "--checkpoint-number", r"model_(\d+)")
SPACE = ("--space", "reward=0..1:float")


class Gates:
    """What the trials have written, and what lets them go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, trial: object = "all", code: int = 0) -> None:
        made = self.folder / f".new-{trial}"
        made.write_text(str(code))
        made.rename(self.folder / f"open-{trial}")

    def seen(self, trial: int, attempt: int = 1) -> dict[str, Any]:
        path = self.folder / f"{trial}-{attempt}"

        def read() -> dict[str, Any] | None:
            text = path.read_text() if path.exists() else ""
            return json.loads(text) if text else None

        found: dict[str, Any] = wait_for(read, 90)
        return found

    def begun(self) -> set[str]:
        return {path.name for path in self.folder.glob("[0-9]*-*")}


@pytest.fixture
def gates(hpc: Hpc, tmp_path: Path) -> Gates:
    folder = hpc.host.folder(tmp_path / "gates")
    folder.mkdir(exist_ok=True)
    return Gates(folder)


@pytest.fixture
def far(dray: Dray, hpc: Hpc, gates: Gates) -> Dray:
    dray.write("train.py", f"FOLDER = {str(gates.folder)!r}\n{TRAINER}")
    hpc.offer(dray)
    return dray


def states(dray: Dray, sweep: str) -> list[str]:
    return [one["state"] for one in trials(dray, sweep)]


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def task_of(dray: Dray, trial: str) -> str:
    number: str = json.loads((dray.job_dir(trial) / "scheduler.json").read_text())["id"]
    return number


def test_trials_share_a_batch_job_and_divide_its_gpus(far: Dray, hpc: Hpc, gates: Gates) -> None:
    """Five trials by twos: the last one has a batch job for itself, of the same size."""
    flags = ("--trials", "5", "--per-node", "2", "--gpus", "2", "--cpus", "4", "--at-once", "4")
    sweep = start(far, "hpc", *flags, *SPACE)
    script = (far.jobs.parent / "arrays" / sweep / "batch.sh").read_text()
    assert "#SBATCH --array=0-4:2%2\n" in script
    assert "#SBATCH --gres=gpu:2\n" in script
    assert "#SBATCH --cpus-per-task=4\n" in script
    first = [gates.seen(number) for number in range(4)]
    assert [one["number"] for one in first] == ["0", "0", "2", "2"]
    for pair in (first[:2], first[2:]):
        assert {one["gpus"] for one in pair} == {"0", "1"}
    assert gates.begun() == {"0-1", "1-1", "2-1", "3-1"}  # --at-once
    found = trials(far, sweep)
    assert [one["job"] for one in found] == [f"{sweep}.{number}" for number in range(5)]
    assert [one["state"] for one in found] == ["running"] * 4 + ["queued"]
    assert len({one["values"]["reward"] for one in found[:4]}) == 4
    assert far.show(f"{sweep}.3")["resources"]["gpus"] == 1
    gates.open()
    assert gates.seen(4)["gpus"] == "0"
    far("wait", "--timeout", "100s", sweep)
    assert states(far, sweep) == ["done"] * 5
    assert far.log(f"{sweep}.3") == "gpus 1 of trial 3\n"
    assert [one["value"] for one in trials(far, sweep)] == [
        one["values"]["reward"] for one in trials(far, sweep)
    ]
    far("rm", sweep)
    assert not any(far.jobs.iterdir())


def test_all_trials_of_a_batch_job_go_on_after_a_requeue(far: Dray, hpc: Hpc, gates: Gates) -> None:
    flags = ("--trials", "3", "--per-node", "3", "--gpus", "1", *RESUMES)
    sweep = start(far, "hpc", *flags, *SPACE)
    assert {gates.seen(number)["gpus"] for number in range(3)} == {"0"}
    gates.open(1)
    assert far.wait(f"{sweep}.1")["state"] == "done"
    hpc.slurm.call("scontrol", "requeue", task_of(far, f"{sweep}.0"))
    again = [gates.seen(number, 2) for number in (0, 2)]
    assert all(one["from"] for one in again)
    gates.open()
    far("wait", "--timeout", "100s", sweep)
    assert states(far, sweep) == ["done"] * 3
    attempts = [len(far.show(f"{sweep}.{number}")["attempts"]) for number in range(3)]
    assert attempts == [2, 1, 2]
    values = [far.show(f"{sweep}.{number}")["sweep"]["values"] for number in range(3)]
    assert len({one["reward"] for one in values}) == 3


@pytest.mark.parametrize("how", ["requeue", "chain"])
def test_a_time_limit_interrupts_all_and_each_goes_on(
    far: Dray, hpc: Hpc, gates: Gates, how: str
) -> None:
    hpc.offer(far, **({"resume_with": "chain"} if how == "chain" else {}))
    limits = ("--time", "3s", "--grace", "1s", *RESUMES)
    sweep = start(far, "hpc", "--trials", "2", "--per-node", "2", *limits, *SPACE)
    assert [gates.seen(number, 2)["from"] for number in (0, 1)] == [True, True]
    gates.open()
    far("wait", "--timeout", "100s", sweep)
    assert states(far, sweep) == ["done"] * 2
    for number in (0, 1):
        shown = far.show(f"{sweep}.{number}")
        assert shown["attempts"][0]["reason"].startswith("time limit")
        assert all(one["outcome"] == "interrupted" for one in shown["attempts"][:-1])
    tasks = {task_of(far, f"{sweep}.{number}") for number in (0, 1)}
    assert len(tasks) == 1
    assert tasks.pop().endswith("_0")


def test_one_fails_and_the_others_are_done(far: Dray, gates: Gates) -> None:
    retries = ("--retries", "1", "--backoff", "0.1s")
    sweep = start(far, "hpc", "--trials", "3", "--per-node", "3", *retries, *SPACE)
    for number in range(3):
        gates.seen(number)
    gates.open(1, 3)
    shown = far.wait(f"{sweep}.1")  # both tries, beside the others
    assert (shown["state"], shown["exit_code"], len(shown["attempts"])) == ("failed", 3, 2)
    assert states(far, sweep) == ["running", "failed", "running"]
    gates.open()
    far("wait", "--timeout", "100s", sweep, check=False)
    assert states(far, sweep) == ["done", "failed", "done"]
    (gates.folder / "open-1").unlink()
    far("resume", f"{sweep}.1")  # by itself
    assert gates.seen(1, 3)["number"] is None
    assert far.wait(f"{sweep}.1")["state"] == "done"


def test_one_is_stopped_and_the_others_go_on(far: Dray, hpc: Hpc, gates: Gates) -> None:
    """While it runs, while it waits for the next batch job, and before it has begun."""
    flags = ("--trials", "6", "--per-node", "3", "--at-once", "3", *RESUMES)
    sweep = start(far, "hpc", *flags, *SPACE)
    for number in range(3):
        gates.seen(number)
    far("stop", f"{sweep}.4")  # its batch job waits, and two others need it
    assert far.show(f"{sweep}.4")["state"] == "stopped"
    far("stop", f"{sweep}.0")
    stopped = far.wait(f"{sweep}.0")
    assert (stopped["state"], stopped["reason"]) == ("stopped", "stopped on request")
    assert states(far, sweep) == ["stopped", *["running"] * 2, "queued", "stopped", "queued"]
    task = task_of(far, f"{sweep}.1")
    hpc.slurm.call("scontrol", "requeuehold", task)
    wait_for(lambda: far.show(f"{sweep}.1")["state"] == "queued")
    far("stop", f"{sweep}.1")
    assert far.show(f"{sweep}.1")["state"] == "stopped"
    assert far.show(f"{sweep}.2")["state"] == "queued"
    hpc.slurm.call("scontrol", "release", task)
    gates.open()
    far("wait", "--timeout", "100s", sweep, check=False)
    assert states(far, sweep) == ["stopped", "stopped", "done", "done", "stopped", "done"]
    assert gates.begun() == {"0-1", "1-1", "2-1", "2-2", "3-1", "5-1"}


def test_a_sweep_is_stopped_with_its_batch_jobs(far: Dray, hpc: Hpc, gates: Gates) -> None:
    sweep = start(far, "hpc", "--trials", "5", "--per-node", "2", "--at-once", "2", *SPACE)
    gates.seen(0), gates.seen(1)
    far("sweep", "add", sweep, "3")
    assert (
        "#SBATCH --array=0-2:2%1\n"
        in (far.jobs.parent / "arrays" / f"{sweep}-2" / "batch.sh").read_text()
    )
    wait_for(lambda: states(far, sweep).count("running") == 4)
    far("sweep", "stop", "--now", sweep)
    wait_for(lambda: set(states(far, sweep)) == {"stopped"})
    wait_for(lambda: not hpc.slurm.call("squeue", "-h", "-n", f"{sweep}:2,{sweep}-2:2"))


def test_one_whose_supervisor_is_killed_goes_on_beside_the_others(far: Dray, gates: Gates) -> None:
    sweep = start(far, "hpc", "--trials", "2", "--per-node", "2", *RESUMES, *SPACE)
    killed, other = gates.seen(0), gates.seen(1)
    os.kill(killed["parent"], signal.SIGKILL)
    again = gates.seen(0, 2)
    assert again["from"]
    assert not is_alive(killed["pid"])
    assert is_alive(other["pid"])
    gates.open()
    far("wait", "--timeout", "100s", sweep)
    assert states(far, sweep) == ["done", "done"]
    outcomes = [
        [one["outcome"] for one in far.show(f"{sweep}.{number}")["attempts"]] for number in (0, 1)
    ]
    assert outcomes == [["lost", "done"], ["done"]]


def test_nothing_of_a_killed_attempt_runs_beside_the_next_one(far: Dray, gates: Gates) -> None:
    """Not even what the trainer has started without variables, in a session of its own."""
    bare = """
import os, pathlib, subprocess

child = subprocess.Popen(["/bin/sleep", "1000"], env={}, start_new_session=True)
name = "bare-" + os.environ["DRAY_TRIAL"] + "-" + os.environ["DRAY_ATTEMPT"]
pathlib.Path(FOLDER, name).write_text(str(child.pid))
"""
    far.write("train.py", f"FOLDER = {str(gates.folder)!r}\n{bare}{TRAINER}")
    sweep = start(far, "hpc", "--trials", "2", "--per-node", "2", *RESUMES, *SPACE)
    killed, _ = gates.seen(0), gates.seen(1)
    os.kill(killed["parent"], signal.SIGKILL)
    gates.seen(0, 2)
    alive = {path.name for path in gates.folder.glob("bare-*") if is_alive(int(path.read_text()))}
    assert alive == {"bare-0-2", "bare-1-1"}
    gates.open()
    far("wait", "--timeout", "100s", sweep)
    assert states(far, sweep) == ["done", "done"]
    assert not any(is_alive(int(path.read_text())) for path in gates.folder.glob("bare-*"))


def test_a_cancelled_batch_job_stops_all_its_trials(far: Dray, hpc: Hpc, gates: Gates) -> None:
    sweep = start(far, "hpc", "--trials", "4", "--per-node", "2", "--at-once", "2", *SPACE)
    gates.seen(0), gates.seen(1)
    array = task_of(far, f"{sweep}.0").partition("_")[0]
    hpc.slurm.call("scancel", f"{array}_2")
    wait_for(lambda: states(far, sweep)[2:] == ["stopped", "stopped"])
    assert states(far, sweep)[:2] == ["running", "running"]
    hpc.slurm.call("scancel", f"{array}_0")
    wait_for(lambda: states(far, sweep) == ["stopped"] * 4)
    reasons = {far.show(f"{sweep}.{number}")["reason"] for number in (0, 1)}
    assert all(one.startswith("cancelled in Slurm") for one in reasons), reasons


def test_a_batch_job_that_is_killed_loses_all_its_trials(far: Dray, hpc: Hpc, gates: Gates) -> None:
    """Each can be resumed, by itself: it asks for its own part then."""
    flags = ("--trials", "2", "--per-node", "2", "--gpus", "1", "--cpus", "4", *RESUMES)
    sweep = start(far, "hpc", *flags, *SPACE)
    seen = [gates.seen(number) for number in (0, 1)]
    os.kill(parent_of(seen[0]["parent"]), signal.SIGKILL)
    for number in (0, 1):
        shown = far.wait(f"{sweep}.{number}")
        assert shown["state"] == "lost", shown["reason"]
    assert not any(is_alive(one["pid"]) for one in seen)
    for number in (0, 1):
        far("resume", f"{sweep}.{number}")
    assert all(gates.seen(number, 2)["number"] is None for number in (0, 1))
    script = (far.job_dir(f"{sweep}.1") / "batch.sh").read_text()
    assert "#SBATCH --gres=gpu:1\n" in script
    assert "#SBATCH --cpus-per-task=2\n" in script
    gates.open()
    far("wait", "--timeout", "100s", sweep)
    assert states(far, sweep) == ["done"] * 2


def test_one_that_is_resumed_alone_is_left_to_its_own_batch_job(
    far: Dray, hpc: Hpc, gates: Gates
) -> None:
    sweep = start(far, "hpc", "--trials", "2", "--per-node", "2", *RESUMES, *SPACE)
    gates.seen(0), gates.seen(1)
    far("stop", f"{sweep}.0")
    far.wait(f"{sweep}.0")
    far("resume", f"{sweep}.0")
    alone = gates.seen(0, 2)
    assert (alone["number"], alone["from"]) == (None, True)
    hpc.slurm.call("scontrol", "requeue", task_of(far, f"{sweep}.1"))
    gates.seen(1, 2)
    assert states(far, sweep) == ["running", "running"]
    gates.open()
    far("wait", "--timeout", "100s", sweep)
    assert states(far, sweep) == ["done", "done"]
    attempts = [len(far.show(f"{sweep}.{number}")["attempts"]) for number in (0, 1)]
    assert attempts == [2, 2]


def test_one_that_waits_alone_is_not_lost_to_the_batch_job_of_the_others(
    far: Dray, hpc: Hpc, gates: Gates
) -> None:
    """Theirs is a later one than its own, as each is the successor of the one before."""
    far.env["TOKEN"] = "s3cret-value"
    hpc.offer(far, resume_with="chain")
    flags = ("--trials", "2", "--per-node", "2", "--secret", "TOKEN", *RESUMES)
    sweep = start(far, "hpc", *flags, *SPACE)
    gates.seen(0), gates.seen(1)
    alone = f"{sweep}.0"
    far("stop", alone)
    far.wait(alone)
    hpc.offer(far, resume_with="chain", extra=["--hold"])
    far("resume", alone)
    hpc.slurm.call("scancel", "--batch", "--signal=TERM", task_of(far, f"{sweep}.1"))
    gates.seen(1, 2)
    assert far.show(alone)["state"] == "queued"
    assert (far.job_dir(alone) / "secrets.json").exists()
    refused = far("resume", alone, check=False)
    assert refused.returncode, refused.stdout
    assert len(hpc.slurm.call("squeue", "-h", "-n", alone).splitlines()) == 1
    hpc.slurm.call("scontrol", "release", task_of(far, alone))
    assert gates.seen(0, 2)["number"] is None
    gates.open()
    far("wait", "--timeout", "100s", sweep)
    assert states(far, sweep) == ["done", "done"]


def test_a_machine_that_gives_out_parts_gives_each_trial_its_own(dray: Dray) -> None:
    """Nothing is shared there; a file says the same as the flag."""
    config = dray.home / "dray/config.toml"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text("[clusters.local]\ncpus = 2\n")
    dray.write(
        "sweep.toml",
        """
[sweep]
trials = 2
repeats = 2
per_node = 2
command = ["true", "{seed}"]
[sweep.space]
x = [1, 2]
[job.resources]
cpus = 2
""",
    )
    ended = dray("sweep", "start", "--on", "local", "sweep.toml")
    said = "local gives out parts of a node: each trial asks for 1 CPU"
    assert ended.stderr.count(said) == 1
    sweep = ended.stdout.strip()
    dray("wait", "--timeout", "100s", sweep)
    assert states(dray, sweep) == ["done"] * 4
    assert dray.show(f"{sweep}.0")["resources"]["cpus"] == 1
    assert "per_node" not in dray.show(f"{sweep}.0")["sweep"]


def test_what_cannot_share_is_refused_before_anything_is_submitted(dray: Dray, hpc: Hpc) -> None:
    hpc.offer_pbs(dray)
    words = ("--per-node", "2", *SPACE, "--", "true")
    refused = dray("sweep", "start", "--on", "pbs", *words, check=False)
    assert "on pbs, trials cannot share a batch job" in refused.stderr
    assert "Leave out --per-node" in refused.stderr
    assert not refused.stdout
    assert "no jobs" in dray("ps").stderr


def fails_at(hpc: Hpc, dray: Dray, gates: Gates, moment: str, **settings: object) -> None:
    """Have the first process of a batch job that comes to this moment killed there."""
    scratch = f"export SLURM_TMPDIR={hpc.slurm.scratch}"
    fault = f"export DRAY_FAULT={moment}@{gates.folder}/fault"
    hpc.offer(dray, setup=[scratch, fault], **settings)


@pytest.mark.parametrize(
    "moment",
    ["supervisor:started", "supervisor:command-ended", "supervisor:outcome-written"],
)
def test_a_supervisor_may_be_killed_at_any_moment(
    far: Dray, hpc: Hpc, gates: Gates, moment: str
) -> None:
    fails_at(hpc, far, gates, moment)
    gates.open()
    sweep = start(far, "hpc", "--trials", "3", "--per-node", "3", *RESUMES, *SPACE)
    far("wait", "--timeout", "100s", sweep)
    assert (gates.folder / "fault").exists()
    assert states(far, sweep) == ["done"] * 3
    attempts = [far.show(f"{sweep}.{number}")["attempts"] for number in range(3)]
    outcomes = sorted([one["outcome"] for one in made] for made in attempts)
    killed = [["done"]] if moment == "supervisor:outcome-written" else [["lost", "done"]]
    assert outcomes == [["done"], ["done"], *killed]


@pytest.mark.parametrize("moment", TASK_MOMENTS)
def test_the_process_for_all_may_be_killed_before_and_after_it_is_queued_again(
    far: Dray, hpc: Hpc, gates: Gates, moment: str
) -> None:
    """Before, all trials are lost, and can be resumed; after, they go on by themselves, once."""
    fails_at(hpc, far, gates, moment, resume_with="chain")
    limits = ("--time", "3s", "--grace", "1s", *RESUMES)
    sweep = start(far, "hpc", "--trials", "2", "--per-node", "2", *limits, *SPACE)
    wait_for((gates.folder / "fault").exists, 60)
    if moment == "task:members-ended":
        for number in (0, 1):
            assert far.wait(f"{sweep}.{number}")["state"] == "lost"
            far("resume", f"{sweep}.{number}")
    assert [gates.seen(number, 2)["from"] for number in (0, 1)] == [True, True]
    gates.open()
    far("wait", "--timeout", "100s", sweep)
    assert states(far, sweep) == ["done"] * 2
