"""Many jobs submitted together: on Slurm they are one array, and each is a job of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dray.job.model import JobSpec, JobState, JobView
from dray.store import Store
from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER
from tests.integration.test_slurm import ask_agent

SUBMIT = """
import json, sys, dray
settings, commands = json.loads(sys.stdin.read())
print(json.dumps([job.id for job in dray.run_many(commands, **settings)]))
"""


@pytest.fixture
def far(dray: Dray, hpc: Hpc) -> Dray:
    dray.write("train.py", TRAINER)
    hpc.offer(dray)
    return dray


def run_many(dray: Dray, commands: list[list[str]], **settings: object) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", SUBMIT],
        input=json.dumps([settings, commands]),
        cwd=dray.project,
        env=dray.env,
        text=True,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    ids: list[str] = json.loads(ended.stdout)
    return ids


def show(word: str) -> list[str]:
    return [sys.executable, "-c", "import sys; print(sys.argv[1:])", word, "it's $HOME; ü"]


def states(dray: Dray) -> dict[str, str]:
    return {row["id"]: row["state"] for row in json.loads(dray("ps", "--json").stdout)}


def in_queue(hpc: Hpc, array: str) -> list[str]:
    return hpc.slurm.call("squeue", "-h", "-r", "-n", array, "-o", "%i").split()


@pytest.mark.parametrize("on", ["local", "hpc"])
def test_each_job_has_its_own_command_log_and_outcome(far: Dray, on: str) -> None:
    crash = [sys.executable, "-c", "raise SystemExit(3)"]
    ids = run_many(far, [show("first"), crash, show("third")], on=on)
    array = ids[0].partition(".")[0]
    assert ids == [f"{array}.{index}" for index in range(3)]
    outcomes = [(far.wait(job)["state"], far.show(job)["exit_code"]) for job in ids]
    assert outcomes == [("done", 0), ("failed", 3), ("done", 0)]
    assert far.log(ids[2]) == "['third', \"it's $HOME; ü\"]\n"
    assert states(far) == {ids[0]: "done", ids[1]: "failed", ids[2]: "done"}


def test_a_thousand_jobs_are_one_array_and_one_directory(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, extra=["--hold"])
    ids = run_many(far, [show(str(number)) for number in range(1000)], on="hpc")
    array = ids[0].partition(".")[0]
    try:
        assert len(set(ids)) == 1000
        assert len(in_queue(hpc, array)) == 1000
        assert not any(far.jobs.iterdir())
        left = [path for path in (far.jobs.parent / "arrays").rglob("*") if path.is_file()]
        assert len(left) <= 5, left
        found = states(far)
        assert set(found) == set(ids)
        assert set(found.values()) == {"queued"}
        shown = far.show(ids[700])
        assert shown["state"] == "queued"
        assert shown["command"][3] == "700"
        assert "held" in shown["reason"]
        far("stop", ids[700])
        assert far.show(ids[700])["state"] == "stopped"
        assert len(in_queue(hpc, array)) == 999
    finally:
        hpc.slurm.call("scancel", "--name", array)
    wait_for(lambda: set(states(far).values()) == {"stopped"})
    assert "before it ran" in far.show(ids[3])["reason"]


def test_batch_scripts_that_end_before_their_jobs_run(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, setup=["echo no licence for $SLURM_ARRAY_TASK_ID", "exit 9"])
    ids = run_many(far, [show("a"), show("b")], on="hpc")
    for index, job in enumerate(ids):
        shown = far.wait(job)
        reason = f"its batch script ended before it ran: no licence for {index}"
        assert (shown["state"], shown["reason"]) == ("failed", reason)


def test_a_job_of_an_array_is_requeued_by_itself(far: Dray, hpc: Hpc) -> None:
    train = [sys.executable, "train.py", "200", "0.05", "--every"]
    settings = {"checkpoint": "ckpt_*.json", "resume_args": ["--resume", "{checkpoint}"]}
    long, short = run_many(far, [train, show("short")], on="hpc", **settings)
    assert far.wait(short)["state"] == "done"
    wait_for(lambda: list(far.job_dir(long).glob("outputs/ckpt_*")))
    number = json.loads((far.job_dir(long) / "scheduler.json").read_text())["id"]
    hpc.slurm.call("scontrol", "requeue", number)
    shown = far.wait(long)
    assert shown["state"] == "done"
    assert len(shown["attempts"]) == 2
    assert "start at 0" not in far("logs", "--attempt", "2", long).stdout
    assert len(far.show(short)["attempts"]) == 1


def test_a_job_of_an_array_goes_on_as_a_batch_job_of_its_own(far: Dray, hpc: Hpc) -> None:
    """Where requeue is not wanted, and after an end: the array itself is over by then."""
    hpc.offer(far, resume_with="chain")
    flags = {"checkpoint": "ckpt_*.json", "resume_args": list(RESUMABLE[3::2]), "retries": 1}
    crashing = [sys.executable, "train.py", "12", "0.05", "--every", "--crash-at=6"]
    failing = [sys.executable, "-c", "raise SystemExit(3)"]
    chained, failed = run_many(far, [crashing, failing], on="hpc", backoff="0.1s", **flags)
    shown = far.wait(chained)
    assert (shown["state"], len(shown["attempts"])) == ("done", 2)
    far.wait(failed)
    far("resume", failed)
    assert far.wait(failed)["state"] == "failed"
    assert [one["exit_code"] for one in far.show(failed)["attempts"]][-1] == 3


def test_another_laptop_finds_them_and_removes_them(far: Dray, hpc: Hpc, tmp_path: Path) -> None:
    hpc.offer(far, extra=["--hold"])
    ids = run_many(far, [show("a"), show("b")], on="hpc")
    (tmp_path / "other").mkdir()
    other = Dray(tmp_path / "other", far.project)
    hpc.offer(other, root=str(far.jobs.parent))
    rows = json.loads(other("ps", "--on", "hpc", "--all", "--json").stdout)
    assert sorted(row["id"] for row in rows) == ids
    for job in ids:
        other("stop", "--now", job)
        other("rm", job)
    assert not any(far.jobs.iterdir())
    assert not any((far.jobs.parent / "arrays").glob("[!.]*"))


def test_secrets_are_gone_with_the_last_job(far: Dray, hpc: Hpc) -> None:
    far.env["KEY"] = "s3cret-value"
    code = [sys.executable, "-c", "import os; print(len(os.environ['KEY']))"]
    ids = run_many(far, [code, code], on="hpc", secrets=["KEY"])
    for job in ids:
        assert far.wait(job)["state"] == "done"
        assert far.log(job) == "12\n"
    found = subprocess.run(["grep", "-rl", "s3cret-value", str(far.jobs.parent)], stdout=-1)
    assert found.stdout == b""
    hpc.offer(far, extra=["--hold"])
    ids = run_many(far, [code, code], on="hpc", secrets=["KEY"])
    hpc.slurm.call("scancel", "--name", ids[0].partition(".")[0])
    wait_for(lambda: set(states(far).values()) == {"done", "stopped"})
    found = subprocess.run(["grep", "-rl", "s3cret-value", str(far.jobs.parent)], stdout=-1)
    assert found.stdout == b""


@pytest.mark.parametrize("cancelled", [range(1, 100, 2), [i * i for i in range(10)]])
def test_an_array_with_gaps(far: Dray, hpc: Hpc, cancelled: Sequence[int]) -> None:
    """Slurm lists what waits of it as 0-98:2, or in more characters than squeue prints unasked."""
    far.env["KEY"] = "s3cret-value"
    hpc.offer(far, extra=["--hold"])
    ids = run_many(far, [show("a")] * 100, on="hpc", secrets=["KEY"])
    array = ids[0].partition(".")[0]
    number = json.loads((far.jobs.parent / "arrays" / array / "scheduler.json").read_text())["id"]
    hpc.slurm.call("scancel", *(f"{number}_{index}" for index in cancelled))
    waiting = {job for index, job in enumerate(ids) if index not in cancelled}
    wait_for(lambda: {job for job, state in states(far).items() if state == "queued"} == waiting)
    assert (far.jobs.parent / "arrays" / array / "secrets.json").exists()
    far("stop", array)


def test_a_lost_answer_does_not_submit_an_array_twice(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, extra=["--hold"])
    ids = run_many(far, [show("a"), show("b")], on="hpc")
    array = ids[0].partition(".")[0]
    place = far.jobs.parent / "arrays" / array
    (place / "scheduler.json").unlink()
    created = json.loads((place / "job.json").read_text())["created"]
    about = {"id": array, "created": created, "snapshot": None}
    ask_agent(far, hpc, {"verb": "submit", "array": True, "job": about, "files": {}})
    assert len(in_queue(hpc, array)) == 2
    hpc.slurm.call("scancel", "--name", array)


def test_what_slurm_refuses_leaves_nothing(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, partition="nosuch")
    with pytest.raises(AssertionError, match="partition"):
        run_many(far, [show("a"), show("b")], on="hpc")
    assert states(far) == {}
    assert not any((far.jobs.parent / "arrays").glob("[!.]*"))


def test_an_arrays_id_means_all_its_jobs(far: Dray, hpc: Hpc) -> None:
    sleeping = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(300)"]
    ids = run_many(far, [sleeping, sleeping, *([show("x")] * 60)], on="hpc", cpus=6)
    array = ids[0].partition(".")[0]
    wait_for(lambda: far.log(ids[0]) and far.log(ids[1]))
    assert far("rm", array, check=False).returncode == 4
    said = far("stop", array).stderr
    assert "62 jobs: 62 stopped" in said
    assert far.show(ids[0])["reason"] == far.show(ids[40])["reason"] == "stopped on request"
    assert far("wait", array, check=False).returncode == 1
    far("resume", ids[40])
    assert far.wait(ids[40])["state"] == "done"
    assert f"removed {array}.0-61" in far("rm", array).stderr
    assert json.loads(far("ps", "--all", "--json").stdout) == []
    assert not any((far.jobs.parent / "arrays").glob("[!.]*"))


def test_jobs_in_the_same_state_share_a_line(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, extra=["--hold"])
    ids = run_many(far, [show(str(number)) for number in range(12)], on="hpc")
    array = ids[0].partition(".")[0]
    far("stop", ids[10])
    first, *rest = far("ps").stdout.splitlines()[1:]
    assert first.startswith(f"{array}.11 ")
    assert rest[0].startswith(f"{array}.10 ")
    assert rest[1].startswith(f"{array}.0-9 ")
    assert "queued" in rest[1]
    hpc.slurm.call("scancel", "--name", array)


def test_only_the_clusters_of_the_jobs_are_asked(far: Dray, hpc: Hpc) -> None:
    """Another one, with jobs of its own, may be out of reach."""
    sleeping = ["/bin/sleep", "300"]
    ids = run_many(far, [sleeping, sleeping], on="local")
    config = far.home / "dray/config.toml"
    config.write_text('[clusters.away]\nkind = "slurm"\nhost = "nowhere.invalid"\n')
    spec = JobSpec(id="train-7f3k", name="train", command=("true",))
    Store(far.home / "dray/store.db").save(
        [JobView(spec=spec, cluster="away", state=JobState.RUNNING)]
    )
    for verb in (("stop", "--now"), ("wait",), ("rm",)):
        assert "nowhere" not in far(*verb, *ids, check=False).stderr
    assert "nowhere" in far("ps").stderr
