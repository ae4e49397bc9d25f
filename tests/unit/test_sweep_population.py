"""Population based training: who goes on from whom, with what, and how the files get there."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.errors import UsageError
from dray.job.model import JobSpec, Resume
from dray.launcher import sweep_checks
from dray.node.checkpoints import newest
from dray.node.checkpoints.origin import NothingToGoOnFrom
from dray.node.jobs.jobdir import JobDir
from dray.node.metrics.sources import Point
from dray.node.sweeps import population, trial
from dray.node.sweeps.space import point_of
from dray.node.sweeps.stopping import rungs_of
from dray.node.sweeps.study import Study
from dray.sweep import table
from dray.sweep.space import from_flag, records_of, whole
from dray.sweep.study import Stop, Trial
from dray.sweep.study import Study as StudyRecord

SPACE: Any = records_of(
    whole([from_flag(one) for one in ("lr=1e-5..1e-1:log", "n=1..64:int", "act=a,b")])
)
RULES: Any = {"checkpoint": "run/model_*.pt", "number": r"model_(\d+)"}


def test_the_worst_quarter_goes_on_from_the_best() -> None:
    values = dict(enumerate([1.0, 5.0, 3.0, 2.0, 9.0, 8.0, 7.0, math.nan]))
    assert population.better_ones("max", 7, values) == [4, 5]
    assert population.better_ones("max", 0, values) == [4, 5]
    assert population.better_ones("max", 3, values) == []
    assert population.better_ones("min", 4, values) == [0, 3]
    assert population.better_ones("max", 0, {0: 1.0, 1: 2.0, 2: 3.0}) == [], "too few to tell"
    assert population.better_ones("max", 3, dict.fromkeys(range(8), 1.0)) == [], "none is better"


def test_with_the_fewest_trials_one_takes_over() -> None:
    values = {number: float(number) for number in range(population.FEWEST)}
    assert population.better_ones("max", 0, values) == [population.FEWEST - 1]
    del values[1]
    assert population.better_ones("max", 0, values) == []


def test_a_population_that_is_too_small_is_refused_or_told() -> None:
    study = StudyRecord(id="", space=(), stop=Stop("pbt", first=5))
    sweep_checks.require_enough(study, 4)
    with pytest.raises(UsageError, match="at least 4 trials, and there are 3"):
        sweep_checks.require_enough(study, 3)
    sweep_checks.require_enough(study._replace(stop=Stop("asha", first=5)), 3)
    (note,) = sweep_checks.notes_on_population(study, 3)
    assert "4 trials at least, and --at-once 3 runs fewer" in note
    assert sweep_checks.notes_on_population(study, 4) == []
    assert sweep_checks.notes_on_population(study, None) == []


def test_status_counts_what_was_taken_over() -> None:
    study = StudyRecord(id="s", space=(), stop=Stop("pbt", first=5))
    trials = [Trial(number, number, state="running", taken=number) for number in range(3)]
    assert table.summary(study, trials) == "running 3   3 takeovers"
    assert table.summary(study, trials[:1]) == "running 1   0 takeovers"
    assert table.summary(study._replace(stop=None), trials) == "running 3"


@given(st.integers(), st.floats(1e-5, 1e-1), st.integers(1, 64))
def test_what_is_changed_stays_in_the_space(seed: int, lr: float, n: int) -> None:
    values = {"lr": lr, "n": n, "act": "b"}
    rng = random.Random(seed)
    found = population.changed(SPACE, {"rule": "pbt"}, values, 0, rng)
    assert (found["n"], found["act"]) == (n, "b"), "only floating-point numbers, unless one says so"
    point_of(SPACE, found)
    found = population.changed(SPACE, {"rule": "pbt", "change": ["n", "act"]}, values, 0, rng)
    assert found["lr"] == lr
    point_of(SPACE, found)


@given(st.integers(), st.sampled_from([1e-5, 1e-3, 1e-1]), st.sampled_from([1, 2, 64]))
def test_a_number_moves_also_from_an_end_of_its_range(seed: int, lr: float, n: int) -> None:
    rng = random.Random(seed)
    assert population.moved(SPACE[0], lr, rng) != lr
    assert population.moved(SPACE[1], n, rng) != n
    (plain,) = records_of(whole([from_flag("x=-1..1:float")]))
    assert population.moved(plain, 0.0, rng) != 0


def test_trials_are_compared_at_even_distances() -> None:
    assert rungs_of({"rule": "pbt", "total": 50}) == list(range(5, 50, 5))
    assert rungs_of({"rule": "pbt", "first": 20, "total": 50}) == [20, 40]
    assert rungs_of({"rule": "pbt", "first": 7})[:3] == [7, 14, 21]


class Pair:
    """Two trials below one root: the first does well."""

    def __init__(self, root: Path) -> None:
        self.good, self.bad = self.job(root, 0), self.job(root, 1)
        for step in (1, 2):
            self.save(self.good, step, "good")
            self.save(self.bad, step + 5, "bad")

    def job(self, root: Path, number: int) -> JobDir:
        made = JobDir(str(root / f"jobs/s.{number}"))
        Path(made.attempts).mkdir(parents=True)
        Path(made.outputs, "run").mkdir(parents=True)
        resume = Resume(checkpoint=RULES["checkpoint"], number=RULES["number"])
        sweep = {"id": "s", "trial": number}
        command = ("train", "--lr={lr}")
        spec = JobSpec(id=made.id, name="s", command=command, resume=resume, sweep=sweep)
        record = spec.to_dict()
        Path(made.job).write_text(json.dumps(record))
        return made

    def begin(self, **more: Any) -> tuple[Study, Any]:
        """A sweep in which both have their parameters: its files, and the bad one's description."""
        study = Study(self.bad.root, "s")
        record: Any = {
            "id": "s", "created": 1.0, "space": SPACE, "seed": 1, "repeats": 1, "metric": "reward",
            "mode": "max", "stop": {"rule": "pbt", "first": 5, "change": [], **more},
        }  # fmt: skip
        study.begin(record, {"id": "s", "first": 0, "count": 4, "at_once": None})
        for one in (self.good, self.bad):
            job = one.description()
            assert job is not None
            assert trial.ask(one, job) is None
        return study, job

    def save(self, job: JobDir, step: int, content: str) -> None:
        Path(job.outputs, f"run/model_{step}.pt").write_text(content + str(step))

    def found(self) -> list[str]:
        return [Path(one.path).read_text() for one in newest.candidates(self.bad.outputs, RULES)]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_a_checkpoint_is_taken_over(pair: Pair) -> None:
    population.take_over(pair.bad, "s.0", RULES)
    assert pair.found() == ["good2"]
    aside = Path(pair.bad.outputs, population.ASIDE, "run")
    assert sorted(one.name for one in aside.iterdir()) == ["model_6.pt", "model_7.pt"]
    pair.save(pair.good, 3, "good")
    population.take_over(pair.bad, "s.0", RULES)
    assert pair.found() == ["good3"]
    assert [one.name for one in aside.iterdir()] == ["model_2.pt"], "only the last ones are kept"


