"""Recipes for Isaac Lab's training with four libraries. How a checkout starts it: see ``checkout``.

All of them make a new folder for every start, save only now and then, and take --max_iterations.
They differ in how they count. An app that gets SIGTERM closes while Python continues, or hangs, so
no checkpoint can be expected from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dray.errors import UsageError
from dray.recipes import Filled, Request, checkout, starting
from dray.records import dataclass, field

LAUNCHER = "isaaclab.sh"
LINK = "_isaac_sim"
NO_ISAAC_SIM = (
    f"{LAUNCHER} needs an active conda or virtual environment with Isaac Sim (the cluster's setup "
    "can activate one), or a binary installation: --env ISAACSIM_PATH=/where/it/is"
)
PASSED_OVER = f"without {LAUNCHER}: this one ends well even where Python failed"
GOES_ON, LASTS, SPREADS = "--checkpoint", "--max_iterations", "--distributed"
TRAIN, PLAY = "train", "play"
BY_PATH = (GOES_ON, "{checkpoint}", LASTS, "{left}")
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
    goes_on_since: str = ""  # the first Isaac Lab whose script can resume, if not all can
    spreads_since: str = ""  # the same, for several GPUs

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
        program = checkout.find(project, self.library)
        return f"there is {program.path}" if program else ""

    def fill(self, request: Request) -> Filled:
        if request.workers > 1 and not self.many_gpus:
            raise UsageError(
                f"Isaac Lab's {self.library} trains on one GPU, and {request.workers} are asked for"
            )
        action = PLAY if request.command[:1] == (PLAY,) else TRAIN
        if request.command[:1] in ((PLAY,), (TRAIN,)):
            request = request._replace(command=request.command[1:])
        elif not starting.is_arguments(request.command):
            return self.take_whole(request)
        self.require_library(request.command)
        program = checkout.find(request.folder, self.library, action)
        if program is None:
            path = checkout.PER_LIBRARY[0].format(self.library, action)
            raise UsageError(
                f"there is no {path} in {request.folder}",
                hint="Go to the folder of Isaac Lab or of your project, or write the whole "
                "command: dray run -- python path/to/train.py …",
            )
        return self.start(request, program, action)

    def require_library(self, command: tuple[str, ...]) -> None:
        if checkout.starts_any(command):
            raise UsageError(
                f"the recipe {self.name} gives {checkout.LIBRARY} itself",
                hint="Leave it out, and name the library by its recipe: --recipe isaaclab/…",
            )

    def take_whole(self, request: Request) -> Filled:
        program = checkout.named_in(request, self.library)
        settings, notes = self.read(program, request)
        return Filled(request.command, settings, notes + self.unused_gpus(request))

    def start(self, request: Request, program: checkout.Program, action: str) -> Filled:
        if request.workers > 1:
            self.require_spreading(program, request, action)
        python = request.python or python_of(request)
        if LAUNCHER in python[0] and program.told and request.workers == 1:
            command = (python[0], *program.told, *request.command)
        else:
            command = (*workers_of(request, python), *program.arguments, *request.command)
        if request.workers > 1 and SPREADS not in command:
            command += (SPREADS,)
        settings, notes = self.read(program, request)
        if action == PLAY:
            settings.update(CANNOT_GO_ON)
        if request.nodes > 1:
            settings["job.launch"] = "torchrun"
        if request.python or request.image or not has_launcher(request):
            return Filled(command, settings, notes)
        place = isaac_sim(request)
        notes += () if LAUNCHER in python[0] else (PASSED_OVER,)
        notes += (NO_ISAAC_SIM,) if place is None else ()
        return Filled(command, settings, notes, {LINK: place} if place else {})

    def require_spreading(self, program: checkout.Program, request: Request, action: str) -> None:
        many = f"and {request.workers} are asked for"
        if action == PLAY:
            raise UsageError(f"Isaac Lab plays on one GPU, {many}")
        if program.lacks(SPREADS):
            raise UsageError(
                f"{program.path} has no {SPREADS}, as it has since Isaac Lab "
                f"{self.spreads_since}: it trains on one GPU, {many}",
                hint="Ask for one: --gpus 1, or take another library: --recipe isaaclab/rl_games",
            )
        if request.nodes > 1 and uses_jax(request.command):
            raise UsageError(
                f"skrl with jax is spread over the GPUs of one node, {many} on {request.nodes}"
            )

    def read(
        self, program: checkout.Program, request: Request
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return settings and notes for what this program accepts, which differs between
        versions."""
        notes = starting.totals(request, {"environments": ("--num_envs",)})
        settings = inside(request)
        if self.goes_on_since and program.lacks(GOES_ON):
            settings.update(CANNOT_GO_ON)
            return settings, (*notes, CANNOT.format(GOES_ON, self.goes_on_since))
        args = self.arguments_for(program)
        if "job.resume.partner" in self.more and "VecNormalize" in program.text:
            flag = starting.flag_like(program.text, r"vec[_-]?norm")
            args += (flag, "{partner}") if flag else ()
            notes += () if flag else (FORGETS,)
        if args != self.resume_args:
            settings["job.resume.resume_args"] = args
        return {**self.after_another_run(request.command, args), **settings}, notes

    def arguments_for(self, program: checkout.Program) -> tuple[str, ...]:
        """Return the arguments that make this program resume."""
        looks_for_runs = "--resume" in self.resume_args
        takes_a_path = program.has(GOES_ON) or bool(program.told)
        if looks_for_runs and takes_a_path and not program.has("--resume"):  # since 3.0
            return BY_PATH
        if re.search(r"""["']--resume["'],\s*type=bool""", program.text):  # before 2.1
            return ("--resume", "True", *self.resume_args[1:])
        return self.resume_args

    def after_another_run(self, command: tuple[str, ...], args: tuple[str, ...]) -> dict[str, Any]:
        """Return the rule for counting iterations if the first attempt resumes from the user's own
        checkpoint: from its number on. Without a number, how many are left is not known."""
        asked = "--resume" if "--resume" in args else GOES_ON
        counts_on = self.total.get("rest") and "job.resume.anew" not in self.more
        if not counts_on or not any(re.match(rf"{asked}(=|$)", word) for word in command):
            return {}
        given = re.search(r"--checkpoint[ =]\S*model_(\d+)\.pt", " ".join(command))
        rule = {**self.settings["job.resume.total"], "begin": int(given[1])} if given else None
        return {"job.resume.total": rule}

    def unused_gpus(self, request: Request) -> tuple[str, ...]:
        if request.workers == 1 or SPREADS in request.command:
            return ()
        return (f"{request.workers} GPUs, but without {SPREADS} the command uses one",)


