"""What recipes fill in: the command, how it is spread, and what is told about it."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dray import recipes
from dray.clusters.registry import capabilities_of
from dray.config import loading as configuration
from dray.description.describing import describe, fill_in
from dray.errors import ConfigError, NotFound, UsageError
from dray.job.model import JobSpec, JobView
from dray.job.options import GpuRequest, caches, counting_pattern, output_path
from dray.job.options.option import outermost
from dray.node.formats import files
from dray.recipes import RECIPES, Filled, Request

GOLDEN = Path(__file__).parent / "golden"
SLURM = capabilities_of("slurm")
TASK = ("--task", "Isaac-Ant-v0", "--headless")
SCRIPT = "scripts/reinforcement_learning/{}/train.py"
LIBRARIES = ("rsl_rl", "rl_games", "skrl", "sb3")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    def make(*names: str) -> Path:
        for name in names:
            path = tmp_path / "project" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (tmp_path / "project").mkdir(exist_ok=True)
        monkeypatch.setenv("DRAY_HOME", str(tmp_path / "home"))
        return tmp_path / "project"

    return make


def filled(name: str, request: Request) -> Filled:
    return recipes.find(name).fill(request)


def described(folder: Path, *command: str, **settings: Any) -> JobSpec:
    flags = {f"job.{key.replace('__', '.')}": value for key, value in settings.items()}
    return describe(command, configuration.load(folder, flags), {}, 0.0)


# -- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_all_are_of_the_same_shape(name: str) -> None:
    recipe = recipes.find(name)
    assert recipe.name == name
    assert recipe.summary
    outputs = recipe.settings["job.outputs"]
    assert outputs == outermost(tuple(output_path(one) for one in outputs))
    assert recipe.settings["job.resume.checkpoint"]
    number = recipe.settings.get("job.resume.number")
    assert number is None or counting_pattern(number)
    assert {"tensorboard", "main"} == set(recipe.metrics)


def test_what_they_say_is_golden() -> None:
    """A change here changes how people's runs are resumed: it is to be seen."""
    said = {
        name: {"settings": dict(one.settings), "metrics": dict(one.metrics)}
        for name, one in ((name, recipes.find(name)) for name in RECIPES)
    }
    golden = json.loads((GOLDEN / "recipes.json").read_text())
    assert json.loads(json.dumps(said)) == golden


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(NotFound, match=r"Did you mean 'isaaclab/rsl_rl'\?"):
        recipes.find("isaaclab/rslrl")


class Entry:
    def __init__(self, name: str, recipe: object) -> None:
        self.name = name
        self.value = "somebody.recipes:MINE"
        self.recipe = recipe

    def load(self) -> object:
        if isinstance(self.recipe, Exception):
            raise self.recipe
        return self.recipe


def announce(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    def entry_points(*, group: str) -> list[Entry]:
        return list(entries) if group == recipes.GROUP else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def test_other_packages_have_recipes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """But none takes the place of a built-in one, and a broken one is told by name."""
    mine, generic = object(), object()
    announce(monkeypatch, Entry("mine", mine), Entry("generic", generic))
    assert recipes.find("mine") is mine
    assert recipes.find("generic") is not generic
    assert [*recipes.all_recipes()][-1] is mine
    announce(monkeypatch, Entry("mine", ImportError("no torch")))
    with pytest.raises(ConfigError, match=r"'mine' of somebody.recipes:MINE .*no torch"):
        recipes.find("mine")


# -- Isaac Lab ----------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_arguments_alone_get_the_script_and_its_python(
    project: Callable[..., Path], library: str
) -> None:
    script = SCRIPT.format(library)
    folder = project(script, "isaaclab.sh")
    found = filled(f"isaaclab/{library}", Request(TASK, folder))
    assert found.command == ("./isaaclab.sh", "-p", script, *TASK)
    found = filled(f"isaaclab/{library}", Request(TASK, folder, python=("/isaac-sim/python.sh",)))
    assert found.command == ("/isaac-sim/python.sh", script, *TASK)


