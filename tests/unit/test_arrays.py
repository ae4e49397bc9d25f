"""Arrays of jobs: their ids, folded and unfolded, and directories made on first use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.jobs.arrays import ArrayDir, fold, split, unfold

NAMES = st.one_of(
    st.sampled_from(["train-7f3k", "a-b", "x"]),
    st.builds("{}.{}".format, st.sampled_from(["sweep-a", "sweep-b"]), st.integers(0, 20)),
)


@given(st.lists(NAMES))
def test_folded_ids_unfold_to_the_same(names: list[str]) -> None:
    assert list(unfold(fold(names))) == names


def test_a_thousand_ids_are_one_text() -> None:
    assert fold(f"sweep-a.{index}" for index in range(1000)) == ["sweep-a.0-999"]
    assert fold(["x", "a.1", "a.2", "b.3", "a.4"]) == ["x", "a.1-2", "b.3", "a.4"]


def test_only_a_number_behind_the_dot_is_an_index() -> None:
    assert split("sweep-a.7") == ("sweep-a", 7)
    assert split("sweep-a") is None
    assert split("file.txt") is None


@pytest.fixture
def array(tmp_path: Path) -> ArrayDir:
    place = tmp_path / "arrays/sweep-a"
    place.mkdir(parents=True)
    (tmp_path / "jobs").mkdir()
    common = {"id": "sweep-a", "command": ["a"], "commands": [["a"], ["b"]], "name": "sweep"}
    (place / "job.json").write_text(json.dumps(common))
    (place / "job.sh").write_text("attempt /root/jobs/@JOB@\n")
    (place / "secrets.json").write_text('{"KEY": "value"}')
    return ArrayDir(str(tmp_path), "sweep-a")


def test_a_job_gets_its_own_directory(array: ArrayDir, tmp_path: Path) -> None:
    job_dir = array.make_job(1)
    assert Path(job_dir.path) == tmp_path / "jobs/sweep-a.1"
    description = json.loads(Path(job_dir.job).read_text())
    assert description == {"id": "sweep-a.1", "command": ["b"], "name": "sweep"}
    assert Path(job_dir.script).read_text() == "attempt /root/jobs/sweep-a.1\n"
    assert json.loads(Path(job_dir.secrets).read_text()) == {"KEY": "value"}
    Path(job_dir.end).write_text("{}")
    assert array.make_job(1).path == job_dir.path
    assert Path(job_dir.end).exists()  # it was not made anew
    assert sorted(path.name for path in (tmp_path / "jobs").iterdir()) == ["sweep-a.1"]


def test_a_job_that_the_laptop_submits_has_no_script(array: ArrayDir) -> None:
    """On Kubernetes there is none: its Job names the directory."""
    Path(array.path, "job.sh").unlink()
    job_dir = array.make_job(1)
    assert json.loads(Path(job_dir.job).read_text())["id"] == "sweep-a.1"
    assert not Path(job_dir.script).exists()


def test_the_arrays_secrets_go_once_every_job_has_them(array: ArrayDir) -> None:
    array.make_job(0)
    assert Path(array.secrets).exists()
    array.make_job(1)
    assert not Path(array.secrets).exists()


def test_a_removed_job_does_not_come_back(array: ArrayDir) -> None:
    array.remove_jobs([1])
    assert array.description_of(1) is None
    assert array.description_of(0) is not None
    with pytest.raises(FileNotFoundError):
        array.make_job(1)
    array.remove_jobs([0])
    assert not Path(array.path).exists()


def test_a_job_that_has_begun_knows_its_arrays_number(array: ArrayDir) -> None:
    array.make_job(0).remember_number("35")  # resumed by itself since
    assert array.known_number() is None
    array.make_job(1).remember_number("34_1")
    assert array.known_number() == "34"
