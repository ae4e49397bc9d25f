"""What follows an attempt, for every history: another attempt, or the end, and never for ever."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.jobs.policy import LONGEST_PAUSE, LOST_LIMIT, Decision, decide

Record = dict[str, Any]


def job(retries: int = 0, checkpoint: str | None = "*.pt", backoff: float = 10.0) -> Record:
    return {"retries": retries, "resume": {"checkpoint": checkpoint, "backoff": backoff}}


def attempt(outcome: str, progress: bool = False, **more: Any) -> Record:
    return {"outcome": outcome, "progress": progress, "reason": "because", **more}


DONE = attempt("done", reason="")
STOPPED = attempt("stopped", reason="stopped on request")
CRASH = attempt("failed", reason="exit code 1")
CRASH_AHEAD = attempt("failed", progress=True, reason="exit code 1")
HOPELESS = attempt("failed", hopeless=True, reason="no such program")
TIME = attempt("interrupted", cause="time", reason="time limit reached")
TIME_AHEAD = attempt("interrupted", progress=True, cause="time", reason="time limit reached")
SIGNAL = attempt("interrupted", cause="signal", reason="interrupted by SIGTERM")
SIGNAL_AHEAD = attempt("interrupted", progress=True, cause="signal")
LOST = attempt("lost", reason="its supervisor was killed")
LOST_AHEAD = attempt("lost", progress=True)

AGAIN = None


@pytest.mark.parametrize(
    ("retries", "checkpoint", "history", "state", "reason"),
    [
        (0, None, [], AGAIN, ""),
        (0, None, [DONE], "done", ""),
        (9, "*.pt", [CRASH_AHEAD, TIME_AHEAD, DONE], "done", ""),
        (9, "*.pt", [STOPPED], "stopped", "stopped on request"),
        # crashes
        (0, "*.pt", [CRASH], "failed", "exit code 1"),
        (0, "*.pt", [CRASH_AHEAD], "failed", "exit code 1"),
        (1, None, [CRASH], AGAIN, ""),
        (1, None, [CRASH, CRASH], "failed", "exit code 1; 1 retry used up"),
        (2, None, [CRASH, CRASH, CRASH], "failed", "exit code 1; 2 retries used up"),
        (9, None, [CRASH, CRASH, CRASH], AGAIN, ""),
        (
            9,
            "*.pt",
            [CRASH, CRASH],
            "failed",
            "exit code 1; given up: two crashes without a new checkpoint",
        ),
        (9, "*.pt", [CRASH, CRASH_AHEAD, CRASH], AGAIN, ""),
        (9, "*.pt", [CRASH_AHEAD, CRASH_AHEAD], AGAIN, ""),
        (9, "*.pt", [CRASH, TIME_AHEAD, CRASH], AGAIN, ""),
        (1, "*.pt", [CRASH_AHEAD, TIME_AHEAD, CRASH], "failed", "exit code 1; 1 retry used up"),
        (9, None, [HOPELESS], "failed", "no such program"),
        # the time limit
        (0, "*.pt", [TIME_AHEAD] * 50, AGAIN, ""),
        (0, "*.pt", [TIME], AGAIN, ""),
        (
            0,
            "*.pt",
            [TIME_AHEAD, TIME, TIME],
            "failed",
            "time limit reached twice without a new checkpoint",
        ),
        (0, "*.pt", [TIME, TIME_AHEAD, TIME], AGAIN, ""),
        (0, "*.pt", [SIGNAL, TIME], AGAIN, ""),
        (
            0,
            None,
            [TIME],
            "failed",
            "time limit reached; no checkpoint is set to go on from",
        ),
        # from outside
        (0, None, [SIGNAL, SIGNAL], AGAIN, ""),
        (0, None, [LOST, LOST], AGAIN, ""),
        (
            0,
            None,
            [LOST, LOST, LOST],
            "failed",
            "its supervisor was killed; given up: interrupted three times without progress",
        ),
        (
            0,
            None,
            [LOST, SIGNAL, LOST],
            "failed",
            "its supervisor was killed; given up: interrupted three times without progress",
        ),
        (
            0,
            "*.pt",
            [SIGNAL, TIME, SIGNAL],
            "failed",
            "interrupted by SIGTERM; given up: interrupted three times without progress",
        ),
        (0, "*.pt", [SIGNAL_AHEAD, LOST_AHEAD] * 50, AGAIN, ""),
        (0, "*.pt", [LOST, SIGNAL, LOST_AHEAD, LOST, SIGNAL], AGAIN, ""),
    ],
)
def test_decisions(
    retries: int, checkpoint: str | None, history: list[Record], state: str | None, reason: str
) -> None:
    decision = decide(job(retries, checkpoint), history)
    assert (decision.state, decision.reason, decision.again) == (state, reason, state is AGAIN)


def test_pauses_grow_and_stay_bearable() -> None:
    counts = (*range(1, 100), 3000)
    pauses = [decide(job(5000, None), [CRASH] * count).delay for count in counts]
    assert pauses[:5] == [10.0, 20.0, 40.0, 80.0, 160.0]
    assert set(pauses[5:]) == {LONGEST_PAUSE}


def test_only_crashes_are_followed_by_a_pause() -> None:
    for history in ([], [TIME], [SIGNAL], [LOST], [CRASH, TIME_AHEAD]):
        assert decide(job(9), history).delay == 0.0


KINDS = [CRASH, CRASH_AHEAD, TIME, TIME_AHEAD, SIGNAL, SIGNAL_AHEAD, LOST, LOST_AHEAD]
JOBS = st.builds(job, st.integers(0, 6), st.sampled_from([None, "*.pt"]))


# -- exit codes that decide ----------------------------------------------------------------------

PASSING = attempt("failed", reason="exit code 75", exit_code=75)
PASSING_AHEAD = attempt("failed", progress=True, reason="exit code 75", exit_code=75)
KILLED = attempt("failed", reason="killed by SIGKILL", exit_code=None, signal="SIGKILL")
WRONG = attempt("failed", progress=True, reason="exit code 2", exit_code=2)
CODES = {"retry_on": [75, 137], "fail_on": [2]}


@pytest.mark.parametrize(
    ("retries", "history", "state", "reason"),
    [
        (0, [PASSING], AGAIN, ""),
        (0, [PASSING, KILLED], AGAIN, ""),
        (0, [PASSING_AHEAD] * 50, AGAIN, ""),
        (0, [PASSING_AHEAD, WRONG], "failed", "exit code 2 (fail_on: not retried)"),
        (9, [WRONG], "failed", "exit code 2 (fail_on: not retried)"),
        (0, [CRASH], "failed", "exit code 1"),
        (1, [PASSING, CRASH], AGAIN, ""),
        (1, [CRASH, PASSING, CRASH], "failed", "exit code 1; 1 retry used up"),
        *(
            (9, history, "failed", f"{reason}; given up: interrupted three times without progress")
            for history, reason in (
                ([PASSING, KILLED, PASSING], "exit code 75"),
                ([PASSING, LOST, SIGNAL], "interrupted by SIGTERM"),
            )
        ),
    ],
)
def test_exit_codes_decide(
    retries: int, history: list[Record], state: str | None, reason: str
) -> None:
    decision = decide({**job(retries), **CODES}, history)
    assert (decision.state, decision.reason) == (state, reason)


def test_a_code_to_retry_on_is_followed_by_a_growing_pause() -> None:
    the_job = {**job(), **CODES}
    assert [decide(the_job, [PASSING] * count).delay for count in (1, 2)] == [10.0, 20.0]
    assert decide(the_job, [PASSING_AHEAD] * 5).delay == 10.0


@given(JOBS, st.lists(st.sampled_from([CRASH, PASSING, KILLED, TIME, LOST]), min_size=40))
def test_no_exit_code_goes_on_for_ever(the_job: Record, wishes: list[Record]) -> None:
    made, decision = live({**the_job, **CODES}, wishes)
    assert decision.state == "failed"
    assert len(made) <= LOST_LIMIT * (the_job["retries"] + 1)


# -- slots that are shorter than asked for ---------------------------------------------------------

SHORT = {**TIME, "started": 100.0, "deadline": 100.0 + 3600}
WHOLE = {**TIME, "started": 100.0, "deadline": 100.0 + 4 * 3600 - 3}


@pytest.mark.parametrize(
    ("history", "state", "whole"),
    [
        ([SHORT], AGAIN, True),
        ([{**SHORT, "progress": True}], AGAIN, False),
        ([{**SHORT, "progress": True}, SHORT], AGAIN, True),
        ([WHOLE], AGAIN, False),
        ([SHORT, WHOLE], AGAIN, False),
        ([WHOLE, WHOLE], "failed", False),
        ([SHORT, WHOLE, WHOLE], "failed", False),
        ([SHORT, SHORT, SHORT], "failed", False),
    ],
)
def test_after_a_short_slot_without_a_checkpoint_the_whole_time_is_needed(
    history: list[Record], state: str | None, whole: bool
) -> None:
    wanted = {"time": 4 * 3600.0, "time_min": 3600.0}
    decision = decide({**job(), "resources": wanted}, history)
    assert (decision.state, decision.whole) == (state, whole)


def live(the_job: Record, wishes: list[Record]) -> tuple[list[Record], Decision]:
    """The attempts that are really made when they would end like this, one after the other."""
    made: list[Record] = []
    for wish in wishes:
        decision = decide(the_job, made)
        if not decision.again:
            return made, decision
        made.append(wish)
    return made, decide(the_job, made)


@given(JOBS, st.lists(st.sampled_from([*KINDS, DONE, STOPPED])), st.sampled_from([DONE, STOPPED]))
def test_never_again_after_the_end(the_job: Record, before: list[Record], last: Record) -> None:
    assert decide(the_job, [*before, last]).state == last["outcome"]


@given(JOBS, st.lists(st.sampled_from(KINDS), max_size=60))
def test_retries_are_a_bound(the_job: Record, wishes: list[Record]) -> None:
    made, decision = live(the_job, wishes)
    crashes = sum(one["outcome"] == "failed" for one in made)
    assert crashes <= the_job["retries"] + 1
    if crashes == the_job["retries"] + 1:
        assert decision.state == "failed"


@given(JOBS, st.lists(st.sampled_from([CRASH, TIME, SIGNAL, LOST]), min_size=40, max_size=60))
def test_without_progress_every_job_ends(the_job: Record, wishes: list[Record]) -> None:
    made, decision = live(the_job, wishes)
    assert decision.state == "failed"
    assert len(made) <= LOST_LIMIT * (the_job["retries"] + 1)


@given(JOBS, st.lists(st.sampled_from([SIGNAL_AHEAD, LOST_AHEAD]), max_size=60))
def test_with_progress_no_interruption_ends_a_job(the_job: Record, wishes: list[Record]) -> None:
    assert live(the_job, wishes)[1].again


@given(JOBS, st.lists(st.sampled_from([*KINDS, DONE, STOPPED, HOPELESS]), max_size=20))
def test_an_end_is_a_known_state_with_a_reason(the_job: Record, history: list[Record]) -> None:
    decision = decide(the_job, history)
    assert decision.state in (None, "done", "failed", "stopped")
    assert bool(decision.reason) == (decision.state in ("failed", "stopped"))