def test_what_was_cut_in_the_middle_goes_on_with_the_copy(pair: Pair) -> None:
    """Killed when its own checkpoints are aside already; and then the other trial is removed."""
    taken = Path(pair.bad.path, population.TAKEN, "run")
    taken.mkdir(parents=True)
    (taken / "model_2.pt").write_text("good2")
    for one in Path(pair.bad.outputs, "run").iterdir():
        one.unlink()
    population.take_over(pair.bad, "gone.0", RULES)
    assert pair.found() == ["good2"]
    assert not taken.exists()


def test_where_there_is_nothing_to_take_over_nothing_changes(pair: Pair) -> None:
    with pytest.raises(NothingToGoOnFrom):
        population.take_over(pair.bad, "gone.0", RULES)
    assert pair.found() == ["bad7", "bad6"]
    assert not population.has_checkpoint(pair.bad.root, "gone.0", RULES)
    assert population.has_checkpoint(pair.bad.root, "s.0", RULES)


def test_the_first_at_a_rung_is_compared_once_others_have_come(pair: Pair) -> None:
    study, job = pair.begin()
    for number in (2, 3):  # they have begun, and told nothing yet
        study.give(number, {"values": job["sweep"]["values"], "by": "spread"})
    followed = trial.Following(pair.bad, job)
    watch: Any = None

    def reach(number: int, value: float) -> None:
        told: Any = {"job": f"s.{number}", "state": "running", "rungs": {"5": value}}
        study.tell(number, told)

    for step in range(1, 6):
        followed.note(Point("reward", step, 1.0, 0.0))
    assert followed.look(watch) == "", "it is alone there"
    followed.note(Point("reward", 6, 1.0, 0.0))
    for number, value in ((0, 9.0), (2, 5.0)):
        reach(number, value)
        assert followed.look(watch) == "", "a quarter of three is nobody"
    reach(3, 4.0)
    assert followed.look(watch) == "goes on from s.0: 1 at step 5 is in the worst quarter of 4"
    assert followed.look(watch) == "", "once at each rung"
    assert [one["step"] for one in study.result(1)["exchanges"]] == [5]


