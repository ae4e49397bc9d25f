"""Two people with accounts of their own on one machine share its GPUs, through a real sshd."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dray.node.processes.process import parents
from tests.conftest import Dray, wait_for
from tests.contract.test_contract import attempt_pid, parent_of, python
from tests.rigs.box import ACCOUNTS, Box

pytestmark = [
    pytest.mark.machines,
    pytest.mark.skipif(os.getuid() != 0, reason="makes two accounts"),
]

ON = ("--on", "box")
GPUS = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep({})"
# Whoever has a GPU makes its file, which nobody else may have made.
ALONE = """
import os, time
path = os.path.join({!r}, os.environ["CUDA_VISIBLE_DEVICES"])
os.close(os.open(path, os.O_CREAT | os.O_EXCL))
time.sleep(0.2)
os.unlink(path)
"""


class Two(NamedTuple):
    box: Box
    lena: Dray
    mara: Dray


def processes_of(box: Box) -> list[int]:
    """The jobs' processes, and the agents."""
    found = []
    for pid in parents():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(box.homes) in words:
            found.append(pid)
    return found


@pytest.fixture
def box() -> Iterator[Box]:
    folder = Path(tempfile.mkdtemp(prefix="dr", dir="/tmp"))
    folder.chmod(0o755)
    made = Box(folder / "box")
    made.start()
    yield made
    try:
        wait_for(lambda: not processes_of(made), 10)
    finally:
        for pid in processes_of(made):
            os.kill(pid, signal.SIGKILL)
        made.stop()
        shutil.rmtree(folder)


@pytest.fixture
def two(box: Box, tmp_path: Path) -> Iterator[Two]:
    people = {}
    for name in ACCOUNTS:
        home = tmp_path / name
        (home / "project").mkdir(parents=True)
        people[name] = Dray(home, home / "project")
        box.offer(people[name], name, share=str(box.share))
    yield Two(box, **people)
    for dray in people.values():
        for row in json.loads(dray("ps", "--json").stdout):
            if row["state"] in ("queued", "running"):
                dray("stop", "--now", row["id"])
        wait_for(dray.nothing_runs)


def test_they_wait_for_each_other(two: Two) -> None:
    lena, mara = two.lena, two.mara
    first = lena.run(*ON, "--gpus", "2", *python(GPUS.format(600)))
    wait_for(lambda: lena.show(first)["state"] == "running")
    second = mara.run(*ON, "--gpus", "1", *python(GPUS.format(0)))
    third = lena.run(*ON, "--gpus", "1", *python(GPUS.format(0)))
    shown = mara.show(second)
    waiting = "waiting for 1 GPU: 2 of 2 taken by"
    reason = f"next in the queue, {waiting} lena's {first}"
    assert (shown["state"], shown["reason"]) == ("queued", reason)
    behind = f"place 2 in the queue, behind mara's {second}"
    assert lena.show(third)["reason"] == f"{behind}; mara's {second} is next, {waiting} {first}"
    lena("stop", first)
    assert (mara.wait(second)["state"], lena.wait(third)["state"]) == ("done", "done")
    assert (lena.log(first), mara.log(second)) == ("0,1\n", "0\n")
    wait_for(lambda: not list(two.box.share.glob("*/*/*")))


