"""What a node has to run containers with."""

import os
import shutil
import subprocess

from ..processes.process import CannotContain
from .container import APPTAINERS, ENROOT, RUNTIMES, Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    Record = Dict[str, Any]

ANSWER = 20.0  # seconds


def find(wanted: str, image: str, variables: "Dict[str, str]", host: str) -> Runtime:
    """The runtime that is wanted, or the first that can run this image file."""
    kinds = candidates(image) if wanted == "auto" else [wanted]
    for kind in kinds:
        program = shutil.which(kind, path=variables.get("PATH"))
        if program:
            return Runtime(kind, program)
    message = "there is no {} on {}".format(" or ".join(kinds), host)
    raise CannotContain(
        message + ": load its module (modules = [...] of the cluster), or leave out the image"
    )


def candidates(image: str) -> "List[str]":
    if image.endswith(".sqsh"):
        return [ENROOT, *APPTAINERS]
    return list(APPTAINERS)


def file_of(image: str, wanted: str, root: str) -> str:
    """Where it lies, as the runtime takes it that is wanted."""
    if image.startswith("/"):
        return image
    endings = (".sqsh", ".sif") if wanted == ENROOT else (".sif", ".sqsh")
    name = os.path.join(root, "images", image.partition(":")[2])
    there = [name + ending for ending in endings if os.path.exists(name + ending)]
    return (there or [name + endings[0]])[0]


def check_image(path: str, kind: str, host: str) -> None:
    if not os.path.exists(path):
        message = "the image {} is not there, seen from {}: push it again (dray image push)"
        raise CannotContain(message.format(path, host), for_good=True)
    if not os.access(path, os.R_OK):
        raise CannotContain("the image {} cannot be read by you".format(path), for_good=True)
    if kind == ENROOT and not (os.path.isfile(path) and path.endswith(".sqsh")):
        message = "Enroot runs .sqsh files, and {} is none: set container = 'apptainer'"
        raise CannotContain(message.format(path), for_good=True)


def is_setuid(program: str) -> bool:
    """Whether it is installed with a starter that has root's privilege."""
    for line in _said([program, "buildcfg"]).splitlines():
        name, _, value = line.partition("=")
        if name.endswith("_SUID_INSTALL"):
            return value == "1"
        if name == "SINGULARITY_LIBEXECDIR":  # of Singularity, which does not say it outright
            return os.path.exists(os.path.join(value, "singularity/bin/starter-suid"))
    return False


def gpus_of(job: "Record") -> str:
    """Whose GPUs the job has on this node."""
    if not job["resources"]["gpus"]:
        return ""
    amd = os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl")
    return "amd" if amd else "nvidia"


# -- for dray doctor ------------------------------------------------------------------------------


def facts() -> "Record":
    """What a machine has to run images with; nothing where that is nothing."""
    programs = {kind: shutil.which(kind) or "" for kind in RUNTIMES}
    there = {kind: path for kind, path in programs.items() if path}
    if not there:
        return {}
    apptainers = [there[kind] for kind in APPTAINERS if kind in there]
    return {
        "runtimes": {kind: version(path) for kind, path in there.items()},
        "setuid": any(is_setuid(path) for path in apptainers),
        "namespaces": can_unshare(),
        "subuid": has_subuid(),
        "fuse": os.access("/dev/fuse", os.R_OK | os.W_OK),
    }


def version(program: str) -> str:
    flag = "version" if os.path.basename(program) == ENROOT else "--version"
    words = _said([program, flag]).split()
    return words[-1] if words else "unknown"


def can_unshare() -> bool:
    """A user namespace with a mount in it: some systems allow the one and forbid the other."""
    words = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    try:
        return subprocess.call(words, stderr=subprocess.DEVNULL, timeout=ANSWER) == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def has_subuid() -> bool:
    """Whether there are numbers for other users, which --fakeroot needs."""
    import getpass

    try:
        names = (getpass.getuser(), str(os.getuid()))
    except (KeyError, OSError):
        names = (str(os.getuid()),) * 2
    return all(_lists(path, names) for path in ("/etc/subuid", "/etc/subgid"))


def _lists(path: str, names: "Any") -> bool:
    try:
        with open(path) as file:
            return any(line.split(":")[0] in names for line in file)
    except OSError:
        return False


def _said(command: "List[str]") -> str:
    try:
        found = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=ANSWER, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.decode("utf-8", "replace").strip()
