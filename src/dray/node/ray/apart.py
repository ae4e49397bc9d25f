"""A turn on nodes that do not see the root. A folder of each node stands in for it: it gets what
the job needs, and what the job writes there is brought home while it runs, and at the end.

What needs the whole root is done here, on the head: a lost attempt is accounted for, a trial asks
for its parameters, and the job's end is written down. The head holds the job's lock meanwhile.
"""

import functools
import hashlib
import os
import socket
import threading
import time

from ..attempt.attempt_lock import AttemptLock
from ..checkpoints import given
from ..formats import files
from ..formats.messages import print_message
from ..processes import layout
from ..schedulers.gathered import STAND_IN
from ..sweeps.study import Study, result_in
from . import sending
from .mirror import LARGEST_STATE, PIECE, Mirror, Pace, shown
from .placing import Lost, Refused
from .refusals import said

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set  # noqa: F401

    from ..attempt.loop import AttemptLoop
    from .placing import Turn

LOOK = 0.5  # seconds between two looks whether a round is due
LOCK_PATIENCE = 60.0
TURN_LOG = "turn.log"  # what the node's program printed
OTHERS_LOOK = 5.0  # seconds between two looks at what other trials have told
PATIENCE = 300.0  # seconds in which what could not be brought at the end is tried again
RETRY = 10.0  # seconds between two tries
MOST_COMPLAINTS = 100
MOST_NAMED = 20  # files that were not brought, in the log
LEADER = 0  # the place of the node that leads


