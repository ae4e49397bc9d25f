"""The laptop's side: the real cluster classes of dray, over a link that breaks."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dray.errors import DrayError
from dray.job.model import JobArray, JobSpec, JobState, JobView, Limits, Private
from dray.launcher.resuming import alone
from dray.node.agent.agent import Agent
from dray.node.formats.wire import MARK
from dray.programs import shipping
from dray.transport import link
from dray.transport.channel import ChannelGone, LinkLost
from dray.transport.link import AgentLink, Answer
from dray.transport.ssh import Ssh
from tests.simulation.kernel import Process, describe, simulated
from tests.simulation.luck import CUT, CUT_AND_KILLED, NOT_MADE
from tests.simulation.system import is_expected, leaks
from tests.simulation.truth import LEAK, ONE_JOB, SECRET, Deed

if TYPE_CHECKING:
    from tests.simulation.world import World

shipping.name()  # found out once for all schedules, and by none of them
REFUSED = object()  # what an act returns that ended with an error of dray's
PATIENCE = 3000.0  # seconds that a laptop waits at a link that is whole


class Wire:
    """What the agent reads and writes: two streams that may break."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.input = b""
        self.answers = b""
        self.is_open = True  # towards the agent: more may come
        self.is_broken = False  # from the agent: nobody reads any more

    def readline(self, most: int = -1) -> bytes:
        self._await(lambda: b"\n" in self.input)
        line, newline, rest = self.input.partition(b"\n")
        found = line + newline if most < 0 else (line + newline)[:most]
        self.input = (line + newline + rest)[len(found) :]
        return found

    def read(self, size: int) -> bytes:
        self._await(lambda: len(self.input) >= size)
        piece, self.input = self.input[:size], self.input[size:]
        return piece

    def _await(self, is_there: Callable[[], bool]) -> None:
        process = simulated()
        assert process is not None
        while not is_there() and self.is_open:
            self.world.kernel.sleep(process, 5.0)

    def write(self, content: bytes) -> int:
        process = simulated()
        assert process is not None
        self.world.kernel.step(process, "answer")
        if self.is_broken:
            raise BrokenPipeError(32, "Broken pipe")
        self.answers += content
        return len(content)

    def flush(self) -> None:
        """Nothing is kept back."""


class Session:
    """An agent on the login node, and the wire to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wire = Wire(world)
        self.process = world.spawn("agent", self._serve)
        self.process.at_end.append(self._check)
        try:
            world.kind.host(self.process)
        except LinkLost:
            world.kernel.kill(self.process)
            raise

    def _serve(self) -> None:
        wire: Any = self.wire
        scheduler = self.world.kind.make_scheduler(self.world.root)
        agent = Agent(self.world.root, scheduler, wire, wire)
        process = simulated()
        assert process is not None
        while agent.serve():
            if process.fds:
                self.world.truth.violate(LEAK, f"the agent left open {leaks(process)}")

    def _check(self, process: Process) -> None:
        if not is_expected(process.error):
            assert process.error is not None
            self.world.truth.violate(ONE_JOB, f"an agent ended by {describe(process.error)}")

    def close(self) -> None:
        self.wire.is_open = False
        self.wire.is_broken = True
        self.process.wake = min(self.process.wake, self.world.kernel.now)


class Standing:
    """The connection that a laptop keeps open between two commands."""

    session: Session | None = None

    def take(self) -> Session | None:
        session, self.session = self.session, None
        return session if session is not None and not session.process.ended else None

    def hang_up(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None


class SimulatedLink(AgentLink):
    """As dray's own, with the same tries; what is between the ends of it is made up."""

    def __init__(self, world: World, standing: Standing) -> None:
        super().__init__(Ssh("login"), world.root, "python3", "simulated")
        self.world = world
        self.deed: Deed | None = None
        self.standing = standing

    @contextmanager
    def call(
        self,
        verb: str,
        request: Mapping[str, Any],
        _: link.Payload | None = None,
        __: Callable[[], None] = lambda: (
            None
        ),  # for the standing connection, of which there is none
    ) -> Iterator[Answer]:
        text = json.dumps({**request, "verb": verb}).encode("ascii")
        message = b"%d 0\n" % len(text) + text
        for attempt in range(link.TRIES):
            started = time.monotonic()
            try:
                answer = self._exchange(verb, message)
                break
            except ChannelGone:
                if self.revive is None or attempt == link.TRIES - 1:
                    raise
                self.revive()
            except LinkLost:
                if attempt == link.TRIES - 1 or time.monotonic() - started > link.HANGING:
                    raise
                time.sleep(0.5)
        yield answer

    def _exchange(self, verb: str, message: bytes) -> Answer:
        luck, kernel, me = self.world.luck, self.world.kernel, simulated()
        assert me is not None
        kernel.step(me, verb)
        way = luck.link()
        if way == NOT_MADE:
            raise LinkLost("no connection")
        session = self.standing.take() or Session(self.world)
        if self.deed is not None:
            self.deed.agents.append(session.process)
        kernel.say(f"agent[{session.process.pid}] is asked to {verb} (link {way})")
        session.wire.answers = b""
        session.wire.input += message
        session.process.wake = min(session.process.wake, kernel.now)
        if way in (CUT, CUT_AND_KILLED):
            self._cut(session, way)
        return self._await(session)

    def _cut(self, session: Session, way: str) -> None:
        time.sleep(self.world.luck.delay())
        session.close()
        if way == CUT_AND_KILLED:
            self.world.kernel.kill(session.process)
        raise LinkLost("the link broke")

    def _await(self, session: Session) -> Answer:
        me = simulated()
        assert me is not None
        wire, kernel = session.wire, self.world.kernel
        kernel.wait_for(me, lambda: is_whole(wire.answers) or session.process.ended, PATIENCE)
        if not is_whole(wire.answers):
            session.close()
            raise LinkLost("no answer")
        if self.standing.session is None and self.world.luck.stands():
            self.standing.session = session
        else:
            session.close()
        record_of_error(self.world, wire.answers)
        return self._parse(io.BytesIO(wire.answers.partition(MARK)[2]))