@pytest.mark.parametrize(
    "script", ["source/standalone/workflows/rsl_rl/train.py", "scripts/rsl_rl/train.py"]
)
def test_older_and_outer_projects(project: Callable[..., Path], script: str) -> None:
    found = filled("isaaclab/rsl_rl", Request(TASK, project(script)))
    assert found.command == ("python", script, *TASK)


def test_in_a_container_isaac_lab_takes_the_place_of_the_images(
    project: Callable[..., Path],
) -> None:
    folder = project(SCRIPT.format("rsl_rl"), "isaaclab.sh")
    job = described(folder, *TASK, recipe="isaaclab/rsl_rl", image="/x.sif", env={"SEED": "1"})
    assert job.command[:2] == ("/isaac-sim/python.sh", SCRIPT.format("rsl_rl"))
    assert job.env == {"ISAACLAB_PATH": "/workspace/isaaclab", "SEED": "1"}
    assert job.container is not None
    assert (job.container.workdir, job.container.writable) == ("/workspace/isaaclab", "overlay")
    kept = [one.partition(":")[0] for one in caches(job.container.caches)]
    names = ["kit", "ov", "pip", "glcache", "computecache", "logs", "data", "documents"]
    assert kept == names
    own = described(folder, *TASK, recipe="isaaclab/rsl_rl", image="/x.sif", container__caches=())
    assert own.container is not None
    assert own.container.caches == ()


def test_in_a_container_an_outer_project_leaves_the_images_isaac_lab_alone(
    project: Callable[..., Path],
) -> None:
    folder = project("scripts/rsl_rl/train.py", "part/scripts/rsl_rl/train.py", "part/isaaclab.sh")
    (folder / ".git").mkdir()
    for place in (folder, folder / "part"):
        job = described(place, *TASK, recipe="isaaclab/rsl_rl", image="/x.sif")
        assert job.command[:2] == ("/isaac-sim/python.sh", "scripts/rsl_rl/train.py")
        assert job.env == {}
        assert job.container is not None
        assert job.container.workdir == ""


@pytest.mark.parametrize("first", ["--task=X", "-x", "agent.seed=1", "+agent.a=2"])
def test_what_is_arguments(project: Callable[..., Path], first: str) -> None:
    folder = project(SCRIPT.format("rsl_rl"))
    command = filled("isaaclab/rsl_rl", Request((first,), folder)).command
    assert command == ("python", SCRIPT.format("rsl_rl"), first)


def test_a_whole_command_stays_as_it_is(project: Callable[..., Path]) -> None:
    command = ("python", "my/train.py", *TASK)
    assert filled("isaaclab/rsl_rl", Request(command, project())).command == command
    found = filled("isaaclab/rsl_rl", Request(command, project(), gpus=2))
    assert found.command == command
    assert found.notes == ("2 GPUs, but without --distributed the command uses one",)


def test_without_the_script_it_is_refused(project: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"there is no scripts/.*/skrl/train\.py"):
        filled("isaaclab/skrl", Request(TASK, project()))


def test_several_gpus_of_one_node(project: Callable[..., Path]) -> None:
    """On every kind of cluster: torchrun is part of the command."""
    folder = project(SCRIPT.format("rsl_rl"), "isaaclab.sh")
    env = {"VIRTUAL_ENV": "/venv"}
    request = Request((*TASK, "--num_envs", "4096"), folder, gpus=2, env=env)
    found = filled("isaaclab/rsl_rl", request)
    assert found.command == (
        "./isaaclab.sh", "-p", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        SCRIPT.format("rsl_rl"), *TASK, "--num_envs", "4096", "--distributed",
    )  # fmt: skip
    assert not found.settings
    assert found.notes == ("8192 environments in all: --num_envs 4096 on 2 GPUs",)


