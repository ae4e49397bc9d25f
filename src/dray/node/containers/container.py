"""What a command in a container sees, and why one did not start. Pure.

The command is not among a runtime's arguments. Apptainer turns bytes that are not UTF-8 into
others, and runs what stands in backquotes in a variable's value; so the container's own /bin/sh is
started, and reads the command and its variables from its input. It is the same for every runtime,
and nothing of it is in a list of processes or on a disk.
"""

import fnmatch
import os
import re

from ..code.worktree import SANDBOX
from ..processes.environment import RUN as RUN  # where the shell inside says how far it is
from .runtime import Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List

HOME = "/dray/home"  # no path of a cluster's: what is bound below a home needs no second look
STARTED, NO_FOLDER, NO_COMMAND = "started", "no folder", "no command"

# Of the node's variables: the allocation, its GPUs, and the way to the internet.
PASSED = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "NCCL_*",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PBS_*",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_*",
    "TZ",
    "*_proxy",
    "*_PROXY",
)
OUTSIDE_ONLY = ("SLURM_TMPDIR", "PBS_JOBFS")  # folders that are not there inside
EXTENDED = ("LD_LIBRARY_PATH", "PYTHONPATH")  # what the image or the GPU's driver has set stays
READ_ONLY = ("BASHOPTS", "EUID", "PPID", "SHELLOPTS", "UID")  # a shell cannot set them

# What a runtime says of itself when it fails, and the way out.
NO_FUSE = """\
the node must let users open /dev/fuse, or have Apptainer's setuid mode: ask its admins, or \
use a sandbox folder as the image (apptainer build --sandbox)"""
NO_NAMESPACES = """\
user namespaces are not allowed on the node: ask its administrators for them, or for Apptainer's \
setuid mode"""
ADVICE = (
    (r"architecture|exec format error", "the image is for other nodes: build it for these"),
    (r"fuse|squash", NO_FUSE),
    (r"user namespace|unshare|clone|newuidmap|setgroups", NO_NAMESPACES),
    (r"/bin/sh", "the image has no /bin/sh, which dray needs to start the command"),
    (r"no space left|quota", "a disk is full, or a quota is used up"),
)


def sandbox_of(work: str, host: str) -> str:
    """Return the folder for all that containers need on this node beside the work tree."""
    return work + SANDBOX + host


def parse_bind(text: str, variables: "Dict[str, str]", home: str) -> Bind:
    """Read SOURCE[:TARGET[:ro]]; ``home`` is the one inside. Raises KeyError for a variable that is
    not set."""
    source, *rest = text.split(":")
    source = expand(source, variables, variables.get("HOME", "~"))
    target = expand(rest[0], variables, home) if rest else source
    return Bind(source, target, rest[1:] == ["ro"])


def parse_cache(text: str, folder: str, home: str) -> Bind:
    """Read NAME:TARGET; its source is below ``folder``."""
    name, _, target = text.partition(":")
    return Bind(os.path.join(folder, name), expand(target, {}, home))


def expand(path: str, variables: "Dict[str, str]", home: str) -> str:
    """Fill in ~ and $VARIABLES."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda found: variables[found[1] or found[2]], path)


# -- variables and the command --------------------------------------------------------------------


def passed(outside: "Dict[str, str]", more: "Iterable[str]") -> "Dict[str, str]":
    """Choose the node's variables that are seen inside."""
    patterns = PASSED + tuple(more)
    return {
        name: value
        for name, value in outside.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        and name not in OUTSIDE_ONLY
        and re.match(r"[A-Za-z_][A-Za-z0-9_]*$", name)
    }


def identity(user: str, user_id: int, group: str, group_id: int) -> "Dict[str, str]":
    """Name the user that files are written as; images that make an account of their own read it."""
    return {
        "USER": user,
        "LOGNAME": user,
        "CLUSTER_USER": user,
        "CLUSTER_USER_ID": str(user_id),
        "CLUSTER_GROUP_NAME": group,
        "CLUSTER_GROUP_ID": str(group_id),
    }


