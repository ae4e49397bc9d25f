"""A job's own directory: where each file lies, and the state that the files add up to.

    <root>/jobs/<id>/
        job.json                 the description, and how often it was resumed
        batch.sh, scheduler.json what the scheduler was given, and the id it gave the job
        batch.log, pbs.log       what the batch script printed; what PBS itself copies at the end
        secrets.json             values for the command's environment; gone once the job has ended
        notify.json              who gets notices, see notices.py; gone once they are sent
        alive                    locked while the job is supervised; holds the keeper's pid
        leader.json              where the pod is that leads, of a job on several
        placement.json, shared   what a driver on Ray writes down, and by what nodes see the root
        incoming/                files of a node that does not see it, until they are whole
        stop.json                somebody asked for the job to be stopped
        end.json                 the job's end: state and reason
        dray.log                 dray's own messages
        attempts/001/attempt.json, log, log-times, heartbeat.json, outcome.json, left/
        attempts/001/ranks/      the logs of further ranks, if they wrote anything
        attempts/001/door.json   while its command runs: the way in, see dray.node.sessions
        attempts/001/edits.json  of a session: what was put into its work tree since its start
        attempts/001/door.calls  who wants in, where no scheduler leads there
        given/                   the checkpoint of another run that it begins from
        outputs/                 what the command wrote, kept whatever happens
        work/                    the work tree, only while an attempt runs
        work.box-HOST/           what its containers need beside that: see sandbox.py

The state is derived from these files each time, so no two of them can contradict each other. The
job's own code can write to all of them: what does not have the right shape counts as missing.
"""

import os
import re
import time

from ..formats import files, shapes
from . import budget, policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..formats.records import AttemptRecord, Description, End, Outcome, Record, StopRequest

ENDED = ("done", "failed", "stopped", "lost")
MOST_ATTEMPTS = 99999
SILENT = 180.0  # seconds without a heartbeat, which should come every ten
LARGEST_OF_ATTEMPT = 1 << 20  # bytes of one attempt's records
LARGEST_WITH_COMMANDS = 256 << 20  # bytes of an array's description, which has every command in it
NUMBER = re.compile(r"[0-9][\w.\[\]-]{0,99}$")  # as Slurm and PBS number their jobs


class JobDir:
    def __init__(self, path: str) -> None:
        self.path = path
        self.id = os.path.basename(path)
        self.job = os.path.join(path, "job.json")
        self.secrets = os.path.join(path, "secrets.json")
        self.notify = os.path.join(path, "notify.json")
        self.alive = os.path.join(path, "alive")
        self.leader = os.path.join(path, "leader.json")
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
        """Return the numbers of the attempts made so far, in order."""
        try:
            with os.scandir(self.attempts) as entries:
                names = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        except OSError as error:
            if error.errno not in files.NO_FILE:
                raise  # an error of the disk must not look like "no attempts"
            return []
        numbers = [int(name) for name in names if re.match("[0-9]{3,5}$", name)]
        return sorted(one for one in numbers if self.attempt(one).name in names)

    def next_number(self) -> int:
        return (self.numbers() or [0])[-1] + 1

    def unfinished(self) -> "Optional[AttemptDir]":
        """Return the last attempt if its outcome has not been written; else None."""
        numbers = self.numbers()
        last = self.attempt(numbers[-1]) if numbers else None
        return last if last is not None and last.ended() is None else None

    def description(self) -> "Optional[Description]":
        """Read the job's description; None if it is missing or damaged."""
        return shapes.description(files.read_record(self.job, LARGEST_WITH_COMMANDS))

    def is_damaged(self) -> bool:
        """Return whether there is a description that cannot be used."""
        return files.exists(self.job) and self.description() is None

    def ended(self) -> "Optional[End]":
        """Read the job's end; None if none has been written."""
        end = shapes.fitting(files.read_record(self.end), shapes.END)  # type: End
        return end if end.get("state") in ENDED else None

    def stop_request(self) -> "Optional[StopRequest]":
        """Read the request to stop the job; None if there is none. A file that was cut short is a
        request all the same."""
        if not os.path.lexists(self.stop):
            return None
        return {"now": (files.read_record(self.stop) or {}).get("now") is True}

    def attempt(self, number: int) -> "AttemptDir":
        return AttemptDir(os.path.join(self.attempts, "{:03d}".format(number)), number)

    def records(self) -> "List[AttemptRecord]":
        return [self.attempt(number).record() for number in self.numbers()]

    def is_supervised(self) -> bool:
        """Return whether a keeper or supervisor holds the job's lock right now."""
        return files.is_locked(self.alive)

    def drop_secrets(self) -> None:
        """Delete secrets that a killed keeper has left. A resume, which holds the lock, brings new
        ones."""
        if not files.exists(self.secrets):
            return
        fd = files.open_lock(self.alive)
        try:
            if files.try_lock(fd):
                files.discard(self.secrets)
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
        """Return the scheduler's id of the job; None if it is not known here."""
        number = (files.read_record(self.scheduler) or {}).get("id")
        return number if isinstance(number, str) and NUMBER.match(number) else None

    def keeper_pid(self) -> "Optional[int]":
        """Return the pid of the job's keeper; None if there is none. Job code can write any number
        into the file, so the process must be one that was started for this job."""
        try:
            with files.open_regular(self.alive) as file:
                pid = int(file.read(20) or b"0")
            with open("/proc/{}/cmdline".format(pid), "rb") as file:
                argv = file.read().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(self.path) in argv else None


