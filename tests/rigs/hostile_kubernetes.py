"""A Kubernetes in other hands: a ``kubectl`` that says of jobs and pods, and in the place of the
helper's agent, what the test tells it to, and notes what it is asked."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.rigs.processes import until

if TYPE_CHECKING:
    from tests.conftest import Dray

KUBECTL = """#!{python}
import json, os, sys
ROOT = {folder!r}
MARK = b"\\n\\x01dray-answer\\x01\\n"
PRESENT = b"\\n\\x01dray-present\\x01\\n"


def note(**asked):
    with open(ROOT + "/asked", "a") as file:
        file.write(json.dumps(asked) + "\\n")


def job(request, **fields):
    about = {{"id": request["ids"][0], "name": "evil", "command": ["true"], "created": 1.0,
             "resources": {{}}, "resume": {{}}}}
    return dict({{"id": request["ids"][0], "job": about, "state": "done", "reason": "",
                 "ended": None, "attempts": []}}, **fields)


{functions}

def serve():
    sys.stdout.buffer.write(PRESENT)
    sys.stdout.buffer.flush()
    while True:
        lengths = sys.stdin.buffer.readline().split()
        if not lengths:
            return
        request = json.loads(sys.stdin.buffer.read(int(lengths[0])))
        sys.stdin.buffer.read(int(lengths[1]))
        note(**request)
        text = json.dumps(agent(request) or standard(request)).encode()
        sys.stdout.buffer.write(MARK + b"%d 0\\n" % len(text) + text)
        sys.stdout.buffer.flush()


def standard(request):
    if request["verb"] == "hello":
        return {{"time": 1.0, "root": "/", "python": "3", "free": 1, "files": None,
                "pod_python": ["/python"], "machine": "x86_64"}}
    return {{"ids": [], "jobs": [], "waiting": [], "scheduler_id": "1"}}


words = [one for one in sys.argv[1:] if not one.startswith(("--namespace=", "--context="))]
verb = words[0]
if verb == "exec":
    serve()
elif verb in ("get", "create", "delete"):
    path = words[words.index("--raw") + 1]
    note(verb=verb, path=path)
    told = api(verb, path)
    if told is None:
        told = {{"items": []}} if verb != "create" else json.load(sys.stdin)
    sys.stdout.write(told if isinstance(told, str) else json.dumps(told))
"""


class HostileKubernetes:
    """``api``: the body of a function of ``verb`` and ``path``, which returns a record, a text, or
    None for a plain answer. ``agent``: the same of ``request``. Jobs can be submitted to it."""

    def __init__(self, folder: Path, dray: Dray) -> None:
        self.folder = folder
        self.dray = dray
        folder.mkdir()
        settings = {
            "kind": "kubernetes",
            "namespace": "evil",
            # Of this one alone: another test must not find its open connection.
            "context": f"evil-{os.urandom(4).hex()}",
            "image": "image:1",
            "volumes": ["pvc:home:/home/me"],
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        dray.configure("\n".join(["[clusters.evil]", *lines, ""]))
        dray.use(folder)
        self.answers()

    def answers(self, api: str = "", agent: str = "") -> None:
        functions = "\n\n".join(
            f"def {head}:\n" + textwrap.indent(textwrap.dedent(body) + "\nreturn None\n", "    ")
            for head, body in (("api(verb, path)", api), ("agent(request)", agent))
        )
        until(self.dray.nothing_runs)  # an open connection would go on as before
        program = self.folder / "kubectl"
        text = KUBECTL.format(python=sys.executable, folder=str(self.folder), functions=functions)
        program.write_text(text)
        program.chmod(0o700)

    def asked(self, verb: str) -> list[dict[str, Any]]:
        lines = (self.folder / "asked").read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["verb"] == verb]
