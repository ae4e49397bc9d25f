"""The examples do what they say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dray.config.reading import read_file
from tests.conftest import Dray, wait_for

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_is_told_and_has_valid_settings(folder: Path) -> None:
    assert f"]({folder.name})" in (EXAMPLES / "README.md").read_text()
    read_file(folder / "dray.toml")


def example(dray: Dray, name: str) -> None:
    shutil.copytree(EXAMPLES / name, dray.project, dirs_exist_ok=True)


def test_own_trainer_ends_the_same_where_it_is_interrupted(dray: Dray) -> None:
    example(dray, "own-trainer")
    script = dray.project / "train.py"
    slowly = "    time.sleep(0.05 if t.attempt() == 1 else 0)\n    loss = train"
    text = script.read_text().replace("import random", "import random\nimport time")
    script.write_text(text.replace("    loss = train", slowly))
    job = dray.run("--", sys.executable, "train.py")
    wait_for(lambda: "starting at step 0" in dray.log(job))
    dray("stop", job)
    dray("resume", job)
    seen = dray.wait(job)
    assert (seen["state"], len(seen["attempts"])) == ("done", 2)
    assert re.search(r"starting at step [1-9]", dray.log(job))
    example(dray, "own-trainer")
    alone = dray.run("--", sys.executable, "train.py")
    dray.wait(alone)
    assert dray.log(job).splitlines()[-1] == dray.log(alone).splitlines()[-1]


def test_seeds_are_submitted_at_once_and_compared(dray: Dray) -> None:
    example(dray, "seeds")
    words = [sys.executable, "seeds.py"]
    ended = subprocess.run(words, cwd=dray.project, env=dray.env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    rewards = dict(line.split() for line in ended.stdout.splitlines()[:-1])
    assert len(rewards) == 4
    assert (
        ended.stdout.splitlines()[-1]
        == f"best: {max(rewards, key=lambda one: float(rewards[one]))}"
    )
