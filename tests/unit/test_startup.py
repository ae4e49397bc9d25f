"""What every Python of a job starts with, in real interpreters: whose code is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.programs import shipping

BASE_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")  # has no dray
SETUP = "from setuptools import setup\nsetup(name={!r}, version='{}')\n"
HOOK = """
import importlib.util, sys
MAPPING = {!r}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        found = MAPPING.get(name)
        if found:
            places = [found]
            return importlib.util.spec_from_file_location(
                name, found + "/__init__.py", submodule_search_locations=places
            )
def install():
    sys.meta_path.append(Finder)
"""
WHOSE = "import walk; print(walk.code)"


class Job:
    """A job's tree, another checkout elsewhere, and a Python in which that is installed."""

    def __init__(self, folder: Path, env: Path, app: Path) -> None:
        self.tree = folder / "job"
        self.live = folder / "live"
        self.tree.mkdir()
        self.python = str(env / "bin/python")
        (self.site,) = env.glob("lib/python*/site-packages")
        self.path = f"{app}/dray_startup:{app}"

    def write(self, name: str, packaged_as: str = "", tree_as: str = "") -> Path:
        """A package in this folder of both; return the folder of the checkout."""
        for top, code, setup in (
            (self.tree, "own", tree_as or packaged_as),
            (self.live, "live", packaged_as),
        ):
            (top / name / "walk").mkdir(parents=True)
            (top / name / "walk/__init__.py").write_text(f"code = {code!r}")
            if setup:
                (top / name / "setup.py").write_text(SETUP.format(setup, code))
        return self.live / name

    def install_path(self, folder: Path) -> None:
        (self.site / "it.pth").write_text(f"{folder}\n")

    def install_hook(self, **mapping: Path) -> None:
        name = "__editable___it_finder"
        places = {key: str(place) for key, place in mapping.items()}
        (self.site / f"{name}.py").write_text(HOOK.format(places))
        (self.site / "it.pth").write_text(f"import {name}; {name}.install()\n")

    def __call__(self, code: str, python: str = "", **env: str) -> str:
        ours = {"PYTHONPATH": self.path, "DRAY_CODE": str(self.tree)}
        env = {**ours, "PYTHONDONTWRITEBYTECODE": "1", **env}
        words = [python or self.python, "-c", code]
        ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout.strip()

    def notes(self) -> list[str]:
        path = self.tree / ".dray-imports"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shipping.install(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("env")
    subprocess.run([BASE_PYTHON, "-m", "venv", "--without-pip", path], check=True)
    return path


@pytest.fixture
def job(tmp_path: Path, env: Path, app: Path) -> Iterator[Job]:
    made = Job(tmp_path, env, app)
    yield made
    for path in made.site.glob("*.p*"):
        path.unlink()


# -- whose code -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "source/walk"])
def test_the_same_project_at_the_same_place(job: Job, name: str) -> None:
    live = job.write(name, packaged_as="walk")
    job.install_path(live)
    assert job(WHOSE) == "own"
    job.install_hook(walk=live / "walk")
    assert job(WHOSE) == "own"
    assert job(WHOSE, DRAY_EDITABLE="installed") == "live"
    assert len(job.notes()) == 2  # one for each way to install it, though there were many starts


def test_another_project_with_a_package_of_the_same_name(job: Job) -> None:
    live = job.write("source/walk", packaged_as="walk", tree_as="walk-for-two-legs")
    job.install_path(live)
    assert job(WHOSE) == "live"
    job.install_hook(walk=live / "walk")
    assert job(WHOSE) == "live"
    assert job.notes() == []


def test_a_folder_that_is_not_packaged_is_known_by_its_place(job: Job) -> None:
    job.install_path(job.write("lib"))
    assert job(WHOSE) == "live"
    assert job(WHOSE, DRAY_PROJECT=str(job.live)) == "own"


def test_what_is_installed_from_the_jobs_tree_itself(job: Job) -> None:
    job.write("", packaged_as="walk")
    job.install_path(job.tree)
    assert job(WHOSE) == "own"
    assert job.notes() == []


def test_a_package_that_is_not_in_the_snapshot(job: Job) -> None:
    live = job.write("", packaged_as="walk")
    (job.tree / "walk/__init__.py").unlink()
    (job.tree / "walk").rmdir()
    job.install_hook(walk=live / "walk")
    assert job(WHOSE) == "live"


def test_a_path_that_the_user_has_given_is_kept(job: Job) -> None:
    live = job.write("", packaged_as="walk")
    job.install_path(live)
    assert job(WHOSE, PYTHONPATH=f"{job.path}:{live}") == "live"


def test_only_what_the_tree_lacks_comes_from_elsewhere(job: Job) -> None:
    """What lists the modules of a package sees the job's own."""
    live = job.write("", packaged_as="walk")
    (live / "walk/generated.py").write_text("code = 'generated'")
    job.install_path(live)
    listed = "import pkgutil, walk; print(list(pkgutil.iter_modules(walk.__path__)))"
    assert job(listed) == "[]"
    assert job("from walk.generated import code; print(code)") == "generated"
    assert f"walk.generated is not in the job's own code: imported from {live}" in job.notes()[-1]


def test_metadata_beside_the_code_is_found(job: Job) -> None:
    """As ``setup.py develop`` leaves it."""
    live = job.write("", packaged_as="walk")
    (live / "walk.egg-info").mkdir()
    (live / "walk.egg-info/PKG-INFO").write_text("Name: walk\nVersion: 1.5\n")
    (job.site / "easy-install.pth").write_text(f"{live}\n")
    about = "import importlib.metadata as m, walk; print(walk.code, m.version('walk'))"
    assert job(about) == "own 1.5"


# -- files of other users -------------------------------------------------------------------------


def test_a_pipe_in_the_place_of_a_file_keeps_nothing_waiting(job: Job) -> None:
    live = job.write("source", packaged_as="walk")
    for name in ("pyproject.toml", "setup.cfg"):
        os.mkfifo(live / name)
    job.install_path(live)
    assert job(WHOSE) == "own"


def test_a_file_of_another_user_names_no_project(job: Job) -> None:
    live = job.write("", packaged_as="walk")
    job.install_path(live)
    (live / "setup.py").rename(live / "elsewhere.py")
    (live / "setup.py").symlink_to("elsewhere.py")
    assert job(WHOSE) == "live"
    if os.getuid() == 0:
        (live / "elsewhere.py").replace(live / "setup.py")
        os.chown(live / "setup.py", 4711, -1)
        assert job(WHOSE) == "live"


@pytest.mark.parametrize(
    ("mode", "whose"),
    [(0o755, "own"), (0o775, "own"), (0o777, "live"), (0o1777, "live")],
)
def test_no_project_is_looked_for_in_what_others_can_write_to(
    job: Job, mode: int, whose: str
) -> None:
    live = job.write("", packaged_as="walk")
    job.install_hook(walk=live / "walk")
    os.chown(live, -1, os.getgid())
    live.chmod(mode)
    assert job(WHOSE) == whose


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        ("[project]" + "\n" * 200_000, "live"),
        ("[project]\n" * 20_000, "live"),
        ("[project] \n\nversion = '1'\nname = 'walk'\n", "own"),
        ("[tool.x]\nname = 'walk'\n[project]\n[x]\nname = 'walk'\n", "live"),
    ],
)
def test_the_name_in_a_table(job: Job, text: str, whose: str) -> None:
    """However long it is: a job's Python that takes too long is an error here."""
    live = job.write("")
    (live / "pyproject.toml").write_text(text)
    (job.tree / "pyproject.toml").write_text("[tool.poetry]\nname = 'Walk'\n")
    job.install_path(live)
    assert job(WHOSE) == whose