def script(argv: "List[bytes]", env: "Dict[bytes, bytes]", folder: bytes) -> bytes:
    """Write what the shell inside reads: it becomes the command, or says what is missing."""
    said = RUN.encode() + b"/said"
    lines = exports(env) + [
        b"cd " + quoted(folder) + b" 2>/dev/null || " + leave(NO_FOLDER, said),
        is_program(argv[0]) + b" || " + leave(NO_COMMAND, said),
        b'echo "' + STARTED.encode() + b' $$" >' + said,
        becoming(argv, env) + b" </dev/null",
    ]
    return b"\n".join(lines) + b"\n"


def entering_script(
    argv: "List[bytes]", env: "Dict[bytes, bytes]", folder: bytes, terminal: bytes = b""
) -> bytes:
    """Write what the shell inside reads to become a program beside the command; ``terminal`` is the
    node's name of the one that it has."""
    lines = taking_back(terminal) if terminal else []
    lines += exports(env)
    lines += [b"cd " + quoted(folder) + b" 2>/dev/null || cd /", becoming(argv, env)]
    return b"\n".join(lines) + b"\n"


def taking_back(terminal: bytes) -> "List[bytes]":
    """Open the terminal by its own name, where it has it inside. Apptainer replaces a terminal by
    what is called /dev/console inside (so that ``ttyname`` finds it), and where the node's whole
    /dev is bound, that is the machine's own console: whatever is written there is lost."""
    name = quoted(terminal)
    return [b"[ ! -c " + name + b" ] || exec 0<>" + name + b" 1>&0 2>&0"]


def exports(env: "Dict[bytes, bytes]") -> "List[bytes]":
    exported = [name for name in sorted(env) if name.decode() not in READ_ONLY]
    return [b"export " + name + b"=" + value_of(name, env[name]) for name in exported]


def becoming(argv: "List[bytes]", env: "Dict[bytes, bytes]") -> bytes:
    others = [name + b"=" + env[name] for name in sorted(env) if name.decode() in READ_ONLY]
    return b"exec " + b" ".join(quoted(one) for one in prefixed(others) + argv)


def prefixed(pairs: "List[bytes]") -> "List[bytes]":
    return [b"env"] + pairs if pairs else []


def value_of(name: bytes, value: bytes) -> bytes:
    if name.decode() not in EXTENDED:
        return quoted(value)
    return quoted(value) + b"${" + name + b':+":$' + name + b'"}'


def is_program(name: bytes) -> bytes:
    word = quoted(name)
    if b"/" in name:
        return b"{ [ -f " + word + b" ] && [ -x " + word + b" ]; }"
    return b"command -v " + word + b" >/dev/null 2>&1"


def leave(what: str, said: bytes) -> bytes:
    return b"{ echo '" + what.encode() + b"' >" + said + b"; exit 127; }"


def quoted(word: bytes) -> bytes:
    return b"'" + word.replace(b"'", b"'\\''") + b"'"


# -- its end --------------------------------------------------------------------------------------


def why_not_started(runtime: str, said: str, argv: "List[str]", folder: str, log: str) -> str:
    """Say why the command never ran, from what the shell inside said and the log's last lines."""
    if said == NO_COMMAND:
        return "the command '{}' is not in the container, or is not a program".format(argv[0])
    if said == NO_FOLDER:
        return "the folder {} is not in the container".format(folder)
    reason = "{} could not start the container".format(runtime)
    return "{}: {}".format(reason, advised(complaint_in(log))).rstrip(": ")


def advised(complaint: str) -> str:
    """Add advice to a complaint, where there is some."""
    advice = next((text for sign, text in ADVICE if re.search(sign, complaint, re.I)), "")
    return "; ".join(filter(None, [complaint, advice]))


def complaint_in(log: str) -> str:
    """Find the last line in which the runtime gives up, else the last line."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in log.splitlines()]
    lines = [line for line in lines if line]
    fatal = [line for line in lines if re.match(r"FATAL|ERROR|\[ERROR\]|enroot-", line)]
    found = (fatal or lines or [""])[-1]
    return re.sub(r"^(FATAL|ERROR|\[ERROR\])\s*:?\s*", "", found)


def exit_in_own_pids(code: int, name: str) -> str:
    """Describe how a command ended in a process namespace of its own: the runtime turns a signal
    into an exit code."""
    return "exit code {} (killed by {}, or a program that says so)".format(code, name)
