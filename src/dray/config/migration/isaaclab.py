"""Reads Isaac Lab's docker/cluster: .env.cluster, .env.base and the script that is submitted."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dray.config.migration import qsub, sbatch, shell
from dray.config.migration.found import Found, Gathering, Text, remote, shown

WHAT = "Isaac Lab's docker/cluster/.env.cluster"
SCRIPT, OLDER_SCRIPT, PBS_SCRIPT = "submit_job_slurm.sh", "submit_job.sh", "submit_job_pbs.sh"
BASE = ".env.base"
BESIDE = (
    SCRIPT, OLDER_SCRIPT, PBS_SCRIPT, BASE, f"../{BASE}",
    f"cluster/{SCRIPT}", f"cluster/{OLDER_SCRIPT}", f"cluster/{PBS_SCRIPT}",
)  # fmt: skip
SIGNS = r"^[ \t]*(?:export[ \t]+)?(?:CLUSTER_ISAACLAB_DIR|CLUSTER_ISAAC_SIM_CACHE_DIR)="
PLACEHOLDERS = ("username@cluster_ip", "/some/path/on/cluster", "name@mail", "user@mail")
IMAGE = "isaac-lab-base"  # what container.sh makes of the profile base, with the suffix
SUFFIX = "DOCKER_NAME_SUFFIX"
SCRIPT_OF = re.compile(r"(?:.*/)?(rsl_rl|rl_games|skrl|sb3)/train(?:_\1)?\.py")

KNOWN = "the recipes isaaclab/… know where things are in the image"
BUILT = "dray image build reads it"
NO_COUNTERPART = {
    "CLUSTER_SIF_PATH": "images are kept below root: dray image push {image}",
    "CLUSTER_ISAAC_SIM_CACHE_DIR": "caches are kept below root",
    "DOCKER_ISAACSIM_ROOT_PATH": KNOWN,
    "DOCKER_ISAACLAB_PATH": KNOWN,
    "DOCKER_USER_HOME": KNOWN,
    "ISAACSIM_BASE_IMAGE": BUILT,
    "ISAACSIM_VERSION": BUILT,
    "ACCEPT_EULA": "if the image does not have it: --env ACCEPT_EULA={value}",
    "REMOVE_CODE_COPY_AFTER_JOB": "code goes when no job needs it any more (dray rm)",
}


def recognises(text: Text) -> bool:
    return re.search(SIGNS, text.content, re.M) is not None


def read(text: Text, beside: Mapping[str, Text]) -> Found:
    base = shell.assignments(beside[BASE]) if BASE in beside else {}
    found = {**base, **shell.assignments(text)}
    scheduler = found.pop("CLUSTER_JOB_SCHEDULER", shell.Assigned("SLURM", 0)).value.upper()
    is_pbs = scheduler == "PBS"
    into = Gathering(text, PLACEHOLDERS, "pbs" if is_pbs else "slurm")
    if scheduler not in ("SLURM", "PBS"):
        into.add_note(
            shown("CLUSTER_JOB_SCHEDULER", scheduler), "unknown; SLURM is taken for granted"
        )
    suffix = found.pop(SUFFIX, shell.Assigned("", 0))
    if suffix.computed:
        into.add_note(SUFFIX, shell.COMPUTED)
    image = IMAGE if suffix.computed else IMAGE + suffix.value
    for name, assigned in found.items():
        _gather_one(name, assigned, image, into)
    into.set("job.image", image, shown(SUFFIX, suffix.value))
    if "job.recipe" not in into.job:
        into.set("job.outputs", ["logs"], "logs")  # Isaac Lab keeps nothing else
    if is_pbs and PBS_SCRIPT in beside:
        qsub.gather(beside[PBS_SCRIPT], into)
    script = beside.get(SCRIPT) or beside.get(OLDER_SCRIPT)
    if script is not None and not is_pbs:
        sbatch.gather(script, into)
    return into.found()


def _gather_one(name: str, assigned: shell.Assigned, image: str, into: Gathering) -> None:
    origin = shown(name, assigned.value) if name in NO_COUNTERPART or name in USED else name
    if assigned.computed:
        into.add_note(origin, shell.COMPUTED)
    elif name == "CLUSTER_LOGIN":
        into.set("host", assigned.value, origin)
    elif name == "CLUSTER_ISAACLAB_DIR":
        # Beside the code that is there, not in it: its copies carry the same name.
        folder = assigned.value.rstrip("/").rpartition("/")[0]
        into.set("root", remote(f"{folder}/dray"), origin)
    elif name == "CLUSTER_PYTHON_EXECUTABLE":
        _gather_script(assigned.value, origin, into)
    else:
        why = NO_COUNTERPART.get(name, "has no counterpart yet")
        into.add_note(origin, why.format(value=assigned.value, image=image))


def _gather_script(script: str, origin: str, into: Gathering) -> None:
    """Collect what is run on the cluster: its recipe knows how it is started and resumed."""
    known = SCRIPT_OF.fullmatch(script)
    if known:
        into.set("job.recipe", f"isaaclab/{known[1]}", origin)
        into.add_note(origin, "the recipe starts it: dray run -- --task …")
    else:
        into.add_note(origin, f"it is the job's command: dray run -- python {script}")


USED = ("CLUSTER_LOGIN", "CLUSTER_ISAACLAB_DIR", "CLUSTER_PYTHON_EXECUTABLE")
