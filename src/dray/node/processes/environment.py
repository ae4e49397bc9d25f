"""The variables that a command sees."""

import os

from ..formats import files, shapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from ..formats.records import Description
    from ..jobs.jobdir import JobDir

IN_CONTAINER = "DRAY_CONTAINER"  # set for what runs in a container, and for nothing else
RUN = "/dray/run"  # a folder there that its container shares with the node
# A job has no terminal, but its scripts may be written for one: isaaclab.sh begins with
# ``set -e; tabs 4``, which fails where the terminal has no name or no tabs.
NO_TERMINAL = ("", "dumb", "unknown")
TERMINAL = "xterm"
STARTUP = "dray_startup"  # in our own file: what every Python of the command starts with


def environment(
    job_dir: "JobDir",
    job: "Description",
    base: "Dict[str, str]",
    variables: "Dict[str, str]",
    code: str,
) -> "Dict[str, str]":
    """Build the environment of the command.

    ``base``: the variables to start from. ``variables``: those that describe the attempt.
    ``code``: the work tree as the command sees it. Secrets are read here, and nowhere before.
    """
    env = dict(base)
    if env.get("TERM", "") in NO_TERMINAL:
        env["TERM"] = TERMINAL
    env.update(job["env"])
    env.update(secrets_of(job_dir))
    if job.get("recipe"):  # all attempts are one run there
        env.setdefault("WANDB_RUN_ID", job_dir.id)
        env.setdefault("WANDB_RESUME", "allow")
        env.setdefault("WANDB_DIR", job_dir.outputs)
    env.update(variables)
    env["DRAY_CODE"] = code
    if not job.get("scheduler") and job.get("project"):  # submitted on this machine
        env["DRAY_PROJECT"] = job["project"]
    library = training_library()
    if library:
        # Last on the path, so that it hides nothing that the command imports. What comes first is
        # for Python's start, and removes itself from the path afterwards.
        places = [os.path.join(library, STARTUP), env.get("PYTHONPATH"), library]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    return env


def secrets_of(job_dir: "JobDir") -> "Dict[str, str]":
    found = files.read_record(job_dir.secrets) or {}
    return found if shapes.is_variables(found) else {}


def training_library() -> str:
    """Return the path where a trainer finds ``dray.training``: the file that we run from
    ourselves."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    place = os.path.dirname(package)
    return place if os.path.isfile(place) else ""