def test_a_training_at_its_end_takes_over_nothing(pair: Pair) -> None:
    """Its value would stand beside parameters that were never trained with."""
    study, job = pair.begin(total=8)
    for number in (0, 2, 3):
        told: Any = {"job": f"s.{number}", "state": "running", "rungs": {"5": 9.0}}
        study.tell(number, told)
    followed = trial.Following(pair.bad, job)
    watch: Any = None
    for step in range(1, 9):
        followed.note(Point("reward", step, 1.0, 0.0))
    assert followed.look(watch) == ""
    followed.note(Point("reward", 7, 1.0, 0.0))
    assert followed.look(watch).startswith("goes on from s.0")


def test_one_that_is_done_has_nothing_to_give(pair: Pair) -> None:
    """Its checkpoint is the end of a training: nothing would be trained with the parameters."""
    study, job = pair.begin()
    for number, state in ((0, "done"), (2, "running"), (3, "running")):
        told: Any = {"job": f"s.{number}", "state": state, "rungs": {"5": 9.0 - number}}
        study.tell(number, told)
    followed = trial.Following(pair.bad, job)
    watch: Any = None
    followed.note(Point("reward", 5, 1.0, 0.0))
    assert followed.look(watch) == ""
    told = {"job": "s.0", "state": "running", "rungs": {"5": 9.0}}
    study.tell(0, told)
    followed.settled = 0
    assert followed.look(watch).startswith("goes on from s.0")


def test_where_all_were_compared_nobody_is_asked_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, job = pair.begin()
    followed = trial.Following(pair.bad, job)
    study.tell(0, {"job": "s.0", "state": "running", "rungs": {"5": 9.0}})
    study.tell(2, {"job": "s.2", "state": "failed"})  # will never come
    watch: Any = None
    followed.note(Point("reward", 5, 1.0, 0.0))
    assert followed.look(watch) == ""
    monkeypatch.setattr(Study, "results", None)
    assert followed.look(watch) == ""


def test_a_description_is_changed_more_than_once(pair: Pair) -> None:
    study = Study(pair.bad.root, "s")
    record: Any = {
        "id": "s", "created": 1.0, "space": SPACE, "seed": 1, "repeats": 1,
        "stop": {"rule": "pbt", "first": 5, "change": []},
    }  # fmt: skip
    study.begin(record, {"id": "s", "first": 0, "count": 2, "at_once": None})
    job = pair.bad.description()
    assert job is not None
    job["env"] = {"MINE": "1", "WANDB_RUN_GROUP": "my own"}
    assert trial.ask(pair.bad, job) is None
    first = job["sweep"]["values"]
    values = {**first, "lr": 0.05}
    exchange: Any = {"step": 5, "job": "s.0", "values": values}
    study.tell(1, {"job": "s.1", "state": "running", "exchanges": [exchange]})
    for _ in range(2):  # the second time there is nothing left to do
        job = pair.bad.description()
        assert job is not None
        assert trial.ask(pair.bad, job) is None
        assert job["command"][:2] == ["train", "--lr=0.05"]
        assert json.loads(job["env"]["DRAY_PARAMS"]) == values
        assert (job["env"]["MINE"], job["env"]["WANDB_RUN_GROUP"]) == ("1", "my own")
        assert pair.found() == ["good2"]
        pair.save(pair.good, 3, "good")
    assert (study.result(1)["values"], study.result(1)["taken"]) == (values, 1)
    # One that is not of the space, or from nowhere, is passed over.
    for wrong in ({**exchange, "values": {"lr": 7}}, {**exchange, "job": "../../x"}, {"step": 1}):
        study.tell(1, {"job": "s.1", "state": "running", "exchanges": [wrong]})
        assert trial.ask(pair.bad, job) is None
        assert job["command"][:2] == ["train", "--lr=0.05"]
        assert pair.found() == ["good2"]
