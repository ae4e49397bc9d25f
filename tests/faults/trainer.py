"""A command that tells the truth about itself in a journal that dray knows nothing of.

trainer.py JOURNAL WAY: it takes four steps and saves a checkpoint after each, not atomically.
WAY is how its first life ends: "signal" (its supervisor is asked to end it), "crash", or "wait" (it
goes on only once the test has put a file named ``go`` beside the journal).
"""

import fcntl
import os
import signal
import sys
import time
import zipfile

STEPS = 4
journal, way = sys.argv[1:3]  # a trial has its parameters behind them
outputs, attempt = os.environ["DRAY_OUTPUTS"], os.environ["DRAY_ATTEMPT"]
log = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def say(what: str, *more: object) -> None:
    words = (what, attempt, time.monotonic_ns(), *more)
    os.write(log, (" ".join(map(str, words)) + "\n").encode())


def was_said(what: str) -> bool:
    with open(journal) as file:
        return any(line.startswith(what + " ") for line in file)


def step_of(path: str) -> int:
    """Where to go on; a checkpoint that is not whole must never be handed to a command."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is None:
                return int(archive.read("step"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        pass
    say("torn", path)
    return 0


def save(step: int) -> None:
    path = os.path.join(outputs, "logs", f"model_{step}.pt")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights", b"w" * 3000)
        time.sleep(0.005)
        archive.writestr("step", str(step))
    say("saved", step)


def wait_for_the_end() -> None:
    time.sleep(60)
    say("forgotten")  # nobody ended it
    os._exit(3)


lock = os.open(journal + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    say("overlap")
if os.environ.get("SEKRET") != "fault-s3cr3t":
    say("no-secret")
step = step_of(os.environ["DRAY_CHECKPOINT"]) if "DRAY_CHECKPOINT" in os.environ else 0
first = not was_said("halfway")
say("start", step)
if way == "wait" and not os.path.exists(os.path.join(os.path.dirname(journal), "go")):
    wait_for_the_end()
while step < STEPS:
    time.sleep(0.02)
    step += 1
    save(step)
    if step >= 2 and first and way in ("signal", "crash"):
        say("halfway")
        if way == "crash":
            os._exit(7)
        os.kill(os.getppid(), signal.SIGTERM)
        wait_for_the_end()
with open("logs/result.txt", "w") as file:  # through the link to the outputs
    file.write("all done\n")
print("ended after", step, flush=True)
say("end", step)
os._exit(0)
