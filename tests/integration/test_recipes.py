"""Trainers that count, save and end in their own ways do exactly what was asked of them, however
often they are interrupted. Stand-ins with the habits of the real ones: see tests/standins."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
import zipfile
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import attempt_pid

STANDINS = Path(__file__).parent.parent / "standins"
LIBRARIES = ("rsl_rl", "rl_games", "skrl", "sb3")
LIMITS = ("--time", "4s", "--grace", "0.5s")
NAP = ("--env", "STANDIN_NAP=0.06")
TASK = ("--task", "Isaac-Velocity-Rough-Anymal-C-v0", "--headless")
ITERATIONS = 100


def isaaclab(dray: Dray) -> Dray:
    shutil.copytree(STANDINS / "isaaclab", dray.project, dirs_exist_ok=True)
    return dray


def iterations(dray: Dray, job: str) -> list[int]:
    """Every iteration that was done, those that were lost too."""
    return numbers(dray.job_dir(job) / "outputs/logs/iterations")


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def require_all_once(dray: Dray, job: str, total: int) -> None:
    """All of them, to the last, and not one beyond; each attempt goes on where a checkpoint was."""
    done = iterations(dray, job)
    assert set(done) == set(range(total))
    assert done[-1] == total - 1


def commands(dray: Dray, job: str) -> list[list[str]]:
    folder = dray.job_dir(job) / "attempts"
    found: list[dict[str, Any]] = [
        json.loads((one / "attempt.json").read_text()) for one in sorted(folder.iterdir())
    ]
    return [one["command"] for one in found]


@pytest.mark.parametrize("given", [True, False], ids=["flag", "config"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_over_time_limits_all_iterations_are_done(dray: Dray, library: str, given: bool) -> None:
    """As many as the command says, or the trainer's own configuration."""
    isaaclab(dray)
    total = ITERATIONS if given else 40
    limits = LIMITS if given else ("--time", "2.5s", "--grace", "0.5s")
    asked = ("--max_iterations", str(total)) if given else ()
    job = dray.run("--recipe", f"isaaclab/{library}", *limits, *NAP, "--", *TASK, *asked)
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    outcomes = [one["outcome"] for one in shown["attempts"]]
    assert len(outcomes) >= 2
    assert set(outcomes[:-1]) == {"interrupted"}
    require_all_once(dray, job, total)


def test_isaac_lab_3_is_told_the_library_and_the_checkpoints_path(dray: Dray) -> None:
    """It has no script for each library any more, and no --resume."""
    shutil.copytree(STANDINS / "isaaclab3", dray.project, dirs_exist_ok=True)
    shutil.copy(STANDINS / "isaaclab/standin.py", dray.project)
    limits = ("--time", "2.5s", "--grace", "0.5s")
    asked = ("--", *TASK, "--max_iterations", "40", "--run_name", "a+b")
    job = dray.run("--recipe", "isaaclab/rsl_rl", *limits, *NAP, *asked)
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    first, second = commands(dray, job)[:2]
    entry = ["./isaaclab.sh", "train", "--rl_library", "rsl_rl", *TASK]
    assert first == [*entry, *asked[-4:]]
    path = dray.job_dir(job) / "outputs" / shown["attempts"][1]["from_checkpoint"]
    left = 40 - int(re.findall(r"\d+", path.name)[0])
    going_on = ["--checkpoint", str(path), "--max_iterations", str(left)]
    assert second == [*entry, "--run_name", "a+b", *going_on]
    require_all_once(dray, job, 40)


def test_what_is_not_torchs_is_a_checkpoint_too(dray: Dray) -> None:
    isaaclab(dray)
    limits = ("--time", "2.5s", "--grace", "0.5s")
    asked = ("--", *TASK, "--max_iterations", "40", "--ml_framework", "jax")
    job = dray.run("--recipe", "isaaclab/skrl", *limits, *NAP, *asked)
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert shown["attempts"][1]["from_checkpoint"].endswith(".pickle")
    require_all_once(dray, job, 40)


def test_a_run_is_found_by_its_very_name(dray: Dray) -> None:
    """rsl_rl takes --load_run for a regular expression, and the last folder that it matches."""
    isaaclab(dray)
    (dray.project / ".gitignore").write_text("logs\n")
    named = ("--run_name", "lr=1e-3 (a+b)[x]")
    limits = ("--time", "2.5s", "--grace", "0.5s")
    asked = ("--", *TASK, "--max_iterations", "40", *named)
    job = dray.run("--recipe", "isaaclab/rsl_rl", *limits, *NAP, *asked)
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert len(shown["attempts"]) >= 2
    require_all_once(dray, job, 40)


