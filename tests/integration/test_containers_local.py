"""A command in a container on this machine, with the real Apptainer."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dray.node.processes.process import parents
from tests.conftest import Dray, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER
from tests.integration.test_nodes import read
from tests.integration.test_recipes import LIMITS, NAP, TASK, isaaclab, require_all_once
from tests.rigs.containers import Apptainer, all_programs_but

pytestmark = pytest.mark.containers

ALL_BYTES = bytes(range(1, 256))


@pytest.fixture
def contained(dray: Dray, apptainer: Apptainer, train_sif: Path) -> Dray:
    """A project whose jobs run in the image."""
    dray.use(apptainer.bin)
    dray.write("dray.toml", f'[job]\nimage = "{train_sif}"\n')
    return dray


@pytest.fixture
def sandbox(apptainer: Apptainer, train_sif: Path, tmp_path: Path) -> Path:
    """The image as a folder."""
    apptainer("build", "--sandbox", str(tmp_path / "sandbox"), str(train_sif))
    return tmp_path / "sandbox"


def test_the_command_is_exactly_the_one_given(contained: Dray) -> None:
    contained.write(
        "tell.py",
        "import json, os, sys\n"
        "shown = lambda text: os.fsencode(text).hex()\n"
        "env = {name: shown(value) for name, value in os.environ.items()}\n"
        "about = {'argv': [shown(one) for one in sys.argv[1:]], 'env': env, 'cwd': os.getcwd(),\n"
        "         'stdin': os.readlink('/proc/self/fd/0'), 'uid': os.getuid(),\n"
        "         'python': sys.executable}\n"
        "json.dump(about, open('told.json', 'w'))\n",
    )
    arguments = ["", "a b", "it's", '"$HOME"', "`id`", "line\nbreak", "\\", "*", "é", "-n"]
    words = [os.fsencode(one) for one in arguments] + [ALL_BYTES]
    value = "$HOME `id` 'q' \\ \n\t é"
    job = contained(
        "run", "--output", "told.json", "--env", f"TRICKY={value}", "--env", "UID=7", "--secret",
        "TOKEN", "--", "python3", "tell.py", *words, TOKEN="s3cr3t-$(id)",
    ).stdout.strip()  # fmt: skip
    ended = contained.wait(job)
    assert (ended["state"], ended["exit_code"]) == ("done", 0), contained.log(job)
    told: dict[str, Any] = json.loads((contained.job_dir(job) / "outputs/told.json").read_text())
    assert [bytes.fromhex(one) for one in told["argv"]] == words
    env = {name: os.fsdecode(bytes.fromhex(one)) for name, one in told["env"].items()}
    assert (env["TRICKY"], env["TOKEN"], env["UID"]) == (value, "s3cr3t-$(id)", "7")
    assert env["TRAIN_HOME"] == "/opt/train"  # the image's own
    assert env["DRAY_JOB_ID"] == job
    assert env["CLUSTER_USER_ID"] == str(os.getuid())
    assert env["CLUSTER_GROUP_ID"] == str(os.getgid())
    assert "VIRTUAL_ENV" not in env
    assert ".venv" not in env["PATH"]
    assert (told["stdin"], told["uid"]) == ("/dev/null", os.getuid())
    assert told["python"] == "/usr/bin/python3"
    assert not any(b"s3cr3t" in path.read_bytes() for path in files_below(contained.jobs / job))


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "told.json"]


# -- how it ends --------------------------------------------------------------------------------


def test_ends_are_the_commands_own(contained: Dray, tmp_path: Path) -> None:
    """Also 255, which is what Apptainer itself ends with when it fails."""
    (tmp_path / "broken.sif").write_text("this is no image")
    cases: dict[str, tuple[list[str], int | None, str | None, str]] = {
        "code": (["--", "sh", "-c", "exit 3"], 3, None, "exit code 3"),
        "255": (["--", "sh", "-c", "exit 255"], 255, None, "exit code 255"),
        "killed": (["--", "sh", "-c", "kill -9 $$"], None, "SIGKILL", "killed by SIGKILL"),
        "missing": (["--", "no-such"], 127, None, "the command 'no-such' is not in the container"),
        "bind": (["--bind", "/no/such:/x", "--", "true"], None, None, "there is no /no/such on"),
        "broken": (
            ["--image", str(tmp_path / "broken.sif"), "--", "true"],
            None,
            None,
            "apptainer could not start the container: ",
        ),
    }
    jobs = {name: contained.run(*case[0]) for name, case in cases.items()}
    contained("wait", *jobs.values(), check=False)
    for name, (_, code, number, reason) in cases.items():
        shown = contained.show(jobs[name])
        ended = (shown["state"], shown["exit_code"], shown["signal"])
        assert ended == ("failed", code, number), (name, shown["reason"])
        assert reason in shown["reason"], name
        assert boxes(contained, jobs[name]) == []


def boxes(dray: Dray, job: str) -> list[Path]:
    return list(dray.job_dir(job).glob("*.box-*"))


def test_without_a_runtime_the_way_out_is_told(contained: Dray, tmp_path: Path) -> None:
    contained.env["PATH"] = str(all_programs_but(tmp_path / "programs", "apptainer"))
    job = contained.run("--", "true")
    reason = contained.wait(job)["reason"]
    assert reason.startswith("there is no apptainer or singularity on ")
    assert "module" in reason


# -- it runs until it is done -------------------------------------------------------------------


def test_a_checkpoint_is_asked_of_the_trainer_inside(contained: Dray) -> None:
    """Below a shell that the signal would kill, and with nothing left of its variables."""
    contained.write("train.py", TRAINER)
    flags = ("--time", "5s", "--grace", "3s", "--checkpoint-signal", "USR1", *RESUMABLE)
    job = contained.run(
        *flags, "--", "sh", "-c", 'python3 "$@"; exit $?', "sh", "train.py", "25", "0.1"
    )
    shown = contained.wait(job)
    assert shown["state"] == "done", shown["reason"]
    outcomes = [one["outcome"] for one in shown["attempts"]]
    assert outcomes[-1] == "done"
    assert set(outcomes[:-1]) == {"interrupted"}
    first, second, *_ = shown["attempts"]
    assert second["from_checkpoint"] == first["checkpoint"] is not None


def test_stopped_it_saves_and_ends(contained: Dray) -> None:
    contained.write("train.py", TRAINER)
    flags = ("--checkpoint-signal", "USR1", *RESUMABLE)
    job = contained.run(*flags, "--", "python3", "train.py", "10000", "0.05")
    wait_for(lambda: "start" in contained.log(job))
    contained("stop", job)
    shown = contained.show(job)
    assert shown["state"] == "stopped"
    assert shown["attempts"][0]["checkpoint"] is not None


@pytest.mark.parametrize("isolated", [False, True])
def test_a_killed_supervisor_leaves_nothing_running(contained: Dray, isolated: bool) -> None:
    """And no container goes on where another attempt has begun."""
    container = f"containall = {str(isolated).lower()}\nwritable = 'overlay'\n"
    before = (contained.project / "dray.toml").read_text()
    contained.write("dray.toml", f"{before}[job.container]\n{container}")
    contained.write("train.py", TRAINER)
    job = contained.run(*RESUMABLE, "--", "python3", "train.py", "10000", "0.05", "--every")
    wait_for(lambda: list((contained.job_dir(job) / "outputs").glob("ckpt_*")))
    inside = trainers(contained)
    about = json.loads((contained.job_dir(job) / "attempts/001/attempt.json").read_text())
    os.kill(parents()[about["pid"]], signal.SIGKILL)
    wait_for(lambda: len(contained.show(job)["attempts"]) == 2)
    wait_for(lambda: trainers(contained))
    assert not set(inside) & set(parents())
    contained("stop", "--now", job)
    assert contained.show(job)["attempts"][0]["outcome"] == "lost"
    assert boxes(contained, job) == []


def trainers(dray: Dray) -> list[int]:
    return [pid for pid in dray.processes() if b"train.py" in read(pid, "cmdline").split(b"\0")]


# -- what it sees and may write -----------------------------------------------------------------

LOOK = """
import json, os, pathlib, sys
home, tmp = pathlib.Path.home(), pathlib.Path("/tmp")
others = [name for name in os.listdir(tmp) if name != sys.argv[2]]
about = {"home": str(home), "found": os.listdir(home) + others}
for folder in (home, tmp, pathlib.Path("/var/tmp")):
    (folder / "mine").write_text("x" * 100)
