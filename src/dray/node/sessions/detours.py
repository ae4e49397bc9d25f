"""Ways to a node to which the scheduler does not lead: the job is called, else ssh goes there.

Which one works depends on the site alone. So it is remembered, in a file of the root.
"""

import os
import re
import shlex
import subprocess

from ..formats import files
from ..formats.wire import Refusal
from . import calling, calls, relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, NoReturn  # noqa: F401

CALL, SSH = "call", "ssh"
MEMORY = "way-in.json"
HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,254}$")
SSH_WORDS = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--"]
SSH_SECONDS = 30.0


def go(root: str, door: "Dict[str, Any]") -> int:
    """Become the way to a door. Returns once whoever came has left; raises Refusal where there is
    no way."""
    host = door["place"].get("host")
    if not (isinstance(host, str) and HOST.match(host)):
        raise Refusal("Refused", "the job does not say which node it is on")
    memory, why = os.path.join(root, MEMORY), ""
    for way in order(memory):
        if way == CALL:
            connection = calling.call(calls.path_beside(door["file"]), host)
            if connection is not None:
                remember(memory, CALL)
                return relay.pass_on(connection.fileno())
        else:
            why = why_no_ssh(host)
            if not why:
                remember(memory, SSH)
                go_by_ssh(host, door["words"] + ["relay", door["socket"]])
    message = "its node {0} does not connect to this login node, and 'ssh {0}' fails here: {1}"
    raise Refusal("Refused", message.format(host, why))


def order(memory: str) -> "List[str]":
    """Return the ways, the one first that is known to work."""
    known = (files.read_record(memory) or {}).get("way")
    return [SSH, CALL] if known == SSH else [CALL, SSH]


def remember(memory: str, way: str) -> None:
    if (files.read_record(memory) or {}).get("way") == way:
        return
    try:
        files.write_json(memory, {"way": way}, durable=False)
    except OSError:  # a full disk: it is found again
        pass


def why_no_ssh(host: str) -> str:
    """Return why ssh does not lead there; '' where it does."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        tried = subprocess.run(
            SSH_WORDS + [host, "true"], stdin=null, stdout=null, stderr=pipe, timeout=SSH_SECONDS
        )
    except FileNotFoundError:
        return "there is no ssh"
    except subprocess.TimeoutExpired:
        return "it does not answer"
    if not tried.returncode:
        return ""
    said = tried.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1].strip() if said else "exit code {}".format(tried.returncode)


def go_by_ssh(host: str, words: "List[str]") -> "NoReturn":
    command = "exec " + " ".join(shlex.quote(word) for word in words)
    os.execvp(SSH_WORDS[0], SSH_WORDS + [host, command])