def python_of(request: Request) -> tuple[str, ...]:
    if request.image:  # its launcher looks for a link that is not in the code
        return (PYTHON_INSIDE,)
    if not has_launcher(request):
        return ("python",)
    if checkout.hides_how_python_ended(request.folder):
        return (f"./{LINK}/python.sh",) if isaac_sim(request) else ("python",)
    return (f"./{LAUNCHER}", "-p")


def has_launcher(request: Request) -> bool:
    return (request.folder / LAUNCHER).is_file()


def workers_of(request: Request, python: tuple[str, ...]) -> tuple[str, ...]:
    """Return Python started as one worker for each GPU. jax does not work with torchrun."""
    workers = starting.torchrun(request, python)
    if workers == python or not uses_jax(request.command):
        return workers
    return (*python, "-m", "skrl.utils.distributed.jax", f"--nproc_per_node={request.gpus}")


def uses_jax(command: tuple[str, ...]) -> bool:
    return re.search(r"--ml_framework[ =]jax", " ".join(command)) is not None


def isaac_sim(request: Request) -> str | None:
    """Return where a binary installation of Isaac Sim lies, for the launcher's link to it, which
    git ignores; "" if the launcher does without, None if that is not known."""
    given = request.env.get("ISAACSIM_PATH", "")
    if given or not request.on.is_local:
        return given or None
    link = request.folder / LINK
    if link.exists():
        return str(link.resolve())
    return "" if {"CONDA_PREFIX", "VIRTUAL_ENV"} & request.env.keys() else None


def inside(request: Request) -> dict[str, Any]:
    """Return the settings that a container of Isaac Lab needs. Isaac Sim writes beside its own
    program. If the project is Isaac Lab itself, it replaces the image's."""
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
    spreads_since="2.1",
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

# Steps count from zero after a resume; an iteration has as many as a rollout. The steps of one that
# was under way are in no checkpoint: it is done again from its first step.
SKRL = IsaacLab(
    library="skrl",
    checkpoint="checkpoints/agent_*.p[it]*",  # .pt, or .pickle with --ml_framework jax
    number=r"^agent_(\d+)\.(?:pt|pickle)$",
    resume_args=BY_PATH,
    total={"pattern": r"^ *timesteps: (\d+)", "rest": True},
    main=("Reward / Total reward (mean)",),
    goes_on_since="2.0",
    more={
        "job.resume.anew": True,
        "job.resume.scale": ({"file": AGENT, "pattern": r"^ *rollouts: (\d+)"},),
    },
)

# The same; steps are those of all environments. An iteration that has begun is done to its end, and
# a model is saved before the policy is updated with what its last step completed. Isaac Lab's own
# script saves the statistics of VecNormalize only at the end, and loads none; one that does both
# may save them with each model.
SB3 = IsaacLab(
    library="sb3",
    checkpoint="model_*_steps.zip",
    number=r"^model_(\d+)_steps\.zip$",
    resume_args=BY_PATH,
    total={"pattern": r"^n_timesteps: ([\d.e+]+)", "rest": True, "up": True, "early": True},
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
