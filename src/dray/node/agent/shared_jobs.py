"""Stops jobs that share a batch job with others, which go on.

A batch job is cancelled only once none of its jobs is left, and none has begun: one that runs sees
by itself that it is to end, or that there is nothing left to do."""

import time

from ..attempt import outcomes
from ..attempt.attempt_lock import AttemptLock
from ..formats import files
from ..jobs import arrays, jobdir
from ..jobs.policy import Decision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List

    from ..formats.records import AttemptRecord, Row
    from ..jobs.arrays import ArrayDir
    from ..jobs.jobdir import JobDir
    from .agent import Agent


def are_shared(agent: "Agent", ids: "Iterable[str]", queued: "Dict[str, Row]") -> "List[str]":
    """Return those of the jobs whose batch job, in the queue, is for others too."""
    rows = ((one, agent.own_row(queued.get(one), one)) for one in ids)
    return [one for one, row in rows if row is not None and row.get("per_node")]


def stop(agent: "Agent", ids: "Iterable[str]", queued: "Dict[str, Row]", now: bool) -> "List[str]":
    """Stop these jobs; return the numbers of batch jobs that have none left, to be cancelled."""
    numbers = []
    for name, indices in arrays.by_array(ids).items():
        array = agent.root.array(name)
        array.stop_jobs(one for one in indices if not files.exists(array.job_dir(one).job))
        for index in indices:
            job_dir = array.job_dir(index)
            if files.exists(job_dir.job):  # perhaps only since a moment ago
                request_stop(job_dir, now)
                end_if_waiting(job_dir, queued[job_dir.id])
        tasks = {array.task_of(index): arrays.job_id(name, index) for index in indices}
        for task, job_id in tasks.items():
            if queued[job_id]["state"] == "waiting" and is_over(array, task):
                numbers.append(agent.scheduler.number_of(queued[job_id], job_id))
    return numbers


def request_stop(job_dir: "JobDir", now: bool) -> bool:
    """Ask a job's supervisor to stop it; return False where it has ended for good, and is being
    cleared away."""
    attempts, description = job_dir.records(), job_dir.description()
    is_held = jobdir.is_held(attempts)
    if description and not is_held and not jobdir.decide(description, attempts).again:
        return False
    files.write_json(job_dir.stop, {"now": now, "time": time.time()})
    return True


def end_if_waiting(job_dir: "JobDir", row: "Row") -> None:
    """Write down the end of a job that waits for the next batch job: that will not be cancelled,
    as the others need it. One that starts this moment has the job's lock, and sees the request."""
    if row["state"] != "waiting" or job_dir.stop_request() is None:
        return
    lock = AttemptLock(job_dir)
    try:
        if lock.take_if_free() and job_dir.ended() is None:
            outcomes.end_job(job_dir, Decision("stopped", "stopped on request"), patience=0.0)
    finally:
        lock.leave()


def why_held(row: "Row", attempts: "List[AttemptRecord]") -> str:
    """Say why a job does not go on, though its batch job runs: it was interrupted earlier than the
    others."""
    is_interrupted = bool(attempts) and attempts[-1]["outcome"] == "interrupted"
    if not row.get("per_node") or not is_interrupted:
        return ""
    return "goes on once all that share its allocation are interrupted, or have ended"


def is_over(array: "ArrayDir", task: int) -> bool:
    """Return whether no job is left that a batch job would run."""
    return all(is_left_out(array, index) for index in array.sharing(task))


def is_left_out(array: "ArrayDir", index: int) -> bool:
    """Return whether a job has ended, will not begin, or was resumed alone."""
    job_dir = array.job_dir(index)
    if not files.exists(job_dir.job):
        return index in arrays.read_indices(array.stopped)
    if job_dir.ended() is not None:
        return True
    description = job_dir.description()
    return description is None or arrays.per_node_of(description) == 1
