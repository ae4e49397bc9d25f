"""Which event files are one run in TensorBoard, and how they are laid out for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.board import events, runs
from dray.board.logdir import HEAD, JobLogs, Mirror, beginning, resumed_files
from dray.board.runs import EventFile, Place
from dray.checks import Malformed
from dray.clusters.agent import answers

STARTS = (1000.0, 2000.0, 3000.0)


def files(*paths: str) -> list[EventFile]:
    """Name files as attempt:path."""
    split = [path.split(":") for path in paths]
    return [EventFile(path + "/e", 1000.0 * int(attempt) + 5) for attempt, path in split]


def names(*paths: str) -> dict[str, str]:
    return {path[:-2]: run for path, (run, _) in runs.merged(files(*paths), STARTS).items()}


def test_folders_that_differ_in_their_date_are_one_run() -> None:
    assert names("1:logs/2026-11-17_07-30-00", "2:logs/2026-11-17_09-30-00") == {
        "logs/2026-11-17_07-30-00": "",
        "logs/2026-11-17_09-30-00": "",
    }


def test_what_one_attempt_keeps_apart_stays_apart() -> None:
    assert names("1:logs/seed_1", "1:logs/seed_2") == {
        "logs/seed_1": "seed_1",
        "logs/seed_2": "seed_2",
    }


def test_each_kind_of_folder_goes_on_by_itself() -> None:
    assert names("1:a/v_0/train", "1:a/v_0/eval", "2:a/v_1/train", "2:a/v_1/eval") == {
        "a/v_0/train": "train",
        "a/v_0/eval": "eval",
        "a/v_1/train": "train",
        "a/v_1/eval": "eval",
    }


def test_the_same_folder_in_all_attempts() -> None:
    found = runs.merged([EventFile("runs/e.1", 1001), EventFile("runs/e.2", 2001)], STARTS)
    assert found == {"runs/e.1": Place("", 1), "runs/e.2": Place("", 2)}


def test_a_job_without_event_files_has_no_run() -> None:
    assert runs.merged([], STARTS) == {}


@pytest.mark.parametrize(
    ("began", "attempt"), [(0.0, 1), (1000.0, 1), (1999.5, 2), (2500.0, 2), (9999.0, 3)]
)
def test_the_attempt_that_wrote_a_file(began: float, attempt: int) -> None:
    assert runs.attempt_of(EventFile("e", began), STARTS) == attempt
    assert runs.attempt_of(EventFile("e", began), ()) == 1


def test_only_the_first_file_of_a_later_attempt_replaces_what_was_there() -> None:
    places = {
        "a": Place("", 1),
        "b": Place("", 2),
        "c": Place("", 2),
        "d": Place("eval", 2),
        "e": Place("", 3),
    }
    assert resumed_files(places) == {"b", "e"}


# -- records ------------------------------------------------------------------------------------

VERSION = events.record(b"\x09" + b"\0" * 8 + b"\x1a\x0dbrain.Event:2")
VALUES = events.record(b"\x09" + b"\0" * 8 + b"\x10\x07" + b"\x2a\x00")


def test_a_resumed_file_says_from_where_on() -> None:
    head = beginning(VERSION + VALUES, is_resumed=True)
    assert head is not None
    assert head.read == len(VERSION)
    again = list(events.events(head.written))
    assert [one.is_version for one in again] == [True, False]
    assert again[1].step == 7


def test_until_the_first_values_have_come_nothing_is_known() -> None:
    assert beginning(VERSION + VALUES[:-1], is_resumed=True) is None
    assert beginning(VERSION, is_resumed=False) == (b"", 0)


def test_a_file_without_values_is_taken_as_it_is() -> None:
    graph = b"\x09" + b"\0" * 8 + b"\x22" + events.varint(HEAD) + b"x" * HEAD
    full = VERSION + events.record(graph)
    assert beginning(full[:HEAD], is_resumed=True) == (b"", 0)


@pytest.mark.parametrize("data", [b"\xff" * 50, events.record(b"\xff\xff\xff")])
def test_damaged_records(data: bytes) -> None:
    with pytest.raises(events.Damaged):
        list(events.events(data))
    assert beginning(data, is_resumed=True) == (b"", 0)


# -- folders ------------------------------------------------------------------------------------


def test_the_folder_is_made_again_where_a_second_run_appears(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    logs = JobLogs(mirror, tmp_path / "logs")
    mirror.write("train/e.tfevents", 0, VERSION)
    logs.lay_out(runs.merged(mirror.files(), STARTS))
    assert laid_out(tmp_path) == {"000001.e.tfevents": VERSION}
    mirror.write("eval/e.tfevents", 0, VERSION + VALUES)
    logs.lay_out(runs.merged(mirror.files(), STARTS))
    assert laid_out(tmp_path) == {
        "eval/000001.e.tfevents": VERSION + VALUES,
        "train/000001.e.tfevents": VERSION,
    }


def test_what_came_is_added_and_a_file_that_began_anew_replaced(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    logs = JobLogs(mirror, tmp_path / "logs")
    for offset, data in ((0, VERSION), (len(VERSION), VALUES)):
        mirror.write("e.tfevents", offset, data)
        logs.lay_out(runs.merged(mirror.files(), STARTS))
    assert laid_out(tmp_path) == {"000001.e.tfevents": VERSION + VALUES}
    mirror.write("e.tfevents", 0, VERSION)
    logs.lay_out(runs.merged(mirror.files(), STARTS))
    assert laid_out(tmp_path) == {"000001.e.tfevents": VERSION}


def laid_out(folder: Path) -> dict[str, bytes]:
    top = folder / "logs"
    return {str(one.relative_to(top)): one.read_bytes() for one in top.rglob("*") if one.is_file()}


# -- what a cluster answers -----------------------------------------------------------------------


def part(path: str, offset: int, length: int) -> dict[str, object]:
    return {"path": path, "offset": offset, "length": length}


def test_parts_are_cut_from_what_follows() -> None:
    answer = {"parts": [part("a", 2, 3), part("b", 0, 2), part("c", 0, 4)]}
    found = answers.appended(answer, {"a": 2, "b": 7}, b"aaabb")
    assert found == [("a", 2, b"aaa"), ("b", 0, b"bb")]  # of c nothing has come


@pytest.mark.parametrize(
    "parts",
    [
        [part("../a", 0, 1)],
        [part("/etc/x", 0, 1)],
        [part("a", 5, 1)],
        [part("a", 0, -1)],
        [part("a", 0, 1), part("a", 0, 1)],
    ],
)
def test_parts_that_lead_elsewhere(parts: list[object]) -> None:
    with pytest.raises(Malformed):
        answers.appended({"parts": parts}, {"a": 2}, b"x")
