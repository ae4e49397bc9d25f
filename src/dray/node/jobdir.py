"""A job's own directory: where each file lies, and what state the files together tell.

    <root>/jobs/<id>/
        job.json                 the description, and how often it was resumed
        batch.sh, scheduler.json what the scheduler was given, and the number it gave the job
        batch.log, pbs.log       what the batch script printed; what PBS itself brings at the end
        secrets.json             values for the command's environment; gone once the job has ended
        alive                    locked as long as somebody cares for the job; the keeper's pid
        stop.json                somebody asked for the job to be stopped
        end.json                 the job's end: state and reason
        dray.log                 what dray itself had to say
        attempts/001/attempt.json, log, heartbeat.json, outcome.json, left/
        attempts/001/ranks/      the logs of further ranks, of those that wrote anything
        outputs/                 what the command wrote, kept whatever happens
        work/                    the work tree, only while an attempt runs
        work.box-HOST/           what its containers need beside that: see box.py

The state is derived from these files each time, so no two of them can contradict each other.
"""

import os

from . import files, policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Record = Dict[str, Any]

ENDED = ("done", "failed", "stopped", "lost")


class JobDir:
    def __init__(self, path: str) -> None:
        self.path = path
        self.id = os.path.basename(path)
        self.job = os.path.join(path, "job.json")
        self.secrets = os.path.join(path, "secrets.json")
        self.alive = os.path.join(path, "alive")
        self.stop = os.path.join(path, "stop.json")
        self.end = os.path.join(path, "end.json")
        self.dray_log = os.path.join(path, "dray.log")
        self.attempts = os.path.join(path, "attempts")
        self.outputs = os.path.join(path, "outputs")
        self.work = os.path.join(path, "work")
        self.script = os.path.join(path, "batch.sh")
        self.batch_log = os.path.join(path, "batch.log")
        self.scheduler = os.path.join(path, "scheduler.json")

    @property
    def root(self) -> str:
        return os.path.dirname(os.path.dirname(self.path))

    def numbers(self) -> "List[int]":
        """The attempts made so far, in order."""
        try:
            return sorted(int(name) for name in os.listdir(self.attempts) if name.isdigit())
        except OSError:
            return []

    def attempt(self, number: int) -> "AttemptDir":
        return AttemptDir(os.path.join(self.attempts, "{:03d}".format(number)), number)

    def records(self) -> "List[Record]":
        return [self.attempt(number).record() for number in self.numbers()]

    def is_cared_for(self) -> bool:
        """Whether a keeper or supervisor holds the job's lock right now."""
        return files.is_locked(self.alive)

    def drop_secrets(self) -> None:
        """Left by a keeper that was killed; a resume, which holds the lock, brings them anew."""
        if not os.path.exists(self.secrets):
            return
        fd = files.open_lock(self.alive)
        try:
            if files.try_lock(fd):
                files.remove(self.secrets)
        finally:
            os.close(fd)

    def remember_number(self, number: str) -> None:
        # Not worth waiting for the disk: a lost one is found again by the job's name. So it is no
        # reason to stop either, if the disk is full.
        try:
            files.write_json(self.scheduler, {"id": number}, durable=False)
        except OSError:
            pass

    def known_number(self) -> "Optional[str]":
        """What the scheduler calls the job, if it is known here."""
        record = files.read_json(self.scheduler)
        return str(record["id"]) if record else None

    def keeper_pid(self) -> "Optional[int]":
        try:
            with open(self.alive) as file:
                return int(file.read() or "0") or None
        except (OSError, ValueError):
            return None


class AttemptDir:
    def __init__(self, path: str, number: int) -> None:
        self.path = path
        self.number = number
        self.attempt = os.path.join(path, "attempt.json")
        self.log = os.path.join(path, "log")
        self.heartbeat = os.path.join(path, "heartbeat.json")
        self.outcome = os.path.join(path, "outcome.json")
        self.left = os.path.join(path, "left")

    def log_of(self, rank: int) -> str:
        return os.path.join(self.path, "ranks", "{}.log".format(rank)) if rank else self.log

    def left_on(self, host: str) -> str:
        return "{}-{}".format(self.left, host)

    def record(self) -> "Record":
        """All that is known of this attempt, flat; ``outcome`` is None while it runs."""
        record = {"number": self.number, "outcome": None}  # type: Record
        for part in (self.attempt, self.heartbeat, self.outcome):
            record.update(files.read_json(part) or {})
        return record


def end_of(job: JobDir, description: "Record", cared_for: bool) -> "Record":
    """The job's state and reason. ``cared_for`` is asked before the files are read: a job that
    ends in between is then found ended, not lost."""
    end = files.read_json(job.end)
    if end is not None:
        return dict(end)
    attempts = job.records()
    running = bool(attempts) and attempts[-1]["outcome"] is None
    decision = None if running else decide(description, attempts)
    ending = decision is not None and not decision.again
    if cared_for:  # an attempt that has ended for good is still being cleared away
        return {"state": "running" if running or ending else "queued", "reason": ""}
    if not attempts:
        return {"state": "lost", "reason": "dray was killed before it could start the job"}
    if decision is not None and not decision.again:  # killed before it could write the end down
        return {
            "state": decision.state,
            "reason": decision.reason,
            "time": attempts[-1].get("ended"),
        }
    reason = "its supervisor is gone (killed, or the machine was restarted)"
    return {"state": "lost", "reason": reason}


def decide(description: "Record", attempts: "List[Record]") -> policy.Decision:
    """What comes after these attempts; those before the last resume no longer count."""
    counted = [one for one in attempts if one["number"] > description["resumed_after"]]
    return policy.decide(description, counted)


def status(job: JobDir, cared_for: "Optional[bool]" = None) -> "Optional[Record]":
    """What the job's files tell, or None where there is no such job. Where a scheduler knows
    whether it is ``cared_for``, the lock is not asked."""
    if cared_for is None:
        cared_for = job.is_cared_for()
        if not cared_for:
            job.drop_secrets()
    description = files.read_json(job.job)
    if description is None:
        return None
    end = end_of(job, description, cared_for)
    return {
        "id": job.id,
        "job": description,
        "state": end["state"],
        "reason": end.get("reason", ""),
        "ended": end.get("time"),
        "attempts": job.records(),
    }