def test_everybodys_first_gpu_comes_before_anybodys_second(two: Two) -> None:
    """By age the third would be next; by the rule, which both have set, it is the newcomer."""
    lena, mara = two.lena, two.mara
    for name, one in (("lena", lena), ("mara", mara)):
        two.box.offer(one, name, share=str(two.box.share), order="fair-gpu")
    first, second = (lena.run(*ON, "--gpus", "1", *python(GPUS.format(600))) for _ in range(2))
    wait_for(lambda: [lena.show(one)["state"] for one in (first, second)] == ["running"] * 2)
    third = lena.run(*ON, "--gpus", "1", *python(GPUS.format(0)))
    newcomer = mara.run(*ON, "--gpus", "1", *python(GPUS.format(0)))
    assert lena.show(third)["reason"].startswith(f"place 2 in the queue, behind mara's {newcomer}")

    (told,) = json.loads(mara("queue", "--on", "box", "--all", "--json").stdout)
    fair = told["fair"]
    ranked = [(rank, entry["number"]) for rank, entry in fair["ranked"]]
    assert [rank for rank, _ in ranked] == [1, 1, 2, 3]
    assert (ranked[1], ranked[3]) == ((1, newcomer), (3, third))
    assert (fair["above"], fair["gpus"]) == (2, 2)
    assert fair["yields"]["owner"] == "lena"
    assert fair["mail"][0] == "To: lena"
    assert told["remarks"] == ["jobs start here in the order of the rule fair-gpu"]
    shown = mara("queue", "--on", "box", "--all").stdout
    assert "here the 2 GPUs end" in shown
    assert f"would have to yield to a newcomer's first: {fair['yields']['number']} of lena" in shown

    lena("stop", "--now", fair["yields"]["number"])
    assert mara.wait(newcomer)["state"] == "done"
    assert lena.wait(third)["state"] == "done"
    (other,) = {first, second} - {fair["yields"]["number"]}
    lena("stop", "--now", other)
    began = [
        one.show(job)["attempts"][0]["started"] for one, job in ((mara, newcomer), (lena, third))
    ]
    assert began == sorted(began)


def test_a_killed_keeper_keeps_the_gpus_and_a_lost_job_frees_them(two: Two) -> None:
    lena, mara = two.lena, two.mara
    first = lena.run(*ON, "--gpus", "2", *python(GPUS.format(600)))
    command = wait_for(lambda: attempt_pid(lena, first))
    second = mara.run(*ON, "--gpus", "2", *python(GPUS.format(0)))
    supervisor = parent_of(command)
    os.kill(parent_of(supervisor), signal.SIGKILL)
    assert f"lena's {first}" in mara.show(second)["reason"]
    os.kill(supervisor, signal.SIGKILL)
    assert mara.wait(second)["state"] == "done"
    wait_for(lambda: lena.show(first)["state"] == "lost")


def test_many_jobs_of_both_never_have_the_same_gpu(two: Two) -> None:
    witness = two.box.share.parent / "witness"
    witness.mkdir()
    witness.chmod(0o1777)
    command = python(ALONE.format(str(witness)))
    jobs = [(one, one.run(*ON, "--gpus", "1", *command)) for one in (two.lena, two.mara) * 4]
    assert [one.wait(job)["state"] for one, job in jobs] == ["done"] * len(jobs)


def test_what_is_private_stays_so(two: Two) -> None:
    job = two.lena.run(*ON, "--gpus", "1", "--env", "NAME=value", *python(GPUS.format(600)))
    wait_for(lambda: two.lena.show(job)["state"] == "running")
    told = [path for path in two.box.share.rglob("*") if path.is_file() and path.name != "lock"]
    assert [path.name for path in told] == [job]
    assert set(json.loads(told[0].read_text())) == {"cpus", "gpus", "memory", "share"}
    look = f"cat {two.lena.job_dir(job)}/job.json || echo kept out"
    other = two.mara.run(*ON, "--", "/bin/sh", "-c", look)
    assert two.mara.wait(other)["state"] == "done"
    assert two.mara.log(other).splitlines()[-1] == "kept out"


def test_a_folder_that_is_not_fit_is_told_and_nothing_is_left(two: Two) -> None:
    assert "wait in the same queue" in two.lena("doctor", "box").stdout
    two.box.share.chmod(0o777)
    told = f"accounts could remove each other's files there (chmod +t {two.box.share})"
    assert told in two.lena("doctor", "box", check=False).stdout
    ended = two.lena("run", *ON, *python("pass"), check=False)
    assert ended.returncode == 7
    assert told in ended.stderr
    assert list(two.lena.jobs.iterdir()) == []
    assert list(two.box.share.glob("*/*/*")) == []