class Apart:
    """``log``: where what nodes print is to go; ``keep``: whether other jobs may need the same code
    on the same nodes soon; ``ends``: whether the driver is told to end."""

    def __init__(
        self,
        turn: "Turn",
        loop: "AttemptLoop",
        log: str,
        keep: "Callable[[], bool]",
        ends: "Callable[[], bool]",
    ) -> None:
        self.turn = turn
        self.loop = loop
        self.job_dir = loop.job_dir
        self.log = log
        self.keep = keep
        self.ends = ends
        self.stand_in = ""
        self.mirrors = []  # type: List[Mirror]
        self.over = threading.Event()
        self.pace = Pace()
        self.told = {}  # type: Dict[str, bytes]  # files that nodes were told since, by path
        self.printed = {}  # type: Dict[int, int]  # how much of what each node printed is here
        self.complaints = set()  # type: Set[str]
        self.unbrought = set()  # type: Set[int]  # places of nodes that have what is not here
        self.next_others = 0.0
        self.is_in_news = False

    def run(self, variables: "List[Dict[str, str]]") -> "Optional[List[int]]":
        """Have attempts made; return the nodes' exit codes, or None where the job has ended before.
        Raises Lost where a node was."""
        lock = AttemptLock(self.job_dir)
        try:
            if not lock.take_unless(self.ends, LOCK_PATIENCE):
                raise Lost("another attempt of it is still running")
            end = self.loop.prepare()
            if end is not None:
                self.loop.end(end)
                return None
            return self._run(variables)
        finally:
            lock.leave()

    def _run(self, variables: "List[Dict[str, str]]") -> "List[int]":
        try:
            try:
                self._furnish()
            except OSError as error:
                raise Lost("its files could not be sent: {}".format(said(error)))
            thread = threading.Thread(target=self._keep_up, daemon=True)
            thread.start()
            words = ["bash", self._there("batch.sh"), "node"]
            told = [dict(one, **{STAND_IN: self.stand_in}) for one in variables]
            log = os.path.join(self.stand_in, TURN_LOG)
            try:
                return self.turn.run(words, told, log, self.ends, self._look)
            finally:
                self.over.set()
                thread.join()
                self._bring_rest()
        finally:
            self._clear()

    # -- before -----------------------------------------------------------------------------------

    def _furnish(self) -> None:
        """Make the folder that stands in for the root on every node: one path for all, as nodes
        tell each other paths."""
        folder = self._giver(LEADER)("scratch")
        said = "{}\n{}".format(socket.gethostname(), self.job_dir.root)
        name = hashlib.sha256(os.fsencode(said)).hexdigest()[:16]
        number = os.urandom(8).hex()
        job, first = self.loop.job, self.job_dir.next_number()
        parcel = sending.parcel_of(self.job_dir, job)
        rules = given.known(self.job_dir, job)["resume"]
        for place in range(layout.nodes_of(job)):
            ask, give = self.turn.asker(place), self._giver(place)
            self.stand_in = give("open", folder, name, number)
            base = os.path.dirname(os.path.dirname(self.stand_in))
            stamps = sending.send(parcel, base, self.stand_in, give)
            mirror = Mirror(
                self.job_dir.path,
                self.stand_in,
                rules,
                first,
                ask,
                yields=self._is_leaders if place != LEADER else None,
                pause=self._pause,
            )
            self.mirrors.append(mirror)
            for path, stamp in stamps.items():
                if path.startswith(mirror.prefix + "outputs/"):
                    mirror.remember(path[len(mirror.prefix) :], stamp)
            if place != LEADER:
                give("hold", self._there("alive"))

    def _giver(self, place: int) -> "Callable[..., Any]":
        """Return what asks a node that is given files. Where it cannot take them, that is told with
        its address: another one may."""

        def give(method: str, *arguments: "Any") -> "Any":
            try:
                return self.turn.ask(place, method, *arguments)
            except OSError as error:
                raise Refused(self.turn.addresses[place], said(error))

        return give

    def _own(self, name: str) -> str:
        """Return the path of a file of the job's directory, below the root."""
        return os.path.join("jobs", self.job_dir.id, name)

    def _there(self, name: str) -> str:
        return os.path.join(self.stand_in, self._own(name))

    def _is_leaders(self, path: str) -> bool:
        """Return whether the node that leads has a file of this name, which then counts."""
        return path in self.mirrors[LEADER].outputs

    # -- while it runs ----------------------------------------------------------------------------

    def _look(self) -> None:
        """Pass on to the nodes that the job is to stop, and who wants in."""
        try:
            self._try(self._pass_stop)
            for mirror in self.mirrors:
                self._try(mirror.pass_calls)
        except Lost as error:
            self._complain(error)

    def _pass_stop(self) -> None:
        if self.job_dir.stop_request() is not None:
            with files.open_regular(self.job_dir.stop) as file:
                self._tell(self._own("stop.json"), file.read(1000))

    def _try(self, step: "Callable[..., None]", *arguments: "Any") -> "Optional[Exception]":
        """Take a step whose failure is told, and ends nothing else; return it. Raises Lost."""
        try:
            step(*arguments)
        except Lost:
            raise
        except Exception as error:
            self._complain(error)
            return error
        return None

    def _tell(self, name: str, content: bytes, but: int = -1) -> None:
        """Write a file below the stand-in on the nodes, if it has changed."""
        if self.told.get(name) == content:
            return
        path = os.path.join(self.stand_in, name)
        for place in range(len(self.mirrors)):
            if place != but:
                self.turn.ask(place, "put", [(path, 0, content, 0o600, 0, True)])
        self.told[name] = content

    def _keep_up(self) -> None:
        while not self.over.wait(LOOK):
            try:
                self._pause()
                if self.pace.is_time_for_outputs():
                    began = time.monotonic()
                    for mirror in self.mirrors:
                        self._try(mirror.bring_outputs)
                    self.pace.had_outputs(began)
            except Lost:
                return  # whoever waits for the node hears of it, too

    def _pause(self) -> None:
        """Bring what is small, now and then, while something large is under way."""
        if self.is_in_news or not self.pace.is_time_for_news():
            return
        self.is_in_news = True
        try:
            self._bring_news()
        finally:
            self.is_in_news = False

    def _bring_news(self) -> None:
        for place, mirror in enumerate(self.mirrors):
            self._try(mirror.bring_news)
            self._try(self._bring_printed, place, mirror)
        self._try(self._bring_result)
        self._try(self._tell_of_leader)
        self._try(self._tell_of_others)

    def _tell_of_leader(self) -> None:
        """Let the other nodes know where the one is that leads."""
        if len(self.mirrors) > 1:
            leader = self.mirrors[LEADER].bring_file(self._own("leader.json"), LARGEST_STATE)
            if leader:
                self._tell(self._own("leader.json"), leader, but=LEADER)

    def _bring_printed(self, place: int, mirror: Mirror) -> None:
        while True:
            at = self.printed.get(place, 0)
            answer = mirror.ask("read", [(TURN_LOG, at, PIECE)])[0]
            if answer is None or not answer[0]:
                return
            files.append(self.log, answer[0])
            self.printed[place] = at + len(answer[0])

    # -- a trial ----------------------------------------------------------------------------------

    def _bring_result(self) -> None:
        """Take over what a trial tells, as its own result and no other."""
        part = self.loop.job.get("sweep") or {}
        if not part.get("id"):
            return
        study = Study(self.job_dir.root, part["id"])
        path = os.path.join(study.path, "results", "{}.json".format(part["trial"]))
        text = self.mirrors[LEADER].bring_file(
            os.path.relpath(path, self.job_dir.root), LARGEST_STATE
        )
        if self.told.get(path) == text:
            return
        found = files.decode(text)  # type: Any
        result = result_in(found if isinstance(found, dict) else None)
        if result is not None:
            result["job"] = self.job_dir.id
            study.tell(part["trial"], result)
        self.told[path] = text

    def _tell_of_others(self) -> None:
        """Let a trial that is compared with others know how they do."""
        part = self.loop.job.get("sweep") or {}
        if not part.get("id") or time.monotonic() < self.next_others:
            return
        self.next_others = time.monotonic() + OTHERS_LOOK
        study = Study(self.job_dir.root, part["id"])
        if not (study.record() or {}).get("stop"):
            return
        told = sending.told_by_others(study, self.loop.job["resume"])
        self._tell(os.path.relpath(study.others, self.job_dir.root), told)

    # -- after ------------------------------------------------------------------------------------

    def _bring_rest(self) -> None:
        """Bring all that is not here yet, of those nodes that are still there."""
        lost = None  # type: Optional[Lost]
        until = time.monotonic() + PATIENCE
        for place, mirror in enumerate(self.mirrors):
            try:
                if not self._bring_rest_of(place, mirror, until):
                    self.unbrought.add(place)
                    self._tell_unbrought(mirror)
                    self._try(mirror.bring_outcomes)
                self._try(mirror.pass_calls)  # of a door that is gone now, they go, too
            except Lost as error:
                lost = error
        if lost is not None:
            raise lost

    def _bring_rest_of(self, place: int, mirror: Mirror, until: float) -> bool:
        """Bring the last of a node; return whether that is all. What could not be written here is
        tried again: a disk that is full may have room in a moment, and then it is still there."""
        while True:
            errors = self._bring_last(place, mirror)
            if not any(isinstance(one, OSError) for one in errors):
                return not errors
            if time.monotonic() > until or self._is_ended_within(RETRY):
                return False

    def _bring_last(self, place: int, mirror: Mirror) -> "List[Exception]":
        """Bring what there is of each sort; return what went wrong."""
        steps = [
            mirror.bring_news,
            functools.partial(mirror.bring_outputs, is_last=True),
            functools.partial(self._bring_printed, place, mirror),
        ]  # type: List[Callable[[], None]]
        if place == LEADER:
            steps.append(self._bring_result)
        errors = [self._try(step) for step in steps]
        return [one for one in errors if one is not None]

    def _is_ended_within(self, seconds: float) -> bool:
        """Wait; return whether the driver was told to end meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.ends():
            time.sleep(min(LOOK, seconds))
        return self.ends()

    def _tell_unbrought(self, mirror: Mirror) -> None:
        """Say which files have not come home: the attempt may end as if all was well."""
        named = [shown(one) for one in list(mirror.failed)[:MOST_NAMED]]
        more = len(mirror.failed) - len(named)
        told = ", ".join(named or ["some of what it wrote last"])
        told += ", and {} more".format(more) if more else ""
        print_message("{}: NOT brought home from its node: {}".format(self.job_dir.id, told))

    def _clear(self) -> None:
        for mirror in self.mirrors:
            mirror.close()
        files.remove_tree(os.path.join(self.job_dir.path, "incoming"))
        for place in range(len(self.turn.hosts)):
            try:
                if place in self.unbrought and self._try(self._leave, place) is not None:
                    continue  # so it is left as it is
                self._try(self.turn.ask, place, "close", self.keep())
            except Lost:
                pass

    def _leave(self, place: int) -> None:
        """Leave the node's folder where it is, for a while, as what is in it is nowhere else."""
        kept = self.turn.ask(place, "leave", [self._there("secrets.json")])
        told = "{}: what was not brought home stays for a day on {}, in {}"
        print_message(told.format(self.job_dir.id, self.turn.addresses[place], kept))

    def _complain(self, error: Exception) -> None:
        """Say once what went wrong, in one line."""
        text = "{}: {}".format(type(error).__name__, said(error))
        if text not in self.complaints and len(self.complaints) < MOST_COMPLAINTS:
            self.complaints.add(text)
            print_message("{}: files of its node: {}".format(self.job_dir.id, text))
