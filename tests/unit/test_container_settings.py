"""The settings of a container: what they may be, and what description they make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dray.config import loading as configuration
from dray.description.describing import describe
from dray.job import options
from dray.job.model import Container, JobSpec
from dray.node.formats import files

SHELL = {"PATH": "/usr/bin", "HOME": "/home/me"}
PROJECT = """
[job]
image = "/images/base.sif"
[job.env]
SEED = "1"
[job.container]
binds = ["/cluster/data:/data:ro"]
writable = "overlay"
caches = ["pip:~/.cache/pip"]
[clusters.local]
container = "apptainer"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def described(project: Path, **flags: object) -> JobSpec:
    given = {f"job.{key.replace('__', '.')}": value for key, value in flags.items()}
    return describe(["python", "train.py"], configuration.load(project, given), SHELL, 0.0)


def test_settings_make_the_container(project: Path) -> None:
    (project / "dray.toml").write_text(PROJECT)
    job = described(project, container__binds=("~/more",))
    assert job.container == Container(
        image="/images/base.sif",
        name="/images/base.sif",
        runtime="apptainer",
        binds=("/cluster/data:/data:ro", "~/more"),
        writable="overlay",
        caches=("pip:~/.cache/pip",),
        outside=SHELL,
    )
    assert job.env == {"SEED": "1"}  # what the shell has of this machine is not the image's
    assert JobSpec.from_dict(json.loads(files.encode(job.to_dict()))) == job


def test_without_an_image_the_same_settings_are_of_no_effect(project: Path) -> None:
    (project / "dray.toml").write_text(PROJECT.replace("image =", "name = 'x' #"))
    job = described(project)
    assert job.container is None
    assert job.env == {**SHELL, "SEED": "1"}
    assert "the binds are not used" in job.notes[0]


@pytest.mark.parametrize("good", ["/a", "/a:/b", "/a:/b:ro", "$SCRATCH/a:/b", "~/a:~/b:rw"])
def test_binds(good: str) -> None:
    assert options.bind(good) == good


@pytest.mark.parametrize("bad", ["a", "a:/b", "/a:b", "/a:/b:rx", "/a:/b:ro:z", "/a,/b", ""])
def test_binds_that_nobody_could_mean(bad: str) -> None:
    with pytest.raises(ValueError, match="cannot read the bind"):
        options.bind(bad)


@pytest.mark.parametrize("bad", ["kit", "/x:/y", "kit:relative", "kit:/a:/b", "../x:/y"])
def test_caches_that_nobody_could_mean(bad: str) -> None:
    with pytest.raises(ValueError, match="cannot read the cache"):
        options.cache(bad)
