"""The agent: what the laptop talks to on a login node. It answers until its input ends.

A verb is a function of the agent and a request. Those in ``root_requests`` and ``image_requests``
need only the root, see dray.node.root; those in ``jobs``, ``status`` and ``doors`` the scheduler
too.
"""

import io
import os
import signal
import sys
import time

from ..formats import files, leases, shapes
from ..formats.wire import VERSION, Refusal
from ..jobs import arrays
from ..root.images import RootImages
from ..root.root import Root
from ..root.submission import under_way
from ..schedulers import scheduler
from . import doors, image_requests, jobs, root_requests, site, situation, status, storage
from .serving import Conversation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Callable, Dict, List, Optional, Tuple  # noqa: F401

    from ..formats.records import Answer, Reply, Request, Row, Status  # noqa: F401
    from ..jobs.jobdir import JobDir
    from ..schedulers.scheduler import Scheduler

HANDING_OVER = 60.0  # seconds from a job's directory to its Job, where the laptop creates that
IDLE = 900  # seconds without a request
QUEUE_AGE = 2.0  # seconds for which one look at the queue serves everybody
QUEUE = {
    "time": shapes.is_number,
    "asked": shapes.is_number,
    "under_way": shapes.is_texts,
    "text": shapes.is_text,
}


class Agent(Conversation):
    def __init__(
        self, path: str, batch: "Scheduler", stdin: "BinaryIO", stdout: "BinaryIO"
    ) -> None:
        Conversation.__init__(self, stdin, stdout)
        files.Lock.leased = leases.are_needed(path)
        self.root = Root(path)
        self.scheduler = batch
        self.images = RootImages(path, lambda: self.scheduler.queue())
        self.asked = 0.0  # when the scheduler was asked for the queue that we know
        self.under_way = []  # type: List[str]  # what was being handed over then
        self.over = []  # type: List[Status]  # of jobs that this look has found ended

    def next_request(self) -> "Optional[Request]":
        """Wait for a request; where the end of a connection may never be told, not for ever."""
        signal.alarm(IDLE if self.scheduler.is_told else 0)
        try:
            return Conversation.next_request(self)
        finally:
            signal.alarm(0)

    def carry_out(self, request: "Request") -> "Reply":
        if request.get("version", 1) > VERSION:
            raise Refusal("ClusterError", "the agent here is older than the dray that asks it")
        self.scheduler.hear(request)
        answer = VERBS[request["verb"]](self, request)
        return dict(answer, **self.scheduler.wishes())

    def queue(self) -> "Dict[str, Row]":
        """Return the scheduler's queue. The answer is shared by all who ask within a few
        seconds."""
        if self.scheduler.is_told:
            self.asked = files.now_in(self.root.path) - HANDING_OVER
            return self.scheduler.queue()
        cache = os.path.join(self.root.path, "queue.json")
        with files.Lock(cache + ".lock"):
            known = files.read_record(cache) or {}
            if not shapes.fits(known, QUEUE, QUEUE) or not site.is_young(known["time"], QUEUE_AGE):
                os.utime(cache + ".lock")
                asked = os.stat(cache + ".lock").st_mtime
                known = {"asked": asked, "under_way": under_way(self.root.path)}
                known.update(text=self.scheduler.read_queue(), time=time.time())
                try:
                    files.write_json(cache, known, durable=False)
                except OSError:  # a full disk: the next one asks again
                    pass
        self.asked, self.under_way = known["asked"], known["under_way"]
        return self.scheduler.parse_queue(known["text"])

    def submitted_since(self, job_dir: "JobDir") -> bool:
        """Return whether the job may be newer than the queue that we know: brought since then, or
        being handed over at that moment, by an agent that may have been killed just after that. A
        job of an array was brought with that, though its directory may say nothing of it. Compares
        by the clock of the file system, as the laptop's agents may be on several login nodes."""
        place = arrays.split(job_dir.id)
        brought = [job_dir] if place is None else [job_dir, self.root.array(place[0])]
        if any(one.id in self.under_way for one in brought):
            return True
        for path in [path for one in brought for path in (one.scheduler, one.secrets)]:
            try:
                if os.lstat(path).st_mtime >= self.asked:
                    return True
            except OSError:
                pass
        return False

    def forget_queue(self) -> None:
        """Drop the queue that we know. Takes the lock, so that a query that has already begun
        cannot write an older queue afterwards."""
        cache = os.path.join(self.root.path, "queue.json")
        try:
            with files.Lock(cache + ".lock"):
                files.remove(cache)
        except OSError:  # a full disk; it is forgotten in a moment anyway
            pass

    def already_queued(
        self, job_id: str, states: "Tuple[str, ...]" = ("waiting", "running")
    ) -> "Optional[str]":
        """Return the number of the job's batch job, if one is queued: an earlier agent may have
        been cut off between submitting and writing down the answer. A batch job that is ending is
        not what was submitted."""
        for queued in self.batch_jobs_of(job_id):
            if queued["state"] in states:
                return str(queued["id"])
        return None

    def batch_jobs_of(self, job_id: str) -> "List[Row]":
        """Return the rows of a job, or of an array's jobs, in the queue as it is now. Not one that
        the job has shared with others, if it has ended: those may go on in it."""
        queue = self.scheduler.queue()
        if job_id not in queue:
            return [queue[name] for name in queue if name.startswith(job_id + ".")]
        row = self.own_row(queue[job_id], job_id)
        if row is None or (row.get("per_node") and self.root.job(job_id).ended() is not None):
            return []
        return [row]

    def own_row(self, row: "Optional[Row]", job_id: str) -> "Optional[Row]":
        """Return a job's row in the queue, or None where it is not its own any more: a job that
        shared a batch job, and was resumed alone, has nothing to do with that."""
        if row is None or not row.get("per_node"):
            return row
        description = self.root.job(job_id).description()
        return row if description is None or arrays.per_node_of(description) > 1 else None


