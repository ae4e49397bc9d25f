"""Everybody's first GPU before anybody's second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.job.situation import Pool, QueueEntry, QueueView
from dray.launcher.queues import by_fair_gpu
from dray.node.schedulers import fair_order

JOBS = st.lists(
    st.tuples(
        st.sampled_from(("ada", "bob", "eve")),
        st.integers(-2, 2).map(float),
        st.integers(0, 50).map(float),
        st.integers(0, 3).map(float),
    ),
    max_size=12,
)


def entry(number: str, owner: str, state: str, came: float, **more: object) -> QueueEntry:
    given = {"gpus": 1.0, "submitted": came, **more}
    return QueueEntry(number, owner, state, **given)  # type: ignore[arg-type]


def test_the_rule_by_example() -> None:
    jobs = [
        ("ada", 0.0, 1.0, 1.0),
        ("ada", 0.0, 2.0, 1.0),
        ("ada", 5.0, 3.0, 1.0),  # of higher priority: her first GPU
        ("bob", 0.0, 9.0, 1.0),
    ]
    assert fair_order.ranks(jobs) == [(1, 2), (1, 3), (2, 0), (3, 1)]


def test_a_job_with_two_gpus_counts_from_its_first_one() -> None:
    jobs = [("ada", 0.0, 1.0, 2.0), ("bob", 0.0, 2.0, 1.0), ("bob", 0.0, 3.0, 1.0)]
    assert fair_order.ranks(jobs) == [(1, 1), (1, 0), (2, 2)], "of two first ones the smaller"


@given(JOBS)
def test_every_job_has_one_place_and_nobodys_second_comes_before_a_first(
    jobs: list[tuple[str, float, float, float]],
) -> None:
    found = fair_order.ranks(jobs)
    assert sorted(index for _, index in found) == list(range(len(jobs)))
    assert [rank for rank, _ in found] == sorted(rank for rank, _ in found)
    firsts = {jobs[index][0] for rank, index in found if rank == 1}
    assert firsts == {owner for owner, _, _, gpus in jobs if gpus}


def test_who_would_have_to_yield() -> None:
    entries = (
        entry("1", "ada", "running", 1.0),
        entry("2", "ada", "running", 2.0),
        entry("3", "bob", "waiting", 3.0),
        entry("4", "eve", "waiting", 4.0, is_held=True),
    )
    full = QueueView(entries=entries, pools=(Pool("", 0, 2, 1),))
    fair = by_fair_gpu(full, "lab")
    assert [(rank, one.number) for rank, one in fair.ranked] == [(1, "1"), (1, "3"), (2, "2")]
    assert fair.above == 2, "bob's first comes before ada's second"
    assert fair.yields is not None
    assert (fair.yields.number, fair.mail[0]) == ("2", "To: ada")
    free = full._replace(pools=(Pool("", 1, 3, 1),))
    assert by_fair_gpu(free, "lab").yields is None


def test_nobody_yields_who_has_only_one() -> None:
    entries = (entry("1", "ada", "running", 1.0), entry("2", "bob", "running", 2.0))
    assert by_fair_gpu(QueueView(entries, (Pool("", 0, 2, 1),)), "lab").yields is None


def test_the_jobs_of_an_array_are_ranked_one_by_one() -> None:
    view = QueueView((entry("9_[0-3]", "ada", "waiting", 1.0, jobs=4),), (Pool("", 2, 2, 1),))
    fair = by_fair_gpu(view, "lab")
    assert ([rank for rank, _ in fair.ranked], fair.above) == ([1, 2, 3, 4], 2)


def test_those_that_wait_line_up_behind_what_runs() -> None:
    """Who has a GPU already waits for the second one, however old the job is."""
    running = [("ada", 0.0, 1.0)]
    waiting = [("ada", 1.0, 1.0), ("ada", 2.0, 0.0), ("bob", 3.0, 1.0), ("bob", 4.0, 2.0)]
    assert fair_order.line(running, waiting) == [1, 2, 0, 3]
    assert fair_order.line([], waiting) == [1, 0, 2, 3], "by age, where nobody has one"


TAKING = st.lists(
    st.tuples(
        st.sampled_from(("ada", "bob")),
        st.integers(0, 9).map(float),
        st.sampled_from((0.0, 0.5, 1.0, 2.0)),
    ),
    max_size=8,
)


@given(TAKING, TAKING)
def test_everybody_has_one_place_in_the_line(
    running: list[tuple[str, float, float]], waiting: list[tuple[str, float, float]]
) -> None:
    found = fair_order.line(running, waiting)
    assert sorted(found) == list(range(len(waiting)))
    for owner in ("ada", "bob"):  # nobody's own jobs overtake each other
        own = [
            waiting[index][1] for index in found if waiting[index][0] == owner and waiting[index][2]
        ]
        assert own == sorted(own)


def test_the_rule_holds_where_all_have_chosen_it() -> None:
    assert fair_order.is_agreed(["fair-gpu", "fair-gpu"])
    for orders in ([], ["fair-gpu", None], ["scheduler"], [7, "fair-gpu"]):
        assert not fair_order.is_agreed(orders)