@pytest.mark.parametrize("way", ["link", "variable"])
def test_a_binary_installation_is_found_where_it_is_looked_for(
    dray: Dray, tmp_path: Path, way: str
) -> None:
    """The link to it is ignored by git, and so it is not part of the job's code."""
    isaaclab(dray)
    (dray.project / ".gitignore").write_text("_isaac_sim\n")
    sim = tmp_path / "isaac-sim"
    sim.mkdir()
    (sim / "python.sh").write_text('#!/bin/sh\necho binary >&2\nexec python3 "$@"\n')
    (sim / "python.sh").chmod(0o755)
    flags = ("--env", f"ISAACSIM_PATH={sim}") if way == "variable" else ()
    if way == "link":
        (dray.project / "_isaac_sim").symlink_to(sim)
    binary = ("--env", "STANDIN_BINARY=1", *flags)
    asked = ("--", *TASK, "--max_iterations", "3")
    job = dray.run("--recipe", "isaaclab/rsl_rl", *binary, *NAP, *asked)
    assert dray.wait(job)["state"] == "done", dray.log(job)
    assert "binary" in dray.log(job)


def test_where_isaac_sim_is_not_known_the_plan_says_so(dray: Dray) -> None:
    isaaclab(dray)
    recipe = ("--recipe", "isaaclab/rsl_rl")
    assert "ISAACSIM_PATH=/where/it/is" in dray("plan", *recipe, "--", *TASK).stdout
    active = dray("plan", *recipe, "--", *TASK, VIRTUAL_ENV="/venv").stdout
    assert "ISAACSIM_PATH" not in active


def whole_ones(dray: Dray, job: str) -> int:
    found = (dray.job_dir(job) / "outputs/logs").rglob("*_[0-9]*.*")
    return sum(zipfile.is_zipfile(path) for path in found)


@pytest.mark.parametrize("library", LIBRARIES)
def test_killed_at_any_moment_it_goes_on_from_a_whole_one(dray: Dray, library: str) -> None:
    """A kill leaves half a checkpoint, or a folder without one."""
    isaaclab(dray)
    flags = ("--retries", "3", "--backoff", "0.1s", "--env", "STANDIN_NAP=0.03")
    command = (*TASK, "--max_iterations", "90")
    job = dray.run("--recipe", f"isaaclab/{library}", *flags, "--", *command)
    for attempt in (1, 2, 3):
        pid = wait_for(lambda number=attempt: pid_of(dray, job, number))
        before = whole_ones(dray, job)
        wait_for(lambda many=before: whole_ones(dray, job) > many)
        begun = len(iterations(dray, job))
        wait_for(lambda many=begun + 4 * attempt: len(iterations(dray, job)) >= many)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda number=attempt: pid_of(dray, job, number + 1))
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert [one["signal"] for one in shown["attempts"]] == ["SIGKILL"] * 3 + [None]
    require_all_once(dray, job, 90)


def test_neither_an_empty_run_nor_half_a_checkpoint_is_resumed(dray: Dray) -> None:
    """What the trainer's own look-up would take."""
    isaaclab(dray)
    flags = ("--retries", "1", "--backoff", "0.5s", *NAP)
    job = dray.run("--recipe", "isaaclab/rsl_rl", *flags, "--", *TASK, "--max_iterations", "30")
    runs = dray.job_dir(job) / "outputs/logs/rsl_rl/anymal"
    wait_for(lambda: list(runs.glob("*/model_20.pt")))
    wait_for(lambda: len(iterations(dray, job)) > 22)
    os.kill(pid_of(dray, job, 1), signal.SIGKILL)
    (whole,) = runs.glob("*/model_10.pt")
    half = whole.with_name("model_20.pt")
    half.write_bytes(half.read_bytes()[:-30])
    (runs / "2099-01-01_00-00-00/params").mkdir(parents=True)
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert shown["attempts"][1]["from_checkpoint"].endswith(f"{whole.parent.name}/model_10.pt")
    require_all_once(dray, job, 30)