# -- nothing else changes -------------------------------------------------------------------------


def pythons() -> list[str]:
    """All that this machine has, of any age."""
    found = sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    return [BASE_PYTHON, *(str(path) for path in found)]


@pytest.mark.parametrize("python", pythons())
def test_their_own_sitecustomize_is_imported(job: Job, tmp_path: Path, python: str) -> None:
    (tmp_path / "sitecustomize.py").write_text("whose = 'theirs'")
    about = "import sys; print([one for one in sys.path if 'dray_startup' in one])"
    assert job(about, python) == "[]"
    theirs = "import sitecustomize; print(sitecustomize.whose)"
    assert job(theirs, python, PYTHONPATH=f"{job.path}:{tmp_path}") == "theirs"


def test_without_another_one_there_is_none(job: Job) -> None:
    (job.site / "it.pth").write_text("")
    around = "import sys; print([one for one in sys.modules if one in %r])"
    names = ["sitecustomize", "dray_editable"]
    assert job(around % names, PYTHONPATH=job.path) == job(around % names, PYTHONPATH="")


def test_a_fault_of_ours_is_told_and_does_no_harm(job: Job) -> None:
    job.install_hook(walk=job.write("", packaged_as="walk") / "walk")
    with next(job.site.glob("__editable__*.py")).open("a") as file:
        file.write("NAMESPACES = 'no table'\n")
    env = {"PYTHONPATH": job.path, "DRAY_CODE": str(job.tree), "PATH": os.defpath}
    words = [job.python, "-c", "print('on')"]
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert ended.stdout == "on\n"
    (line,) = ended.stderr.splitlines()
    assert line.startswith("[dray] an editable install was left as it is: AttributeError")
