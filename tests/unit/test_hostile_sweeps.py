"""Sweeps against those who mean ill: a cluster that lies about its arrays, a trial that writes
other trials' files, and what is carried from one cluster to another."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from dray.cli.sweep_export import write_text
from dray.drawing import svg_text
from dray.errors import UsageError
from dray.job.model import JobState
from dray.launcher import Launcher, sweep_views
from dray.launcher.sweep_views import Part, values_of
from dray.launcher.sweeping import Sweeping
from dray.node.sweeps import trial as trials_on_node
from dray.node.sweeps.study import Study as StudyOnNode
from dray.sweep import pictures, table
from dray.sweep.export import optuna, tables
from dray.sweep.space import from_flag, records_of, whole
from dray.sweep.study import MOST_TRIALS, Parameter, Study, Trial
from dray.testing import FakeCluster, launcher

STUDY = Study(id="", space=whole([from_flag("lr=1e-5..1e-1:log")]), seed=3)


class Two:
    """A sweep with a secret on one cluster, and another one on a cluster that lies."""

    def __init__(self, folder: Path) -> None:
        self.good, self.evil = FakeCluster("good"), FakeCluster("evil")
        self.verbs: Launcher = launcher(folder, self.good, self.evil)
        self.private = self.start("good", "private.py", secrets=("TOKEN",))
        self.public = self.start("evil", "public.py")

    def start(self, on: str, script: str, secrets: tuple[str, ...] = ()) -> str:
        job: dict[str, Any] = {"job.on": on, "job.secrets": secrets}
        self.verbs.context.config = self.verbs.context.config._replace(job=job)
        return self.sweeping.start(STUDY, ["python", script], 2, snapshot=False)

    @property
    def sweeping(self) -> Sweeping:
        return Sweeping(self.verbs.context)

    def lie(self, *parts: dict[str, Any]) -> None:
        self.evil.sweeps[self.public]["parts"] = list(parts)


@pytest.mark.parametrize(
    "parameter",
    [
        Parameter("a", "choice", values=(1.0, math.inf)),
        Parameter("a", "choice", values=(1, 10**30)),
        Parameter("a", "fixed", value=math.nan),
    ],
)
def test_a_sweep_that_could_not_be_read_back_is_not_submitted(
    tmp_path: Path, parameter: Parameter
) -> None:
    cluster = FakeCluster("good")
    verbs = launcher(tmp_path, cluster)
    verbs.context.config = verbs.context.config._replace(job={"job.on": "good"})
    study = STUDY._replace(space=(parameter,))
    with pytest.raises(UsageError, match="could not be read again"):
        Sweeping(verbs.context).start(study, ["python", "train.py"], 2, snapshot=False)
    assert not cluster.sweeps


def test_odd_texts_and_numbers_of_a_cluster_are_written_all_the_same() -> None:
    drawn = svg_text(0, 0, "a\x1b\ud800\x00<b\ufffe")
    assert drawn.endswith(">a&lt;b</text>")
    assert optuna.moment(-9e10) == "1970-01-01T00:00:00"
    assert optuna.moment(60.0) == "1970-01-01T00:01:00"


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    monkeypatch.setenv("TOKEN", "of the private sweep")
    return Two(tmp_path)


def part(name: str, first: int = 0, count: int = 2) -> dict[str, Any]:
    return {"id": name, "first": first, "count": count, "at_once": None}


def test_a_cluster_that_names_another_ones_array_gets_nothing_of_it(two: Two) -> None:
    """Neither its command, its code and its secrets by way of ``add``, nor a say over its jobs. The
    trials of its own sweep are seen and stopped all the same."""
    two.lie(part(two.private))
    two.evil.sweeps[two.public]["results"]["0"] = {"state": "pruned", "value": 1.0, "step": 1}
    own = [f"{two.public}.0", f"{two.public}.1"]
    assert [one.job for one in two.sweeping.look(two.public).trials] == own
    assert two.sweeping.add(two.public, 1) == 1
    assert two.evil.jobs[f"{two.public}-2.0"].spec.command == ("python", "public.py")
    assert two.sweeping.stop(two.public, now=True) == 3
    assert {one.state for one in two.good.jobs.values()} == {JobState.QUEUED}


@pytest.mark.parametrize("parts", [[], ["nothing"], [{"id": "../../etc", "first": 10**400}]])
def test_no_file_of_a_cluster_hides_trials_that_were_submitted_from_here(
    two: Two, parts: list[Any]
) -> None:
    two.lie(*parts)
    assert len(two.sweeping.look(two.public).trials) == 2
    assert two.sweeping.stop(two.public, now=True) == 2


def test_arrays_that_overlap_are_not_taken_for_others(two: Two) -> None:
    """Else a trial would be there twice, with the result of another one."""
    two.lie(part(two.public), part(two.public, first=1), part(f"{two.public}-9", first=1))
    assert len(two.sweeping.look(two.public).trials) == 2


def test_a_foreign_array_beside_its_own_does_not_become_part_of_the_sweep(two: Two) -> None:
    """Else ``dray rm`` would remove that array with the sweep, later."""
    two.lie(part(two.public), part(two.private, first=2))
    assert [one.job for one in two.sweeping.look(two.public).trials] == [
        f"{two.public}.0",
        f"{two.public}.1",
    ]
    assert two.sweeping.add(two.public, 1) == 1
    assert f"{two.private}.0" not in two.verbs.find_all([two.public])
    assert two.evil.jobs[f"{two.public}-2.0"].spec.command == ("python", "public.py")


@pytest.mark.parametrize(
    "parts",
    [
        [part("a-1", first=number, count=MOST_TRIALS) for number in range(1000)],
        [part("a-1", first=MOST_TRIALS)],
        [part("a-1", first=10**9, count=1)],
    ],
)
def test_arrays_of_more_trials_than_there_can_be_are_left_out(
    two: Two, parts: list[dict[str, Any]]
) -> None:
    two.lie(part(two.public), *parts)
    assert len(two.sweeping.look(two.public).trials) == 2


def test_no_cluster_takes_the_trials_of_another_one(tmp_path: Path) -> None:
    """It says that its array begins within that of the other cluster, whose trials would then be
    neither seen nor stopped."""
    one, two = FakeCluster("one"), FakeCluster("two")
    verbs = launcher(tmp_path, one, two)
    verbs.context.config = verbs.context.config._replace(job={"job.on": "one,two"})
    sweep = Sweeping(verbs.context).start(STUDY, ["python", "train.py"], 8, snapshot=False)
    two.sweeps[sweep]["parts"] = [part(f"{sweep}-2", first=1, count=MOST_TRIALS // 2)]
    found = Sweeping(verbs.context).look(sweep).trials
    assert [(each.number, each.cluster) for each in found] == [
        *((number, "one") for number in range(4)),
        *((number, "two") for number in range(4, 8)),
    ]


# -- numbers and values ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pair",
    [(1.7e308, 1.7e308), (1.7e308, -1.7e308), (math.inf, -math.inf), (1e17, 1e17), (0.0, 5e-324)],
)
def test_values_of_any_size_are_shown(pair: tuple[float, float]) -> None:
    """Those of a training that diverges are enough."""
    study = STUDY._replace(id="policy-7f3k", repeats=2, created=1.7e9)
    found = [
        Trial(n, n // 2, f"policy-7f3k.{n}", "hpc", {"lr": 1e-4}, "done", pair[way], 5)
        for n in range(40)
        for way in [(n + (n // 2) % 2) % 2]
    ]
    for one in (found, [trial._replace(value=pair[trial.configuration % 2]) for trial in found]):
        assert len(table.status(study, one).rows) == 20
        assert len(table.best(study, one).rows) == (5 if math.isfinite(pair[0]) else 0)
        assert json.loads(tables.as_json(study, one))["counts"] == {"done": 40}
        assert "</svg>" in pictures.parallel_picture(study, one)
        assert "</svg>" in pictures.importance_picture(study, one)
        assert pictures.terminal(study, one)


@pytest.mark.parametrize("value", ["0.5", " 0.5\n", True, "0." + "0" * 1000 + "1", [0.5], None])
def test_only_numbers_are_values_of_a_range(value: Any) -> None:
    """A text would get into commands, and to other clusters, as it is."""
    space = records_of(whole([from_flag("x=0..1:float"), from_flag("n=1..9:int")]))
    assert values_of(space, {"values": {"x": 0.5, "n": 3}}, 0) == {"x": 0.5, "n": 3}
    assert values_of(space, {"values": {"x": value, "n": 3}}, 0) == {}
    assert values_of(space, {"values": {"x": 0.5, "n": 3.7}}, 0) == {}


# -- files of a sweep that another job has written -------------------------------------------------


def on_node(root: Path) -> StudyOnNode:
    """A sweep whose sampler has enough to learn from."""
    record: Any = STUDY._replace(id="policy-7f3k", created=1.0).to_dict()
    study = StudyOnNode(str(root), "policy-7f3k")
    study.begin(record, part("policy-7f3k", count=50))  # type: ignore[arg-type]
    for number in range(20):
        study.give(number, {"values": {"lr": 1e-4 * (number + 1)}, "by": "tpe"})
        study.tell(number, {"job": f"policy-7f3k.{number}", "state": "done", "value": 1.0})
    return study


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results/3.json", '{"state": "done", "value": 1' + "0" * 400 + "}"),
        ("others.json", '{"trials": {"60": [1]}, "results": {"60": 3}}'),
        ("known.json", '{"trials": {}, "results": {"61": [1]}, "stamps": {"results": {"61": 1}}}'),
    ],
)
def test_no_file_of_one_trial_keeps_the_others_from_starting(
    tmp_path: Path, name: str, content: str
) -> None:
    study = on_node(tmp_path)
    Path(study.path, name).write_text(content)
    study = StudyOnNode(str(tmp_path), "policy-7f3k")
    record = study.record()
    assert record is not None
    assert trials_on_node.parameters_for(study, record, 40)["by"] == "tpe"
    assert study.all_files() is not None


def test_steps_that_are_none_are_no_rungs(tmp_path: Path) -> None:
    """Else a trial with such a result would never be compared again."""
    study = on_node(tmp_path)
    study.tell(3, {"state": "running", "rungs": {"a": 1.0}, "step": 7})
    assert study.result(3) == {"state": "running", "step": 7}


def test_what_is_no_unicode_is_spelled_in_files(tmp_path: Path) -> None:
    write_text(tmp_path / "trials.csv", "act,elu\ud800\n")
    assert (tmp_path / "trials.csv").read_text() == "act,elu\\ud800\n"


def test_parts_that_only_a_cluster_claims(tmp_path: Path) -> None:
    hpc = FakeCluster("hpc", array_size=4)
    verbs = launcher(tmp_path, hpc)
    sweep = verbs.sweeping.start(STUDY, ["true"], 3, snapshot=False)
    told = hpc.sweeps[sweep]
    forged = [
        {"id": f"{sweep}.5", "first": 3, "count": 1, "at_once": None},  # of a job
        {"id": "zz-1", "first": 3, "count": 999_000, "at_once": None},  # that are not there
        "no part",
    ]
    told["parts"] = [*told["parts"], *forged]
    told["results"]["3"] = {"state": "done"}
    found = verbs.sweeping.look(sweep)
    assert [one.number for one in found.trials] == [0, 1, 2, 3]
    assert verbs.sweeping.stop(sweep) == 3


def test_thousands_of_claimed_parts_are_compared_once() -> None:
    own = [Part("own", 5000, 10)]
    claimed = [Part(f"x-{at}", at, 1) for at in range(9999)]
    found = sweep_views.added(own, [*claimed, Part("across", 4990, 40)])
    assert len(found) == 9989
    assert not {one.first for one in found} & set(range(5000, 5010))


def test_values_that_a_formula_makes_too_large_hide_no_trial() -> None:
    space: Any = records_of(whole([from_flag("x=1..2:int"), from_flag("y==x*2")]))
    space[1]["formula"] = "(x+1000000)**10"
    assert values_of(space, {"values": {"x": 1}}, 0) == {}