def test_several_nodes(project: Callable[..., Path]) -> None:
    folder = project(SCRIPT.format("rsl_rl"))
    request = Request((*TASK, "--distributed"), folder, SLURM, nodes=2, gpus=4)
    found = filled("isaaclab/rsl_rl", request)
    assert found.command == ("python", SCRIPT.format("rsl_rl"), *TASK, "--distributed")
    assert found.settings == {"job.launch": "torchrun"}
    assert found.notes == ()


def test_sb3_has_one_gpu(project: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="trains on one GPU, and 2 are asked for"):
        filled("isaaclab/sb3", Request(TASK, project(SCRIPT.format("sb3")), gpus=2))


@pytest.mark.parametrize(
    ("said", "args"),
    [
        ('"--resume", type=bool, default=None', ("--resume", "True", "--load_run")),
        ('"--resume", action="store_true"', ("--resume", "--load_run", "{run_pattern}")),
    ],
)
def test_older_versions_want_a_value(
    project: Callable[..., Path], said: str, args: tuple[str, ...]
) -> None:
    script = SCRIPT.format("rsl_rl")
    folder = project(script)
    (folder / script).with_name("cli_args.py").write_text(f"group.add_argument({said})\n")
    assert described(folder, *TASK, recipe="isaaclab/rsl_rl").resume.args[:3] == args


# -- Isaac Lab, as its versions have it ---------------------------------------------------------

LASTS = 'parser.add_argument("--max_iterations", type=int)\n'
GOES_ON = 'parser.add_argument("--checkpoint")\n'
SPREADS = 'parser.add_argument("--distributed", action="store_true")\n'
BACKEND = "source/isaaclab_rl/isaaclab_rl/entrypoints/backends/train_{}.py"
BETA = "scripts/reinforcement_learning/{0}/train_{0}.py"
ANY = "scripts/reinforcement_learning/train.py"
HERE = {"VIRTUAL_ENV": "/venv"}
TOLD = ("--rl_library", "rsl_rl")


def test_rsl_rl_before_2_1_has_one_gpu(project: Callable[..., Path]) -> None:
    """Hydra would take --distributed for a bad override."""
    script = SCRIPT.format("rsl_rl")
    folder = project(script)
    (folder / script).write_text(LASTS)
    assert filled("isaaclab/rsl_rl", Request(TASK, folder, gpus=1)).command[0] == "python"
    with pytest.raises(UsageError, match=r"rsl_rl/train\.py has no --distributed.* 2\.1: .* 2 are"):
        filled("isaaclab/rsl_rl", Request(TASK, folder, gpus=2))
    (folder / script).write_text(LASTS + SPREADS)
    assert filled("isaaclab/rsl_rl", Request(TASK, folder, gpus=2)).command[-1] == "--distributed"


def release(project: Callable[..., Path], *names: str, backend: str = BACKEND) -> Path:
    """A checkout of Isaac Lab 3.0: which flags there are is said in three files."""
    folder = project(backend.format("rsl_rl"), *names)
    own = folder / backend.format("rsl_rl")
    own.with_name("cli_args_rsl_rl.py").write_text(GOES_ON)
    (own.parent.parent / "common.py").write_text(LASTS + SPREADS)
    return folder