def is_whole(answers: bytes) -> bool:
    head, newline, rest = answers.partition(MARK)[2].partition(b"\n")
    return bool(newline) and len(rest) >= sum(map(int, head.split()))


def record_of_error(world: World, answers: bytes) -> None:
    """A refusal is a sentence; a traceback is a fault of dray's."""
    record = json.loads(answers.partition(MARK)[2].partition(b"\n")[2])
    if "Traceback" in record.get("error", ""):
        last = record["error"].strip().splitlines()
        world.truth.violate(ONE_JOB, f"the agent answered {last[-3].strip()}: {last[-1]}")


class Laptop:
    """Does what dray's launcher does, without its store."""

    def __init__(self, world: World, number: int, standing: Standing) -> None:
        self.world = world
        self.name = f"laptop{number}"
        self.link = SimulatedLink(world, standing)
        folder = world.folder / self.name
        self.cluster = world.kind.cluster("sim", world.kind.settings(world), folder, folder)
        self.cluster.agent = self.link
        world.kind.equip(self)

    def submit(self, job: JobSpec) -> None:
        plan = self.cluster.plan(job)
        self._act(
            [job.id], "submit", lambda: self.cluster.queue.submit(plan, secrets(job), None, silent)
        )

    def submit_array(self, array: JobArray) -> None:
        plan, values = self.cluster.plan(array), secrets(array.common)
        self._act(
            array.ids, "submit", lambda: self.cluster.queue.submit(plan, values, None, silent)
        )

    def resume(self, job_id: str) -> None:
        view = self.look([job_id]).get(job_id)
        if view is None or view.state.active or view.state is JobState.DONE:
            return
        last = view.attempts[-1].number if view.attempts else 0
        sweep = alone(view.spec.sweep)
        job = replace(view.spec, resumed_after=last, limits=Limits(), sweep=sweep)
        plan = self.cluster.plan(job)
        self.world.truth.resumed_after[job_id] = last
        self.world.truth.total_time.pop(job_id, None)
        self._act(
            [job_id], "resume", lambda: self.cluster.queue.resume(plan, secrets(job), None, silent)
        )

    def stop(self, ids: Sequence[str], now: bool) -> None:
        self.world.truth.stops.update(ids)
        self.world.truth.cancelled.update(ids)
        self._try("stop", lambda: self.cluster.queue.stop(ids, now=now))

    def look(self, ids: Sequence[str]) -> dict[str, JobView]:
        """Status, and whether it is true."""
        asked = self.world.kernel.now
        found = self._try("status", lambda: self.cluster.queue.status(ids).jobs)
        told: dict[str, JobView] = {} if found is REFUSED else found
        # Of what cannot be read just now, the launcher goes by what it last saw.
        views = {job_id: view for job_id, view in told.items() if not view.is_unreadable}
        self.world.truth.told(asked, views)
        for view in views.values():
            self.world.kernel.say(f"{self.name} sees {view.id} {view.state} ({view.reason})")
        return views

    def remove(self, ids: Sequence[str]) -> None:
        self._try("remove", lambda: self.cluster.queue.remove(ids))

    def _act(self, ids: Sequence[str], kind: str, act: Callable[[], None]) -> None:
        truth = self.world.truth
        deed = self.link.deed = truth.begin(ids, kind)
        try:
            if self._try(kind, act) is not REFUSED:
                truth.accepted.update(ids)
        finally:  # also where it dies meanwhile
            deed.ended = self.world.kernel.now

    def _try(self, what: str, act: Callable[[], Any]) -> Any:
        self.world.kernel.say(f"{self.name}: {what}")
        try:
            return act()
        except DrayError as error:
            self.world.kernel.say(f"{self.name}: {what}: {type(error).__name__}: {error}")
            self.world.refused(what, error)
            return REFUSED


def secrets(job: JobSpec) -> Private:
    return Private({name: SECRET + job.id.partition(".")[0] for name in job.secrets})


def silent(done: int, total: int) -> None:
    """Nobody watches the progress."""
