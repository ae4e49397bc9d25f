"""Requests that change the scheduler's queue: submit, resume, stop."""

import json
import os
import time
from functools import partial

from ..formats import files, shapes
from ..formats.wire import Refusal
from ..jobs import arrays, following, jobdir, staging
from ..root.submission import Submission
from ..schedulers.scheduler import NoAnswer, SchedulerError
from . import shared_jobs, site, snapshots
from .root_requests import named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple  # noqa: F401

    from ..formats.records import Answer, End, Request, Row
    from ..jobs.jobdir import JobDir
    from .agent import Agent

ENDING = 90.0  # seconds for which a batch job is given to end
ENDING_LOOK = 2.0  # seconds between two looks whether it has


def submit(agent: "Agent", request: "Request") -> "Answer":
    """Store the code, write the job or the array to disk, and submit it to the scheduler, exactly
    once."""
    record = request["job"]
    job_dir = agent.root.job(record["id"])
    if request.get("array"):
        job_dir = agent.root.array(record["id"])
    missing = snapshots.stage(agent, request)
    if missing:
        return {"missing": missing}
    after = awaited(agent, request)
    with Submission(job_dir) as lock:
        begin_sweep(agent, request)  # not earlier: one who was refused may be withdrawing it
        number = None
        known = files.read_record(job_dir.job, jobdir.LARGEST_WITH_COMMANDS) or {}
        if not files.exists(job_dir.job):
            fill = None
            if record.get("origin") or record.get("inputs"):
                fill = partial(agent.root.give, json.loads(request["files"]["job.json"]))
            arrays.write_directory(job_dir, *contents_of(agent, request), fill=fill)
        elif known.get("created") != record["created"]:
            raise Refusal("Refused", "another job has the id {}: try again".format(job_dir.id))
        else:  # an earlier answer was lost: it may be queued already
            number = job_dir.known_number() or agent.already_queued(job_dir.id)
            if number is None:  # its secrets may have been swept, as those of a lost job
                arrays.rewrite(job_dir, *contents_of(agent, request))
        if number is None:
            try:
                number = submit_to_scheduler(agent, job_dir, lock, after, request)
            except NoAnswer:
                raise  # the job may be queued: a retry will find it
            except SchedulerError:
                staging.remove(job_dir.path)
                withdraw_sweep(agent, request)
                raise
    agent.forget_queue()
    answer = site.facts_if_changed(agent, request)
    answer["scheduler_id"] = number
    return answer


def awaited(agent: "Agent", request: "Request") -> str:
    """Return what the scheduler is told of batch jobs that have to be over first: the one that
    makes the image ready, and those of jobs that come before this one."""
    image = agent.images.awaited(request.get("image") or "")
    after = request["job"].get("after")
    if not shapes.is_variables(after):
        return image
    before = following.awaited(after)
    return agent.scheduler.awaiting([image] + following.numbers(agent.root.path, before))


def discard(agent: "Agent", request: "Request") -> "Answer":
    """Take a submission back that the laptop could not hand over; a resumed job has the end that it
    had before. One that has gone on meanwhile stays: another laptop has handed it over."""
    record = request["job"]
    job_dir = agent.root.job(record["id"])
    if request.get("array"):
        job_dir = agent.root.array(record["id"])
    with Submission(job_dir):
        known = files.read_record(job_dir.job, jobdir.LARGEST_WITH_COMMANDS) or {}
        if known.get("created") != record["created"] or job_dir.is_supervised():
            return {}
        end, description = request.get("end"), job_dir.description()
        if description is None or has_gone_on(job_dir, description["resumed_after"]):
            return {}
        if isinstance(end, dict) and job_dir.ended() is None:
            staging.discard_secrets(job_dir.path)
            files.write_json(job_dir.end, end)
        elif not job_dir.numbers() and end is None:
            staging.remove(job_dir.path)
    return {}


def begin_sweep(agent: "Agent", request: "Request") -> None:
    """Write down the sweep that the jobs are trials of, if they are."""
    if request.get("study"):
        agent.root.begin_sweep(request["study"], request["part"])


def withdraw_sweep(agent: "Agent", request: "Request") -> None:
    if request.get("study"):
        agent.root.withdraw_sweep(request["study"]["id"], request["part"])


def contents_of(agent: "Agent", request: "Request") -> "Tuple[Dict[str, bytes], Optional[str]]":
    """Return the files of the job's directory, and the snapshot that the job keeps."""
    contents = {}
    for name, text in request["files"].items():
        text = text.replace("@ROOT@", agent.root.path) if name.endswith(".sh") else text
        contents[name] = text.encode("utf-8", "surrogateescape")
    return contents, agent.root.snapshot(request["job"]["snapshot"])


def submit_to_scheduler(
    agent: "Agent", job_dir: "JobDir", lock: files.Lock, after: str, request: "Request"
) -> str:
    """Run the plan's submission command; return the batch job's number. Raises NoAnswer where the
    job may have been queued, and SchedulerError where it was not."""
    previous = job_dir.known_number()
    planned = [str(one) for one in request.get("command") or ()][:-1]  # the last is the script
    try:
        number = agent.scheduler.submit(job_dir.script, after, (lock.fd,), planned)
    except NoAnswer:
        raise
    except SchedulerError as error:
        number = queued_despite_error(agent, job_dir, previous, error)
    job_dir.remember_number(number)
    try:
        os.utime(job_dir.secrets)  # they are as new as the submission: see drop_secrets
    except OSError:
        pass
    return number