about["code"] = os.path.abspath(sys.argv[0])
about["tree"] = os.environ["DRAY_CODE"]
import dray.training
about["outputs"] = dray.training.outputs() == os.environ["DRAY_OUTPUTS"]
about["data"] = pathlib.Path("/data/file").read_text()
for place in ("/opt/train/new", "/data/new"):
    try:
        pathlib.Path(place).write_text("new")
        about[place] = "written"
    except OSError as error:
        about[place] = error.strerror
pathlib.Path("/kept/count").write_text(sys.argv[1])
pathlib.Path("logs/told.json").write_text(json.dumps(about))
"""


def test_a_sandbox_folder_with_folders_of_its_own(
    contained: Dray, sandbox: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("for all")
    contained.write(
        "dray.toml",
        f"""
        [job]
        image = "{sandbox}"
        outputs = ["logs"]
        [job.container]
        binds = ["{data}:/data:ro"]
        writable = "overlay"
        workdir = "/workspace/it"
        caches = ["shaders:/kept"]
        local_copy = "yes"
        """,
    )
    contained.write("look.py", LOOK)
    # The outputs are below /tmp, so the way to them is there, and nothing else.
    job = contained.run("--", "python3", "look.py", "1", tmp_path.parts[2])
    assert contained.wait(job)["state"] == "done", contained.log(job)
    told = contained.job_dir(job) / "outputs/logs/told.json"
    assert json.loads(told.read_text()) == {
        "home": "/dray/home",
        "found": [],
        "code": "/workspace/it/look.py",
        "tree": "/workspace/it",
        "outputs": True,
        "data": "for all",
        "/opt/train/new": "written",
        "/data/new": "Read-only file system",
    }
    assert told.stat().st_uid == os.getuid()
    assert not (sandbox / "opt/train/new").exists()
    assert (contained.jobs.parent / "caches/shaders/count").read_text() == "1"
    assert boxes(contained, job) == []
    assert list(contained.job_dir(job).glob("dray-image-*")) == []
    isolated = "home = 'cluster'\ncontainall = true\n"
    contained.write("dray.toml", f"[job]\nimage = '{sandbox}'\n[job.container]\n{isolated}")
    job = contained.run("--", "sh", "-c", "echo $HOME $(ls /proc | grep -c '^[0-9]'); kill -9 $$")
    ended = contained.wait(job)
    assert (ended["exit_code"], ended["signal"]) == (137, None)
    assert ended["reason"] == "exit code 137 (killed by SIGKILL, or a program that says so)"
    home, processes = contained.log(job).split()
    assert home == contained.env["HOME"]
    assert int(processes) < 10


def test_caches_of_two_jobs_at_once_come_together(contained: Dray) -> None:
    """Each has its own copy; one that is killed brings nothing."""
    before = (contained.project / "dray.toml").read_text()
    caches = "[job.container]\ncaches = ['pip:~/.cache/pip']\n"
    contained.write("dray.toml", f"{before}{caches}")
    shared = contained.jobs.parent / "caches/pip"
    (shared / "deep").mkdir(parents=True)
    (shared / "deep/old").write_text("old")
    script = (
        "cat ~/.cache/pip/deep/old; ls ~/.cache/pip; echo $1 > ~/.cache/pip/$1;"
        "echo $1 > ~/.cache/pip/deep/both; touch $DRAY_OUTPUTS/up;"
        "while [ ! -e $DRAY_OUTPUTS/go ]; do sleep 0.05; done"
    )
    jobs = [contained.run("--", "sh", "-c", script, "sh", name) for name in ("one", "two")]
    outputs = [contained.job_dir(job) / "outputs" for job in jobs]
    wait_for(lambda: all((folder / "up").exists() for folder in outputs))
    for folder in outputs:
        (folder / "go").touch()
    assert [contained.wait(job)["state"] for job in jobs] == ["done", "done"]
    assert [contained.log(job) for job in jobs] == ["olddeep\n", "olddeep\n"]
    killed = contained.run("--", "sh", "-c", "echo > ~/.cache/pip/half; kill -9 $$")
    assert contained.wait(killed)["signal"] == "SIGKILL"
    found = {str(path.relative_to(shared)) for path in shared.rglob("*") if path.is_file()}
    assert found == {"one", "two", "deep/old", "deep/both"}
    assert (shared / "deep/both").read_text() in ("one\n", "two\n")
    assert not list(shared.parent.rglob(".dray-new-*"))


# -- Isaac Lab ----------------------------------------------------------------------------------

# As the image's does, it needs to write beside itself and into its caches.
ISAAC_SIM_PYTHON = """#!/bin/sh
set -e
[ "$ISAACLAB_PATH" = /workspace/isaaclab ] && [ ! -e "$ISAACLAB_PATH/of-the-image" ]
echo >> /isaac-sim/kit/logs
echo shader >> /isaac-sim/kit/cache/shader
echo started >> ~/.cache/ov/starts
exec python3 "$@"
"""


def test_isaac_lab_is_resumed_and_its_caches_kept(contained: Dray, sandbox: Path) -> None:
    for name in ("isaac-sim/kit/cache", "workspace/isaaclab"):
        (sandbox / name).mkdir(parents=True)
    (sandbox / "workspace/isaaclab/of-the-image").touch()
    (sandbox / "isaac-sim/python.sh").write_text(ISAAC_SIM_PYTHON)
    (sandbox / "isaac-sim/python.sh").chmod(0o755)
    isaaclab(contained)
    flags = ("--image", str(sandbox), "--recipe", "isaaclab/rsl_rl", *LIMITS, *NAP)
    job = contained.run(*flags, "--", *TASK, "--max_iterations", "60")
    shown = contained.wait(job)
    assert shown["state"] == "done", (shown["reason"], contained.log(job))
    assert len(shown["attempts"]) > 1
    require_all_once(contained, job, 60)
    kept = contained.jobs.parent / "caches"
    assert (kept / "kit/shader").read_text() == "shader\n"
    # Those that were killed at their limit have brought nothing back.
    assert (kept / "ov/starts").read_text() == "started\n"


# -- Enroot -------------------------------------------------------------------------------------

ENROOT = Path(__file__).parents[1] / "standins/enroot"


@pytest.mark.skipif(os.getuid() != 0, reason="the stand-in for Enroot mounts")
def test_enroot_is_called_as_it_wants_to_be(dray: Dray, sandbox: Path, tmp_path: Path) -> None:
    (tmp_path / "x.sqsh").write_text(str(sandbox))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("for all")
    dray.use(ENROOT)
    flags = ("--image", str(tmp_path / "x.sqsh"), "--bind", f"{tmp_path}/data:/data:ro")
    tell = 'cat /data/file; echo "$1" > out.txt; echo $HOME $DRAY_CONTAINER; exit 3'
    job = dray.run(*flags, "--output", "out.txt", "--", "sh", "-c", tell, "sh", "it's `id` $HOME")
    shown = dray.wait(job)
    assert (shown["state"], shown["exit_code"]) == ("failed", 3), dray.log(job)
    assert dray.log(job) == "for all/dray/home enroot\n"
    assert (dray.job_dir(job) / "outputs/out.txt").read_text() == "it's `id` $HOME\n"


def test_an_input_is_bound_and_cannot_be_written_to(contained: Dray) -> None:
    write = "import os; open(os.environ['DRAY_OUTPUTS'] + '/model', 'w').write('trained')"
    first = contained.run("--", "python3", "-c", write)
    contained.write(
        "read.py",
        "import os\n"
        "top = os.environ['DRAY_INPUT_POLICY']\n"
        "print(open(top + '/model').read())\n"
        "try:\n"
        "    open(top + '/other', 'w')\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n",
    )
    second = contained.run("--input", f"policy={first}", "--", "python3", "read.py")
    ended = contained.wait(second)
    assert ended["state"] == "done", contained.log(second)
    assert contained.log(second) == "trained\nRead-only file system\n"