@pytest.mark.parametrize("library", LIBRARIES)
def test_fine_tuning_does_as_many_iterations_as_it_is_asked_for(dray: Dray, library: str) -> None:
    """From where another run has come to, whichever way the trainer counts, interrupted too."""
    isaaclab(dray)
    job = ("--recipe", f"isaaclab/{library}", *NAP)
    first = dray.run(*job, "--", *TASK, "--max_iterations", "20")
    shown = dray.wait(first)
    assert shown["state"] == "done", shown["reason"]
    limits = ("--time", "2.5s", "--grace", "0.5s")
    job = dray.run(*job, *limits, "--from", first, "--", *TASK, "--max_iterations", "50")
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    origins = [one["from_checkpoint"] for one in shown["attempts"]]
    assert len(origins) >= 2
    assert origins[0].startswith(f"{first}:logs/{library}/")
    assert all(one.startswith(f"logs/{library}/") for one in origins[1:])
    done = sorted(set(iterations(dray, job)))
    assert done == list(range(done[0], done[0] + 50))
    assert 10 <= done[0] <= 20  # sb3 has no numbered checkpoint of its last iterations


def test_a_place_that_the_trainer_would_not_look_at_is_refused(dray: Dray, tmp_path: Path) -> None:
    isaaclab(dray)
    with zipfile.ZipFile(tmp_path / "model_20.pt", "w") as archive:
        archive.writestr("model/data.pkl", "{}")
    given = ("--from", str(tmp_path / "model_20.pt"))
    refused = dray("run", "--recipe", "isaaclab/rsl_rl", *given, "--", *TASK, check=False)
    assert refused.returncode == 4
    assert "the trainer finds a checkpoint only by its place" in refused.stderr
    script = dray.project / "scripts/reinforcement_learning/skrl/train.py"
    script.write_text('add_argument("--max_iterations")')  # as before Isaac Lab 2.0
    refused = dray("run", "--recipe", "isaaclab/skrl", *given, "--", *TASK, check=False)
    assert "'isaaclab/skrl' cannot begin from a checkpoint here (this train" in refused.stderr


def test_protomotions_begins_from_another_experiment(dray: Dray) -> None:
    shutil.copytree(STANDINS / "protomotions", dray.project, dirs_exist_ok=True)
    words = ("--robot-name", "g1", "--simulator", "newton", "--motion-file", "m.pt")
    words += ("--num-envs", "8", "--batch-size", "8", "--training-max-steps", "10")
    words += ("--experiment-path", "protomotions/train_agent.py")
    job = ("--recipe", "protomotions")
    first = dray.run(*job, "--", *words, "--experiment-name", "one")
    assert dray.wait(first)["state"] == "done"
    second = dray.run(*job, "--from", first, "--", *words, "--experiment-name", "two")
    assert dray.wait(second)["state"] == "done"
    given = dray.job_dir(second) / "given/results/one/last.ckpt"
    assert f"WARM START: {given}\n" in dray.log(second)


def pid_of(dray: Dray, job: str, attempt: int) -> int:
    about = dray.job_dir(job) / f"attempts/{attempt:03}/attempt.json"
    return int(json.loads(about.read_text())["pid"]) if about.exists() else 0


def test_the_command_of_a_resume(dray: Dray) -> None:
    """--max_iterations is what is left, and is given once."""
    isaaclab(dray)
    job = dray.run(
        "--recipe", "isaaclab/rsl_rl", *LIMITS, *NAP, "--", *TASK, "--max_iterations", "80"
    )
    shown = dray.wait(job)
    first, second = commands(dray, job)[:2]
    entry = ["./isaaclab.sh", "-p", "scripts/reinforcement_learning/rsl_rl/train.py", *TASK]
    assert first == [*entry, "--max_iterations", "80"]
    path = Path(shown["attempts"][1]["from_checkpoint"])
    number = int(re.findall(r"\d+", path.name)[0])
    assert second == [
        *entry, "--resume", "--load_run", f"{path.parent.name}$", "--checkpoint", path.name,
        "--max_iterations", str(80 - number),
    ]  # fmt: skip


def test_an_app_that_hangs_on_close_is_ended_and_done(dray: Dray) -> None:
    isaaclab(dray)
    flags = ("--grace", "0.5s", "--time", "60s", "--env", "STANDIN_HANGS=1")
    job = dray.run("--recipe", "isaaclab/rsl_rl", *flags, "--", *TASK, "--max_iterations", "5")
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert "did not end by itself" in shown["reason"]
    assert [one["signal"] for one in shown["attempts"]] == ["SIGKILL"]
    assert iterations(dray, job) == [0, 1, 2, 3, 4]


