"""The driver: a job of Ray's own that cares for a job of ours, or for all jobs of an array.

Ray Jobs is no queue: a job of Ray's that waits for GPUs is failed after a while, and nothing is
started again when a node dies. So the driver itself asks for no resources. It waits for a placement
group, without limit, and has an actor on each node start the program that makes attempts there
(``node``). When a node is lost, it asks for another one. It runs on the head, where the agent is.
"""

import os
import signal
import threading
import time
import traceback

from ..attempt.attempt_lock import AttemptLock
from ..attempt.loop import AttemptLoop, Site
from ..attempt.outcomes import record_lost
from ..formats import files, shapes
from ..formats.messages import print_message
from ..jobs import arrays, policy, trouble
from ..jobs.arrays import ArrayDir, is_array
from ..jobs.jobdir import JobDir, described
from ..schedulers import ray_view as view
from ..schedulers.gathered import ADDRESS, CODES, INDEX, INTERRUPTED, NODE
from .apart import Apart
from .placing import Lost, Refused, Turn, connect, fitting, wanted_in_words
from .refusals import Refusals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional  # noqa: F401

    from ..formats.records import Description

LOOK = 1.0  # seconds between two looks for requests to stop
PENDING = 8  # jobs that wait for nodes at a time; the others wait for these
LONGEST_PAUSE = 60.0  # seconds before nodes are asked for again, where they keep being lost
SIGHT = "shared"  # in the driver's directory: a node that reads it sees the root


class Waiting(Site):
    name = "Ray"
    lost = "ended with its node, or by Ray"


class Work:
    """One job that the driver cares for. ``index``: its place in an array."""

    def __init__(self, driver: "Driver", job_id: str, index: "Optional[int]") -> None:
        self.driver = driver
        self.id = job_id
        self.index = index
        self.is_placed = False
        self.loop = None  # type: Optional[AttemptLoop]
        self.refusals = Refusals()
        self.trouble = ""  # why no attempt has begun, though there were nodes
        self.awaits = ""  # which jobs it comes after

    @property
    def job_dir(self) -> JobDir:
        return JobDir(os.path.join(self.driver.root, "jobs", self.id))

    def open(self) -> None:
        """Make the job's own directory, and read what it says."""
        if self.loop is None:
            if self.index is not None:
                ArrayDir(self.driver.root, self.driver.directory.id).make_job(self.index)
            self.loop = AttemptLoop(self.job_dir, described(self.job_dir), Waiting())

    def is_over(self) -> bool:
        """Return whether nothing is to be done any more; write the end down that it has come to
        while it waited."""
        assert self.loop is not None
        if self.job_dir.ended() is not None or self._is_of_the_past():
            return True
        unfinished = self.job_dir.unfinished()
        if unfinished is not None:  # lost: whoever has the lock next accounts for it
            return self.job_dir.stop_request() is not None and self._end_lost(unfinished.number)
        decision = self.loop.decide()
        if not decision.again:
            self.loop.end(decision)
        return not decision.again

    def _is_of_the_past(self) -> bool:
        """Return whether the job was resumed meanwhile: it then has a driver of its own."""
        assert self.loop is not None
        return bool(described(self.job_dir)["resumed_after"] != self.loop.job["resumed_after"])

    def _end_lost(self, number: int) -> bool:
        """End a job that was stopped after its node was lost, unless that still runs."""
        assert self.loop is not None
        lock = AttemptLock(self.job_dir)
        try:
            if not lock.take_if_free():
                return False
            record_lost(self.job_dir, self.loop.job, number, Waiting.lost)
            self.loop.end(self.loop.decide())
            return True
        finally:
            lock.leave()

    def care(self) -> None:
        """Have attempts made until the job has ended."""
        try:
            self.open()
            self._care()
        except Exception:
            print_message(traceback.format_exc())
        finally:
            self.driver.forget(self)

    def _care(self) -> None:
        assert self.loop is not None
        losses = 0
        while not self.driver.is_ending and not self.is_over():
            if self.loop.others.has_to_wait():
                self.awaits = self.loop.others.in_words()
                time.sleep(LOOK)
                continue
            self.awaits = ""
            before = self.job_dir.next_number()
            if not self._take_turn():
                return
            if self.job_dir.next_number() > before:
                losses, self.trouble = 0, ""
                self.refusals.forget()
                continue
            if self._is_given_up():
                return
            losses += 1
            self.driver.pause(min(2.0**losses, LONGEST_PAUSE))

    def _is_given_up(self) -> bool:
        """End the job where no node can take its files, however often they are asked."""
        assert self.loop is not None
        if not self.refusals.reason:
            return False
        reason = self.refusals.end(fitting(self.driver.ray, self.loop.job))
        if reason and not self.is_over():
            self.loop.end(policy.Decision("failed", reason))
        return bool(reason)

    def _chosen(self) -> "List[str]":
        """Return the nodes to ask for by name: others than those that could not take the files."""
        assert self.loop is not None
        if not self.refusals.reason:
            return []
        return self.refusals.preferred(fitting(self.driver.ray, self.loop.job))

    def _take_turn(self) -> bool:
        """Place the job once; return whether it may have to be placed again."""
        assert self.loop is not None
        with Turn(self.driver.ray, self.loop.job, self._chosen()) as turn:
            while not turn.is_ready():
                if self.driver.is_ending or self.is_over():
                    return False
                if turn.is_in_vain():
                    turn.choose(self._chosen())
            self.is_placed = True
            try:
                variables = self._variables(turn.start())
                codes = self._run(turn, variables)
            except Lost as error:
                print_message("{}: {}".format(self.id, error))
                self._remember(error)
                return True
            finally:
                self.is_placed = False
        if codes is None:
            return False
        known = [INTERRUPTED] + list(CODES.values())
        if any(code not in known for code in codes):
            print_message("{}: its nodes ended with {}".format(self.id, codes))
            return False
        return True

    def _remember(self, error: Lost) -> None:
        self.trouble = str(error)
        if isinstance(error, Refused):
            self.refusals.add(error.address, error.reason)
            self.trouble = self.refusals.why()

    def _run(self, turn: Turn, variables: "List[Dict[str, str]]") -> "Optional[List[int]]":
        """Have attempts made on the turn's nodes; return their exit codes, None where the job has
        ended before."""
        if turn.sees(self.driver.sight, self.driver.token):
            return turn.run(self._words(), variables, self._log(), self._ends)
        assert self.loop is not None
        return Apart(turn, self.loop, self._log(), self._more_follow, self._ends).run(variables)

    def _more_follow(self) -> bool:
        return bool(self.driver.left)

    def _ends(self) -> bool:
        return self.driver.is_ending

    def _words(self) -> "List[str]":
        return ["bash", self.driver.directory.script, "node"]

    def _variables(self, addresses: "List[str]") -> "List[Dict[str, str]]":
        """Return what each node is told."""
        found = []
        for place, address in enumerate(addresses):
            name = "{}-{}".format(address.replace(":", "."), place)
            variables = {NODE: name if len(addresses) > 1 else address, ADDRESS: address}
            if self.index is not None:
                variables[INDEX] = str(self.index)
            found.append(variables)
        return found

    def _log(self) -> str:
        if self.index is None:
            return self.job_dir.batch_log
        return ArrayDir(self.driver.root, self.driver.directory.id).batch_log_of(self.index)


