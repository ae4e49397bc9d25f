"""The same world for Hypothesis: it chooses what happens, and makes what fails as short as it can.

Nothing goes wrong here by itself: each fault is a rule, or an argument of one.
"""

from __future__ import annotations

from contextlib import ExitStack

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.simulation import batch, luck
from tests.simulation.kernel import Fault
from tests.simulation.kinds import KINDS
from tests.simulation.luck import ANSWERED, ERRORS, WHOLE, Calm, CommandPlan
from tests.simulation.schedule import settle
from tests.simulation.world import World, made

MOST_JOBS = 3
FAULTS = st.builds(Fault, st.integers(0, 120), st.sampled_from((0, *ERRORS)))
ANSWERS = (ANSWERED, luck.SILENT, luck.REFUSED, luck.DONE_SILENTLY, luck.DONE_AND_REFUSED)
PLANS = st.builds(
    CommandPlan,
    steps=st.integers(0, 2),
    pause=st.sampled_from((0.5, 5.0, 25.0)),
    code=st.sampled_from((0, 3)),
    deaf=st.booleans(),
    saves_at_end=st.booleans(),
)


class Told(Calm):
    """As the rules tell it: each thing once."""

    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}
        self.answers: list[str] = []
        self.links: list[str] = []
        self.plans: list[CommandPlan] = []

    def fault(self, role: str) -> Fault | None:
        return self.faults.pop(role, None)

    def answer(self, submits: bool) -> str:
        return self.answers.pop() if submits and self.answers else ANSWERED

    def link(self) -> str:
        return self.links.pop() if self.links else WHOLE

    def command(self) -> CommandPlan:
        return self.plans.pop() if self.plans else CommandPlan()


class Cluster(RuleBasedStateMachine):
    world: World
    told: Told

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()

    @initialize(
        seed=st.integers(0, 3),
        kind=st.sampled_from(sorted(KINDS)),
        resume_with=st.sampled_from((None, "chain")),
    )
    def begin(self, seed: int, kind: str, resume_with: str | None) -> None:
        self.told = Told()
        self.world = self.stack.enter_context(made(seed, kind, self.told, resume_with))

    def has_jobs(self) -> bool:
        return bool(self.world.ids())

    # -- what users do ----------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.jobs) < MOST_JOBS)
    @rule(retries=st.integers(0, 2), laptop=st.integers(0, 1))
    def submit(self, retries: int, laptop: int) -> None:
        job = self.world.new_job(retries, secret=True, limit=None)
        self.world.laptop(lambda one: one.submit(job), laptop)

    @precondition(lambda self: not self.world.arrays)
    @rule(size=st.integers(1, 2), laptop=st.integers(0, 1))
    def submit_array(self, size: int, laptop: int) -> None:
        array = self.world.new_array(size, 0, secret=True)
        self.world.laptop(lambda one: one.submit_array(array), laptop)

    @precondition(has_jobs)
    @rule(laptop=st.integers(0, 1))
    def look(self, laptop: int) -> None:
        ids = self.world.ids()
        self.world.laptop(lambda one: one.look(ids), laptop)

    @precondition(has_jobs)
    @rule(data=st.data(), now=st.booleans())
    def stop(self, data: st.DataObject, now: bool) -> None:
        job = data.draw(st.sampled_from(self.world.ids()))
        self.world.laptop(lambda one: one.stop([job], now))

    @precondition(has_jobs)
    @rule(data=st.data(), laptop=st.integers(0, 1))
    def resume(self, data: st.DataObject, laptop: int) -> None:
        job = data.draw(st.sampled_from(self.world.ids()))
        self.world.laptop(lambda one: one.resume(job), laptop)

    # -- what goes wrong --------------------------------------------------------------------------

    @rule(role=st.sampled_from(("agent", "attempt")), fault=FAULTS)
    def next_one_meets(self, role: str, fault: Fault) -> None:
        self.told.faults[role] = fault

    @rule(way=st.sampled_from(ANSWERS))
    def next_submission_is(self, way: str) -> None:
        self.told.answers = [way]

    @rule(way=st.sampled_from((luck.NOT_MADE, luck.CUT, luck.CUT_AND_KILLED)))
    def next_link_is(self, way: str) -> None:
        self.told.links = [way]

    @rule(plan=PLANS)
    def next_command_does(self, plan: CommandPlan) -> None:
        self.told.plans = [plan]

    @precondition(lambda self: self.world.system.running())
    @rule(
        data=st.data(),
        fate=st.sampled_from(
            (batch.REQUEUE, batch.PREEMPTED, batch.NODE_FAIL, batch.OUT_OF_MEMORY)
        ),
        at_once=st.booleans(),
    )
    def end_batch_job(self, data: st.DataObject, fate: str, at_once: bool) -> None:
        job = data.draw(st.sampled_from(self.world.system.running()))
        self.world.system.end(job, fate, at_once=at_once)

    @precondition(lambda self: self.world.system.live())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.world.cancel(data.draw(st.sampled_from(self.world.system.live())))

    @rule(seconds=st.sampled_from((0.01, 1.0, 25.0)))
    def fill_disk(self, seconds: float) -> None:
        self.world.kernel.full_until = self.world.kernel.now + seconds

    @rule(seconds=st.sampled_from((0.001, 0.01, 0.1, 2.0, 10.0, 60.0)))
    def let(self, seconds: float) -> None:
        self.world.let(seconds)

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def nothing_is_violated(self) -> None:
        if hasattr(self, "world"):
            self._check()

    def _check(self) -> None:
        for violation in self.world.truth.violations:
            raise AssertionError(f"{violation.invariant}: {violation.detail}")

    def teardown(self) -> None:
        try:
            if hasattr(self, "world") and not self.world.truth.violations:
                settle(self.world)
                self._check()
        finally:
            self.stack.close()
