"""Words of a command that name a file which the job will not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dray.errors import Refused
from dray.job.model import JobSpec
from dray.launcher import missing

FILES = ("train.py", "scripts/train.py", "scripts/setup.sh", "cfg/ant.yaml", "sub/own.py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (
        *FILES,
        "ignored.py",
        "data/set.bin",
        "results/a.bin",
        "logs/model_1.pt",
        ".venv/bin/python",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path


def look(project: Path, *command: str, folder: str = "", **more: object) -> tuple[str, ...]:
    lines = [f"f {'0' * 40} 0 {name}\0" for name in FILES] + [f"l {'0' * 40} 4 linked\0"]
    outputs = ("logs", "results/run")
    job = JobSpec(
        id="a",
        name="a",
        command=command,
        project=str(project),
        folder=folder,
        outputs=outputs,
        **more,  # type: ignore[arg-type]
    )
    return missing.look(job, "".join(lines).encode())


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("python", "trian.py"), "there is no such file in .*Did you mean 'train.py'"),
        (("python3.11", "-u", "-W", "error", "nothing.py"), "there is no such file"),
        (("python", "ignored.py"), "left out of the snapshot"),
        (("/usr/bin/python3", "logs/x.py"), "lies in the output 'logs'"),
        (("./.venv/bin/python", "train.py"), "starts './.venv/bin/python'.*left out"),
        (("bash", "-ex", "setup.sh"), "Did you mean 'scripts/setup.sh'"),
        (("./run.sh",), "there is no such file"),
    ],
)
def test_what_cannot_start_is_refused(project: Path, command: tuple[str, ...], why: str) -> None:
    with pytest.raises(Refused) as caught:
        look(project, *command)
    assert re.search(why, str(caught.value), re.S), str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        ("python", "train.py"),
        ("python", "-m", "trian"),
        ("python", "-c", "print('x.py')"),
        ("python", "-Z", "what.py.txt"),  # who knows what that flag is
        ("python", "scripts"),  # a folder with __main__.py
        ("python", "linked/x.py"),  # wherever that leads
        ("python", "/elsewhere/x.py"),
        ("bash", "-c", "python x.py"),
        ("train", "isaaclab/rsl_rl", "Isaac-Ant-v0", "16/9", "and/or"),
        ("train", "--out=logs/new", "--out", "results/run1", "s3://bucket/x.py", "src/*.py"),
        ("train", "--save", "model.pt", "--json=new.json", "env.x=y.yaml", "a.b/c"),
        ("train", "--log_dir", "logs", "logs/new.pt", "cfg/ant.yaml", "cfg"),
        ("train", "--config", "cfg/quadruped.yaml"),  # like nothing that there is
        ("train", "data"),  # a word as any other
        ("train", "./results/"),  # around an output
    ],
)
def test_nothing_is_said_of_words_that_may_be_right(
    project: Path, command: tuple[str, ...]
) -> None:
    assert look(project, *command) == ()


@pytest.mark.parametrize(
    ("word", "note"),
    [
        ("scripts/trian.py", "not in the project's folder. Did you mean 'scripts/train.py'?"),
        ("--config=cfg/ent.yaml", "'cfg/ent.yaml' is not in .* Did you mean 'cfg/ant.yaml'?"),
        ("ignored.py", "'ignored.py' is not in the job: .gitignore or .drayignore"),
        ("data/set.bin", "is not in the job"),
        ("./data", "is not in the job"),
        ("logs/model_1.pt", "lies in the output 'logs', which is empty when the job begins"),
    ],
)
def test_a_word_that_names_what_the_job_has_not_is_told(
    project: Path, word: str, note: str
) -> None:
    (told,) = look(project, "torchrun", word)
    assert re.search(note.replace("?", r"\?"), told), told


def test_paths_are_seen_from_where_the_command_starts(project: Path) -> None:
    assert look(project, "python", "own.py", folder="sub") == ()
    assert look(project, "python", "../train.py", folder="sub") == ()
    with pytest.raises(Refused, match=r"Did you mean '\.\./train\.py'"):
        look(project, "python", "train.py", folder="sub")


def test_what_is_linked_on_the_node_may_be_there(project: Path) -> None:
    assert look(project, "./_isaac_sim/python.sh", links={"_isaac_sim": "/opt/isaac"}) == ()