class AttemptDir:
    def __init__(self, path: str, number: int) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self.number = number
        self.attempt = os.path.join(path, "attempt.json")
        self.log = os.path.join(path, "log")
        self.log_times = os.path.join(path, "log-times")
        self.heartbeat = os.path.join(path, "heartbeat.json")
        self.outcome = os.path.join(path, "outcome.json")
        self.left = os.path.join(path, "left")
        self.edits = os.path.join(path, "edits.json")

    def log_of(self, rank: int) -> str:
        return os.path.join(self.path, "ranks", "{}.log".format(rank)) if rank else self.log

    def door_of(self, rank: int) -> str:
        name = "ranks/{}.door.json".format(rank) if rank else "door.json"
        return os.path.join(self.path, name)

    def left_on(self, host: str) -> str:
        return "{}-{}".format(self.left, host)

    def ended(self) -> "Optional[Outcome]":
        """Read the attempt's outcome; None if none has been written."""
        written = self._raw_outcome()
        outcome = shapes.fitting(written, shapes.ATTEMPT)  # type: Outcome
        return outcome if written else None

    def _raw_outcome(self) -> "Optional[Record]":
        outcome = files.read_record(self.outcome, LARGEST_OF_ATTEMPT) or {}
        return outcome if outcome.get("outcome") in shapes.OUTCOMES else None

    def silence(self) -> "Optional[float]":
        """Return the seconds since the supervisor's last heartbeat; None before the first one. The
        clock is that of the file system, to which both sides write."""
        try:
            beat = os.stat(self.heartbeat).st_mtime
            return files.now_in(self.path) - beat
        except OSError:
            return None

    def seems_silent(self) -> bool:
        """Guess by our own clock whether the heartbeat has stopped: quick, and possibly wrong."""
        try:
            return not 0 <= time.time() - os.stat(self.heartbeat).st_mtime < SILENT / 3
        except OSError:
            return False

    def record(self) -> "AttemptRecord":
        """Return everything known about this attempt as one flat record. ``outcome`` is None while
        it runs."""
        found = {}  # type: Record
        for part in (self.attempt, self.heartbeat):
            found.update(files.read_record(part, LARGEST_OF_ATTEMPT) or {})
        found["outcome"] = None
        found.update(self._raw_outcome() or {})  # None: there is none, whatever the heartbeat said
        record = shapes.fitting(found, shapes.ATTEMPT)  # type: AttemptRecord
        record["outcome"], record["number"] = found["outcome"], self.number
        return record


def described(job: JobDir) -> "Description":
    """Return the description, or exit: the process can do nothing without it."""
    description = job.description()
    if description is None:
        raise SystemExit("the job's description is damaged: {}".format(job.job))
    return description


def decide(description: "Description", attempts: "List[AttemptRecord]") -> policy.Decision:
    """Decide what follows these attempts. Those before the last resume no longer count."""
    if attempts and attempts[-1]["number"] >= MOST_ATTEMPTS:
        return policy.Decision("failed", "given up: there is no number left for another attempt")
    counted = [one for one in attempts if one["number"] > description["resumed_after"]]
    decision = policy.decide(description, counted)
    spent = budget.used_up(description, attempts) if decision.again else None
    return decision if spent is None else policy.Decision("stopped", spent.reason)


def too_late(
    description: "Description", attempts: "List[AttemptRecord]", now: float
) -> "Optional[policy.Decision]":
    """Return the end of a job that has not started by its ``start_by``; None for all others."""
    by = (description.get("limits") or {}).get("start_by")
    if by is None or now <= by or has_begun(description, attempts):
        return None
    return policy.Decision("stopped", "it had not begun by {} (start_by)".format(clock(by)))


def has_begun(description: "Description", attempts: "List[AttemptRecord]") -> bool:
    """Return whether an attempt was made since the job was submitted or last resumed."""
    return any(one["number"] > description["resumed_after"] for one in attempts)


def is_held(attempts: "List[AttemptRecord]", now: "Optional[float]" = None) -> bool:
    """Whether the last attempt has crashed, and what it had is kept for a look."""
    if not attempts:
        return False
    return (time.time() if now is None else now) < (attempts[-1].get("held") or 0.0)


def held_in_words(job_id: str, attempt: "AttemptRecord") -> str:
    return "{}; held for a look until {} on {}; dray stop {} ends it".format(
        attempt.get("reason", ""), clock(attempt["held"]), attempt.get("host", "its node"), job_id
    )


def clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(moment))