def ping(_: Agent, __: "Request") -> "Answer":
    return {}


VERBS = {
    "appended": root_requests.appended,
    "bring": root_requests.bring,
    "checkpoint": root_requests.checkpoint,
    "discard": jobs.discard,
    "door": doors.door,
    "enter": doors.enter,
    "explain": situation.explain,
    "hello": site.probe,
    "ids": root_requests.ids,
    "image": image_requests.look,
    "image-announce": image_requests.announce,
    "image-part": image_requests.take_part,
    "image-remove": image_requests.remove,
    "images": image_requests.listing,
    "log": root_requests.log,
    "log-times": root_requests.log_times,
    "metrics": root_requests.curve,
    "nodes": site.nodes,
    "outputs": root_requests.outputs,
    "ping": ping,
    "pull": root_requests.pull,
    "remove": root_requests.remove,
    "resume": jobs.resume,
    "settle": root_requests.settle,
    "situation": situation.look,
    "sweep": root_requests.sweep,
    "sweep-close": root_requests.close_sweep,
    "sweep-others": root_requests.hear_of_others,
    "status": status.status,
    "stop": jobs.stop,
    "storage": storage.look,
    "submit": jobs.submit,
}  # type: Dict[str, Callable[[Agent, Request], Reply]]


def main(root: str, kind: str) -> int:
    root = os.path.expandvars(os.path.expanduser(root))
    if "$" in root:
        sys.stderr.write("the root {} names a variable that is not set there\n".format(root))
        return 3
    scheduler.user_umask = os.umask(0o077)
    # Without a buffer: what follows a request to lead into a job is for whoever takes our place.
    agent = Agent(root, scheduler.of_kind(kind, root), io.FileIO(0), sys.stdout.buffer)
    while agent.serve():
        pass
    return 0
