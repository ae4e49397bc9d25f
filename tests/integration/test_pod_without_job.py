"""A pod whose job cannot be read fails its Job, instead of being followed by a thousand others."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dray.clusters.kube.manifest import failure_policy
from dray.node.schedulers.gathered import INTERRUPTED
from tests.conftest import wait_for

IMPATIENT = """
import sys
from dray.node.__main__ import main
from dray.node.attempt import pod
pod.DIRECTORY_PATIENCE = 1.5
sys.exit(main(sys.argv[1:]))
"""
NOT_THERE, DAMAGED = "directory has not come", "description is damaged"


@pytest.mark.parametrize(
    ("content", "why"), [(None, NOT_THERE), ("not a description", DAMAGED), ("{}", DAMAGED)]
)
def test_it_fails_the_job(tmp_path: Path, content: str | None, why: str) -> None:
    folder = tmp_path / "jobs/gone-7f3k"
    if content is not None:
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(content)
    words = [sys.executable, "-c", IMPATIENT, "pod", str(folder)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    (rule,) = failure_policy()["rules"]
    assert rule["action"] == "FailJob"
    assert ended.returncode in rule["onExitCodes"]["values"]
    assert why in ended.stdout


def test_one_that_waits_for_its_directory_ends_when_it_is_told_to(tmp_path: Path) -> None:
    pod = "import sys; from dray.node.__main__ import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", pod, "pod", str(tmp_path / "jobs/gone-7f3k")]
    with subprocess.Popen(words) as waiting:
        wait_for(lambda: listens(waiting.pid), 60)
        waiting.terminate()
        assert waiting.wait(60) == INTERRUPTED


def listens(pid: int) -> bool:
    """Whether it has blocked signals. Those that it waits for do not count as blocked meanwhile:
    one is looked at that it handles later."""
    blocked = Path(f"/proc/{pid}/status").read_text().partition("SigBlk:")[2].split()[0]
    return bool(int(blocked, 16) >> (signal.SIGUSR1 - 1) & 1)