def test_since_3_0_there_is_one_program_for_all_libraries(project: Callable[..., Path]) -> None:
    folder = release(project, ANY, "isaaclab.sh")
    assert BACKEND.format("rsl_rl") in recipes.find("isaaclab/rsl_rl").detect(folder)
    assert not recipes.find("isaaclab/sb3").detect(folder)
    one = Request(TASK, folder, env=HERE)
    found = filled("isaaclab/rsl_rl", one)
    assert found.command == ("./isaaclab.sh", "train", *TOLD, *TASK)
    assert found.settings["job.resume.resume_args"][:2] == ("--checkpoint", "{checkpoint}")
    found = filled("isaaclab/rsl_rl", one._replace(gpus=2))
    assert found.command == (
        "./isaaclab.sh", "-p", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        ANY, *TOLD, *TASK, "--distributed",
    )  # fmt: skip
    found = filled("isaaclab/rsl_rl", one._replace(gpus=2, nodes=2, on=SLURM))
    assert found.command == ("./isaaclab.sh", "-p", ANY, *TOLD, *TASK, "--distributed")
    assert found.settings["job.launch"] == "torchrun"
    found = filled("isaaclab/rsl_rl", one._replace(image="/x.sif"))
    assert found.command == ("/isaac-sim/python.sh", ANY, *TOLD, *TASK)


def test_since_3_0_it_is_a_module_too(project: Callable[..., Path]) -> None:
    folder = release(project)
    found = filled("isaaclab/rsl_rl", Request(TASK, folder, gpus=2))
    assert found.command == (
        "python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        "-m", "isaaclab", "train", *TOLD, *TASK, "--distributed",
    )  # fmt: skip


def test_a_beta_of_3_0_looks_for_runs(project: Callable[..., Path]) -> None:
    """It has both forms, and its rsl_rl is resumed as before."""
    folder = release(project, ANY, SCRIPT.format("rsl_rl"), "isaaclab.sh", backend=BETA)
    options = (folder / SCRIPT.format("rsl_rl")).with_name("cli_args.py")
    options.write_text('group.add_argument("--resume", action="store_true")\n' + GOES_ON)
    found = filled("isaaclab/rsl_rl", Request(TASK, folder, env=HERE))
    assert found.command == ("./isaaclab.sh", "train", *TOLD, *TASK)
    assert not found.settings


@pytest.mark.parametrize(
    "command",
    [
        ("./isaaclab.sh", "train", *TOLD, *TASK),
        ("uv", "run", "isaaclab", "train", "--rl_library=rsl_rl", *TASK),
    ],
)
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_whole_command_of_3_0_is_told_the_path(
    project: Callable[..., Path], command: tuple[str, ...], is_seen: bool
) -> None:
    folder = release(project, ANY) if is_seen else project()
    job = described(folder, *command, recipe="isaaclab/rsl_rl")
    assert job.command == command
    args = ("--checkpoint", "{checkpoint}", "--max_iterations", "{left}")
    assert job.resume.args == args
    job = described(folder, *command, "--checkpoint", "a/model_70.pt", recipe="isaaclab/rsl_rl")
    assert job.resume.total is not None
    assert job.resume.total["begin"] == 70


def test_the_library_is_the_recipes(project: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="isaaclab/rsl_rl gives --rl_library itself"):
        filled("isaaclab/rsl_rl", Request(("--rl_library", "skrl"), release(project, ANY)))


def test_playing(project: Callable[..., Path]) -> None:
    """There is nothing to resume."""
    folder = project(SCRIPT.format("rsl_rl").replace("train", "play"), "isaaclab.sh")
    job = described(folder, "play", *TASK, recipe="isaaclab/rsl_rl", env=HERE)
    assert job.command[2:] == ("scripts/reinforcement_learning/rsl_rl/play.py", *TASK)
    assert (job.resume.checkpoint, job.resume.args) == (None, ())
    own = BACKEND.format("rsl_rl").replace("train", "play")
    release(project, ANY.replace("train", "play"), own)
    job = described(folder, "play", *TASK, recipe="isaaclab/rsl_rl", env=HERE)
    assert job.command == ("./isaaclab.sh", "play", *TOLD, *TASK)
    with pytest.raises(UsageError, match="plays on one GPU, and 2 are asked for"):
        filled("isaaclab/rsl_rl", Request(("play", *TASK), folder, gpus=2))


