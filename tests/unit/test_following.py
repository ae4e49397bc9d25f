"""What a job waits for: the ends of others, as their files tell them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dray.node.jobs import following
from dray.node.jobs.following import Following, awaited, in_words, numbers, state_of
from dray.node.schedulers.slurm import fold_awaited

DESCRIPTION = {
    "command": ["true"],
    "resources": {},
    "resume": {"grace": 1.0, "backoff": 1.0},
    "outputs": [],
    "retries": 0,
    "resumed_after": 0,
}


def add(root: Path, name: str, end: str = "", number: str = "") -> None:
    folder = root / "jobs" / name
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({**DESCRIPTION, "id": name}))
    if end:
        (folder / "end.json").write_text(json.dumps({"state": end}))
    if number:
        (folder / "scheduler.json").write_text(json.dumps({"id": number}))


def follow(root: Path, after: dict[str, str], *alive: str, may_come: bool = False) -> Following:
    return Following(str(root), awaited(after), lambda name: name in alive, may_come)


def test_it_waits_until_all_are_done(tmp_path: Path) -> None:
    add(tmp_path, "a", "done")
    add(tmp_path, "b")
    found = follow(tmp_path, {"a": "ok", "b": "any"}, "b")
    assert found.has_to_wait()
    assert list(found.left) == ["b"]
    assert in_words(str(tmp_path), {"after": {"a": "ok", "b": "any"}}) == "comes after b"  # type: ignore[typeddict-item]
    (tmp_path / "jobs/b/end.json").write_text('{"state": "failed"}')
    assert not found.has_to_wait()
    assert found.end is None


@pytest.mark.parametrize(
    ("end", "told"), [("failed", "which failed"), ("stopped", "stopped"), ("lost", "lost")]
)
def test_it_never_starts_after_one_that_is_not_done(tmp_path: Path, end: str, told: str) -> None:
    add(tmp_path, "a", end)
    add(tmp_path, "b")
    found = follow(tmp_path, {"a": "ok", "b": "ok"}, "b")
    assert not found.has_to_wait()
    assert found.end is not None
    assert found.end.state == "stopped"
    assert told in found.end.reason


def test_a_job_that_nobody_runs_is_lost_and_one_that_is_gone_is_removed(tmp_path: Path) -> None:
    add(tmp_path, "a")
    assert state_of(str(tmp_path), "a", lambda name: True) == "queued"
    assert state_of(str(tmp_path), "a", lambda name: False) == "lost"
    assert state_of(str(tmp_path), "b", lambda name: True) == following.REMOVED
    found = follow(tmp_path, {"b": "ok"})
    assert not found.has_to_wait()
    assert found.end is not None
    assert follow(tmp_path, {"b": "ok"}, may_come=True).has_to_wait()
    any_end = follow(tmp_path, {"b": "any"})
    assert not any_end.has_to_wait()
    assert any_end.end is None


def test_jobs_of_an_array_that_have_not_begun(tmp_path: Path) -> None:
    array = "sweep-a"
    place = tmp_path / "arrays" / array
    place.mkdir(parents=True)
    (place / "job.json").write_text(json.dumps({"id": array, "commands": [["a"]] * 3}))
    after = {f"{array}.0-2": "ok"}
    assert set(awaited(after)) == {f"{array}.{n}" for n in range(3)}
    assert state_of(str(tmp_path), f"{array}.1", lambda name: True) == "queued"
    assert state_of(str(tmp_path), f"{array}.1", lambda name: False) == "lost"
    assert state_of(str(tmp_path), f"{array}.9", lambda name: True) == following.REMOVED


def test_more_than_anybody_submits_is_not_unfolded() -> None:
    assert awaited({"a.0-999999999": "ok", "b": "any", "../c": "ok"}) == {"b": "any"}


def test_the_numbers_of_those_that_have_not_ended(tmp_path: Path) -> None:
    add(tmp_path, "a", "done", "11")
    add(tmp_path, "b", "", "12")
    add(tmp_path, "c")
    assert numbers(str(tmp_path), {"a": "ok", "b": "ok", "c": "ok"}) == ["12"]


def test_many_jobs_of_an_array_are_awaited_as_a_whole() -> None:
    few = [f"14_{n}" for n in range(3)]
    many = [f"15_{n}" for n in range(50)]
    assert fold_awaited(["7", *few, *many, "7", ""]) == ["7", *few, "15"]
