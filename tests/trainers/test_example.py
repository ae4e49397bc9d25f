"""The example for PyTorch, interrupted, ends with the weights of one that was left alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import Dray, wait_for
from tests.integration.test_examples import EXAMPLES

pytestmark = pytest.mark.trainers


def test_pytorch(dray: Dray, trainers: Path) -> None:
    python = str(trainers / "python")
    shutil.copytree(EXAMPLES / "pytorch", dray.project, dirs_exist_ok=True)
    alone = dray.run("--", python, "train.py")
    script = dray.project / "train.py"
    slowly = "    import time; time.sleep(0.05 if t.attempt() == 1 else 0)\n    x = "
    script.write_text(script.read_text().replace("    x = ", slowly))
    job = dray.run("--", python, "train.py")
    wait_for(lambda: "starting at step 0" in dray.log(job))
    dray("stop", job)
    dray("resume", job)
    assert [dray.wait(one)["state"] for one in (alone, job)] == ["done", "done"]
    assert len(dray.show(job)["attempts"]) == 2
    assert dray.log(job).splitlines()[-1] == dray.log(alone).splitlines()[-1]
