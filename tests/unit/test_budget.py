"""What a job may use as a whole, and what it has used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.config.loading import ClusterConfig, Config
from dray.description.describing import describe
from dray.errors import UsageError
from dray.home import Home
from dray.job.model import JobSpec
from dray.job.quantities import parse_hours, parse_moment, parse_shortest
from dray.node.jobs import budget, jobdir

Record = dict[str, Any]


def job(gpus: float = 0.0, nodes: int = 1, **limits: float) -> Record:
    resources = {"gpus": gpus, "nodes": nodes}
    return {"resources": resources, "limits": limits, "resume": {"grace": 5.0}, "resumed_after": 0}


def ran(seconds: float, outcome: str = "interrupted", **more: float) -> Record:
    return {"outcome": outcome, "started": 100.0, "ended": 100.0 + seconds, "number": 1, **more}


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [
        (ran(60.0), 60.0),
        (ran(-60.0), 0.0),
        (ran(9000.0, "lost"), 0.0),
        (ran(9000.0, "lost", heartbeat=160.0), 60.0),
        (ran(60.0, "failed", held=400.0), 300.0),
        ({"outcome": None}, 0.0),
        ({"outcome": "lost", "ended": 900.0}, 0.0),
    ],
)
def test_an_attempt_has_used_this(attempt: Record, seconds: float) -> None:
    """A lost one, until its last heartbeat: when it was missed says nothing."""
    assert budget.seconds_of(attempt) == seconds


def test_the_limit_that_is_reached_first_counts() -> None:
    assert budget.left(job(), [ran(60.0)]) is None
    assert budget.left({"resources": {}}, []) is None, "a job of an older dray"
    both = budget.left(job(2.0, 2, total_time=3600.0, gpu_hours=2.0), [ran(600.0), ran(600.0)])
    assert both is not None
    assert (both.seconds, both.reason) == (600.0, "its 2 GPU hours are used up")
    time = budget.left(job(0.5, total_time=3600.0, gpu_hours=2.0), [ran(600.0)])
    assert time is not None
    assert (time.seconds, time.reason) == (3000.0, "its total time of 1 h is used up")


@pytest.mark.parametrize(("used", "state"), [(50.0, None), (56.0, "stopped"), (99.0, "stopped")])
def test_without_time_for_anything_no_attempt_is_made(used: float, state: str | None) -> None:
    assert jobdir.decide(job(total_time=60.0), [ran(used) | {"progress": True}]).state == state


def test_attempts_before_a_resume_count() -> None:
    resumed = {**job(total_time=60.0), "resumed_after": 1}
    assert jobdir.decide(resumed, [ran(60.0)]).state == "stopped"


def test_one_that_was_done_in_time_is_done() -> None:
    assert jobdir.decide(job(total_time=60.0), [ran(60.0, "done")]).state == "done"


@pytest.mark.parametrize(("attempts", "is_late"), [([], True), ([ran(1.0)], False)])
def test_only_what_has_not_begun_is_late(attempts: list[Record], is_late: bool) -> None:
    assert (jobdir.too_late(job(start_by=50.0), attempts, 51.0) is not None) == is_late
    assert jobdir.too_late(job(start_by=50.0), attempts, 50.0) is None
    assert jobdir.too_late(job(), attempts, 51.0) is None


# -- what is described ----------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        home=Home(tmp_path, tmp_path, tmp_path),
        project=tmp_path,
        folder="",
        job={},
        clusters={"local": ClusterConfig("local", "local")},
    )


def described(config: Config, **settings: Any) -> JobSpec:
    keys = {f"job.{key.replace('__', '.')}": value for key, value in settings.items()}
    return describe(["true"], config._replace(job=keys), {}, 1000.0)


HOUR = 3600.0


@pytest.mark.parametrize(
    ("time", "least", "checkpoint", "expected"),
    [
        (8 * HOUR, None, "*.pt", 2 * HOUR),
        (4 * HOUR, None, "*.pt", HOUR),
        (4 * HOUR - 1, None, "*.pt", None),
        (8 * HOUR, None, None, None),
        (None, None, "*.pt", None),
        (8 * HOUR, 0.0, "*.pt", None),
        (HOUR, 600.0, "*.pt", 600.0),
    ],
)
def test_the_shortest_slot(
    config: Config,
    time: float | None,
    least: float | None,
    checkpoint: str | None,
    expected: float | None,
) -> None:
    settings = {"resources__time": time, "resources__time_min": least}
    spec = described(config, resume__checkpoint=checkpoint, **settings)
    assert spec.resources.time_min == expected


def test_the_grace_fits_into_every_limit(config: Config) -> None:
    assert described(config, limits__total_time=60.0).resume.grace == 6.0
    with pytest.raises(UsageError, match="grace"):
        described(config, limits__total_time=60.0, resume__grace=60.0)


def test_a_moment_is_given_or_counted_from_the_submission(config: Config) -> None:
    assert described(config, limits__start_by=parse_moment("2h")).limits.start_by == 8200.0
    moment = parse_moment("1970-01-01T01:00:00+00:00")
    assert described(config, limits__start_by=moment).limits.start_by == 3600.0
    for over in ("1970-01-01T00:00:00+00:00", "2970-01-01"):
        with pytest.raises(UsageError, match="over already, or years away"):
            described(config, limits__start_by=parse_moment(over))


@pytest.mark.parametrize(("text", "value"), [("8", 8.0), ("0.5", 0.5), (64, 64.0), ("8h", 8.0)])
def test_hours(text: object, value: float) -> None:
    assert parse_hours(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "many", "1e9", "", True])
def test_what_is_not_a_number_of_hours(text: object) -> None:
    with pytest.raises(ValueError, match="cannot read the hours"):
        parse_hours(text)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), (0, 0.0), ("none", 0.0), ("1h", HOUR)])
def test_a_shortest_time_may_be_none(text: object, value: float) -> None:
    assert parse_shortest(text) == value
