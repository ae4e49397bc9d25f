"""Packages that are installed with ``pip install -e``: a job imports its own copy of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "1.5"
"""
PATH = "source/gait/src/gait"  # its path is written into a .pth file
HOOK = "source/terrain/terrain"  # between other folders: setuptools makes an import hook
OTHER = ("source/terrain/docs", "source/terrain/data")
TRAIN = """
import importlib.metadata, os, subprocess, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
import gait, terrain
print(gait.code, terrain.code, importlib.metadata.version("gait"))
sys.stdout.flush()
subprocess.run([sys.executable, "-c", "import gait, terrain; print(gait.code, terrain.code)"])
if "compiled" in sys.argv:
    import terrain.compiled
    print(terrain.compiled.code)
"""


class Environment:
    """A virtual environment with both packages of a checkout, installed as users do it."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = str(folder / "bin/python")
        for package in ("gait", "terrain"):
            words = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
            pip = [sys.executable, "-m", "pip", "--python", self.python, "install", *words]
            subprocess.run(
                [*pip, "--editable", checkout / "source" / package],
                env={**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")},  # setuptools
                check=True,
            )
        (self.packages,) = folder.glob("lib/python*/site-packages")
        assert list(self.packages.glob("__editable___terrain*_finder.py"))
        assert not list(self.packages.glob("__editable___gait*_finder.py"))


def write_code(checkout: Path, code: str) -> None:
    for package in (PATH, HOOK):
        (checkout / package).mkdir(parents=True, exist_ok=True)
        (checkout / package / "__init__.py").write_text(f"code = {code!r}")


@pytest.fixture
def project(dray: Dray) -> Path:
    write_code(dray.project, "frozen")
    for folder in OTHER:
        dray.write(f"{folder}/__init__.py", "")
    for name in ("gait", "terrain"):
        dray.write(f"source/{name}/pyproject.toml", PYPROJECT.format(name=name))
    packages = "[tool.setuptools]\npackages = ['terrain']\n"
    dray.write("source/terrain/pyproject.toml", PYPROJECT.format(name="terrain") + packages)
    dray.write(".gitignore", "compiled.py\n*.egg-info\nbuild\n")
    dray.write("scripts/train.py", TRAIN)
    return dray.project


def start(dray: Dray, environment: Environment, gate: Path, *more: str) -> str:
    """Submit, and hand over the command with which it goes on."""
    flags = more[: more.index("--")] if "--" in more else more
    words = more[len(flags) + 1 :]
    return dray.run(*flags, "--", environment.python, "scripts/train.py", str(gate), *words)


def finish(dray: Dray, job: str, gate: Path) -> list[str]:
    gate.touch()
    assert dray.wait(job)["state"] == "done"
    return dray.log(job).splitlines()


def test_a_later_edit_is_not_imported(dray: Dray, project: Path, tmp_path: Path) -> None:
    """Neither by a path nor by an import hook, in every process; once told in the log. What git
    ignores, since it was compiled in place, is found where it is."""
    (project / HOOK / "compiled.py").write_text("code = 'as built'")
    environment = Environment(tmp_path / "env", project)
    job = start(dray, environment, tmp_path / "gate", "--", "compiled")
    write_code(project, "edited")
    lines = finish(dray, job, tmp_path / "gate")
    said = [line for line in lines if line.startswith("[dray]")]
    printed = [line for line in lines if line not in said]
    assert printed == ["frozen frozen 1.5", "frozen frozen", "as built"]
    begin = "[dray] importing {} from the job's own code instead of the editable install {}"
    built = project / HOOK / "compiled.py"
    assert said == [
        begin.format("source/gait/src", project / "source/gait/src"),
        begin.format(HOOK, project / HOOK),
        f"[dray] terrain.compiled is not in the job's own code: imported from {built}",
    ]
    assert dray.show(job)["attempts"][0]["left"] == []


def test_an_older_clone_on_the_cluster_is_not_imported(
    dray: Dray, hpc: Hpc, project: Path, tmp_path: Path
) -> None:
    hpc.offer(dray)
    clone = shutil.copytree(project, tmp_path / "clones/walk")
    write_code(clone, "old")
    environment = Environment(tmp_path / "env", clone)
    job = start(dray, environment, tmp_path / "gate", "--on", "hpc")
    lines = finish(dray, job, tmp_path / "gate")
    assert lines[:2] == ["frozen frozen 1.5", "frozen frozen"]
    assert f"instead of the editable install {clone}/source/gait/src" in lines[2]


def test_an_editable_install_can_be_kept(dray: Dray, project: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env", project)
    gate = tmp_path / "gate"
    job = start(dray, environment, gate, "--env", "DRAY_EDITABLE=installed")
    write_code(project, "edited")
    assert finish(dray, job, gate) == ["edited edited 1.5", "edited edited"]
