"""Verbs that only look import little: imports are nearly all that they take time for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dray as package

Loaded = Callable[..., set[str]]

# Libraries that take longer to import than the store takes to answer.
HEAVY = {"argparse", "click", "ctypes", "dataclasses", "hashlib", "inspect", "shutil", "socket"}
HEAVY |= {"subprocess", "tempfile", "threading", "tomllib", "typing", "zipfile"}
# What only a submission, a transfer or a config file needs.
ACTING = {"dray.config.editing", "dray.description", "dray.images", "dray.launcher.running"}
ACTING |= {"dray.node.attempt", "dray.node.code", "dray.node.containers", "dray.programs.shipping"}
ACTING |= {"dray.recipes", "dray.snapshot", "dray.transport.link"}
# What no look at the store needs, where there is no config file and no job is active.
CLUSTERS = {"dray.clusters.local", "dray.clusters.registry", "dray.job.options", "dray.node.root"}
CLUSTERS |= {"signal"}

LISTING = """
import sys
from dray.cli.running import run
code = run(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    print(*sys.modules, file=file)
sys.exit(code)
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """Carry out a verb, and return the modules that its process has imported by then. No other
    test's job is known to it: one that is active would be asked after."""
    monkeypatch.setenv("DRAY_HOME", str(tmp_path / "dray"))
    monkeypatch.chdir(tmp_path)

    def modules_of(*words: str) -> set[str]:
        found = tmp_path / "modules"
        subprocess.run(
            [sys.executable, "-c", LISTING, found, *words],
            check=True,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
        )
        return set(found.read_text().split())

    return modules_of


def among(found: set[str], unwanted: set[str]) -> list[str]:
    """List what of this was imported, packages with all that is in them."""
    return sorted(
        one for one in found if any(f"{one}.".startswith(f"{name}.") for name in unwanted)
    )


def test_a_listing_imports_only_the_store(loaded: Loaded) -> None:
    job = package.run([sys.executable, "-c", "pass"])
    job.wait(timeout=60)
    assert among(loaded("ps"), HEAVY | ACTING | CLUSTERS) == []
    job.remove()


@pytest.mark.parametrize("verb", ["show", "logs", "wait"])
def test_looking_at_a_job_imports_nothing_that_acts(loaded: Loaded, verb: str) -> None:
    job = package.run([sys.executable, "-c", "print('hello')"])
    job.wait(timeout=60)
    found = loaded(verb, job.id)
    assert among(found, HEAVY | ACTING) == []
    assert among(found, CLUSTERS) != []  # so these names are right
    job.remove()


def test_listing_the_clusters_imports_nothing_that_acts(loaded: Loaded) -> None:
    assert among(loaded("cluster", "list"), HEAVY | ACTING) == []


def test_the_names_are_those_of_modules() -> None:
    """A name that was changed since would forbid nothing."""
    known = json.dumps(sorted(HEAVY | ACTING | CLUSTERS))
    code = f"from importlib.util import find_spec; print(all(map(find_spec, {known})))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout == "True\n"
