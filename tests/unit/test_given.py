"""The checkpoint of another run that a job begins from: its place, its count, what it is not."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from dray.node.checkpoints import given, giving, newest, origin, resuming
from dray.node.checkpoints.origin import NothingToGoOnFrom
from dray.node.jobs.jobdir import JobDir
from dray.recipes import isaaclab
from tests.unit.test_checkpoints import save
from tests.unit.test_resuming import ARGS, RSL_RL, SKRL

ASKED = ["python", "train.py", "--max_iterations", "100"]
PLACE = "logs/rsl_rl/ant/run/model_300.pt"
RULES: dict[str, Any] = {**RSL_RL, "checkpoint": "logs/rsl_rl/**/model_*.pt", "args": ARGS}


@pytest.mark.parametrize(
    ("path", "pattern", "place"),
    [
        ("/home/me/ant-7f3k/" + PLACE, "logs/rsl_rl/**/model_*.pt", PLACE),
        ("logs/logs/rsl_rl/model_3.pt", "logs/rsl_rl/**/model_*.pt", "logs/rsl_rl/model_3.pt"),
        ("/x/checkpoints/step_5", "checkpoints/step_*", "checkpoints/step_5"),
        ("/x/last.ckpt", "**/*.ckpt", "last.ckpt"),
        ("/x/model_3.pt", "logs/*.pt", ""),
        ("/x/model_3.pt", None, ""),
    ],
)
def test_its_place_is_the_end_of_its_path(path: str, pattern: str | None, place: str) -> None:
    assert given.place_for(path, pattern) == place


@drawn(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=5),
)
def test_a_pattern_finds_what_a_glob_would(words: list[str], pattern: list[str]) -> None:
    """As a file that is really there; a glob that ends in ** finds folders, too."""
    if pattern[-1] == "**":
        return
    with tempfile.TemporaryDirectory() as top:
        path = Path(top, *words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        found = newest.candidates(top, {"checkpoint": "/".join(pattern)})
        files = [one.path for one in found if os.path.isfile(one.path)]
        assert given.matches(words, pattern) == (str(path) in files)


def test_a_count_that_goes_on_begins_at_the_number_of_the_checkpoint(tmp_path: Path) -> None:
    """rsl_rl: --max_iterations are additional, and the number goes on."""
    start = resuming.start_of(RULES, ASKED, PLACE)
    assert (start.done, start.total, start.left, start.finished) == (300, 400, 100, False)
    rules = resuming.begun_from(RULES, PLACE)
    own = tmp_path / "logs/rsl_rl/ant/other/model_350.pt"
    at = resuming.progress(rules, ASKED, str(own), str(tmp_path), [])
    assert (at.done, at.left, at.finished) == (350, 50, False)
    assert resuming.progress(rules, ASKED, str(own).replace("350", "399"), "/", []).finished


def test_a_count_that_begins_anew_is_its_own() -> None:
    rules = resuming.begun_from(SKRL, "run/checkpoints/agent_900.pt")
    start = resuming.start_of(rules, ASKED, "run/checkpoints/agent_900.pt")
    assert (start.done, start.left) == (0, 100)
    assert rules["total"]["begin"] == 0


def test_a_limit_of_all_epochs_holds_those_of_the_other_run() -> None:
    rules = isaaclab.RL_GAMES.settings
    resume = {key.rpartition(".")[2]: value for key, value in rules.items()}
    resume["args"] = resume["resume_args"]
    path = "run/nn/last_ant_ep_300_rew_1.pth"
    start = resuming.start_of(resume, ASKED, path)
    command = resuming.resumed(ASKED, resume, path, start, begins=True)
    assert command[-4:] == ["--checkpoint", path, "--max_iterations", "400"]


def test_without_a_number_nothing_is_made_up() -> None:
    start = resuming.start_of(RULES, ASKED, "run/final.pt")
    assert (start.done, start.total, start.left) == (None, None, None)
    assert resuming.begun_from(RULES, "run/final.pt")["total"] is None
    command = resuming.resumed(ASKED, RULES, "run/final.pt", start, begins=True)
    assert command[2:4] == ["--max_iterations", "100"]


def test_args_to_begin_with_take_the_place_of_those_to_go_on_with() -> None:
    rules = {"args": ["--resume"], "begin_args": ["--init", "{checkpoint}"]}
    at = resuming.Progress()
    assert resuming.resumed(["x"], rules, "a.pt", at, begins=True) == ["x", "--init", "a.pt"]
    assert resuming.resumed(["x"], rules, "a.pt", at) == ["x", "--resume"]


# -- in a job's directory -------------------------------------------------------------------------


def job_of(folder: Path, rules: dict[str, Any] = RULES, **origin_of: str) -> dict[str, Any]:
    job_dir = JobDir(str(folder))
    os.makedirs(job_dir.outputs, exist_ok=True)
    told = {"path": PLACE, "told": "first-7f3k:" + PLACE, **origin_of}
    return given.known(job_dir, {"resume": rules, "resumed_after": 0, "origin": told})


def test_a_trainer_that_looks_by_name_finds_a_copy_which_is_none_of_its_own(tmp_path: Path) -> None:
    save(tmp_path / "given" / PLACE, 100)
    job, outputs = job_of(tmp_path), str(tmp_path / "outputs")
    found = origin.find(outputs, job, [], 1)
    assert found.is_given
    assert found.checkpoint is not None
    assert found.checkpoint.path == os.path.join(outputs, PLACE)
    assert newest.candidates(outputs, job["resume"]) == []
    at = resuming.progress(job["resume"], ASKED, found.checkpoint.path, outputs, [])
    assert (at.done, at.left) == (300, 100)
    # Once there is one of its own, though it has come less far, that one counts.
    own = save(tmp_path / "outputs/logs/rsl_rl/ant/other/model_10.pt", 200)
    second = origin.find(outputs, job, [], 2)
    assert second.checkpoint is not None
    assert (second.checkpoint.path, second.is_given) == (str(own), False)
    # Where its trainer has written to the copy, that is one of its own, too.
    save(tmp_path / "outputs" / PLACE, 300)
    assert len(newest.candidates(outputs, job["resume"])) == 2


def test_the_number_that_it_began_from_is_no_progress(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    rules, outputs = job["resume"], str(tmp_path / "outputs")
    first = rules["given"]["placed"]

    def is_ahead(name: str) -> bool:
        path = os.path.join(outputs, "logs/rsl_rl/ant/other", name)
        at, first_at = (resuming.progress(rules, ASKED, one, outputs, []) for one in (path, first))
        return resuming.is_ahead(rules, path, at, first, first_at)

    assert not is_ahead("model_300.pt")
    assert is_ahead("model_310.pt")
    assert is_ahead("model_10.pt")  # a trainer that counts from zero


def test_a_run_that_had_its_own_does_not_silently_begin_again(tmp_path: Path) -> None:
    save(tmp_path / "given" / PLACE, 100)
    job, outputs = job_of(tmp_path), str(tmp_path / "outputs")
    reached = {"number": 1, "outcome": "interrupted", "checkpoint": "x/model_310.pt", "started": 1}
    with pytest.raises(NothingToGoOnFrom, match=r"it had come to x/model_310\.pt"):
        origin.find(outputs, job, [reached], 2)
    anew = {**job, "start_from": "scratch", "resumed_after": 1}
    assert origin.find(outputs, anew, [reached], 2).is_given


def test_one_of_another_job_is_copied_and_no_link_leads_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    outputs = root / "jobs/first-7f3k/outputs"
    path = save(outputs / PLACE, 100)
    found = giving.find(JobDir(str(outputs.parent)), "", RULES)
    assert (found.path, found.files, found.remarks) == (PLACE, [PLACE], [])
    begin = {"job": "first-7f3k", "checkpoint": PLACE, "path": PLACE, "told": "that one"}
    job = {"id": "new-7f3k", "resume": RULES, "origin": begin}
    giving.take(str(root), job, str(tmp_path / "new"))
    for wrong in ({"job": "../x"}, {"path": "../../x"}):
        with pytest.raises(NothingToGoOnFrom, match="nothing to begin from"):
            giving.take(str(root), {**job, "origin": {**begin, **wrong}}, str(tmp_path / "other"))
    shutil.rmtree(root)
    assert newest.is_whole(str(tmp_path / "new/given" / PLACE))
    path = save(outputs / PLACE, 100)
    folder = path.parent
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NothingToGoOnFrom, match="leads out of the outputs"):
        giving.find(JobDir(str(outputs.parent)), "model_300.pt", RULES)