def test_jax_has_a_launcher_of_its_own(project: Callable[..., Path]) -> None:
    command = (*TASK, "--ml_framework", "jax")
    request = Request(command, project(SCRIPT.format("skrl")), gpus=2)
    assert filled("isaaclab/skrl", request).command == (
        "python", "-m", "skrl.utils.distributed.jax", "--nproc_per_node=2",
        SCRIPT.format("skrl"), *command, "--distributed",
    )  # fmt: skip
    with pytest.raises(UsageError, match="over the GPUs of one node, and 4 are asked for on 2"):
        filled("isaaclab/skrl", request._replace(nodes=2, on=SLURM))


def test_a_launcher_that_hides_how_python_ended_is_passed_over(
    project: Callable[..., Path], tmp_path: Path
) -> None:
    """A crash would look like success."""
    line = "source/isaaclab/isaaclab/cli/__init__.py"
    folder = project(SCRIPT.format("rsl_rl"), "isaaclab.sh", line)
    request = Request(TASK, folder, env=HERE)
    (folder / line).write_text("run_python_command(args.python[0], args.python[1:], check=True)\n")
    assert filled("isaaclab/rsl_rl", request).command[:2] == ("./isaaclab.sh", "-p")
    (folder / line).write_text("run_python_command(args.python[0], args.python[1:])\n")
    found = filled("isaaclab/rsl_rl", request)
    assert found.command[:2] == ("python", SCRIPT.format("rsl_rl"))
    assert "ends well even where Python failed" in found.notes[-1]
    (folder / "_isaac_sim").symlink_to(tmp_path)
    found = filled("isaaclab/rsl_rl", request)
    assert found.command[:2] == ("./_isaac_sim/python.sh", SCRIPT.format("rsl_rl"))
    assert found.links == {"_isaac_sim": str(tmp_path.resolve())}


OLD_SB3 = 'parser.add_argument("--max_iterations", type=int)\nenv = VecNormalize(env)\n'


def test_a_script_that_cannot_go_on_is_not_told_to(project: Callable[..., Path]) -> None:
    """Isaac Lab's for sb3 can since 2.1.1. What it saves is no use to the next attempt then, and
    must not be taken for progress."""
    script = SCRIPT.format("sb3")
    folder = project(script)
    (folder / script).write_text(OLD_SB3)
    for command in (TASK, ("python", script, *TASK)):
        job = described(folder, *command, recipe="isaaclab/sb3")
        rules = job.resume
        assert (rules.checkpoint, rules.number, rules.args, rules.saves) == (None, None, (), None)
        (told,) = job.notes
        assert "no --checkpoint, as it has since Isaac Lab 2.1.1" in told
    mine = described(folder, *TASK, recipe="isaaclab/sb3", resume__checkpoint="a.zip")
    assert mine.resume.checkpoint == "a.zip"


@pytest.mark.parametrize(
    ("more", "args", "told"),
    [
        ("", (), 1),
        ('parser.add_argument("--normalize", action="store_true")', (), 1),
        ('parser.add_argument("--vec_normalize", action="store_true")', (), 1),
        ('parser.add_argument("--vecnormalize_path")', ("--vecnormalize_path", "{partner}"), 0),
        ("parser.add_argument('--load-vec-norm', type=str)", ("--load-vec-norm", "{partner}"), 0),
    ],
)
def test_the_statistics_are_handed_to_a_script_that_takes_them(
    project: Callable[..., Path], more: str, args: tuple[str, ...], told: int
) -> None:
    script = SCRIPT.format("sb3")
    folder = project(script)
    (folder / script).write_text(f'{OLD_SB3}parser.add_argument("--checkpoint")\n{more}\n')
    job = described(folder, *TASK, recipe="isaaclab/sb3")
    assert job.resume.args == ("--checkpoint", "{checkpoint}", "--max_iterations", "{left}", *args)
    assert len(job.notes) == told


