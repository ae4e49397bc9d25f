"""An image goes to a registry by the words that the user's own docker is given."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from dray.errors import NotFound, Refused, UsageError
from dray.images import registry

NUMBER = "sha256:" + "1" * 64
DIGEST = "sha256:" + "2" * 64
RECORD = {
    "Id": NUMBER,
    "RepoTags": ["lab:3"],
    "RepoDigests": [f"elsewhere.org/lab@{NUMBER}", f"registry.example.org:5000/me/lab@{DIGEST}"],
    "RootFS": {"Layers": []},
}
DOCKER = """#!/bin/sh
echo "$@" >> {log}
case "$1 $2 $4" in
"image inspect lab:3"|"image inspect registry.example.org:5000/me/lab:4") cat {record};;
"image inspect "*) echo "No such image" >&2; exit 1;;
"push registry.refuses.org"*) echo denied >&2; exit 1;;
esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a docker was told that has one image."""
    written, record = tmp_path / "log", tmp_path / "record.json"
    record.write_text(json.dumps([RECORD]))
    docker = tmp_path / "docker"
    docker.write_text(DOCKER.format(log=written, record=record))
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("dray.images.engine.ENGINES", ("docker",))
    return written


def test_it_is_tagged_and_pushed_and_named_by_its_digest(log: Path) -> None:
    to = "registry.example.org:5000/me/lab:4"
    assert registry.push("lab:3", to) == f"registry.example.org:5000/me/lab@{DIGEST}"
    assert log.read_text().splitlines() == [
        "image inspect -- lab:3",
        f"tag {NUMBER} {to}",
        "--version",
        f"push {to}",
        f"image inspect -- {to}",
    ]


def test_where_it_goes_has_to_be_known(log: Path) -> None:
    with pytest.raises(UsageError, match="lab:3 names no registry"):
        registry.push("lab:3", None)
    with pytest.raises(UsageError, match="--to"):
        registry.push("lab:3", "--all-tags")
    assert not log.exists()


def test_a_registry_that_refuses_is_told(log: Path) -> None:
    with pytest.raises(Refused, match=r"push registry\.refuses\.org/lab:4' failed") as refused:
        registry.push("lab:3", "registry.refuses.org/lab:4")
    assert "docker login" in refused.value.hint


def test_only_images_of_an_engine_are_pushed(log: Path) -> None:
    with pytest.raises(Refused, match="is an archive"):
        registry.push("docker-archive:lab.tar", "registry.example.org/lab:4")
    with pytest.raises(NotFound):
        registry.push("unknown", "registry.example.org/lab:4")


@pytest.mark.parametrize(
    ("name", "has_one"),
    [
        ("lab", False),
        ("me/lab:3", False),
        ("localhost/lab", True),
        ("registry:5000/lab", True),
        ("nvcr.io/nvidia/isaac-lab:2.3.0", True),
        ("lab.x:3", False),
    ],
)
def test_which_names_are_those_of_a_registry(name: str, has_one: bool) -> None:
    assert registry.names_registry(name) is has_one
