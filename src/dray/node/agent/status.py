"""Reports the state of jobs to the laptop, from their files and the scheduler's queue."""

import os
import time

from ..attempt import outcomes
from ..formats import files, shapes
from ..jobs import arrays, following, jobdir, states
from ..notifications import notices
from ..root.submission import Submission, being_submitted, drop_secrets
from ..schedulers.scheduler import SchedulerError
from . import shared_jobs
from .root_requests import named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple  # noqa: F401

    from ..formats.records import Answer, Request, Row, Status
    from ..jobs.arrays import ArrayDir
    from ..jobs.jobdir import JobDir
    from ..jobs.policy import Decision
    from .agent import Agent

LATE = 60.0  # seconds after which a job that should have begun is not about to


def status(agent: "Agent", request: "Request") -> "Answer":
    """Return all that is known of the jobs. With ``brief``, those that wait and have made no
    attempt are only listed by id, together with others that wait for the same reason."""
    queued = agent.queue()
    agent.over = []
    have_directory = set(agent.root.sweep("jobs", thoroughly=False))
    agent.root.sweep("arrays", thoroughly=False)
    found = []
    seen = {}  # type: Dict[str, ArrayDir]
    waiting = {}  # type: Dict[Tuple[str, str], List[str]]
    for job_id in named(request):
        has_directory = job_id in have_directory
        row = queued.get(job_id)
        try:
            row = agent.own_row(row, job_id)
            if row and request.get("brief") and only_waits(agent, job_id, row, has_directory):
                waiting.setdefault((row["why"], row["start"]), []).append(job_id)
                continue
            if has_directory:
                add_array(agent, seen, job_id)
                record = status_of(agent, agent.root.job(job_id), row)
            else:
                record = status_in_array(agent, seen, job_id, row)
        except Exception as error:  # the files of one job must not hide all others
            record = states.unreadable(job_id, states.in_queue(row), error)
        if record is not None:
            found.append(record)
    give_up_silent(agent)
    for array in seen.values():
        if not any(name.startswith(array.id + ".") for name in queued):
            end_array(agent, array)
    explain(agent, found)
    unsent = agent.root.unsent(agent.over, notices.LOGIN)
    answer = {"jobs": found, "waiting": []}  # type: Answer
    for (why, start), ids in waiting.items():
        answer["waiting"].append({"ids": arrays.fold(ids), "why": why, "start": start})
    if unsent:
        answer["unsent"] = unsent
    return answer


def give_up_silent(agent: "Agent") -> None:
    """Give up those whose node is gone, as far as the scheduler can tell, if they give no sign of
    life either: a node that only the scheduler cannot reach may still be running them."""
    for job_id in filter(shapes.is_id, agent.scheduler.overdue()):
        try:
            if is_silent(agent.root.job(job_id)):
                agent.scheduler.give_up(job_id)
        except OSError:  # the next look tries again
            pass


def is_silent(job_dir: "JobDir") -> bool:
    """Return whether no attempt has given a sign of life for long."""
    attempt = job_dir.unfinished()
    if attempt is None:
        return job_dir.ended() is None
    silence = attempt.silence()
    if silence is None:  # it was about to start
        silence = files.now_in(job_dir.path) - os.stat(attempt.path).st_mtime
    return silence > jobdir.SILENT


def add_array(agent: "Agent", seen: "Dict[str, ArrayDir]", job_id: str) -> None:
    """Add the job's array to ``seen``: it may still hold secrets, although all its jobs have
    directories of their own."""
    place = arrays.split(job_id)
    if place is not None and place[0] not in seen:
        seen[place[0]] = agent.root.array(place[0])


def only_waits(agent: "Agent", job_id: str, queued: "Row", has_directory: bool) -> bool:
    """Return whether the job is queued and has made no attempt."""
    if queued["state"] != "waiting":
        return False
    return not has_directory or not agent.root.job(job_id).numbers()


def explain(agent: "Agent", records: "List[Status]") -> None:
    """Ask the scheduler's accounting about all jobs whose end is only guessed, in one query."""
    asked = states.unexplained(records)
    states.explain(records, agent.scheduler.ends(asked) if asked else {})


def status_of(agent: "Agent", job_dir: "JobDir", queued: "Optional[Row]") -> "Optional[Status]":
    """Read what the files say, merge it with the queue's row, and drop the secrets of a job that
    has ended."""
    if queued is not None and queued["state"] == "waiting":
        end_if_too_late(agent, job_dir, queued)
        end_if_stopped(job_dir, queued)
    may_be_queued = queued is None and is_on_its_way(agent, job_dir)
    is_gone = queued is None and not may_be_queued
    is_waiting = queued is not None and queued["state"] == "waiting"
    facts = states.read(
        job_dir,
        is_running=not is_gone and not is_waiting,
        # The queue may have missed it, on a disk that fails: its own lock is what counts.
        is_over=is_gone and bool(agent.scheduler.why_gone) and not job_dir.is_supervised(),
    )
    if facts is None:
        return None
    trace = (
        trace_of(agent, job_dir, job_dir.batch_log) if is_gone and states.is_silent(facts) else None
    )
    record = states.merge(facts, queued, may_be_queued, trace, agent.scheduler.name)
    if record["state"] == "queued" and not is_waiting and not record["attempts"]:
        # The scheduler has started it, and has no reason to tell: it holds itself back.
        record["reason"] = record["reason"] or following.in_words(
            agent.root.path, facts.description
        )
    elif record["state"] == "queued" and queued is not None and not is_waiting:
        record["reason"] = record["reason"] or shared_jobs.why_held(queued, facts.attempts)
    if record["state"] in jobdir.ENDED and (facts.end or is_gone):
        drop_secrets(job_dir, lambda: agent.submitted_since(job_dir))
        agent.over.append(record)
    return record