class Driver:
    def __init__(self, path: str, ray: "Any") -> None:
        self.ray = ray
        self.directory = JobDir(path)
        self.root = self.directory.root
        self.is_ending = False
        self.lock = threading.Lock()
        self.left = []  # type: List[Work]
        self.active = []  # type: List[Work]
        self.at_once = 0
        self.sight = os.path.join(path, SIGHT)
        self.token = os.urandom(16).hex().encode()

    def run(self) -> int:
        job = described(self.directory)
        trouble.with_retries(lambda: files.write_bytes(self.sight, self.token, durable=False))
        self.left = self._works(job)
        self.at_once = at_once_of(self.directory) or len(self.left)
        signal.signal(signal.SIGTERM, self._end)
        shown = None  # type: Any
        while self.left or self.active:
            self._drop_stopped()
            self._begin_next()
            shown = self._show(shown, job)
            time.sleep(LOOK if self.active else 0.0)
        view.write(self.directory.path, [], [], "")
        files.discard(self.sight)
        return 0

    def _works(self, job: "Description") -> "List[Work]":
        if not is_array(job):
            return [Work(self, self.directory.id, None)]
        array = ArrayDir(self.root, self.directory.id)
        return [Work(self, arrays.job_id(array.id, one), one) for one in sorted(array.indices())]

    def _end(self, *_: object) -> None:
        """Ray, or somebody by its means, ends the driver: jobs end after a checkpoint."""
        self.is_ending = True

    def _drop_stopped(self) -> None:
        """Leave out what was stopped or removed before it had a directory."""
        if self.is_ending:
            self.left = []
        if not any(work.index is not None for work in self.left):
            return
        array = ArrayDir(self.root, self.directory.id)
        stopped = arrays.read_indices(array.stopped) | arrays.read_indices(array.removed)
        self.left = [work for work in self.left if work.index not in stopped]

    def _begin_next(self) -> None:
        while self.left and len(self.active) < self.at_once and self._pending() < PENDING:
            work = self.left.pop(0)
            with self.lock:
                self.active.append(work)
            threading.Thread(target=work.care, daemon=True).start()

    def _pending(self) -> int:
        return sum(not work.is_placed for work in self.active)

    def _show(self, shown: "Any", job: "Description") -> "Any":
        with self.lock:
            active = list(self.active)
        waiting = [one.id for one in active if not one.is_placed] + [one.id for one in self.left]
        running = [one.id for one in active if one.is_placed]
        reasons = ((one.id, one.awaits or one.trouble) for one in active if not one.is_placed)
        troubles = {name: reason for name, reason in reasons if reason}
        now = (waiting, running, troubles)
        if now != shown:
            why = wanted_in_words(self.ray, job) if waiting else ""
            view.write(self.directory.path, waiting, running, why, troubles)
        return now

    def forget(self, work: Work) -> None:
        with self.lock:
            self.active.remove(work)

    def pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.is_ending:
            time.sleep(min(LOOK, seconds))


def at_once_of(directory: JobDir) -> int:
    """Return how many jobs of an array may run at the same time; 0 for all."""
    common = ArrayDir(directory.root, directory.id).common()
    found = (common.get("sweep") or {}).get("at_once")
    return found if found and shapes.is_count(found) else 0


def main(path: str) -> int:
    os.umask(0o077)
    return Driver(path, connect()).run()
