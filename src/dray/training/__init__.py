"""A library for your own trainer: where to resume from, when to save, how it is doing.

import dray.training as t

start = t.resume_path()                    # None at first, then the newest whole checkpoint
if t.should_checkpoint():                  # in the loop: dray asks, or the time is nearly over
    with t.save_atomically("model.pt") as path: ...
t.report(step=step, reward=reward)         # for dray show and dray ps

In a dray job this can be imported without installing anything. Outside of a job it does nothing. It
needs Python 3.8 and only the standard library.
"""

import json
import math
import os
import shutil
import signal
import threading
import time
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, Iterator, Optional, Union

__all__ = [
    "attempt",
    "begins_from_another_run",
    "outputs",
    "rank",
    "report",
    "resume_path",
    "save_atomically",
    "seconds_left",
    "should_checkpoint",
]

METRICS = "metrics.jsonl"


def resume_path() -> "Optional[str]":
    """Return the checkpoint to resume from; None if the training begins from scratch."""
    return os.environ.get("DRAY_CHECKPOINT") or None


def begins_from_another_run() -> bool:
    """Return whether that checkpoint is another run's (``dray run --from``): use its weights, but
    not its count of steps."""
    return bool(os.environ.get("DRAY_CHECKPOINT_GIVEN"))


def outputs(default: str = ".") -> str:
    """Return the folder that is kept with the job; ``default`` outside of a job."""
    return os.environ.get("DRAY_OUTPUTS") or default


def attempt() -> int:
    """Return which attempt of the job this is, from 1."""
    return int(os.environ.get("DRAY_ATTEMPT") or 1)


def rank() -> int:
    """Return this process's rank in a distributed training."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)


def seconds_left() -> "Optional[float]":
    """Return the seconds until this attempt's time limit; None if there is none."""
    deadline = os.environ.get("DRAY_DEADLINE")
    return float(deadline) - time.time() if deadline else None


# -- when to save ---------------------------------------------------------------------------------


class _Asking:
    """Knows whether a checkpoint is due. There is one for each process, as with signals."""

    def __init__(self) -> None:
        self.asked = False
        self.ready = False  # whether the handler was tried
        self.by_signal = False
        self.saved_for_deadline = False
        self.last = time.monotonic()

    def prepare(self) -> None:
        """Install the signal handler. Only a trainer that calls should_checkpoint() gets one: dray
        takes a process that handles the signal for one that will save."""
        if self.ready:
            return
        self.ready = True
        number = getattr(signal, "SIG" + os.environ.get("DRAY_CHECKPOINT_SIGNAL", ""), None)
        if number is None or threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(number)

        def ask(received: int, frame: "Optional[FrameType]") -> None:
            self.asked = True
            if callable(before):
                before(received, frame)

        signal.signal(number, ask)
        self.by_signal = True

    def is_due(self, every: "Optional[float]") -> bool:
        self.prepare()
        timed = every is not None and time.monotonic() - self.last >= every
        if not (self.asked or timed or self._deadline_is_near()):
            return False
        self.asked = False
        self.last = time.monotonic()
        return True

    def _deadline_is_near(self) -> bool:
        """Return True once, early enough to save before SIGTERM comes. If dray can ask by a signal,
        it does so later than this, and knows of a limit that was changed."""
        left = seconds_left()
        if self.by_signal or self.saved_for_deadline or left is None:
            return False
        self.saved_for_deadline = left < 2 * float(os.environ.get("DRAY_GRACE") or 30.0)
        return self.saved_for_deadline


_asking = _Asking()


def should_checkpoint(every: "Optional[float]" = None) -> bool:
    """Return whether to save now: dray has asked for it, the time limit is near, or ``every``
    seconds have passed. Call it often, from the main thread; each reason is reported once.

    Processes that save together must decide together: one may be asked a step before another.
    """
    return _asking.is_due(every)


@contextmanager
def save_atomically(path: "Union[str, os.PathLike[str]]") -> "Iterator[str]":
    """Yield a temporary name to write to, a file or a folder, which becomes ``path`` once it is
    whole and on disk. A half-written checkpoint never has the real name."""
    target = os.path.abspath(os.fspath(path))
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    # The name's end is kept: numpy and stable-baselines3 add one to a name without.
    temporary = os.path.join(folder, "tmp-{}-{}".format(os.urandom(4).hex(), name))
    try:
        yield temporary
        _sync(temporary)
        if os.path.isdir(target) and not os.path.islink(target):
            shutil.rmtree(target)  # a folder cannot be replaced in one step
        os.replace(temporary, target)
        _sync_one(folder)
    except BaseException:
        if os.path.isdir(temporary):
            shutil.rmtree(temporary, ignore_errors=True)
        elif os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def _sync(path: str) -> None:
    for top, _, names in os.walk(path):
        for name in names:
            _sync_one(os.path.join(top, name))
    _sync_one(path)


def _sync_one(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# -- how it is doing ------------------------------------------------------------------------------


class _Log:
    """Writes metrics.jsonl in the outputs: one line for each report, of all attempts."""

    def __init__(self) -> None:
        self.fd = -1
        self.pid = 0

    def write(self, record: "Dict[str, Any]") -> None:
        line = json.dumps(record).encode("ascii") + b"\n"
        try:
            if self.pid != os.getpid():  # also opened again after a fork
                self._open()
            os.write(self.fd, line)  # one write: a line is whole or, on a full disk, the last
        except OSError:  # a full disk must not end the training
            self.pid = 0

    def _open(self) -> None:
        path = os.path.join(outputs(), METRICS)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.pid = os.getpid()
        size = os.fstat(self.fd).st_size
        if size and os.pread(self.fd, 1, size - 1) != b"\n":
            os.write(self.fd, b"\n")  # an attempt before was killed in the middle of a line


_log = _Log()


def report(step: int, **values: "Any") -> None:
    """Report how far the training is and how well it does. The first value is what ``dray ps``
    shows, unless [job.metrics] names another. Anything that float() accepts is a value, a tensor
    too.

    In a distributed training only rank 0 reports.
    """
    if "DRAY_OUTPUTS" not in os.environ or rank() != 0:
        return
    numbers = {name: _finite(float(value)) for name, value in values.items()}
    now = round(time.time(), 3)
    _log.write({"attempt": attempt(), "step": int(step), "time": now, "values": numbers})


def _finite(value: float) -> "Optional[float]":
    """Return the value; None if it is not finite, for which JSON has no word."""
    return value if math.isfinite(value) else None
