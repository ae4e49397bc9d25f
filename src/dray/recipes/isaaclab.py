"""Isaac Lab's training scripts, one for each of four libraries.

All of them make a new folder for every start, save only now and then, and are told with
--max_iterations how long to train. They differ in how they count. An app that is asked to end
closes while Python goes on, or hangs: nothing is to be hoped for from SIGTERM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.errors import UsageError
from dray.recipes import Filled, Request, starting

SCRIPTS = (
    "scripts/reinforcement_learning/{}/train.py",
    "source/standalone/workflows/{}/train.py",  # before Isaac Lab 2.0
    "scripts/{}/train.py",  # a project made from its template
)
LAUNCHER = "isaaclab.sh"
LINK = "_isaac_sim"
NO_ISAAC_SIM = (
    f"{LAUNCHER} needs an active conda or virtual environment with Isaac Sim (the cluster's setup "
    "can activate one), or a binary installation: --env ISAACSIM_PATH=/where/it/is"
)
GOES_ON, LASTS = "--checkpoint", "--max_iterations"
AGENT, ENV = "params/agent.yaml", "params/env.yaml"
EVENTS = "events.out.tfevents.*"
CANNOT = "this train.py has no {}, as it has since Isaac Lab {}: if interrupted, it begins anew"
FORGETS = "this train.py does not load the statistics of VecNormalize: a resume forgets them"
CANNOT_GO_ON = {
    f"job.resume.{key}": None for key in ("checkpoint", "number", "partner", "total", "saves")
} | {"job.resume.resume_args": ()}

# Where its images have things, and what Isaac Sim compiles and downloads at its first start.
PYTHON_INSIDE = "/isaac-sim/python.sh"
PLACE_INSIDE = "/workspace/isaaclab"
CACHES = (
    "kit:/isaac-sim/kit/cache",
    "ov:~/.cache/ov",
    "pip:~/.cache/pip",
    "glcache:~/.cache/nvidia/GLCache",
    "computecache:~/.nv/ComputeCache",
    "logs:~/.nvidia-omniverse/logs",
    "data:~/.local/share/ov/data",
    "documents:~/Documents",
)


@dataclass(frozen=True, kw_only=True)
class IsaacLab:
    library: str
    checkpoint: str
    number: str
    resume_args: tuple[str, ...]
    total: Mapping[str, Any]
    main: tuple[str, ...]
    more: Mapping[str, Any] = field(default_factory=dict)
    many_gpus: bool = True
    goes_on_since: str = ""  # the first Isaac Lab whose script can be told to, if not all can

    @property
    def name(self) -> str:
        return f"isaaclab/{self.library}"

    @property
    def summary(self) -> str:
        return f"Isaac Lab's train.py for {self.library}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "job.outputs": ("logs",),
            "job.resume.checkpoint": f"logs/{self.library}/**/{self.checkpoint}",
            "job.resume.number": self.number,
            "job.resume.resume_args": self.resume_args,
            "job.resume.total": {"flag": LASTS, "file": AGENT, **self.total},
            "job.resume.saves": "periodically",
            **self.more,
        }

    @property
    def metrics(self) -> dict[str, Any]:
        return {"tensorboard": f"logs/{self.library}/**/{EVENTS}", "main": list(self.main)}

    def detect(self, project: Path) -> str:
        script = self.script_in(project)
        return f"there is {script}" if script else ""

    def script_in(self, folder: Path) -> str:
        scripts = (script.format(self.library) for script in SCRIPTS)
        return next((script for script in scripts if (folder / script).is_file()), "")

    def fill(self, request: Request) -> Filled:
        if request.workers > 1 and not self.many_gpus:
            raise UsageError(
                f"Isaac Lab's {self.library} trains on one GPU, and {request.workers} are asked for"
            )
        notes = starting.totals(request, {"environments": ("--num_envs",)})
        settings = {**self.after_another_run(request.command), **inside(request)}
        if not starting.is_arguments(request.command):
            told = self.read_script(starting.script_of(request), settings)
            return Filled(request.command, settings, notes + told + self.unused_gpus(request))
        script = self.script_in(request.folder)
        if not script:
            raise UsageError(
                f"there is no {SCRIPTS[0].format(self.library)} in {request.folder}",
                hint="Go to the folder of Isaac Lab or of your project, or write the whole "
                "command: dray run -- python path/to/train.py …",
            )
        python = request.python or python_of(request)
        command = (*starting.torchrun(request, python), script, *request.command)
        if request.workers > 1 and "--distributed" not in command:
            command += ("--distributed",)
        if request.nodes > 1:
            settings["job.launch"] = "torchrun"
        told = self.read_script(request.folder / script, settings)
        place = isaac_sim(request) if LAUNCHER in python[0] else ""
        if place is None:
            return Filled(command, settings, (*notes, *told, NO_ISAAC_SIM))
        return Filled(command, settings, notes + told, {LINK: place} if place else {})

    def read_script(self, script: Path | None, settings: dict[str, Any]) -> tuple[str, ...]:
        """What this very train.py can be told, which differs from version to version."""
        text = starting.content(script) if script else ""
        lacks_it = starting.has_flag(text, LASTS) and not starting.has_flag(text, GOES_ON)
        if self.goes_on_since and lacks_it:
            settings.update(CANNOT_GO_ON)
            return (CANNOT.format(GOES_ON, self.goes_on_since),)
        args, notes = self.resume_args, tuple[str, ...]()
        options = starting.content(script.parent / "cli_args.py") if script else ""
        if re.search(r"""["']--resume["'],\s*type=bool""", options):  # before Isaac Lab 2.1
            args = ("--resume", "True", *args[1:])
        if "job.resume.partner" in self.more and "VecNormalize" in text:
            flag = starting.flag_like(text, r"vec[_-]?norm")
            args += (flag, "{partner}") if flag else ()
            notes = () if flag else (FORGETS,)
        if args != self.resume_args:
            settings["job.resume.resume_args"] = args
        return notes

    def after_another_run(self, command: tuple[str, ...]) -> dict[str, Any]:
        """Where the first attempt goes on from a checkpoint of the user's, iterations count from
        there; where that does not tell its number, how many are left is not known."""
        if "--resume" not in command or "--resume" not in self.resume_args:
            return {}
        given = re.search(r"--checkpoint[ =]\S*model_(\d+)\.pt", " ".join(command))
        rule = {**self.settings["job.resume.total"], "begin": int(given[1])} if given else None
        return {"job.resume.total": rule}

    def unused_gpus(self, request: Request) -> tuple[str, ...]:
        if request.workers == 1 or "--distributed" in request.command:
            return ()
        return (f"{request.workers} GPUs, but without --distributed the command uses one",)


def python_of(request: Request) -> tuple[str, ...]:
    if request.image:  # its launcher looks for a link that is not in the code
        return (PYTHON_INSIDE,)
    has_launcher = (request.folder / LAUNCHER).is_file()
    return (f"./{LAUNCHER}", "-p") if has_launcher else ("python",)


def isaac_sim(request: Request) -> str | None:
    """Where a binary installation of Isaac Sim lies, for the launcher's link to it, which git
    ignores; nothing where the launcher does without, None where that is not known."""
    given = request.env.get("ISAACSIM_PATH", "")
    if given or request.kind != "local":
        return given or None
    link = request.folder / LINK
    if link.exists():
        return str(link.resolve())
    return "" if {"CONDA_PREFIX", "VIRTUAL_ENV"} & request.env.keys() else None


def inside(request: Request) -> dict[str, Any]:
    """What a container of Isaac Lab needs. Isaac Sim writes beside its own program. Where the
    project is Isaac Lab itself, it takes the place of the image's."""
    if not request.image:
        return {}
    found: dict[str, Any] = {"job.container.caches": CACHES, "job.container.writable": "overlay"}
    if request.is_whole and (request.folder / LAUNCHER).is_file():
        found["job.container.workdir"] = PLACE_INSIDE
        found["job.env"] = {"ISAACLAB_PATH": PLACE_INSIDE}
    return found


# The number in a checkpoint's name goes on after a resume, and --max_iterations are additional. The
# iteration of the checkpoint is done once more, so the last of 100 iterations is the 99th.
RSL_RL = IsaacLab(
    library="rsl_rl",
    checkpoint="model_*.pt",
    number=r"^model_(\d+)\.pt$",
    resume_args=(
        "--resume", "--load_run", "{run_pattern}", "--checkpoint", "{name}",
        "--max_iterations", "{left}",
    ),
    total={"pattern": r"^max_iterations: (\d+)", "rest": True, "last": -1},
    main=("Train/mean_reward", "Train/mean_episode_length"),
)  # fmt: skip

# Epoch and optimizer are restored, and the limit is that of all epochs, those of another run that
# it has begun from among them.
RL_GAMES = IsaacLab(
    library="rl_games",
    checkpoint="nn/last_*_ep_*.pth",
    number=r"_ep_(\d+)_",
    resume_args=("--checkpoint", "{checkpoint}", "--max_iterations", "{total}"),
    total={"pattern": r"^ *max_epochs: (\d+)"},
    main=("rewards/iter", "rewards/step", "rewards/time"),
)

# Steps count from zero after a resume; an iteration has as many as a rollout.
SKRL = IsaacLab(
    library="skrl",
    checkpoint="checkpoints/agent_*.p[it]*",  # .pt, or .pickle with --ml_framework jax
    number=r"^agent_(\d+)\.(?:pt|pickle)$",
    resume_args=("--checkpoint", "{checkpoint}", "--max_iterations", "{left}"),
    total={"pattern": r"^ *timesteps: (\d+)", "rest": True},
    main=("Reward / Total reward (mean)",),
    goes_on_since="2.0",
    more={
        "job.resume.anew": True,
        "job.resume.scale": ({"file": AGENT, "pattern": r"^ *rollouts: (\d+)"},),
    },
)

# The same; steps are those of all environments. Isaac Lab's own script saves the statistics of
# VecNormalize only at the end, and loads none; one that does both may save them with each model.
SB3 = IsaacLab(
    library="sb3",
    checkpoint="model_*_steps.zip",
    number=r"^model_(\d+)_steps\.zip$",
    resume_args=("--checkpoint", "{checkpoint}", "--max_iterations", "{left}"),
    total={"pattern": r"^n_timesteps: ([\d.e+]+)", "rest": True},
    main=("rollout/ep_rew_mean",),
    more={
        "job.resume.anew": True,
        "job.resume.scale": (
            {"file": AGENT, "pattern": r"^n_steps: (\d+)"},
            {"file": ENV, "pattern": r"^ +num_envs: (\d+)"},
        ),
        "job.resume.finished": "model.zip",
        "job.resume.partner": "model_vecnormalize_{number}_steps.pkl",
    },
    many_gpus=False,
    goes_on_since="2.1.1",
)
