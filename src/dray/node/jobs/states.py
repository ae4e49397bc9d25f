"""The state of a job, from what its files say and what its scheduler says.

``read`` collects what the files say; all that follows is pure. So whoever has both halves can put
them together: the agent where it sits beside the scheduler, the laptop where it asks the scheduler
itself.
"""

import time

from ..formats import shapes
from ..formats.pace import HEARTBEAT
from . import jobdir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional  # noqa: F401

    from ..formats.records import AttemptRecord, Conclusion, Description, End, Row, Status
    from .jobdir import JobDir


class FileFacts:
    """What the files of a job say at one moment. ``description``: None where it is damaged;
    ``silence``: seconds since the supervisor of an attempt under way gave a sign of life."""

    def __init__(
        self,
        job_id: str,
        job_file: str,
        description: "Optional[Description]",
        end: "Optional[End]",
        attempts: "List[AttemptRecord]",
        silence: "Optional[float]" = None,
        now: float = 0.0,
    ) -> None:
        self.id = job_id
        self.job_file = job_file
        self.description = description
        self.end = end
        self.attempts = attempts
        self.silence = silence
        self.now = now

    @property
    def is_under_way(self) -> bool:
        """Whether the last attempt has written no outcome."""
        return bool(self.attempts) and self.attempts[-1]["outcome"] is None

    @property
    def is_beating(self) -> bool:
        return self.silence is not None and self.silence < 2 * HEARTBEAT


class Trace:
    """What is left of a job that has no end and is in no queue: whether it is ``being_submitted``
    or was asked to stop, its ``numbers`` in the scheduler, the one that tells most first, what
    its batch job ``said`` last, and, where the queue knows it, ``why_gone``."""

    def __init__(
        self,
        being_submitted: bool,
        stop_asked: bool,
        numbers: "List[str]",
        said: str,
        why_gone: str = "",
    ) -> None:
        self.being_submitted = being_submitted
        self.stop_asked = stop_asked
        self.numbers = numbers
        self.said = said
        self.why_gone = why_gone


def read(job: "JobDir", is_running: bool = False, is_over: bool = False) -> "Optional[FileFacts]":
    """Read what the files say, or None where there is no such job. ``is_running``: as the scheduler
    or the job's lock says, so that its signs of life are looked at closely only if they seem to be
    missing. ``is_over``: its lock is free, and its last sign of life tells nothing."""
    description = job.description()
    if description is None and not job.is_damaged():
        return None
    end = job.ended()
    facts = FileFacts(job.id, job.job, description, end, job.records(), now=time.time())
    if end is None and facts.is_under_way and not is_over:
        attempt = job.attempt(facts.attempts[-1]["number"])
        facts.silence = attempt.silence() if not is_running or attempt.seems_silent() else 0.0
    return facts


def status(job: "JobDir", cared_for: bool) -> "Optional[Status]":
    """Return what the files alone tell of a job, or None where there is no such one."""
    facts = read(job, is_running=cared_for)
    return from_files(facts, cared_for) if facts is not None else None


# -- pure ---------------------------------------------------------------------------------------


def from_files(facts: FileFacts, cared_for: bool) -> "Status":
    """Return the state and all that is known of a job. ``cared_for`` is asked before the files are
    read: a job that ends in between is then found ended, not lost."""
    end = facts.end
    if facts.description is None:
        end = end_without_description(facts, cared_for)
    elif end is None:
        end = end_of(facts, facts.description, cared_for)
    return {
        "id": facts.id,
        "job": facts.description or shapes.placeholder(facts.id),
        "state": end["state"],
        "reason": end.get("reason", ""),
        "ended": end.get("time"),
        "attempts": facts.attempts,
        "damaged": facts.description is None,
    }


def end_of(facts: FileFacts, description: "Description", cared_for: bool) -> "End":
    """State and reason of a job that has written down no end."""
    attempts = facts.attempts
    if cared_for and jobdir.is_held(attempts, facts.now):
        return {"state": "running", "reason": jobdir.held_in_words(facts.id, attempts[-1])}
    running = facts.is_under_way
    decision = None if running else jobdir.decide(description, attempts)
    ending = decision is not None and not decision.again
    if cared_for:  # an attempt that has ended for good is still being cleared away
        return {"state": "running" if running or ending else "queued", "reason": ""}
    if not attempts:
        return {"state": "lost", "reason": "dray was killed before it could start the job"}
    # Killed before it could write the end down:
    if decision is not None and decision.state is not None:
        return {
            "state": decision.state,
            "reason": decision.reason,
            "time": attempts[-1].get("ended"),
        }
    reason = "its supervisor is gone (killed, or the machine was restarted)"
    return {"state": "lost", "reason": reason}


def end_without_description(facts: FileFacts, cared_for: bool) -> "End":
    """Report the state of a job whose description is damaged. A running supervisor continues; the
    job cannot be resumed."""
    state = "running" if facts.is_under_way else "queued"
    found = {"state": state if cared_for else "lost"}  # type: End
    end = (facts.end or found).copy()
    end["reason"] = "its description is damaged: " + facts.job_file
    return end


