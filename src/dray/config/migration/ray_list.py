"""Reads Isaac Lab's ~/.cluster_config: a line for each Ray cluster, ``name: N address: URL``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dray.config.migration.found import Found, Gathering, Text

WHAT = "Isaac Lab's list of Ray clusters, ~/.cluster_config (name: … address: …)"
BESIDE: tuple[str, ...] = ()
SIGNS = r"^[ \t]*name:[ \t]*\S+[ \t]+address:[ \t]*\S+"
PAIR = re.compile(r"(?:^|(?<=\s))(\w+):[ \t]*(\S+)")
PYTHON = "has to be one on the nodes that imports Ray, such as /isaac-sim/python.sh"
ROOT = "best on a file system that all nodes share; else files are carried through Ray"


def recognises(text: Text) -> bool:
    return re.search(SIGNS, text.content, re.M) is not None


def read(text: Text, _: Mapping[str, Text]) -> Found:
    """Return the first cluster, and with it the others."""
    first, *others = (
        _one(text, number, line)
        for number, line in enumerate(text.content.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    )
    return first._replace(others=tuple(others))


def _one(text: Text, number: int, line: str) -> Found:
    words = dict(PAIR.findall(line))
    if not re.match(SIGNS, line):
        raise text.error(number, "a line has to begin with name: … address: …")
    into = Gathering(text, kind="ray")
    into.set("address", words.pop("address"), "address")
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", words.pop("name")).strip("-_") or "ray"
    for key, value in words.items():
        into.add_note(f"{key}: {value}", "dray asks the cluster itself")
    into.add_note("python", PYTHON)
    into.add_note("root", ROOT)
    return into.found()._replace(name=name, needs="address")
