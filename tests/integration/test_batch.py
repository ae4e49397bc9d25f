"""Batches: many jobs, each with its own command and settings, under one id."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc, wait_for

PIPELINE = """
[defaults]
env = { GREETING = "hello" }
[[jobs]]
name = "train"
command = ["python3", "-c", "import os; open(os.environ['DRAY_OUTPUTS'] + '/m', 'w').write('42')"]
[[jobs]]
name = "evaluate"
inputs = { model = "train:m" }
command = ["python3", "evaluate.py", "{index}"]
count = 2
[[jobs]]
name = "report"
after = ["evaluate"]
run = "python3 -c \\"print('all done')\\""
[[jobs]]
run = "python3 -c \\"print('one')\\""
[[jobs]]
run = "python3 -c \\"print('two')\\""
"""

EVALUATE = """
import os, sys
print(open(os.environ["DRAY_INPUT_MODEL"]).read(), sys.argv[1], os.environ["GREETING"])
"""


@pytest.fixture(params=["local", "hpc"])
def on(request: pytest.FixtureRequest, dray: Dray) -> tuple[str, str]:
    dray.write("evaluate.py", EVALUATE)
    if request.param == "hpc":
        request.getfixturevalue("hpc").offer(dray)
    return ("--on", str(request.param))


def submitted(dray: Dray, *arguments: str) -> str:
    done = dray("batch", *arguments, "jobs.toml")
    return str(done.stdout).strip()


def test_a_pipeline_with_arrays_under_one_id(dray: Dray, on: tuple[str, str]) -> None:
    dray.write("jobs.toml", PIPELINE)
    batch = submitted(dray, *on)
    assert batch.startswith("jobs-")
    assert "\n" not in batch
    waited = dray("wait", batch)
    assert waited.returncode == 0
    listed = json.loads(dray("ps", batch, "--json").stdout)
    ids = {one["id"] for one in listed}
    assert ids == {
        f"{batch}.train",
        f"{batch}.evaluate.0",
        f"{batch}.evaluate.1",
        f"{batch}.report",
        f"{batch}.python3.0",
        f"{batch}.python3.1",
    }
    assert dray.log(f"{batch}.evaluate.1") == "42 1 hello\n"
    assert dray.log(f"{batch}.python3.1") == "two\n"
    assert len({dray.show(job)["snapshot"] for job in ids}) == 1
    started = dray.show(f"{batch}.report")["attempts"][0]["started"]
    assert started >= dray.show(f"{batch}.evaluate.1")["ended"] - 1
    assert dray.show(f"{batch}.report")["after"] == {f"{batch}.evaluate.0-1": "ok"}
    logs = dray("logs", batch)
    assert f"══ {batch}.report" in logs.stderr
    assert "all done\n" in logs.stdout
    dray("rm", batch)
    assert json.loads(dray("ps", "--all", "--json").stdout) == []


def test_a_batch_is_stopped_as_a_whole(dray: Dray) -> None:
    dray.write(
        "jobs.toml",
        '[[jobs]]\nname = "first"\nrun = "sleep 600"\n'
        '[[jobs]]\nname = "second"\nrun = "sleep 600"\nafter = ["first"]\n',
    )
    batch = submitted(dray)
    wait_for(lambda: dray.show(f"{batch}.first")["state"] == "running")
    dray("stop", "--now", batch, check=False)
    states = [one["state"] for one in json.loads(dray("ps", batch, "--json").stdout)]
    assert states == ["stopped", "stopped"]


def test_a_plan_touches_nothing(dray: Dray, on: tuple[str, str]) -> None:
    dray.write("jobs.toml", PIPELINE)
    shown = dray("batch", *on, "--plan", "jobs.toml").stdout
    assert "resources 1 CPU" in shown
    assert "evaluate (2 jobs)" in shown
    assert "model = jobs-" in shown
    plans = json.loads(dray("batch", *on, "--plan", "--json", "jobs.toml").stdout)
    assert [one["job"]["name"] for one in plans] == ["train", "evaluate", "report", "python3"]
    assert [len(one["commands"]) for one in plans] == [1, 2, 1, 2]
    assert json.loads(dray("ps", "--all", "--json").stdout) == []


def test_mistakes_name_the_file_and_the_line(dray: Dray) -> None:
    head = '[[jobs]]\nname = "train"\nrun = "true"\n'
    for text, told in (
        ('[[jobs]]\nname = "b"\nrun = "true"\nafter = ["trian"]\n', "jobs.toml:4: there is no job"),
        ('[[jobs]]\nname = "b"\nrun = "true"\non = "nosuch"\n', "jobs.toml:4: there is no cluster"),
        ('[[jobs]]\nname = "b"\nrun = "nosuch-program"\n', "jobs.toml:4: the command"),
        ('[[jobs]]\nname = "b"\nrun = "true"\nsecrets = ["TOKEN"]\n', "jobs.toml:4: secrets"),
    ):
        dray.write("jobs.toml", head + text)
        ended = dray("batch", "jobs.toml", check=False)
        assert ended.returncode in (2, 3, 4)
        assert told in ended.stderr, ended.stderr
    assert "Did you mean 'train'?" in dray_told(dray, head)
    assert json.loads(dray("ps", "--all", "--json").stdout) == []


def test_a_file_takes_outputs_of_its_own_project_alone(dray: Dray) -> None:
    """The job of another project is refused by any name, unless the user names it, too."""
    dray.write("out.py", "import os\nopen(os.environ['DRAY_OUTPUTS'] + '/m', 'w').write('42')\n")
    train = dray.run("--name", "train", "--", "python3", "out.py")
    dray.wait(train)
    head = '[[jobs]]\nname = "quick"\nrun = "python3 read.py"\n'
    given = f'{head}inputs = {{ m = "{train}:m" }}\n'
    reading = "import os\nprint(open(os.environ['DRAY_INPUT_M']).read())\n"
    own = dray.project
    for name in ("jobs.toml", "../cloned/jobs.toml"):
        (own / name).parent.mkdir(exist_ok=True)
        (own / name).write_text(given)
        (own / name).with_name("read.py").write_text(reading)
        (own / name).with_name("dray.toml").touch()
    own_batch = submitted(dray)
    dray.wait(f"{own_batch}.quick")
    assert dray.log(f"{own_batch}.quick") == "42\n"
    dray.project = own.parent / "cloned"
    for text, told in (
        (given, f"{train} is a job of another project"),
        (f'{head}after = ["{train}:any"]\n', f"{train} is a job of another project"),
        (f'{head}after = ["{own_batch}"]\n', f"{own_batch}.quick is a job of another project"),
        (head + 'inputs = { m = "train:m" }\n', "'train' is the beginning of an id"),
        (head + 'after = ["train"]\n', "'train' is the beginning of an id"),
    ):
        dray.write("jobs.toml", text)
        for plan in ((), ("--plan",)):
            ended = dray("batch", *plan, "jobs.toml", check=False)
            assert ended.returncode == 2, ended.stderr
            assert f"jobs.toml:1: {told}" in ended.stderr, ended.stderr
    dray.write("jobs.toml", given)
    batch = submitted(dray, "--allow-job", train)
    dray.wait(f"{batch}.quick")
    assert dray.log(f"{batch}.quick") == "42\n"


def dray_told(dray: Dray, head: str) -> str:
    dray.write("jobs.toml", head + '[[jobs]]\nrun = "true"\nafter = ["trian"]\n')
    return str(dray("batch", "jobs.toml", check=False).stderr)


def test_a_submission_that_was_cut_short_is_gone_on_with(dray: Dray, hpc: Hpc) -> None:
    """Killed after the first job: the same command sends the others, and nothing twice."""
    text = "".join(
        f'[[jobs]]\nname = "{name}"\non = "{on}"\nrun = "python3 -V"\n'
        for name, on in (("here", "local"), ("there", "hpc"), ("too", "hpc"))
    )
    dray.write("jobs.toml", text)
    hpc.offer(dray, python="no-such-python")
    ended = dray("batch", "jobs.toml", check=False)
    hpc.offer(dray)
    assert ended.returncode == 7, ended.stderr
    assert "1 job of jobs-" in ended.stderr
    listed = json.loads(dray("ps", "--all", "--json").stdout)
    assert len(listed) == 1
    batch = listed[0]["id"].rpartition(".")[0]
    again = dray("batch", "jobs.toml")
    assert again.stdout.strip() == batch
    assert f"going on with {batch}" in again.stderr
    dray("wait", batch)
    assert len(json.loads(dray("ps", batch, "--json").stdout)) == 3
    anew = submitted(dray)
    assert anew != batch
    dray("wait", anew)


def test_an_array_that_was_cut_in_the_middle_is_gone_on_with(dray: Dray) -> None:
    """This machine takes an array job by job: Ctrl-C leaves some of them."""
    dray.write("jobs.toml", '[[jobs]]\nname = "many"\nrun = "echo {index}"\ncount = 30\n')
    cut = dray.interrupted(lambda: len(dray.job_names()) >= 3, "batch", "jobs.toml")
    there = dray.job_names()
    assert 3 <= len(there) < 30
    batch = there[0].partition(".")[0]
    assert f"{len(there)} jobs of {batch} are submitted, the others are not" in cut
    again = dray("batch", "jobs.toml")
    assert again.stdout.strip() == batch
    assert f"going on with {batch}" in again.stderr
    dray("wait", batch)
    listed = json.loads(dray("ps", batch, "--json").stdout)
    assert {one["id"] for one in listed} == {f"{batch}.many.{index}" for index in range(30)}
    assert {len(dray.show(one)["attempts"]) for one in there} == {1}
    assert dray.log(f"{batch}.many.29") == "29\n"


def test_every_job_is_registered_before_the_first_is_sent(dray: Dray, tmp_path: Path) -> None:
    dray.write("evaluate.py", EVALUATE)
    dray.write("jobs.toml", PIPELINE)
    fault = f"run:intent-stored@{tmp_path / 'killed'}"
    ended = dray("batch", "jobs.toml", check=False, DRAY_FAULT=fault)
    assert ended.returncode == -signal.SIGKILL
    store = next(dray.home.glob("dray/**/store.db"))
    rows = sqlite3.connect(store).execute("SELECT id FROM jobs WHERE NOT submitted").fetchall()
    assert len(rows) == 6
    batch = rows[0][0].partition(".")[0]
    assert submitted(dray) == batch
    dray("wait", batch)
    assert len(json.loads(dray("ps", batch, "--json").stdout)) == 6


def test_commands_share_a_job(dray: Dray, on: tuple[str, str]) -> None:
    dray.write(
        "jobs.toml",
        '[[jobs]]\nname = "seeds"\nrun = "python3 show.py {index}"\ncount = 5\nshare = 2\n',
    )
    dray.write(
        "show.py",
        "import os, sys\n"
        "open(os.environ['DRAY_OUTPUTS'] + '/seed', 'w').write(sys.argv[1])\n"
        "print('seed', sys.argv[1])\n",
    )
    batch = submitted(dray, *on)
    dray("wait", batch)
    jobs = sorted(one["id"] for one in json.loads(dray("ps", batch, "--json").stdout))
    assert jobs == [f"{batch}.seeds.{n}" for n in range(3)]
    assert sorted(line for line in dray.log(jobs[1]).splitlines() if "seed" in line) == [
        "2 | seed 2",
        "3 | seed 3",
    ]
    dray("pull", jobs[1], "there")
    assert (dray.project / "there/3/seed").read_text() == "3"


def test_jobs_run_together(dray: Dray) -> None:
    """The server never ends by itself; the lead does, and with it the job."""
    dray.write(
        "jobs.toml",
        'together = true\n[[jobs]]\nname = "server"\nrun = "sleep 600"\n'
        '[[jobs]]\nname = "client"\nlead = true\nrun = "printenv DRAY_PEER_SERVER"\n',
    )
    batch = submitted(dray)
    job = f"{batch}.together"
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert shown["resources"]["cpus"] == 2
    assert "client | 127.0.0.1" in dray.log(job)


def test_tasks_of_isaac_lab_are_read_as_they_are(dray: Dray) -> None:
    dray.write("tasks.yaml", 'tasks:\n  - name: "A Task"\n    py_args: "-V"\n    num_cpus: "2-1"\n')
    done = dray("batch", "tasks.yaml")
    batch = done.stdout.strip()
    dray("wait", batch)
    assert dray.log(f"{batch}.a-task").startswith("Python 3")
    words = ("--cpu_per_worker", "1", "--sub_jobs", "printf", "one", "+", "printf", "two")
    batch = dray("batch", "wrap_resources.py", "--", *words).stdout.strip()
    dray("wait", batch)
    assert dray.log(f"{batch}.job-2") == "two"


def test_jobs_are_dealt_out_among_clusters(dray: Dray, hpc: Hpc) -> None:
    """One by one, but for those that name a cluster; equal ones on one cluster are an array."""
    hpc.offer(dray)
    one = '[[jobs]]\nrun = "echo hello"\n'
    dray.write("jobs.toml", one * 4 + '[[jobs]]\nname = "own"\non = "hpc"\nrun = "echo own"\n')
    batch = submitted(dray, "--on", "local,hpc")
    dray("wait", "--timeout", "100s", batch)
    told = json.loads(dray("ps", "--json", batch).stdout)
    found = sorted((job["cluster"], job["id"].removeprefix(batch)) for job in told)
    assert [where for where, _ in found] == ["hpc"] * 3 + ["local"] * 2
    assert ("hpc", ".own") in found
    together = dray.write("together.toml", "together = true\n" + one * 2)
    refused = dray("batch", "--on", "local,hpc", str(together), check=False)
    assert refused.returncode == 2
    assert "run together" in refused.stderr


def test_an_input_that_is_not_there_is_told_before_anything_is_submitted(dray: Dray) -> None:
    train = dray("run", "--", "sh", "-c", 'echo 1 > "$DRAY_OUTPUTS/model.pt"').stdout.strip()
    dray("wait", train)
    dray.write(
        "jobs.toml",
        '[[jobs]]\nname = "first"\nrun = "true"\n'
        f'[[jobs]]\nname = "second"\nrun = "true"\ninputs = {{ p = "{train}:nothere" }}\n',
    )
    for plan in (("--plan",), ()):
        refused = dray("batch", *plan, "jobs.toml", check=False)
        assert refused.returncode != 0
        assert "jobs.toml:4: " in refused.stderr
        assert f"{train}, which is done, has no output nothere" in refused.stderr
    assert [one["id"] for one in json.loads(dray("ps", "--all", "--json").stdout)] == [train]