def test_what_was_done_before_a_crash_is_not_done_again(dray: Dray) -> None:
    """Killed while it hung: the next attempt finds that nothing is left."""
    isaaclab(dray)
    hangs = ("--env", "STANDIN_HANGS=1", "--env", "STANDIN_NAP=0.01")
    flags = ("--retries", "1", "--backoff", "0.1s", "--grace", "60s", *hangs)
    job = dray.run("--recipe", "isaaclab/sb3", *flags, "--", *TASK, "--max_iterations", "8")
    wait_for(lambda: list((dray.job_dir(job) / "outputs").rglob("model.zip")))
    os.kill(attempt_pid(dray, job), signal.SIGKILL)
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert [one["outcome"] for one in shown["attempts"]] == ["failed", "done"]
    assert iterations(dray, job) == list(range(8))


def test_old_checkpoints_go(dray: Dray) -> None:
    isaaclab(dray)
    flags = ("--keep", "2", *LIMITS, *NAP)
    job = dray.run("--recipe", "isaaclab/rsl_rl", *flags, "--", *TASK, "--max_iterations", "80")
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    left = [path.name for path in (dray.job_dir(job) / "outputs").rglob("model_*.pt")]
    assert len(left) == 2
    assert "model_79.pt" in left
    require_all_once(dray, job, 80)


def test_one_run_for_the_trackers(dray: Dray) -> None:
    show = "import os; print(os.environ['WANDB_RUN_ID'], os.environ['WANDB_RESUME'])"
    command = ("--recipe", "generic", "--", "python3", "-c", show)
    job = dray.run(*command)
    dray.wait(job)
    assert dray.log(job).split() == [job, "allow"]
    mine = dray.run("--env", "WANDB_RUN_ID=mine", *command)
    dray.wait(mine)
    assert dray.log(mine).split() == ["mine", "allow"]


PROTOMOTIONS = (
    "--robot-name", "g1", "--simulator", "newton", "--motion-file", "m.pt", "--experiment-name",
    "walk", "--num-envs", "4096", "--batch-size", "16384", "--training-max-steps", "80",
    "--experiment-path", "protomotions/train_agent.py",
)  # fmt: skip


def test_a_trainer_that_resumes_by_itself(dray: Dray) -> None:
    shutil.copytree(STANDINS / "protomotions", dray.project, dirs_exist_ok=True)
    job = dray.run("--recipe", "protomotions", *LIMITS, *NAP, "--", *PROTOMOTIONS)
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert len(shown["attempts"]) >= 2
    folder = dray.job_dir(job) / "outputs/results/walk"
    assert set(numbers(folder / "epochs")) == set(range(80))
    with zipfile.ZipFile(folder / "last.ckpt") as archive:
        assert json.loads(archive.read("data.pkl"))["epoch"] == 80


@pytest.mark.parametrize("name", ["last.ckpt", "env_0.ckpt"])
def test_half_of_the_file_that_it_looks_for_is_mended(dray: Dray, name: str) -> None:
    """It would fail to load it, for ever."""
    shutil.copytree(STANDINS / "protomotions", dray.project, dirs_exist_ok=True)
    flags = ("--retries", "1", "--backoff", "1s", "--time", "60s", *NAP)
    job = dray.run("--recipe", "protomotions", *flags, "--", *PROTOMOTIONS)
    folder = dray.job_dir(job) / "outputs/results/walk"
    wait_for(lambda: (folder / "last.kept.ckpt").exists())
    os.kill(pid_of(dray, job, 1), signal.SIGKILL)
    half = folder / name
    half.write_bytes(half.read_bytes()[:-30])
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert shown["attempts"][1]["from_checkpoint"] == "results/walk/last.ckpt"
    assert "RESUME" in (dray.job_dir(job) / "attempts/002/log").read_text()
    assert set(numbers(folder / "epochs")) == set(range(80))


def test_on_slurm(dray: Dray, hpc: Hpc) -> None:
    isaaclab(dray)
    hpc.offer(dray)
    flags = ("--on", "hpc", "--recipe", "isaaclab/rsl_rl", *LIMITS, *NAP)
    job = dray.run(*flags, "--", *TASK, "--max_iterations", "100")
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert len(shown["attempts"]) >= 2
    require_all_once(dray, job, 100)


# -- the command line ---------------------------------------------------------------------------

SOMEBODYS = """
from dray.recipes import Filled

class Mine:
    name = "mine"
    summary = "somebody's own"
    settings = {"job.outputs": ("out",), "job.resume.checkpoint": "out/*.json"}
    metrics = {"pattern": "loss: (.*)"}

    def detect(self, project):
        return "there is mine.cfg" if (project / "mine.cfg").exists() else ""

    def fill(self, request):
        return Filled(("python3", "-c", "print('mine')", *request.command), notes=("hello",))

MINE = Mine()
"""


