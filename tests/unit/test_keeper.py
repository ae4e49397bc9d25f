"""What a keeper concludes from the way in which a supervisor has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from dray.node.attempt.keeper import KILLED, UNWRITTEN, reason_without_outcome


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", KILLED),
        ("raise OSError(28, 'No space left on device')", UNWRITTEN),
        ("import os; os._exit(0)", UNWRITTEN),
    ],
)
def test_a_full_disk_is_not_taken_for_a_kill(code: str, reason: str) -> None:
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as supervisor:
        _, status = os.waitpid(supervisor.pid, 0)
        supervisor.returncode = status
    assert reason_without_outcome(status) == reason
