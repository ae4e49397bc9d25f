"""Why a job waits, what the queue is like, and what one may use: on a Slurm that has limits."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Hpc, started, wait_for
from tests.contract.test_contract import python
from tests.integration.test_slurm import ON, far, scheduler_id  # noqa: F401
from tests.rigs.host import Host

SETTINGS = (
    "AccountingStorageEnforce=limits,qos",
    "AccountingStorageTRES=gres/gpu",
    "PriorityType=priority/multifactor",
    "PriorityWeightFairshare=1000",
    "PriorityDecayHalfLife=7-0",
)
SLEEP = ("--", "sleep", "600")


@pytest.fixture(scope="module")
def hpc(cluster_host: Host, rig_folder: Path) -> Iterator[Hpc]:
    for one in started(rig_folder / "why", cluster_host, accounting=True, settings=SETTINGS):
        wait_for(partial(knows_gpus, one))
        for words in (
            ("add", "account", "rl"),
            ("add", "user", one.host.user, "account=rl"),
            ("modify", "user", one.host.user, "set", "defaultaccount=rl"),
            ("modify", "account", "rl", "set", "GrpTRES=gres/gpu=3"),
        ):
            one.slurm.call("sacctmgr", "-i", *words)
        yield one


def knows_gpus(hpc: Hpc) -> bool:
    """The controller tells the books of them when it starts."""
    return "gpu" in hpc.slurm.call("sacctmgr", "-nP", "show", "tres", "format=type,name")


@pytest.fixture
def rl(far: Dray, hpc: Hpc) -> Iterator[Dray]:  # noqa: F811
    hpc.offer(far, account="rl", partition="gpu")
    yield far
    hpc.slurm.call("scancel", "--user", hpc.host.user)
    wait_for(lambda: not hpc.slurm.call("squeue", "-h").strip())


def why(dray: Dray, job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dray("why", "--json", job).stdout)
    return found


def reason_in_slurm(hpc: Hpc, number: str) -> str:
    return hpc.slurm.call("squeue", "-h", "-j", number, "-o", "%r").strip()


def counting(hpc: Hpc, folder: Path, *names: str) -> dict[str, Path]:
    """Write down how often these commands are called on the login node; where."""
    calls = {}
    for name in names:
        calls[name] = folder / f"{name}-calls"
        script = f'#!/bin/sh\necho "$@" >> {calls[name]}\nexec /usr/bin/{name} "$@"\n'
        (hpc.bin / name).write_text(script)
        (hpc.bin / name).chmod(0o755)
    return calls


def test_a_limit_with_numbers(rl: Dray, hpc: Hpc) -> None:
    running = [rl.run(*ON, "--gpus", "1", "--time", "2h", *SLEEP) for _ in range(3)]
    wait_for(lambda: len(hpc.slurm.call("squeue", "-h", "-t", "R").split("\n")) == 4)
    job = rl.run(*ON, "--gpus", "1", "--time", "2h", *SLEEP)
    wait_for(lambda: reason_in_slurm(hpc, scheduler_id(rl, job)) == "AssocGrpGRES")
    found = why(rl, job)["explanation"]
    assert found["reason"]["words"] == "your group uses as many GPUs as it may"
    limits = [one for one in found["limits"] if one["what"] == "GPUs"]
    assert [(one["used"], one["most"], one["scope"]) for one in limits] == [(3, 3, "account rl")]
    assert sorted(found["holders"]) == sorted(running)
    assert found["pool"] == {"kind": "a100", "free": 1, "total": 4, "nodes": 2, "down": 0}
    assert found["sooner"] == [], "no guess helps against a limit"
    assert found["share"]["account"] == "rl"
    shown = rl("why", job).stdout
    assert "3 of 3 GPUs (account rl): no more now" in shown
    assert f"in use by {', '.join(found['holders'])}" in shown
    assert rl.show(job)["reason"].startswith(found["reason"]["words"]), "the same words"


def test_what_would_start_sooner(rl: Dray, hpc: Hpc) -> None:
    """A maintenance ahead: with less time the job fits before it, and the command says so."""
    window = ("starttime=now+1hour", "duration=60", "flags=maint,ignore_jobs", "nodes=ALL")
    user = f"users={hpc.host.user}"
    hpc.slurm.call("scontrol", "create", "reservation", *window, user, "reservationname=upgrade")
    try:
        job = rl.run(*ON, "--gpus", "1", "--time", "4h", *SLEEP)
        number = scheduler_id(rl, job)
        wait_for(lambda: "maintenance" in reason_in_slurm(hpc, number))
        found = why(rl, job)["explanation"]
        assert found["reason"]["words"] == "it would run into a maintenance"
        assert [one["name"] for one in found["maintenance"]] == ["upgrade"]
        shorter = found["sooner"][0]
        assert shorter["change"].startswith("--time 45m")
        command = f"scontrol update JobId={number} TimeLimit=45"
        assert (shorter["start"], shorter["command"]) == (0, f"ssh hpc {command}")
        hpc.slurm.call(*command.split())
        wait_for(lambda: rl.show(job)["state"] == "running")
    finally:
        hpc.slurm.call("scontrol", "delete", "ReservationName=upgrade")


def test_slurm_is_asked_once_for_everybody_and_guesses_thrice(
    rl: Dray, hpc: Hpc, tmp_path: Path
) -> None:
    calls = counting(hpc, tmp_path, "squeue", "sinfo", "sbatch", "sshare")
    try:
        job = rl.run(*ON, "--gpus", "2", "--time", "8h", *SLEEP)
        blocked = rl.run(*ON, "--gpus", "2", "--time", "8h", *SLEEP)
        wait_for(lambda: reason_in_slurm(hpc, scheduler_id(rl, blocked)) != "None")
        for _ in range(3):
            rl("why", blocked)
        rl("queue", "--on", "hpc")
        assert len(calls["sinfo"].read_text().splitlines()) <= 3, "one for the site's facts"
        assert sum("--all" in one for one in calls["squeue"].read_text().splitlines()) == 2
        assert len(calls["sshare"].read_text().splitlines()) == 1
        guesses = [one for one in calls["sbatch"].read_text().splitlines() if "--test-only" in one]
        assert len(guesses) <= 9
        asked = {name: len(path.read_text().splitlines()) for name, path in calls.items()}
        rl("ps")
        rl("show", job)
        for name in ("sinfo", "sshare", "sbatch"):
            assert len(calls[name].read_text().splitlines()) == asked[name], "never for a listing"
        kept = Path(rl.jobs.parent, "situation.json")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    finally:
        for name in calls:
            (hpc.bin / name).unlink()


def test_times_are_right_wherever_the_laptop_is(rl: Dray, hpc: Hpc) -> None:
    hpc.offer(rl, account="rl", partition="gpu", extra=["--begin=now+1hour"])
    job = rl.run(*ON, "--gpus", "1", "--time", "1h", "--", "true")
    for zone in ("Asia/Tokyo", "America/Los_Angeles"):
        found = json.loads(rl("why", "--json", job, TZ=zone).stdout)["explanation"]
        assert abs(found["start"] - time.time() - 3600) < 300


def test_one_that_failed_and_one_that_runs(rl: Dray) -> None:
    job = rl.run(*ON, *python("raise SystemExit(3)"))
    rl.wait(job)
    found = why(rl, job)
    assert (found["state"], found["explanation"]) == ("failed", None)
    failed = rl.run(*ON, *python("import nosuchmodule"))
    rl.wait(failed)
    assert "no module nosuchmodule" in why(rl, failed)["cause"]
    assert "nosuchmodule" in rl("why", failed).stdout
    running = rl.run(*ON, "--time", "1h", *SLEEP)
    wait_for(lambda: rl.show(running)["attempts"])
    assert "at the latest" in " ".join(why(rl, running)["findings"])


def test_earlier_waits_are_told(rl: Dray, hpc: Hpc) -> None:
    for _ in range(3):
        rl.wait(rl.run(*ON, *python("pass")))
    hpc.offer(rl, account="rl", partition="gpu", extra=["--hold"])
    job = rl.run(*ON, *python("pass"))
    found = why(rl, job)
    assert found["waits"]["jobs"] == 3
    assert found["waits"]["alike"] is True
    assert found["explanation"]["reason"]["never"] is True, "held by the user"
    assert "your last 3 jobs like this one waited" in rl("why", job).stdout


# -- queue, quota -------------------------------------------------------------------------------


def queue(dray: Dray, *more: str) -> dict[str, Any]:
    (found,) = json.loads(dray("queue", "--json", *ON, *more).stdout)
    assert isinstance(found, dict)
    return found


def test_the_queue_with_free_gpus_and_what_lies_ahead(rl: Dray, hpc: Hpc) -> None:
    running = rl.run(*ON, "--gpus", "2", "--time", "2h", *SLEEP)
    wait_for(lambda: rl.show(running)["state"] == "running")
    hpc.slurm.call(
        "sbatch", "-A", "rl", "--gres=gpu:2", "--time=60", "-J", "x\x1b[2Jy", "--wrap=sleep 60"
    )
    waiting = rl.run(*ON, "--gpus", "2", "--time", "1h", *SLEEP)
    found = queue(rl)
    assert found["version"] == 1
    assert found["pools"] == [{"kind": "a100", "free": 2, "total": 4, "nodes": 2, "down": 0}]
    by_job = {one["job"]: one for one in found["entries"]}
    assert (by_job[running]["state"], by_job[running]["gpus"]) == ("running", 2)
    assert by_job[waiting]["state"] == "waiting"
    shown = rl("queue", *ON).stdout
    assert "2 of 4 a100 GPUs free" in shown
    assert "\x1b" not in shown, "what others call their jobs cannot act on a terminal"


def test_everybodys_first_gpu_before_anybodys_second(rl: Dray, hpc: Hpc) -> None:
    hpc.offer(rl, account="rl", partition="gpu", order="fair-gpu")
    jobs = [rl.run(*ON, "--gpus", "1", "--time", "2h", *SLEEP) for _ in range(4)]
    wait_for(lambda: rl.show(jobs[2])["state"] == "running")
    fair = queue(rl, "--all")["fair"]
    assert [rank for rank, _ in fair["ranked"]] == [1, 2, 3, 4]
    assert (fair["above"], fair["gpus"], fair["yields"]) == (4, 4, None)
    assert "here the 4 GPUs end" in rl("queue", *ON).stdout


def test_limits_and_room_on_disks(rl: Dray, hpc: Hpc) -> None:
    hpc.offer(rl, account="rl", partition="gpu", quota_command=["echo", "7 of 9 TB", "\x1b[31m"])
    job = rl.run(*ON, "--gpus", "1", "--time", "2h", *SLEEP)
    wait_for(lambda: rl.show(job)["state"] == "running")
    (found,) = json.loads(rl("quota", "--json", *ON).stdout)
    gpus = [one for one in found["limits"] if one["what"] == "GPUs"]
    assert [(one["used"], one["most"]) for one in gpus] == [(1, 3)]
    assert [one["account"] for one in found["shares"] if one["account"] == "rl"] == ["rl"]
    root = next(one for one in found["disks"] if one["name"] == "root")
    assert 0 < root["used"] <= root["most"]
    jobs = next(one for one in found["own"] if one["what"] == "jobs")
    assert jobs["files"] > 3
    assert "site: 7 of 9 TB \x1b[31m" in found["remarks"]
    shown = rl("quota", *ON).stdout
    assert "1 of 3 GPUs (account rl)" in shown
    assert "7 of 9 TB" in shown
    assert "\x1b" not in shown


# -- ticket -------------------------------------------------------------------------------------


def test_a_ticket_has_all_that_helps_and_no_secret(rl: Dray, hpc: Hpc, tmp_path: Path) -> None:
    hpc.offer(rl, account="rl", partition="gpu", support="help@example.org")
    key, password = "0123456789abcdef0123456789abcdef01234567", "correct-horse-battery"
    code = (
        "import os, sys; print('key', os.environ['WANDB_API_KEY']); print(dict(os.environ));"
        "print('\\x1b[2J'); sys.exit('it broke')"
    )
    secrets = {"WANDB_API_KEY": key, "DB_PASSWORD": password}
    names = ("--secret", "WANDB_API_KEY", "--env", f"DB_URL=postgres://ada:{password}@db/x")
    job = rl.run(*ON, *names, "--", "python3", "-c", code, "--api-key", key, **secrets)
    rl.wait(job)
    shown = rl("ticket", job)  # the secrets are not even known here any more
    assert "nothing is written yet" in shown.stderr
    assert list(rl.project.glob("ticket-*")) == []
    rl("ticket", job, "--yes", "--to", str(tmp_path / "t.tar.gz"))
    assert stat.S_IMODE((tmp_path / "t.tar.gz").stat().st_mode) == 0o600
    with tarfile.open(tmp_path / "t.tar.gz") as archive:
        files = {
            Path(one.name).name: (archive.extractfile(one) or io.BytesIO()).read().decode()
            for one in archive
        }
    number = scheduler_id(rl, job)
    assert f"JobId={number}" in files[f"job-{number}.txt"]
    assert "#SBATCH --account=rl" in files["batch.sh"]
    assert "it broke" in files["log-001.txt"]
    assert "attempt 1 began" in files["events.txt"]
    assert "ok  slurm" in files["doctor.txt"]
    assert "Subject:" in files["mail.txt"]
    for name, text in files.items():
        assert key not in text, name
        assert password not in text, name
    assert key not in shown.stdout
    assert "\x1b" not in shown.stdout
    again = rl("ticket", job, "--yes", "--to", str(tmp_path / "t.tar.gz"), check=False)
    assert again.returncode != 0
    assert "help@example.org" in rl("ticket", job, "--yes").stderr
    record = json.loads(rl("ticket", "--json", job).stdout)
    assert (record["version"], record["to"]) == (1, "help@example.org")