def install(dray: Dray) -> None:
    """A package as pip lays it out."""
    site = dray.home / "site"
    about = site / "somebody-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dray.recipes]\nmine = somebody:MINE\n")
    (site / "somebody.py").write_text(SOMEBODYS)
    dray.env["PYTHONPATH"] = str(site)


def test_a_recipe_of_another_package(dray: Dray) -> None:
    install(dray)
    assert "somebody's own" in dray("recipe", "list").stdout
    dray.write("mine.cfg", "")
    assert 'recipe = "mine"' in dray("init").stdout
    ended = dray("run", "--gpus", "0", "--", "--flag")
    assert "hello" in ended.stderr
    shown = dray.wait(ended.stdout.strip())
    assert shown["command"][-2:] == ["print('mine')", "--flag"]
    assert (shown["state"], shown["recipe"], shown["outputs"]) == ("done", "mine", ["out"])


def test_recipes_are_listed_and_shown(dray: Dray) -> None:
    names = [one["name"] for one in json.loads(dray("recipe", "list", "--json").stdout)]
    assert names[:4] == [f"isaaclab/{library}" for library in LIBRARIES]
    for name in names:
        about = json.loads(dray("recipe", "show", "--json", name).stdout)
        for value in (name, about["settings"]["job.resume.checkpoint"]):
            assert value in dray("recipe", "show", name).stdout
    ended = dray("recipe", "show", "isaclab/skrl", check=False)
    assert ended.returncode == 3
    assert "Did you mean 'isaaclab/skrl'?" in ended.stderr


def test_init_looks_and_overwrites_nothing(dray: Dray) -> None:
    isaaclab(dray)
    ended = dray("init")
    assert "also possible: --recipe isaaclab/skrl" in ended.stderr
    written = (dray.project / "dray.toml").read_text()
    assert written == ended.stdout
    assert "recipe    isaaclab/rsl_rl" in dray("plan", "--gpus", "0", "--", *TASK).stdout
    dray.write("dray.toml", "# mine\n")
    assert dray("init", check=False).returncode == 2
    assert (dray.project / "dray.toml").read_text() == "# mine\n"


def first_command(said: str) -> list[str]:
    (line,) = re.findall(r"^Try it:  dray (.*)$", said, re.M)
    return shlex.split(line)


@pytest.mark.parametrize("files", [[], ["train.py"], ["scripts/train.py"]])
def test_the_command_that_init_prints_works(dray: Dray, files: list[str]) -> None:
    for name in files:
        dray.write(name, "print('trained')\n")
    ended = dray(*first_command(dray("init").stderr))
    assert ("trained" if files else "it works") in ended.stderr
    assert dray.show(ended.stdout.strip())["state"] == "done"


def test_the_command_that_init_prints_for_isaac_lab_works(dray: Dray) -> None:
    isaaclab(dray)
    dray.write("source/tasks/__init__.py", 'gym.register(\n    id="Isaac-Cartpole-v0",\n)\n')
    command = first_command(dray("init").stderr)
    assert "Isaac-Cartpole-v0" in command
    ended = dray(*command, check=False)
    assert ended.returncode == 0, ended.stderr
    assert dray.show(ended.stdout.strip())["recipe"] == "isaaclab/rsl_rl"


def test_init_asks_two_questions_at_most(dray: Dray) -> None:
    isaaclab(dray)
    dray.configure("[clusters.box]\nkind = 'local'\n")
    talk = pexpect.spawn(
        sys.executable,
        ["-m", "dray", "init"],
        cwd=str(dray.project),
        env={**dray.env, "TERM": "xterm"},  # type: ignore[arg-type]
        encoding="utf-8",
        timeout=60,
    )
    talk.expect("Which trainer.*: ")
    talk.sendline("isaaclab/skrl")
    talk.expect("first job.*box.*: ")
    talk.sendline("")
    talk.expect("Try it:  dray run --on box")
    talk.expect(pexpect.EOF)
    talk.close()
    assert talk.exitstatus == 0
    assert 'recipe = "isaaclab/skrl"' in (dray.project / "dray.toml").read_text()


def test_plan_tells_what_counts_for_each_gpu_make_in_all(dray: Dray, hpc: Hpc) -> None:
    isaaclab(dray)
    hpc.offer(dray)
    flags = ("--on", "hpc", "--gpus", "2", "--recipe", "isaaclab/rsl_rl")
    shown = dray("plan", *flags, "--", *TASK, "--num_envs", "4096").stdout
    assert "note      8192 environments in all: --num_envs 4096 on 2 GPUs" in shown
    assert "torch.distributed.run" in shown
