"""What docker and podman say, and what dray makes of it. Their words here are real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dray.errors import NotFound, Refused
from dray.images import engine

NO_DAEMON = (
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. "
    "Is the docker daemon running?"
)
NO_RIGHTS = (
    "permission denied while trying to connect to the Docker daemon socket at "
    'unix:///var/run/docker.sock: Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.47/images/x/json": '
    "dial unix /var/run/docker.sock: connect: permission denied"
)
NO_MACHINE = (
    "Cannot connect to Podman. Please verify your connection to the Linux system using `podman "
    "system connection list`, or try `podman machine init` and `podman machine start` to manage a "
    "new Linux VM\nError: unable to connect to Podman socket: connection refused"
)
NO_IMAGE = "[]\nError response from daemon: No such image: x:latest"
RECORD = {
    "Id": "sha256:" + "1" * 64,
    "RepoTags": ["other:3", "isaac-lab-base:latest"],
    "Created": "2026-01-02T03:04:05Z",
    "Config": {"Env": ["PATH=/bin"], "Cmd": None, "Entrypoint": ["bash"], "WorkingDir": "/w"},
    "Architecture": "arm64",
    "Os": "linux",
    "Size": 1234,
    "RootFS": {"Type": "layers", "Layers": ["sha256:a", "sha256:b"]},
}


@pytest.mark.parametrize(
    ("program", "errors", "what", "hint"),
    [
        ("docker", NO_DAEMON, "docker has no daemon running", "systemctl start docker"),
        ("docker", NO_RIGHTS, "docker may not be used by you", "usermod -aG docker"),
        ("podman", NO_MACHINE, "podman has no machine running", "podman machine start"),
    ],
)
def test_an_engine_that_does_not_answer(program: str, errors: str, what: str, hint: str) -> None:
    problem = engine.explained(program, errors)
    assert isinstance(problem, engine.Unusable)
    assert problem.message == what
    assert hint in problem.hint


def test_other_failures_are_told_in_the_engines_words() -> None:
    said = "Storing\nError: writing blob: no space left on device\n\n"
    assert engine.explained("podman", said).message == (
        "podman failed: Error: writing blob: no space left on device"
    )
    assert "does not say why" in engine.explained("podman", "").message


def test_an_image_of_dockers() -> None:
    image = engine.described("docker", RECORD, "isaac-lab-base")
    assert image.id == RECORD["Id"]
    assert (image.name, image.architecture, image.size) == ("isaac-lab-base:latest", "arm64", 1234)
    assert image.layers == ("sha256:a", "sha256:b")
    assert json.loads(image.config) == {
        "architecture": "arm64",
        "os": "linux",
        "created": "2026-01-02T03:04:05Z",
        "config": {"Env": ["PATH=/bin"], "Entrypoint": ["bash"], "WorkingDir": "/w"},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:a", "sha256:b"]},
    }


@pytest.mark.parametrize(
    ("tags", "reference", "name"),
    [
        (["localhost/train:1"], "train:1", "train:1"),
        (["localhost/train:1"], "localhost/train:1", "train:1"),
        (["a:1", "docker.io/library/ubuntu:latest"], "ubuntu", "ubuntu:latest"),
        (["quay.io/lab/train:1"], "1111", "quay.io/lab/train:1"),
        ([], "1111", "1" * 12),
    ],
)
def test_what_an_image_is_called(tags: list[str], reference: str, name: str) -> None:
    assert engine.name_of(tags, reference, str(RECORD["Id"])) == name


# -- which engine: stand-ins, since there is no docker to be had ----------------------------------


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, script: str) -> None:
        program = self.folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def lacks(self, name: str, *images: str) -> None:
        listed = "\\n".join(images)
        self.install(
            name,
            f"case $2 in ls) printf '{listed}\\n' ;; *) echo '{NO_IMAGE}' >&2; exit 1 ;; esac",
        )

    def has(self, name: str) -> None:
        self.install(name, f"echo '{json.dumps([RECORD])}'")

    def fails(self, name: str, errors: str) -> None:
        self.install(name, f"cat >&2 <<'END'\n{errors}\nEND\nexit 1")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("PATH", f"{tmp_path}")
    (tmp_path / "cat").symlink_to("/bin/cat")
    return Machine(tmp_path)


def test_the_engine_that_has_the_image_is_used(machine: Machine) -> None:
    machine.lacks("docker")
    machine.has("podman")
    assert engine.find("isaac-lab-base").name == "isaac-lab-base:latest"
    machine.fails("docker", NO_DAEMON)
    assert engine.find("isaac-lab-base").name == "isaac-lab-base:latest"
    assert engine.usable() == "podman"


def test_an_engine_that_fails_while_it_saves(machine: Machine) -> None:
    shown = f"echo '{json.dumps([RECORD])}'"
    full = "printf half; echo 'Error: no space left on device' >&2; exit 125"
    machine.install("podman", f"case $1 in image) {shown} ;; *) {full} ;; esac")
    image = engine.find("isaac-lab-base")
    with (
        pytest.raises(Refused, match="podman failed: Error: no space left on device"),
        image.read(frozenset(image.layers)) as layers,
    ):
        list(layers)


def test_no_engine(machine: Machine) -> None:
    for ask in (lambda: engine.find("x"), engine.usable):
        with pytest.raises(Refused, match="neither docker nor podman") as caught:
            ask()
        assert "docker-archive:FILE" in caught.value.hint


def test_no_engine_that_answers(machine: Machine) -> None:
    machine.fails("docker", NO_RIGHTS)
    for ask in (lambda: engine.find("x"), engine.usable):
        with pytest.raises(Refused, match="docker may not be used by you"):
            ask()


def test_no_such_image(machine: Machine) -> None:
    machine.lacks("docker", "isaac-lab-base:latest", "<none>:<none>")
    machine.lacks("podman", "localhost/train:1")
    with pytest.raises(NotFound, match=r"no image 'trian:1' in docker or podman.*'train:1'\?"):
        engine.find("trian:1")
    machine.fails("docker", NO_DAEMON)
    with pytest.raises(NotFound, match=r"no image 'trian:1' in podman\.") as caught:
        engine.find("trian:1")
    assert "docker has no daemon running" in caught.value.hint
