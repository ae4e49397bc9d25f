"""Commands that hang: ended, and tried again."""

from __future__ import annotations

import json
import sys

import pytest

from tests.conftest import Dray, Hpc

# Saves once, says so, and then waits for what never comes; from a checkpoint it goes on to its end.
HANGS = """
import os, pathlib, time
import dray.training as t
out = pathlib.Path(t.outputs())
print("begins from", t.resume_path())
if not t.resume_path():
    (out / "model_1.txt").write_text("1")
    while True:
        time.sleep(1)
(out / "model_2.txt").write_text("2")
"""
RESUMES = ("--checkpoint", "model_*.txt", "--checkpoint-number", r"model_(\d+)")
REASON = "hung: no output, no metric and no checkpoint for 2 s (stall)"


@pytest.mark.parametrize("on", ["local", "hpc"])
def test_a_command_that_hangs_is_ended_and_goes_on_from_its_checkpoint(
    dray: Dray, hpc: Hpc, on: str
) -> None:
    hpc.offer(dray)
    dray.write("train.py", HANGS)
    words = ("--on", on, "--stall", "2s", "--retries", "1", "--backoff", "1s", *RESUMES)
    job = dray.run(*words, "--", sys.executable, "train.py")
    ended = dray.wait(job)
    assert ended["state"] == "done", ended["reason"]
    assert ended["stall"] == 2.0
    first, second = ended["attempts"]
    assert (first["outcome"], first["reason"]) == ("failed", REASON)
    assert second["from_checkpoint"] == "model_1.txt"
    assert REASON in dray("show", job).stdout


def test_one_that_hangs_without_a_retry_fails_with_the_reason(dray: Dray) -> None:
    """Whatever it does when it is told to leave: that is no exit code of its own."""
    polite = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(75)); time.sleep(600)"
    words = ("--no-snapshot", "--stall", "2s", "--retry-on", "75")
    job = dray.run(*words, "--", sys.executable, "-c", polite)
    ended = dray.wait(job)
    assert (ended["state"], ended["reason"]) == ("failed", REASON)
    assert len(ended["attempts"]) == 1
    listed = json.loads(dray("ps", "--all", "--json").stdout)
    assert [one["reason"] for one in listed] == [REASON]
    assert REASON in dray("why", job).stdout
