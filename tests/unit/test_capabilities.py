"""What a kind of cluster can do is declared with it: nobody else asks for the kind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dray
from dray.clusters.registry import capabilities_of
from dray.job import options
from dray.job.options import kinds

SOURCES = Path(dray.__file__).parent
ASKS = re.compile(r"""\bkind\s*(?:==|!=|in)\s*\(?["'](?:local|slurm|pbs)["']""")
OWN = ("clusters/local.py", "clusters/slurm.py", "clusters/pbs.py", "node/")


@pytest.mark.parametrize("kind", kinds.BUILT_IN)
def test_a_kind_has_the_settings_that_its_capabilities_need(kind: str) -> None:
    named = {option.name for option in options.CLUSTERS[kind]}
    assert ("host" in named) == capabilities_of(kind).has_host


def test_nothing_outside_of_a_kinds_module_asks_for_the_kind() -> None:
    found = [
        f"{path.relative_to(SOURCES)}: {line.strip()}"
        for path in sorted(SOURCES.rglob("*.py"))
        if not str(path.relative_to(SOURCES)).startswith(OWN)
        for line in path.read_text().splitlines()
        if ASKS.search(line)
    ]
    assert found == []
