"""Reads a shell file of one's own, such as ~/.cluster_config: HOST=…, PARTITION=…, ACCOUNT=…"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dray.config.migration import shell
from dray.config.migration.found import Found, Gathering, Text, as_number, remote
from dray.config.migration.sbatch import duration, gpus, megabytes, size

WHAT = "shell assignments with HOST=… or LOGIN=…, such as ~/.cluster_config"
BESIDE: tuple[str, ...] = ()
PREFIX = r"(?:(?:CLUSTER|SLURM|SBATCH|DEFAULT|REMOTE|HPC)_)*"
HOSTS = ("HOST", "HOSTNAME", "LOGIN", "LOGIN_NODE", "LOGIN_HOST", "SSH_HOST")
SIGNS = rf"^[ \t]*(?:export[ \t]+)?{PREFIX}(?:{'|'.join(HOSTS)})="

# By the name without its prefixes.
SETTINGS = {
    **dict.fromkeys(HOSTS, "host"),
    **dict.fromkeys(("ROOT", "DIR", "BASE_DIR", "WORK_DIR", "WORKDIR", "ROOT_DIR"), "root"),
    **dict.fromkeys(("MAIL", "EMAIL", "MAIL_USER"), "mail"),
    **dict.fromkeys(("GPUS", "NUM_GPUS"), "job.resources.gpus"),
    **dict.fromkeys(("CPUS", "CPUS_PER_TASK"), "job.resources.cpus"),
    **dict.fromkeys(("MEM", "MEMORY", "MEM_PER_NODE"), "job.resources.memory"),
    **dict.fromkeys(("TIME", "TIMELIMIT", "TIME_LIMIT", "WALLTIME"), "job.resources.time"),
    **{
        name.upper(): name
        for name in ("account", "partition", "qos", "constraint", "reservation", "nodelist",
                     "exclude", "gpu_type", "python", "modules")
    },
}  # fmt: skip
USERS = ("USER", "USERNAME", "LOGIN_USER", "SSH_USER")


def recognises(text: Text) -> bool:
    return re.search(SIGNS, text.content, re.M) is not None


def read(text: Text, _: Mapping[str, Text]) -> Found:
    into = Gathering(text)
    user = ""
    for name, assigned in shell.assignments(text).items():
        short = re.sub(rf"^{PREFIX}", "", name)
        if assigned.computed:
            into.add_note(name, shell.COMPUTED)
        elif short in USERS:
            user = assigned.value
        elif short in SETTINGS:
            _gather_one(SETTINGS[short], name, assigned.value, into)
        else:
            into.add_note(name, "has no counterpart yet")  # without its value: it may be a secret
    host = into.cluster.get("host", "")
    if user and host and "@" not in host:
        into.set("host", f"{user}@{host}", "USER")
    return into.found()


def _gather_one(key: str, name: str, value: str, into: Gathering) -> None:
    origin = f"{name}={value}"
    if key == "root":
        into.set(key, remote(value), origin)
    elif key == "modules":
        into.set(key, value.split(), origin)
    elif key == "job.resources.gpus" and gpus(value)[0] is not None:
        count, kind = gpus(value)
        into.set(key, count, origin)
        if kind:
            into.set("gpu_type", kind, origin)
    elif key == "job.resources.cpus":
        into.set(key, as_number(value), origin)
    elif key == "job.resources.memory" and megabytes(value):
        into.set(key, size(megabytes(value) or 0), origin)
    elif key == "job.resources.time":
        into.set(key, duration(value) or value, origin)
    else:
        into.set(key, value, origin)
