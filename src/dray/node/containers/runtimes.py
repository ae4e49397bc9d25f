"""Finds the runtimes that a machine has, and an image for one of them."""

import os
import shutil

from ..processes.process import CannotContain
from .known import ENDINGS, NAMES, RUNTIMES, named
from .runtime import ANSWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..formats.records import ContainerFacts, Description
    from .runtime import Runtime


def installed(path: "Optional[str]" = None) -> "List[Runtime]":
    """Find all runtimes of this machine, in its PATH or the one given."""
    programs = [(name, shutil.which(name, path=path)) for name in NAMES]
    return [make(name, program) for name, program in programs if program]


def make(name: str, program: str) -> "Runtime":
    runtime = named(name)
    assert runtime is not None, name
    return runtime(name, program)


def find(wanted: str, image: str, variables: "Dict[str, str]", host: str) -> "Runtime":
    """Find the runtime that is wanted, or the first that can run this image file."""
    names = candidates(image) if wanted == "auto" else [wanted]
    for name in names:
        program = shutil.which(name, path=variables.get("PATH"))
        if program:
            return make(name, program)
    message = "there is no {} on {}".format(" or ".join(names), host)
    raise CannotContain(
        message + ": load its module (modules = [...] of the cluster), or leave out the image"
    )


def candidates(image: str) -> "List[str]":
    """List the runtimes that can run this image; the one whose own format it is comes first."""
    able = [runtime for runtime in RUNTIMES if runtime.can_run(image)]
    able.sort(key=lambda runtime: not image.endswith("." + runtime.format))
    return [name for runtime in able for name in runtime.names]


def file_of(image: str, wanted: str, root: str) -> str:
    """Return the path of an image, in the format of the runtime that is wanted."""
    if image.startswith("/"):
        return image
    own = "." + (named(wanted) or RUNTIMES[0]).format
    endings = sorted(ENDINGS, key=lambda ending: ending != own)
    name = os.path.join(root, "images", image.partition(":")[2])
    there = [name + ending for ending in endings if os.path.exists(name + ending)]
    return (there or [name + endings[0]])[0]


def check_image(path: str, runtime: "Runtime", host: str) -> None:
    """Raise CannotContain where an image does not exist, or is not in the runtime's format."""
    if not os.path.exists(path):
        message = "the image {} is not there, seen from {}: push it again (dray image push)"
        raise CannotContain(message.format(path, host), permanent=True)
    if not os.access(path, os.R_OK):
        raise CannotContain("the image {} cannot be read by you".format(path), permanent=True)
    objection = runtime.objection(path)
    if objection:
        raise CannotContain(objection, permanent=True)


def gpus_of(job: "Description") -> str:
    """Return whose GPUs the job has on this node."""
    if not job["resources"]["gpus"]:
        return ""
    amd = os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl")
    return "amd" if amd else "nvidia"


# -- for dray doctor ------------------------------------------------------------------------------


def facts() -> "ContainerFacts":
    """Describe what a machine has to run images with; an empty record where it has nothing."""
    there = installed()
    if not there:
        return {}
    return {
        "runtimes": {runtime.name: runtime.version() for runtime in there},
        "setuid": any(runtime.is_setuid() for runtime in there),
        "namespaces": can_unshare(),
        "subuid": has_subuid(),
        "fuse": os.access("/dev/fuse", os.R_OK | os.W_OK),
    }


def can_unshare() -> bool:
    """Try a user namespace with a mount in it: some systems allow the one and forbid the other."""
    import subprocess  # the laptop reads the declared values alone

    argv = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    try:
        return subprocess.call(argv, stderr=subprocess.DEVNULL, timeout=ANSWER) == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def has_subuid() -> bool:
    """Return whether the user has ids for other users, which --fakeroot needs."""
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
