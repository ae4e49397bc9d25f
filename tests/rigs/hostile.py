"""A cluster in other hands: an agent that answers what the test tells it to, and notes what it is
asked. It is reached without SSH, as a cluster on this machine is."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.conftest import Dray

AGENT = """#!{python}
import json, os, sys
ROOT = {folder!r}
MARK = b"\\n\\x01dray-answer\\x01\\n"


def job(request, **fields):
    about = {{"id": "evil-2345", "name": "evil", "command": ["true"], "created": 1.0,
             "resources": {{}}, "resume": {{}}}}
    return {{"id": request["ids"][0], "job": dict(about, **fields), "state": "done", "reason": "",
            "ended": None, "attempts": []}}


{answer}

while True:
    lengths = sys.stdin.buffer.readline().split()
    if not lengths:
        break
    request = json.loads(sys.stdin.buffer.read(int(lengths[0])))
    sys.stdin.buffer.read(int(lengths[1]))
    with open(ROOT + "/asked", "a") as file:
        file.write(json.dumps(request) + "\\n")
    told = answer(request) or {{"ids": []}}
    record, payload = told if isinstance(told, tuple) else (told, b"")
    text = record if isinstance(record, bytes) else json.dumps(record).encode()
    if not isinstance(record, bytes):
        text = b"%d %d\\n" % (len(text), len(payload)) + text
    sys.stdout.buffer.write(MARK + text + payload)
    sys.stdout.buffer.flush()
"""

SUBMITTED = """
    if request["verb"] in ("submit", "resume"):
        return {"scheduler_id": "1"}
    if request["verb"] == "hello":
        return {"time": 1.0, "root": "/", "python": "3", "free": 1, "files": None, "slurm": "x"}
"""


class HostileCluster:
    """``answer``: the body of a function of ``request``, which returns a record, or a record and
    what follows it, or bytes in place of both. Jobs can be submitted to it."""

    def __init__(self, folder: Path, dray: Dray) -> None:
        self.folder = folder
        self.dray = dray
        folder.mkdir()
        config = dray.home / "dray/config.toml"
        config.parent.mkdir(mode=0o700, exist_ok=True)
        lines = ["[clusters.evil]", 'kind = "slurm"', f'python = "{folder}/python"']
        config.write_text("\n".join([*lines, f'root = "{folder}/root"', ""]))

    def answers(self, body: str) -> None:
        own = textwrap.indent(textwrap.dedent(body), "    ")
        answer = f"def answer(request):\n{own}{SUBMITTED}"
        program = self.folder / "python"
        text = AGENT.format(python=sys.executable, folder=str(self.folder), answer=answer)
        program.write_text(text)
        program.chmod(0o700)

    def asked(self, verb: str) -> list[dict[str, Any]]:
        try:
            lines = (self.folder / "asked").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [one for one in map(json.loads, lines) if one["verb"] == verb]