def is_on_its_way(agent: "Agent", job_dir: "JobDir") -> bool:
    """Return whether the job may be newer than the queue that we know. Where the laptop hands it
    over, one that was asked to stop is not waited for: it would end as soon as it started."""
    if agent.scheduler.is_told and job_dir.stop_request() is not None:
        return False
    return agent.submitted_since(job_dir)


def trace_of(
    agent: "Agent", job_dir: "JobDir", batch_log: str, index: "Optional[int]" = None
) -> states.Trace:
    """Collect what the scheduler's side knows of a job. ``index`` is that of its batch job in an
    array, whose directory is then ``job_dir``."""
    submitted, asked = being_submitted(job_dir), job_dir.stop_request() is not None
    numbers = agent.scheduler.numbers_of(job_dir, index)
    said = files.last_line(batch_log)
    return states.Trace(submitted, asked, numbers, said, agent.scheduler.why_gone)


def status_in_array(
    agent: "Agent", seen: "Dict[str, ArrayDir]", job_id: str, queued: "Optional[Row]"
) -> "Optional[Status]":
    """Return the state of a job of an array that has no directory of its own yet: it never ran."""
    place = arrays.split(job_id)
    if place is None:
        return None
    add_array(agent, seen, job_id)
    array = seen[place[0]]
    if 0 < array.size() <= place[1]:  # of many that were never there, each costs little
        return None
    description = shapes.description(array.description_of(place[1]))
    if description is None:
        return status_in_damaged_array(array, job_id, queued)
    record = {"id": job_id, "job": description, "attempts": [], "ended": None}  # type: Status
    record["state"], record["reason"] = "queued", ""
    if queued is not None:
        record["scheduler"] = queued
    if place[1] in arrays.read_indices(array.stopped):
        record["state"], record["reason"] = "stopped", "stopped on request"
    elif queued is None and not agent.submitted_since(array):
        task = array.task_of(place[1])
        trace = trace_of(agent, array, array.batch_log_of(task), task)
        states.conclude(record, states.without_end(trace, [], agent.scheduler.name))
    return record


def status_in_damaged_array(
    array: "ArrayDir", job_id: str, queued: "Optional[Row]"
) -> "Optional[Status]":
    """Return the state of a job whose array is damaged; None where the array has no such job."""
    if not array.is_damaged() or array.size():
        return None
    record = states.unknown_job(job_id)
    record["state"] = "queued" if queued else "lost"
    record["reason"] = "its description is damaged: " + array.job
    return record


def end_array(agent: "Agent", array: "ArrayDir") -> None:
    """Remove the array's secrets and finish its notices: none of its jobs can start any more."""
    try:
        drop_secrets(array, lambda: agent.submitted_since(array))
        if not agent.submitted_since(array):
            notices.array_is_over(array)
    except OSError:  # the next look tries again
        pass


def end_if_too_late(agent: "Agent", job_dir: "JobDir", queued: "Row") -> None:
    """End a job that waits although it should have begun by now. If it starts at this moment, it
    ends itself, or finds its end on disk. Holds the submission's lock, as a resume may set another
    start time."""
    if too_late(job_dir) is None:
        return
    lock = Submission(job_dir)
    if not lock.take(wait=False):
        return
    try:
        end = too_late(job_dir)
        if end is not None and job_dir.ended() is None:
            outcomes.end_job(job_dir, end, patience=0.0)
        if end is not None and not queued.get("per_node"):  # else others have it, too
            agent.scheduler.cancel([agent.scheduler.number_of(queued, job_dir.id)])
    except (OSError, SchedulerError):  # the next look tries again
        pass
    finally:
        lock.__exit__()


def end_if_stopped(job_dir: "JobDir", queued: "Row") -> None:
    """End a job that was asked to stop, and now waits for a batch job that others need as well."""
    try:
        if queued.get("per_node"):
            shared_jobs.end_if_waiting(job_dir, queued)
    except OSError:  # the next look tries again
        pass


def too_late(job_dir: "JobDir") -> "Optional[Decision]":
    description = job_dir.description()
    if description is None:
        return None
    return jobdir.too_late(description, job_dir.records(), time.time() - LATE)
