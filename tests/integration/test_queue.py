"""The local queue with real processes: order, shares, and hundreds of jobs at once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import Dray, wait_for
from tests.unit.test_sharing import (  # noqa: F401
    LENA,
    Machine,
    got,
    let_go,
    machine,
    needs_root,
    open_folder,
)

STAMP = (
    "import os\n"
    "def note(what):\n"
    "    with open(os.environ['LEDGER'], 'a') as ledger:\n"
    "        ledger.write('%s %s\\n' % (what, os.environ['DRAY_JOB_ID']))\n"
    "note('start')\n"
    "note('end')\n"
)


def most_at_once(lines: list[str]) -> int:
    running = most = 0
    for line in lines:
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    return most


@pytest.mark.crowd
def test_two_hundred_jobs_on_two_slots(dray: Dray) -> None:
    """All end, each once, in the order of submission, and nothing is left running."""
    dray.write("dray.toml", "[clusters.local]\ncpus = 2\n")
    ledger = dray.home / "ledger"
    command = ["--env", f"LEDGER={ledger}", "--", sys.executable, "-S", "-c", STAMP]
    blocker = dray.run(
        "--cpus", "2", "--", "/bin/sh", "-c", f"while [ ! -e {ledger} ]; do sleep 0.1; done"
    )
    jobs = []
    while len(jobs) < 200:
        batch = [
            subprocess.Popen(
                [sys.executable, "-m", "dray", "run", *command],
                cwd=dray.project,
                env=dray.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for _ in range(4)
        ]
        jobs += [process.communicate(timeout=60)[0].strip() for process in batch]
    assert len(set(jobs)) == 200
    tickets = sorted((dray.home / "dray/local/queue/tickets").iterdir())
    order = [path.name.partition("-")[2] for path in tickets]
    assert sorted(order) == sorted(jobs)
    ledger.touch()
    wait_for(lambda: len(ledger.read_text().splitlines()) == 400, 300)
    rows = json.loads(dray("ps", "--all", "--json").stdout)
    wait_for(lambda: all(dray.show(job)["state"] == "done" for job in jobs[-3:]))
    rows = json.loads(dray("ps", "--all", "--json").stdout)
    assert {row["id"]: row["state"] for row in rows} == dict.fromkeys([blocker, *jobs], "done")
    assert {row["attempts"] for row in rows} == {1}
    lines = ledger.read_text().splitlines()
    started = [line.split()[1] for line in lines if line.startswith("start")]
    assert sorted(started) == sorted(jobs)
    assert most_at_once(lines) <= 2
    # Two neighbours start within the same moment on two slots; nobody overtakes by more.
    assert all(abs(started.index(job) - place) <= 1 for place, job in enumerate(order))
    wait_for(lambda: not dray.processes())


def test_halves_of_a_gpu_are_shared_and_whole_ones_are_not(dray: Dray) -> None:
    dray.write("dray.toml", "[clusters.local]\ngpus = 2\ncpus = 8\n")
    gate = dray.home / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo gpu=$CUDA_VISIBLE_DEVICES"
    halves = [dray.run("--gpus", "0.5", "--", "/bin/sh", "-c", wait) for _ in range(2)]
    whole = dray.run("--gpus", "1", "--", "/bin/sh", "-c", wait)
    waiting = dray.run("--gpus", "1", "--", "/bin/sh", "-c", wait)
    wait_for(lambda: all(dray.show(job)["state"] == "running" for job in [*halves, whole]))
    assert dray.show(waiting)["state"] == "queued"
    assert [dray.show(job)["attempts"][0]["gpus"] for job in [*halves, whole]] == [[0], [0], [1]]
    gate.touch()
    assert [dray.wait(job)["state"] for job in [*halves, whole, waiting]] == ["done"] * 4
    assert dray.log(halves[0]) == "gpu=0\n"
    assert dray.log(whole) == "gpu=1\n"


@needs_root
def test_another_account_of_this_machine_is_waited_for(
    dray: Dray,
    machine: Machine,  # noqa: F811
) -> None:
    dray.configure(f'[clusters.local]\ngpus = 2\nshare = "{machine.share}"\n')
    theirs = machine.hold(LENA, "walk-1", 2)
    assert got(theirs) == [0, 1]
    job = dray.run("--gpus", "1", "--", "/bin/sh", "-c", "echo gpu=$CUDA_VISIBLE_DEVICES")
    taken = f"waiting for 1 GPU: 2 of 2 taken by user {LENA}'s walk-1"
    shown = dray.show(job)
    assert (shown["state"], shown["reason"]) == ("queued", f"next in the queue, {taken}")
    assert taken in dray("ps").stdout
    let_go(theirs)
    assert dray.wait(job)["state"] == "done"
    assert dray.log(job) == "gpu=0\n"


def test_a_share_that_is_not_there_is_refused(dray: Dray) -> None:
    share = dray.home / "share"
    dray.configure(f'[clusters.local]\nshare = "{share}"\n')
    ended = dray("run", "--", "/bin/true", check=False)
    assert ended.returncode == 4
    assert f"sudo install -d -m 1777 {share}" in ended.stderr
    assert f"sudo install -d -m 1777 {share}" in dray("doctor", "local", check=False).stdout
    assert json.loads(dray("ps", "--all", "--json").stdout) == []


def test_a_job_without_gpus_sees_none(dray: Dray) -> None:
    job = dray.run("--", "/bin/sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"')
    dray.wait(job)
    assert dray.log(job) == "[]\n"


def test_a_waiting_job_can_be_stopped_and_others_go_on(dray: Dray) -> None:
    dray.write("dray.toml", "[clusters.local]\ncpus = 1\n")
    gate = dray.home / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    first = dray.run("--", "/bin/sh", "-c", wait)
    second = dray.run("--", "/bin/true")
    third = dray.run("--", "/bin/true")
    dray("stop", second)
    assert dray.show(second)["state"] == "stopped"
    assert dray.show(second)["attempts"] == []
    assert dray.show(third)["state"] == "queued"
    gate.touch()
    assert dray.wait(third)["state"] == "done"
    assert dray.wait(first)["state"] == "done"


def test_a_retry_does_not_hold_the_machine_while_it_waits(dray: Dray) -> None:
    dray.write("dray.toml", "[clusters.local]\ncpus = 1\n")
    crashing = dray.run("--retries", "1", "--backoff", "100s", "--", "/bin/false")
    wait_for(lambda: dray.show(crashing)["attempts"])
    other = dray.run("--", "/bin/true")
    assert dray.wait(other)["state"] == "done"
    dray("stop", crashing)
    assert dray.show(crashing)["state"] == "stopped"


def test_memory_beyond_what_was_asked_for_ends_the_attempt(dray: Dray) -> None:
    code = "x = bytearray(300 << 20)\nimport time\ntime.sleep(60)"
    job = dray.run("--memory", "64M", "--", sys.executable, "-c", code)
    shown = dray.wait(job)
    assert shown["state"] == "failed"
    assert "out of memory" in shown["reason"]


def test_the_job_outlives_its_terminal(dray: Dray) -> None:
    """The shell that submitted it, and its whole process group, are gone."""
    done = dray.home / "done"
    script = f"{sys.executable} -m dray run -- /bin/sh -c 'sleep 1; touch {done}'"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"{script}; kill -9 0"],
        cwd=dray.project,
        env=dray.env,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    job = shell.communicate()[0].strip()
    assert shell.returncode == -9
    wait_for(done.exists)
    assert dray.wait(job)["state"] == "done"
