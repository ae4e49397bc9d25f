"""Writes an attempt's heartbeat, and takes the measurements that go with it."""

import time

from ..code import worktree
from ..formats import files
from ..formats.messages import print_message
from ..formats.pace import HEARTBEAT
from ..jobs.log_times import LogTimes
from ..metrics import sources
from ..processes import cgroup
from .outcomes import write_to_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Union  # noqa: F401

    from ..formats.records import Description
    from ..formats.records import Heartbeat as HeartbeatRecord  # noqa: F401
    from ..jobs.jobdir import AttemptDir, JobDir
    from ..processes.cgroup import Meter
    from ..processes.gpu_use import Gauge
    from ..sweeps.trial import Following
    from .allotment import Limit
    from .checkpoint_watch import CheckpointWatch
    from .command import Command
    from .end_requests import EndRequests
    from .ranks import Ranks


def follow(job_dir: "JobDir", job: "Description") -> "Optional[Following]":
    """Return what follows a trial of a sweep; None for any other job."""
    if not job.get("sweep"):
        return None
    from ..sweeps.trial import Following  # with the sampler: not for every job

    return Following(job_dir, job)


class Heartbeat:
    def __init__(
        self,
        job_dir: "JobDir",
        attempt: "AttemptDir",
        job: "Description",
        command: "Union[Command, Ranks]",
        requests: "EndRequests",
        meter: "Optional[Meter]" = None,
        gauge: "Optional[Gauge]" = None,
    ) -> None:
        self.meter = meter
        self.gauge = gauge
        self.limit = (meter.limit() or 0) if meter is not None else 0
        self.is_near = False  # whether nearly all memory of the container is used
        self.job_dir = job_dir
        self.attempt = attempt
        self.most_memory = job["resources"]["memory"]
        self.command = command
        self.requests = requests
        self.next = 0.0
        self.complaint = ""  # the last error of a comparison
        self.trial = follow(job_dir, job)
        note = self.trial.note if self.trial is not None else None
        self.metrics = sources.Watch(job, job_dir.outputs, attempt, note)
        self.log_times = LogTimes(attempt.log, attempt.log_times)
        self.imports = []  # type: List[str]  # what its Pythons have said of their imports

    def beat(self, checkpoints: "CheckpointWatch", limit: "Limit") -> None:
        """Write the heartbeat, if it is due."""
        now = time.monotonic()
        if now < self.next and not self._comes_near():
            return
        self.next = now + HEARTBEAT
        self._watch_memory()
        self.look_for_imports()
        self.metrics.look()
        self._compare()
        self._record_log_times()
        beat = {
            "heartbeat": time.time(),
            "checkpoint": checkpoints.relative(checkpoints.latest),
            "metric": self.metrics.value(),
            "deadline": limit.time_of_day(),
            "iteration": checkpoints.reached.done,
            "total": checkpoints.reached.total,
        }  # type: HeartbeatRecord
        if self.meter is not None:
            beat["memory"] = [self.meter.used() or 0, self.limit]
        use = self.gauge.read() if self.gauge is not None else None
        if use is not None:
            beat["gpu_use"], beat["gpu_idle"] = use
        try:
            files.write_json(self.attempt.heartbeat, beat, durable=False)
        except OSError:  # a full disk must not end the attempt
            pass

    def _compare(self, last: bool = False) -> None:
        """Let a trial of a sweep be compared with others, and end it where that says so; at the
        ``last`` look, write down how it did. Whatever goes wrong with that, the command runs
        on."""
        if self.trial is None:
            return
        try:
            reason = self.trial.look(self.metrics, last)
            if last:
                self.trial.write(self.metrics)
        except Exception as error:
            if repr(error) != self.complaint:
                print_message("the trial could not be compared: {!r}".format(error))
            self.complaint = repr(error)
            return
        if reason and not last:
            is_exchange = self.trial.is_exchange
            (self.requests.by_exchange if is_exchange else self.requests.by_rule)(reason)

    def _comes_near(self) -> bool:
        """Return whether the memory's limit has come near just now. That is written down at once:
        where the kernel kills all that is in the container, it was the last sign of life."""
        if self.meter is None or not self.limit:
            return False
        was_near, used = self.is_near, self.meter.used() or 0
        self.is_near = used >= self.limit * cgroup.NEAR
        return self.is_near and not was_near

    def look_for_imports(self) -> None:
        """Report packages that are not imported from where they are installed."""
        found = [one for one in worktree.reported_imports(self.job_dir) if one not in self.imports]
        self.imports += found
        write_to_log(self.attempt, found)

    def last_metric(self) -> "Any":
        """Read the metrics and the log once more, and return the metric's last value."""
        self.metrics.look(last=True)
        self._compare(last=True)
        self._record_log_times(last=True)
        return self.metrics.value()

    def _record_log_times(self, last: bool = False) -> None:
        try:
            self.log_times.record(time.time(), last)
        except OSError:  # it helps to read the log, and is not worth more than that
            pass

    def _watch_memory(self) -> None:
        if not self.most_memory or self.requests.current is not None:
            return
        used = self.command.memory()
        if used > self.most_memory:
            self.requests.by_memory(used, self.most_memory)