def queued_despite_error(
    agent: "Agent", job_dir: "JobDir", previous: "Optional[str]", error: SchedulerError
) -> str:
    """Return the number of a batch job that is queued although its submission failed: a controller
    that is slow to answer may have accepted it. If it has already left the queue, its attempt has
    written its number down. Raises ``error`` where there is none."""
    try:
        queued = agent.already_queued(job_dir.id)
    except SchedulerError as silence:
        raise NoAnswer("{}; whether it is queued is unknown: {}".format(error, silence))
    for number in (queued, job_dir.known_number()):
        if number is not None and number != previous:
            return number
    raise error


def stop(agent: "Agent", request: "Request") -> "Answer":
    ids = named(request)
    queued = agent.scheduler.queue()
    numbers = []
    have_directory = set(files.names_in(os.path.join(agent.root.path, "jobs")))
    shared = set(shared_jobs.are_shared(agent, ids, queued))
    numbers += shared_jobs.stop(agent, shared, queued, request["now"])
    ids = [one for one in ids if one not in shared]
    for array, indices in arrays.by_array(set(ids) - have_directory).items():
        agent.root.array(array).stop_jobs(indices)
        names = [arrays.job_id(array, index) for index in indices]
        numbers += [
            agent.scheduler.number_of(queued[name], name) for name in names if name in queued
        ]
    for job_id in ids:
        if job_id in have_directory:
            numbers += ask_to_stop(
                agent, agent.root.job(job_id), queued.get(job_id), request["now"]
            )
    if numbers:
        agent.scheduler.cancel(numbers)
    agent.forget_queue()
    return {}


def ask_to_stop(
    agent: "Agent", job_dir: "JobDir", queued: "Optional[Row]", now: bool
) -> "List[str]":
    """Ask the job's supervisor to stop it; return the batch jobs that have none, to be
    cancelled."""
    attempts = job_dir.records()
    if not shared_jobs.request_stop(job_dir, now) or queued is None:
        return []
    number = agent.scheduler.number_of(queued, job_dir.id)
    is_made = jobdir.is_held(attempts) or (attempts and attempts[-1]["outcome"] is None)
    if queued["state"] == "running" and is_made:
        agent.scheduler.interrupt(number)
        return []
    return [number]  # it has ended once it has left the queue: see unqueued


def resume(agent: "Agent", request: "Request") -> "Answer":
    place = arrays.split(request["job"]["id"])
    missing = snapshots.stage(agent, request)
    if missing:
        return {"missing": missing}
    after = awaited(agent, request)
    job_dir = agent.root.own_directory(request["job"]["id"])
    end = job_dir.ended() if agent.scheduler.is_told else None
    if place is None:
        number = resume_one(agent, request, after)
    else:
        with Submission(agent.root.array(place[0])):  # which may be on its way to the scheduler
            number = resume_one(agent, request, after)
    agent.forget_queue()
    if agent.scheduler.is_told and not is_resumed(job_dir, request, end):
        return {"scheduler_id": number, "gone_on": True}
    return {"scheduler_id": number, "end": end}


def is_resumed(job_dir: "JobDir", request: "Request", end: "Optional[End]") -> bool:
    """Return whether the laptop is to create a Job now. Not where another laptop was quicker, nor
    where the job goes on as it is: a Job that lives has it."""
    description = job_dir.description()
    if description is None or (end is not None and job_dir.ended() is not None):
        return False
    return bool(description["resumed_after"] == request["job"]["resumed_after"])


def resume_one(agent: "Agent", request: "Request", after: str) -> str:
    job_dir = agent.root.own_directory(request["job"]["id"])
    with Submission(job_dir) as lock:
        if has_gone_on(job_dir, request["job"]["resumed_after"]):
            return job_dir.known_number() or ""
        agent.root.require_checkpoint(job_dir.id, request["job"]["start_from"])
        # If the job has an end, a running batch job is the old one that just wrote it; only a
        # waiting one is the resumed job.
        if files.exists(job_dir.end):
            # Where the laptop creates the Job next, none that is there can be the resumed one.
            is_told = agent.scheduler.is_told
            number = None if is_told else agent.already_queued(job_dir.id, ("waiting",))
        else:
            number = number_in_queue(agent, job_dir)
        if number is None:
            number = submit_again(agent, job_dir, request, lock, after)
        return number


def has_gone_on(job_dir: "JobDir", seen: int) -> bool:
    """Return whether an attempt was made since the laptop saw the job: an earlier answer of ours
    was lost, or another laptop was quicker. The attempt may have ended by now."""
    return job_dir.next_number() > seen + 1


def number_in_queue(agent: "Agent", job_dir: "JobDir") -> "Optional[str]":
    """Return the number of the batch job that continues the job. One that is ending may be it: a
    job that is requeued waits again only once it has ended."""
    until = time.monotonic() + (0.0 if agent.scheduler.is_told else ENDING)
    while True:
        rows = agent.batch_jobs_of(job_dir.id)
        live = [str(row["id"]) for row in rows if row["state"] != "ending"]
        if live or not rows:
            return live[0] if live else None
        if time.monotonic() > until:
            raise Refusal("ClusterError", "its last batch job is still ending: try again later")
        time.sleep(ENDING_LOOK)


def submit_again(
    agent: "Agent", job_dir: "JobDir", request: "Request", lock: files.Lock, after: str
) -> str:
    end = job_dir.ended()
    arrays.rewrite(job_dir, *contents_of(agent, request))
    files.remove(job_dir.stop)
    files.remove(job_dir.end)
    try:
        return submit_to_scheduler(agent, job_dir, lock, after, request)
    except NoAnswer:
        raise
    except SchedulerError:  # it stays as it had ended
        staging.discard_secrets(job_dir.path)
        if end is not None:
            files.write_json(job_dir.end, end)
        raise
