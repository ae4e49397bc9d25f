"""Limits of a job as a whole, exit codes that decide, and a crash that is held for a look: on this
machine, through the real command line. What is Slurm's own is in test_slurm.py."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.conftest import Dray, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER, parent_of

GRACE = ("--grace", "1s", "--checkpoint-signal", "USR1")


@pytest.fixture
def train(dray: Dray) -> Dray:
    dray.write("train.py", TRAINER)
    dray.write("dray.toml", "[clusters.local]\ngpus = 2\n")
    return dray


def seconds_in_all(shown: dict[str, Any]) -> float:
    return float(sum(one["ended"] - one["started"] for one in shown["attempts"]))


# -- total_time and gpu_hours -------------------------------------------------------------------


def test_a_job_stops_when_its_total_time_is_used_up(train: Dray) -> None:
    """Over two time limits and the end of its own: with a checkpoint, and no attempt after it."""
    flags = ("--time", "3s", "--total-time", "5s", *GRACE, *RESUMABLE)
    job = train.run(*flags, "--", "python3", "train.py", "1000", "0.05")
    shown = train.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "its total time of 5 s is used up")
    assert f"go on with it: dray resume {job} --total-time …" in train("show", job).stdout
    assert [one["outcome"] for one in shown["attempts"]] == ["interrupted", "stopped"]
    assert seconds_in_all(shown) <= 6
    first, last = shown["attempts"]
    assert last["from_checkpoint"] == first["checkpoint"] != last["checkpoint"]
    assert "of 5s used in all" in train("show", job).stdout

    refused = train("resume", job, check=False)
    assert refused.returncode == 4
    assert "its total time of 5 s is used up" in refused.stderr
    assert f"dray resume {job} --total-time" in refused.stderr
    train("resume", job, "--total-time", "8s")
    shown = train.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "its total time of 8 s is used up")
    assert len(shown["attempts"]) > 2


def test_gpu_hours_count_every_gpu(train: Dray) -> None:
    """Two GPUs for 3.6 s."""
    flags = ("--gpus", "2", "--gpu-hours", "0.002", *GRACE, *RESUMABLE)
    job = train.run(*flags, "--", "python3", "train.py", "1000", "0.05")
    shown = train.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "its 0.002 GPU hours are used up")
    (attempt,) = shown["attempts"]
    assert attempt["checkpoint"]
    assert seconds_in_all(shown) <= 4.6


def test_a_run_that_ends_within_its_limits_is_done(train: Dray) -> None:
    flags = ("--total-time", "100s", "--gpus", "1", "--gpu-hours", "1", *RESUMABLE)
    job = train.run(*flags, "--", "python3", "train.py", "3", "0.01")
    assert train.wait(job)["state"] == "done"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--gpu-hours", "8"), "no GPUs are asked for"),
        (("--time-min", "1h", "--time", "8h"), "no checkpoint"),
        (("--time-min", "9h", "--time", "8h", "--checkpoint", "*.pt"), "not within --time"),
        (("--retry-on", "75", "--fail-on", "75"), "exit code 75 is both"),
        (("--retry-on", "0"), "not a whole number of at least 1"),
        (("--fail-on", "256"), "they are 1 to 255"),
        (("--start-by", "2001-01-01"), "is over already"),
        (("--start-by", "9999w"), "or years away"),
        (("--start-by", "soon"), "cannot read the moment 'soon'"),
    ],
)
def test_what_cannot_be_meant_is_refused(dray: Dray, flags: tuple[str, ...], message: str) -> None:
    ended = dray("run", *flags, "--", "true", check=False)
    assert ended.returncode == 2
    assert message in ended.stderr


# -- start_by -----------------------------------------------------------------------------------


def test_a_job_that_has_not_begun_in_time_is_stopped(train: Dray) -> None:
    gate = train.home / "gate"
    first = train.run(
        "--gpus", "2", "--", "/bin/sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done"
    )
    late = train.run("--gpus", "1", "--start-by", "1s", "--", "true")
    soon = datetime.fromtimestamp(time.time() + 3, UTC).isoformat()
    behind = train.run("--gpus", "1", "--start-by", soon, "--", "true")
    for job in (late, behind):
        shown = train.wait(job)
        assert (shown["state"], shown["attempts"]) == ("stopped", [])
        assert "it had not begun by" in shown["reason"]
    assert train.show(first)["state"] == "running"
    gate.touch()
    train("resume", late)
    assert train.wait(late)["state"] == "done"
    patient = train.run("--gpus", "1", "--start-by", "1h", "--", "true")
    assert train.wait(patient)["state"] == "done"


# -- retry_on and fail_on -----------------------------------------------------------------------


def ending_with(dray: Dray, code: int, *flags: str) -> dict[str, Any]:
    """A job whose command always ends so."""
    command = f"echo x >> $DRAY_OUTPUTS/runs; exit {code}"
    return dray.wait(dray.run("--backoff", "0.1s", *flags, "--", "/bin/sh", "-c", command))


def test_a_code_in_retry_on_uses_no_retry_and_ends_nevertheless(dray: Dray) -> None:
    shown = ending_with(dray, 75, "--retry-on", "75")
    assert shown["state"] == "failed"
    assert shown["reason"] == "exit code 75; given up: interrupted three times without progress"
    assert [one["exit_code"] for one in shown["attempts"]] == [75, 75, 75]


def test_a_code_in_retry_on_that_passes_is_done(dray: Dray) -> None:
    command = "[ $DRAY_ATTEMPT = 3 ] || kill -9 $$"
    job = dray.run("--backoff", "0.1s", "--retry-on", "137", "--", "/bin/sh", "-c", command)
    shown = dray.wait(job)
    assert shown["state"] == "done"
    assert [one["signal"] for one in shown["attempts"]] == ["SIGKILL", "SIGKILL", None]


def test_a_code_in_fail_on_is_never_retried(dray: Dray) -> None:
    dray.write("dray.toml", "[job]\nretries = 5\nfail_on = [2, 3]\n")
    shown = ending_with(dray, 2)
    assert (shown["state"], shown["reason"]) == ("failed", "exit code 2 (fail_on: not retried)")
    assert len(shown["attempts"]) == 1
    assert len(ending_with(dray, 4, "--retries", "1")["attempts"]) == 2


# -- hold ---------------------------------------------------------------------------------------

CRASH = ("--", "/bin/sh", "-c", "echo traceback; exit 3")


def held(dray: Dray, *flags: str) -> str:
    """A job whose crash is held for a look."""
    job = dray.run("--hold", "30m", *flags, *CRASH)
    wait_for(lambda: "held for a look" in dray.show(job)["reason"])
    return job


def test_a_crash_is_held_until_it_is_stopped(train: Dray) -> None:
    job = held(train, "--gpus", "2")
    shown = train.show(job)
    assert shown["state"] == "running"
    assert shown["reason"].startswith("exit code 3; held for a look until ")
    assert shown["reason"].endswith(f"on {os.uname().nodename}; dray stop {job} ends it")
    assert f"dray stop {job} ends it" in train.log(job)
    assert shown["attempts"][0]["outcome"] == "failed", "its outcome is known already"
    assert (train.job_dir(job) / "work").exists(), "what it saw is there for a look"
    waiting = train.run("--gpus", "1", "--", "true")
    assert train.show(waiting)["state"] == "queued", "its GPUs are kept"
    train("stop", job)
    shown = train.wait(job)
    assert (shown["state"], shown["reason"], shown["exit_code"]) == ("failed", "exit code 3", 3)
    assert train.wait(waiting)["state"] == "done"
    assert not (train.job_dir(job) / "work").exists()


def test_killed_while_it_is_held_nothing_is_lost(dray: Dray) -> None:
    job = held(dray)
    keeper = int((dray.job_dir(job) / "alive").read_text())
    (supervisor,) = (pid for pid in dray.processes() if parent_of(pid) == keeper)
    os.kill(keeper, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    shown = wait_for(lambda: (one := dray.show(job))["state"] != "running" and one)
    assert (shown["state"], shown["reason"], shown["exit_code"]) == ("failed", "exit code 3", 3)


def test_a_crash_is_held_no_longer_than_its_allocation_and_not_before_a_retry(dray: Dray) -> None:
    flags = ("--hold", "30m", "--time", "3s", "--grace", "1s", "--retries", "1")
    job = dray.run(*flags, "--backoff", "0.1s", *CRASH)
    shown = dray.wait(job)
    assert shown["reason"] == "exit code 3; 1 retry used up"
    first, last = shown["attempts"]
    assert first["held"] is None
    assert last["ended"] < last["held"] <= last["started"] + 4


def test_what_an_older_dray_wrote_has_no_limits(dray: Dray) -> None:
    job = dray.run("--", "/bin/sh", "-c", "exit 3")
    dray.wait(job)
    path = dray.job_dir(job) / "job.json"
    old = json.loads(path.read_text())
    for key in ("limits", "retry_on", "fail_on", "hold"):
        del old[key]
    del old["resources"]["time_min"]
    path.write_text(json.dumps(old))
    shown = dray.show(job)
    assert (shown["state"], shown["limits"]["total_time"]) == ("failed", None)
    dray("resume", job)
    assert len(dray.wait(job)["attempts"]) == 2
