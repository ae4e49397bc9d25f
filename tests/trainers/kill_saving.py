"""Kills a trainer at random moments, and goes on from what dray would choose. Prints, as JSON, how
many steps were lost by each kill, and how many kills left a checkpoint that is not whole.

kill_saving.py FOLDER TIMES SEED; runs where torch is, with dray and the project's trainer on its
path. The trainer is forked off, since importing torch takes longer than all the rest.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import saving

from dray.node.checkpoints import newest as checkpoints

RULES = {"checkpoint": "model_*.pt", "number": r"model_(\d+)", "keep": 3}
LONGEST = 0.2  # seconds: several intervals


def killed_once(folder: Path, checkpoint: str | None, seconds: float) -> None:
    child = os.fork()
    if child == 0:
        try:
            saving.train(folder, checkpoint)
        finally:
            os._exit(1)  # it never ends by itself
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        # As the supervisor does beside it: what is being written just now must not be harmed.
        checkpoints.prune(str(folder), RULES)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the trainer ended by itself"


def main(folder: Path, times: int, seed: int) -> None:
    moments = random.Random(seed)
    lost, torn, checkpoint, begun = [], 0, None, 0
    for _ in range(times):
        killed_once(folder, checkpoint, moments.uniform(0.0, LONGEST))
        if not (folder / "progress").exists():
            continue  # before its first step
        found = checkpoints.candidates(str(folder), RULES)
        newest = checkpoints.newest(str(folder), RULES)
        torn += sum(not checkpoints.is_whole(one.path) for one in found)
        checkpoint = newest.path if newest else None
        step = saving.load(checkpoint)[0] if checkpoint else 0
        lost.append(saving.done(folder) - step)
        assert step >= begun, "went back behind where the attempt began"
        begun = step
    print(json.dumps({"lost": lost, "torn": torn, "steps": begun}))


main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
