"""Where an attempt begins, and what it says of checkpoints that it does not begin from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dray.node.checkpoints import origin
from dray.node.checkpoints.origin import NothingToGoOnFrom
from tests.unit.test_checkpoints import save

RULES = {"checkpoint": "**/model_*.pt", "number": r"model_(\d+)\.pt"}


def job(**more: Any) -> dict[str, Any]:
    return {"resume": RULES, "resumed_after": 0, **more}


def attempt(number: int, outcome: str = "failed", **more: Any) -> dict[str, Any]:
    return {"number": number, "outcome": outcome, "started": 1.0, "checkpoint": None, **more}


def begin(
    folder: Path, before: list[dict[str, Any]], number: int = 9, **more: Any
) -> tuple[str | None, list[str]]:
    found = origin.find(str(folder), job(**more), before, number)
    path = found.checkpoint.path if found.checkpoint else None
    return path and os.path.relpath(path, folder), found.remarks


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def test_the_newest_whole_one_is_taken_and_others_are_named(tmp_path: Path) -> None:
    save(tmp_path / "run/model_1.pt", 100)
    save(tmp_path / "run/model_2.pt", 200)
    cut(save(tmp_path / "run/model_3.pt", 300))
    remarks = ["passed over run/model_3.pt: it is not whole"]
    assert begin(tmp_path, []) == ("run/model_2.pt", remarks)


def test_one_that_an_attempt_crashed_from_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path / "run/model_1.pt", 100)
    save(tmp_path / "run/model_2.pt", 200)
    crash = attempt(2, from_checkpoint="run/model_2.pt", from_time=200.0)
    remarks = ["passed over run/model_2.pt: attempt 2 crashed from it"]
    assert begin(tmp_path, [crash]) == ("run/model_1.pt", remarks)
    # It got further, it was interrupted, it was another file, the user has resumed the job since.
    assert begin(tmp_path, [{**crash, "progress": True}])[0] == "run/model_2.pt"
    assert begin(tmp_path, [{**crash, "outcome": "lost"}])[0] == "run/model_2.pt"
    assert begin(tmp_path, [{**crash, "from_time": 150.0}])[0] == "run/model_2.pt"
    assert begin(tmp_path, [crash], resumed_after=2)[0] == "run/model_2.pt"


def test_the_only_one_is_tried_again(tmp_path: Path) -> None:
    save(tmp_path / "run/model_1.pt", 100)
    crash = attempt(2, from_checkpoint="run/model_1.pt", from_time=100.0)
    assert begin(tmp_path, [crash]) == ("run/model_1.pt", [])


def test_a_run_that_had_a_checkpoint_does_not_begin_from_nothing(tmp_path: Path) -> None:
    cut(save(tmp_path / "run/model_1.pt", 100))
    assert begin(tmp_path, [attempt(1, "lost")])[0] is None  # it had come to none
    before = [attempt(1, "lost", checkpoint="run/model_1.pt"), attempt(2, "lost")]
    with pytest.raises(NothingToGoOnFrom, match="dray resume --from scratch"):
        begin(tmp_path, before)
    (tmp_path / "run/model_1.pt").unlink()
    with pytest.raises(NothingToGoOnFrom, match=r"come to run/model_1\.pt"):
        begin(tmp_path, before)


def test_a_disk_that_does_not_answer_is_no_reason_to_give_up(tmp_path: Path) -> None:
    before = [attempt(1, "lost", checkpoint="run/model_1.pt")]
    outputs = tmp_path / "outputs"
    outputs.write_text("")  # as unlike a folder as a dead server's
    with pytest.raises(NotADirectoryError):
        begin(outputs, before)


def test_from_scratch_sets_all_aside_once(tmp_path: Path) -> None:
    save(tmp_path / "run/model_1.pt", 100)
    save(tmp_path / "run/model_2.pt", 200)
    before = [attempt(1, "lost", checkpoint="run/model_2.pt")]
    scratch = {"resumed_after": 1, "start_from": "scratch"}
    told = ["2 checkpoints were set aside in .set-aside-002"]
    assert begin(tmp_path, before, 2, **scratch) == (None, told)
    assert (tmp_path / ".set-aside-002/run/model_2.pt").exists()
    # Its node had trouble before the command began: the next attempt still means the same.
    unstarted = attempt(2, "interrupted", started=None)
    assert begin(tmp_path, [*before, unstarted], 3, **scratch) == (None, [])
    # What it writes then counts.
    save(tmp_path / "run/model_1.pt", 300)
    lost = attempt(3, "lost", checkpoint="run/model_1.pt")
    assert begin(tmp_path, [*before, unstarted, lost], 4, **scratch)[0] == "run/model_1.pt"


def test_from_one_sets_newer_ones_aside_with_what_belongs_to_them(tmp_path: Path) -> None:
    rules = {**RULES, "partner": "stats_{number}.pkl"}
    for number in (1, 2, 3):
        save(tmp_path / f"run/model_{number}.pt", number * 100)
        (tmp_path / f"run/stats_{number}.pkl").write_bytes(b"\x80\x04.")
    found = begin(tmp_path, [], 2, resume=rules, resumed_after=1, start_from="model_2.pt")
    assert found == ("run/model_2.pt", ["1 checkpoint was set aside in .set-aside-002"])
    aside = sorted(path.name for path in (tmp_path / ".set-aside-002/run").iterdir())
    assert aside == ["model_3.pt", "stats_3.pkl"]


def test_a_name_has_to_fit_one(tmp_path: Path) -> None:
    save(tmp_path / "a/model_1.pt", 100)
    save(tmp_path / "b/model_1.pt", 200)
    with pytest.raises(NothingToGoOnFrom, match="several checkpoints are named"):
        origin.require(str(tmp_path), RULES, "model_1.pt")
    with pytest.raises(NothingToGoOnFrom, match=r"there are: b/model_1\.pt, a/model_1\.pt"):
        origin.require(str(tmp_path), RULES, "model_2.pt")
    origin.require(str(tmp_path), RULES, "a/model_1.pt")


def test_nothing_is_moved_through_a_link_that_leads_out(tmp_path: Path) -> None:
    outside = save(tmp_path / "elsewhere/model_1.pt", 100)
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs/run").symlink_to(tmp_path / "elsewhere")
    begin(tmp_path / "outputs", [], resumed_after=1, start_from="scratch")
    assert outside.exists()