@pytest.mark.parametrize(
    ("checkpoint", "begin"),
    [(["--checkpoint", "model_1500.pt"], 1500), (["--checkpoint=model_7.pt"], 7)],
)
def test_iterations_count_from_the_users_own_checkpoint(
    project: Callable[..., Path], checkpoint: list[str], begin: int
) -> None:
    folder = project(SCRIPT.format("rsl_rl"))
    job = described(folder, "--resume", *checkpoint, recipe="isaaclab/rsl_rl")
    assert job.resume.total is not None
    assert job.resume.total["begin"] == begin
    job = described(folder, "--resume", recipe="isaaclab/rsl_rl")
    assert job.resume.total is None


# -- the others ---------------------------------------------------------------------------------

PROTOMOTIONS = ("--experiment-name", "walk", "--num-envs", "4096", "--batch-size=16384")


def test_protomotions_is_spread_by_fabric(project: Callable[..., Path]) -> None:
    folder = project("protomotions/train_agent.py")
    assert filled("protomotions", Request(PROTOMOTIONS, folder)).command == (
        "python", "protomotions/train_agent.py", *PROTOMOTIONS,
    )  # fmt: skip
    found = filled("protomotions", Request(PROTOMOTIONS, folder, SLURM, nodes=2, gpus=4))
    assert found.command[-4:] == ("--ngpu", "4", "--nodes", "2")
    assert found.settings == {"job.launch": "srun"}
    assert found.notes == (
        "32768 environments in all: --num-envs 4096 on 8 GPUs",
        "131072 samples a batch in all: --batch-size 16384 on 8 GPUs",
    )
    here = filled("protomotions", Request(PROTOMOTIONS, folder, gpus=2))
    assert not here.settings  # Fabric starts its ranks itself


def test_lightning_is_resumed_by_its_cli_or_by_itself(project: Callable[..., Path]) -> None:
    folder = project("cli.py", "own.py")
    (folder / "cli.py").write_text("from lightning.pytorch.cli import LightningCLI\n")
    found = filled("lightning", Request(("python", "cli.py", "fit"), folder))
    assert found.settings == {"job.resume.resume_args": ("--ckpt_path", "{checkpoint}")}
    found = filled("lightning", Request(("python", "own.py"), folder, SLURM, gpus=2))
    assert found.settings == {"job.launch": "srun"}
    assert "DRAY_CHECKPOINT" in found.notes[-1]


@pytest.mark.parametrize(
    ("launch", "gpus", "alone"), [(None, 1, True), (None, 2, False), ("none", 2, True)]
)
def test_lightning_alone_on_slurm_does_not_take_itself_for_a_task_of_sruns(
    project: Callable[..., Path], launch: str | None, gpus: int, alone: bool
) -> None:
    request = Request(("python", "own.py"), project(), SLURM, gpus=gpus, launch=launch)
    assert ("job.env" in filled("lightning", request).settings) is alone


@pytest.mark.parametrize("name", ["lightning", "torchrun", "generic"])
def test_those_that_know_no_program_want_one(project: Callable[..., Path], name: str) -> None:
    with pytest.raises(UsageError, match="does not know which program to start"):
        filled(name, Request(("--lr", "1"), project()))