def hung(facts: FileFacts) -> str:
    """Say that a running attempt gives no sign of life; nothing while it does."""
    if facts.silence is None or facts.silence < jobdir.SILENT:
        return ""
    return "no sign of life for {:.0f} min".format(facts.silence // 60)


def is_silent(facts: FileFacts) -> bool:
    """Whether a job that no queue has was ended by somebody else: its ``Trace`` tells how."""
    if facts.description is None or facts.is_beating:
        return False
    return bool(from_files(facts, cared_for=False)["state"] == "lost")


def merge(
    facts: FileFacts,
    queued: "Optional[Row]",
    may_be_queued: bool,
    trace: "Optional[Trace]",
    scheduler: str,
) -> "Status":
    """Merge what the files and the scheduler say: the files tell what happened, the queue tells
    whether it goes on. ``queued``: the job's row in it, see Scheduler.parse_queue;
    ``may_be_queued``: it was submitted after the queue was asked; ``trace``: of a job that is in no
    queue and ``is_silent``. ``explain`` adds what the scheduler's books know."""
    record = from_files(facts, queued is not None or may_be_queued)
    if record["state"] == "lost" and facts.is_beating:
        record["state"], record["reason"] = "running", ""
    if queued is not None and record["state"] in ("queued", "running"):
        # The queue's answer may be a moment old: a supervisor that beats is running.
        if queued["state"] == "waiting" and not facts.is_beating:
            record["state"] = "queued"
        record["scheduler"] = queued
    if record["state"] == "lost" and trace is not None:
        conclude(record, without_end(trace, record["attempts"], scheduler))
    elif record["state"] == "running":
        silence = hung(facts)
        record["reason"] = silence + " (its node may be hung)" if silence else record["reason"]
    return record


def without_end(trace: Trace, attempts: "List[AttemptRecord]", scheduler: str) -> "Conclusion":
    """Tell how a job ended that has no end in its files and is unknown to the scheduler."""
    if trace.being_submitted:
        return {"state": "queued", "reason": "being submitted"}
    if trace.stop_asked:
        return {"state": "stopped", "reason": "stopped on request"}
    if not attempts and not trace.numbers:
        return {"state": "lost", "reason": "it was never handed to " + scheduler}
    guessed = guess_end(scheduler, attempts, trace)
    guessed["trace"] = trace
    return guessed


def conclude(record: "Status", found: "Conclusion") -> None:
    """Put what was concluded of a job into its status."""
    record["state"], record["reason"] = found["state"], found["reason"]
    if "ended" in found:
        record["ended"] = found["ended"]
    if "trace" in found:
        record["trace"] = found["trace"]


def guess_end(scheduler: str, attempts: "List[AttemptRecord]", trace: Trace) -> "Conclusion":
    """From what the attempts have told, and what the batch job has said last."""
    said = trace.said
    if trace.why_gone and (attempts or not said):
        when = "" if attempts else " before it ran"
        return {"state": "lost", "reason": "its keeper is gone{}: {}".format(when, trace.why_gone)}
    cancelled = "cancelled in {}".format(scheduler)
    last = attempts[-1] if attempts else None
    if last and last["outcome"] == "interrupted" and last.get("cause") == "signal":
        return {"state": "stopped", "reason": cancelled, "ended": last.get("ended")}
    if not attempts and not said:
        reason = "its batch job is gone before it ran, and {} does not tell why"
        return {"state": "lost", "reason": reason.format(scheduler)}
    if not attempts and "CANCELLED" in said:
        return {"state": "stopped", "reason": cancelled + " before it ran"}
    if not attempts:
        return {"state": "failed", "reason": "its batch script ended before it ran: " + said}
    return {"state": "lost", "reason": "its batch job is gone, and did not say why (see batch.log)"}


def unexplained(records: "List[Status]") -> "List[str]":
    """List the numbers of batch jobs whose end is only guessed."""
    return [number for record in records if "trace" in record for number in record["trace"].numbers]


def explain(records: "List[Status]", ends: "Dict[str, End]") -> None:
    """Let the scheduler's books, where it keeps any, tell how those ended that could not say it.
    ``ends``: what they say of the ``unexplained``."""
    for record in records:
        trace = record.pop("trace", None)  # type: Optional[Trace]
        known = [ends[number] for number in trace.numbers if number in ends] if trace else []
        end = known[0] if known else None
        if trace and end and not record["attempts"]:
            more = ": " + trace.said if trace.said and end["state"] == "failed" else ""
            record["state"], record["reason"] = (
                end["state"],
                end["reason"] + " before it ran" + more,
            )
        elif end and end["state"] != "failed":  # the batch job's exit code is not the command's
            record["state"], record["reason"] = end["state"], end["reason"]


def in_queue(queued: "Optional[Row]") -> str:
    """Return the state of a job whose files tell nothing."""
    if queued is None:
        return "lost"
    return "queued" if queued["state"] == "waiting" else "running"


def unknown_job(job_id: str) -> "Status":
    """Make a record of a job of which nothing can be read."""
    return {"id": job_id, "job": shapes.placeholder(job_id), "attempts": [], "ended": None}


def unreadable(job_id: str, state: str, error: Exception) -> "Status":
    """Make a record of a job with unreadable files. An error of the disk may pass, and tells
    nothing of the job: the laptop goes by what it last saw. Damage stays."""
    record = unknown_job(job_id)
    record["state"], record["reason"] = state, "its files are damaged: {!r}".format(error)
    if isinstance(error, OSError):
        record["reason"] = "its files cannot be read: {}".format(error)
        record["unreadable"] = True
    return record