def test_torchrun(project: Callable[..., Path]) -> None:
    command = ("python3", "train.py", "--batch-size", "32")
    found = filled("torchrun", Request(command, project(), gpus=4))
    start = ("python3", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4")
    assert found.command == (*start, *command[1:])
    assert found.notes == ("128 samples a batch in all: --batch-size 32 on 4 GPUs",)
    assert filled("torchrun", Request(command, project())).command == command
    given = Request(command, project(), SLURM, gpus=4, launch="torchrun")
    assert filled("torchrun", given).command == command
    far = filled("torchrun", Request(command, project(), SLURM, nodes=2, gpus=4))
    assert (far.command, far.settings) == (command, {"job.launch": "torchrun"})
    program = filled("torchrun", Request(("./train",), project(), gpus=2))
    assert program.command[-2:] == ("--no-python", "./train")


# -- in a job's description ---------------------------------------------------------------------


def test_flags_and_files_win(project: Callable[..., Path]) -> None:
    folder = project(SCRIPT.format("rsl_rl"))
    (folder / "dray.toml").write_text(
        '[job]\nrecipe = "isaaclab/rsl_rl"\noutputs = ["videos"]\n[job.resume]\ngrace = "5s"\n'
    )
    job = described(folder, *TASK, resume__saves="on-request", resume__keep=3)
    assert job.recipe == "isaaclab/rsl_rl"
    assert job.command[:2] == ("python", SCRIPT.format("rsl_rl"))
    assert set(job.outputs) == {"logs", "videos"}
    assert (job.resume.saves, job.resume.keep, job.resume.grace) == ("on-request", 3, 5.0)
    assert job.resume.checkpoint == "logs/rsl_rl/**/model_*.pt"


def test_seen_from_a_folder_of_the_project(project: Callable[..., Path]) -> None:
    folder = project("dray.toml", "lab/" + SCRIPT.format("skrl"))
    job = described(folder / "lab", *TASK, recipe="isaaclab/skrl")
    assert job.outputs == ("lab/logs",)
    assert job.resume.checkpoint == "lab/logs/skrl/**/checkpoints/agent_*.p[it]*"
    assert job.metrics.tensorboard is not None
    assert job.metrics.tensorboard.startswith("lab/logs/skrl/")


def test_a_description_comes_back_from_its_file(project: Callable[..., Path]) -> None:
    folder = project(SCRIPT.format("sb3"))
    job = described(folder, *TASK, recipe="isaaclab/sb3")
    again = JobSpec.from_dict(json.loads(files.encode(job.to_dict())))
    assert again.resume == job.resume
    assert again.metrics == job.metrics
    shown = JobView.from_dict(
        {"job": job.to_dict(), "state": "done", "reason": "", "ended": None, "attempts": []},
        "x",
        job.id,
    )
    assert shown.to_dict()["recipe"] == "isaaclab/sb3"


def test_every_command_of_an_array_is_filled_in(project: Callable[..., Path]) -> None:
    folder = project(SCRIPT.format("rsl_rl"))
    config = configuration.load(folder, {"job.recipe": "isaaclab/rsl_rl"})
    for seed in ("1", "2"):
        command = fill_in(["--seed", seed], config).command
        assert command == ("python", SCRIPT.format("rsl_rl"), "--seed", seed)


def test_shares_of_a_gpu_are_one_worker(project: Callable[..., Path]) -> None:
    folder = project(SCRIPT.format("rsl_rl"))
    job = described(folder, *TASK, recipe="isaaclab/rsl_rl", resources__gpus=GpuRequest(0.5))
    assert job.notes == ()
    assert "--distributed" not in job.command


@pytest.mark.parametrize("pattern", ["model_", "(a)(b)", "("])
def test_a_number_has_one_group(pattern: str) -> None:
    with pytest.raises(ValueError):
        counting_pattern(pattern)


# -- detection ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ([SCRIPT.format("rsl_rl"), SCRIPT.format("skrl")], "isaaclab/rsl_rl"),
        (["scripts/skrl/train.py"], "isaaclab/skrl"),
        (["protomotions/train_agent.py"], "protomotions"),
        (["train.py"], "generic"),
        (["README.md"], None),
    ],
)
def test_what_a_project_looks_like(
    project: Callable[..., Path], files: list[str], name: str | None
) -> None:
    folder = project(*files)
    found = [one.name for one in recipes.all_recipes() if one.detect(folder)]
    assert (found[0] if found else None) == name


def test_lightning_is_found_by_what_a_project_needs(project: Callable[..., Path]) -> None:
    folder = project("train.py")
    (folder / "requirements.txt").write_text("torch\nlightning>=2.1\n")
    assert recipes.find("lightning").detect(folder) == "requirements.txt names lightning"
