"""The command that goes on from a checkpoint: what is added, what is replaced, what is left."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.checkpoints import resuming
from dray.node.checkpoints.resuming import Progress, begun_at, flag_value, progress, resumed

RSL_RL: dict[str, Any] = {
    "number": r"^model_(\d+)\.pt$",
    "total": {
        "flag": "--max_iterations",
        "file": "params/agent.yaml",
        "pattern": r"^max_iterations: (\d+)",
        "rest": True,
        "last": -1,
    },
}
ARGS = [
    "--resume", "--load_run", "{run}", "--checkpoint", "{name}", "--max_iterations", "{left}",
]  # fmt: skip
SKRL: dict[str, Any] = {
    "number": r"^agent_(\d+)\.pt$",
    "anew": True,
    "scale": [{"file": "params/agent.yaml", "pattern": r"^ *rollouts: (\d+)"}],
    "total": {
        "flag": "--max_iterations",
        "file": "params/agent.yaml",
        "pattern": r"^ *timesteps: (\d+)",
        "rest": True,
    },
}
SB3: dict[str, Any] = {
    "number": r"^model_(\d+)_steps\.zip$",
    "anew": True,
    "scale": [
        {"file": "params/agent.yaml", "pattern": r"^n_steps: (\d+)"},
        {"file": "params/env.yaml", "pattern": r"^ +num_envs: (\d+)"},
    ],
    "total": {
        "flag": "--max_iterations",
        "file": "params/agent.yaml",
        "pattern": r"^n_timesteps: ([\d.e+]+)",
        "rest": True,
        "up": True,
        "early": True,
    },
}
TRAIN = ["python", "train.py", "--task", "Ant"]


def run_folder(outputs: Path, name: str, agent: str = "") -> Path:
    folder = outputs / "logs" / name
    (folder / "params").mkdir(parents=True)
    (folder / "params/agent.yaml").write_text(agent)
    return folder


def test_the_arguments_that_are_given_take_the_place_of_the_users() -> None:
    command = [*TRAIN, "--max_iterations", "3000", "--checkpoint=pre.pt", "--headless"]
    path = "/o/logs/rsl_rl/ant/2026-01-01_10-00-00/model_550.pt"
    found = resumed(command, {**RSL_RL, "args": ARGS}, path, Progress(550, 3000))
    assert found == [
        *TRAIN, "--headless", "--resume", "--load_run", "2026-01-01_10-00-00",
        "--checkpoint", "model_550.pt", "--max_iterations", "2450",
    ]  # fmt: skip


def test_what_is_not_known_is_not_given() -> None:
    """The user's own argument stays then."""
    command = [*TRAIN, "--max_iterations", "some"]
    args = ["--max_iterations", "{left}", "--n", "{number}", "--p", "{partner}", "--go", "{name}"]
    found = resumed(command, {"args": args}, "/a/b", Progress())
    assert found == [*command, "--go", "b"]


def test_what_belongs_to_the_checkpoint_is_named_where_it_is_there(tmp_path: Path) -> None:
    rules = {"number": r"m_(\d+)", "partner": "norm_{number}.pkl", "args": ["--norm={partner}"]}
    path = str(tmp_path / "m_010.zip")
    assert resumed(["x"], rules, path, Progress()) == ["x"]
    (tmp_path / "norm_010.pkl").touch()
    assert resumed(["x"], rules, path, Progress()) == ["x", f"--norm={tmp_path}/norm_010.pkl"]


def test_a_path_that_looks_like_a_placeholder_is_a_path() -> None:
    found = resumed(["x"], {"args": ["--a={checkpoint}"]}, "/{name}/{left}.pt", Progress(1, 2))
    assert found == ["x", "--a=/{name}/{left}.pt"]


def test_words_that_are_no_flags_are_only_added() -> None:
    assert resumed(["x", "go"], {"args": ["go", "{name}"]}, "/a/b.pt", Progress()) == [
        "x", "go", "go", "b.pt",
    ]  # fmt: skip


# Without braces: {run} among the arguments is a placeholder.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{"), max_size=8)


@given(st.lists(words), st.lists(words.filter(lambda word: word[:1] != "-")))
def test_no_other_argument_is_touched(command: list[str], values: list[str]) -> None:
    others = [word for word in command if word.partition("=")[0] != "--resume"]
    given_by_user = ["prog", *others, "--resume", *values]
    found = resumed(given_by_user, {"args": ["--resume", *values]}, "/a/b.pt", Progress(1, 2))
    assert found == ["prog", *others, "--resume", *values]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--n", "3"], 3),
        (["--n=3"], 3),
        (["--n", "3", "--n", "4"], 4),
        (["--n", "1e3"], 1000),
        (["--n"], None),
        (["--n", "many"], None),
        (["--nn", "3"], None),
        (["--n=inf"], None),
    ],
)
def test_the_value_of_a_flag(words: list[str], value: int | None) -> None:
    assert flag_value(["x", *words], "--n") == value


def test_the_total_is_the_commands_else_what_the_first_run_says(tmp_path: Path) -> None:
    first = run_folder(tmp_path, "one", "seed: 1\nmax_iterations: 1500\n")
    path = str(first / "model_600.pt")
    assert progress(RSL_RL, TRAIN, path, str(tmp_path), []).left == 900
    command = [*TRAIN, "--max_iterations", "3000"]
    assert progress(RSL_RL, command, path, str(tmp_path), []).left == 2400


def test_a_later_run_says_what_was_left_when_it_began(tmp_path: Path) -> None:
    run_folder(tmp_path, "one", "max_iterations: 1500\n")
    second = run_folder(tmp_path, "two", "max_iterations: 900\n")
    before = [
        {"runs": [], "done_before": None},
        {"runs": ["logs/one"], "done_before": 600},
    ]
    at = progress(RSL_RL, TRAIN, str(second / "model_800.pt"), str(tmp_path), before)
    assert (at.done, at.total, at.left) == (800, 1500, 700)


def test_iterations_that_were_done_elsewhere_do_not_count(tmp_path: Path) -> None:
    """A first attempt that begins at a checkpoint of another job's."""
    rules = {**RSL_RL, "total": {**RSL_RL["total"], "begin": 1000}}
    first = run_folder(tmp_path, "one", "max_iterations: 500\n")
    path = str(first / "model_1200.pt")
    before: list[dict[str, Any]] = [{"runs": [], "done_before": None}]
    assert progress(rules, TRAIN, path, str(tmp_path), before).left == 300
    command = [*TRAIN, "--max_iterations", "500"]
    at = progress(rules, command, path, str(tmp_path), before)
    assert (at.left, at.finished) == (300, False)


def test_the_last_checkpoint_tells_that_all_is_done(tmp_path: Path) -> None:
    """rsl_rl counts from 0: the last of 100 iterations is the 99th."""
    folder = run_folder(tmp_path, "one", "max_iterations: 100\n")

    def finished(number: int) -> bool:
        return progress(
            RSL_RL, TRAIN, str(folder / f"model_{number}.pt"), str(tmp_path), []
        ).finished

    assert [finished(98), finished(99)] == [False, True]


def test_a_file_tells_that_all_is_done(tmp_path: Path) -> None:
    rules = {"finished": "model.zip"}
    folder = run_folder(tmp_path, "one")
    path = str(folder / "model_8000_steps.zip")
    assert not progress(rules, TRAIN, path, str(tmp_path), []).finished
    (folder / "model.zip").touch()
    assert progress(rules, TRAIN, path, str(tmp_path), []).finished


@given(
    total=st.integers(1, 5000),
    rollouts=st.integers(1, 64),
    interruptions=st.lists(st.floats(0, 1), max_size=6),
    says=st.booleans(),
)
def test_a_trainer_that_counts_anew_does_all_iterations_once(
    tmp_path_factory: pytest.TempPathFactory,
    total: int,
    rollouts: int,
    interruptions: list[float],
    says: bool,
) -> None:
    """Interrupted anywhere, also between two of its iterations; with and without the flag."""
    outputs = tmp_path_factory.mktemp("outputs")
    command = [*TRAIN, "--max_iterations", str(total)] if says else TRAIN
    before: list[dict[str, Any]] = []
    runs: list[str] = []
    done = 0
    for number, fraction in enumerate(interruptions):
        left = total - done
        steps = math.floor(left * rollouts * fraction)
        agent = f"agent:\n  rollouts: {rollouts}\ntrainer:\n  timesteps: {left * rollouts}\n"
        folder = run_folder(outputs, str(number), agent)
        (folder / "checkpoints").mkdir()
        before.append({"runs": list(runs), "done_before": done})
        runs.append(f"logs/{number}/checkpoints")
        path = str(folder / f"checkpoints/agent_{steps}.pt")
        at = progress(SKRL, command, path, str(outputs), before)
        done += steps // rollouts
        assert (at.done, at.total) == (done, total)
        assert at.finished == (done >= total)


@given(
    total=st.integers(1, 60),
    n_steps=st.integers(1, 32),
    every=st.integers(1, 200),
    interruptions=st.lists(st.floats(0, 1), max_size=8),
    says=st.booleans(),
    beyond=st.integers(0, 31),
)
def test_sb3_makes_as_many_updates_as_when_it_is_left_alone(
    tmp_path_factory: pytest.TempPathFactory,
    total: int,
    n_steps: int,
    every: int,
    interruptions: list[float],
    says: bool,
    beyond: int,
) -> None:
    """It saves before the update that a step completes, does an iteration that has begun to its
    end, and may be configured for a part of one."""
    outputs = tmp_path_factory.mktemp("outputs")
    command = [*TRAIN, "--max_iterations", str(total)] if says else TRAIN
    envs = 4
    asked = total * n_steps * envs  # steps of the run that is under way
    asked -= 0 if says else min(beyond, n_steps * envs - 1)
    before: list[dict[str, Any]] = [{"runs": [], "done_before": None}]
    runs: list[str] = []
    updates = 0  # in the checkpoint that is resumed from
    for number, fraction in enumerate(interruptions):
        folder = run_folder(outputs, str(number), f"n_timesteps: {asked}.0\nn_steps: {n_steps}\n")
        (folder / "params/env.yaml").write_text(f"scene:\n  num_envs: {envs}\n")
        runs.append(f"logs/{number}")
        calls = math.floor(math.ceil(asked / envs) * fraction) // every * every
        if calls == 0:
            break
        path = str(folder / f"model_{calls * envs}_steps.zip")
        at = progress(SB3, command, path, str(outputs), before)
        updates += (calls - 1) // n_steps
        assert (at.done, at.left) == (updates, total - updates)
        before.append({"runs": list(runs), "done_before": at.done})
        asked = (total - updates) * n_steps * envs


def test_a_run_is_of_the_last_attempt_that_did_not_find_it() -> None:
    before: list[dict[str, Any]] = [
        {"runs": [], "done_before": None},
        {"outcome": "failed"},  # never got as far as to write it down
        {"runs": ["a"], "done_before": 10},
        {"runs": ["a", "b"], "done_before": 30},
    ]
    assert [begun_at(run, before) for run in "abc"] == [0, 10, 30]
    assert begun_at("a", []) == 0


def test_rules_of_an_older_dray_are_enough(tmp_path: Path) -> None:
    old = {"checkpoint": "*.pt", "args": ["--resume", "{checkpoint}"], "signal": None}
    at = progress(old, TRAIN, str(tmp_path / "a.pt"), str(tmp_path), [{"number": 1}])
    assert (at.done, at.total, at.finished) == (None, None, False)


def test_the_runs_of_checkpoints() -> None:
    paths = ["/o/a/m_1.pt", "/o/a/m_2.pt", "/o/b/c/m_1.pt", "/o/m.pt"]
    assert resuming.runs_of(paths, "/o") == [".", "a", os.path.join("b", "c")]


@pytest.mark.parametrize(
    ("path", "other", "is_further"),
    [
        ("b/model_500.pt", "a/model_500.pt", False),  # rsl_rl saves what it was given again
        ("b/model_550.pt", "a/model_500.pt", True),
        ("b/last.pt", "a/last.pt", True),
        ("a/last.pt", "a/last.pt", False),  # the pattern allows others: it tells them apart
    ],
)
def test_the_same_checkpoint_in_a_new_folder_is_no_progress(
    path: str, other: str, is_further: bool
) -> None:
    unknown = resuming.Progress()
    assert resuming.is_ahead({"checkpoint": "*/*.pt"}, path, unknown, other, unknown) == is_further


def test_one_that_is_overwritten_is_progress() -> None:
    unknown, path = resuming.Progress(), "a/last.pt"
    assert resuming.is_ahead({"checkpoint": "*/last.pt"}, path, unknown, path, unknown)


def test_where_it_is_known_how_far_they_are_that_counts() -> None:
    def is_ahead(path: str, done: int) -> bool:
        at, other = resuming.Progress(done), resuming.Progress(500)
        return resuming.is_ahead({}, path, at, "a/model_500.pt", other)

    assert is_ahead("b/model_50.pt", 550)  # it counts from zero again
    assert not is_ahead("b/model_0.pt", 500)
    assert not is_ahead("a/model_500.pt", 500)  # written again
    assert is_ahead("a/model_500500.pt", 500)  # further within an iteration


def test_a_runs_name_is_no_pattern() -> None:
    path = "/logs/2026-01-01_(a+b)/model_7.pt"
    (pattern,) = resumed(["x"], {"args": ["{run_pattern}"]}, path, Progress())[1:]
    assert re.match(pattern, "2026-01-01_(a+b)")
    assert not re.match(pattern, "2026-01-01_(a+b)_again")


def test_every_placeholder_stands_for_something(tmp_path: Path) -> None:
    path = tmp_path / "model_7.pt"
    (tmp_path / "stats_7.pkl").touch()
    rules = {
        "args": [f"--{name}={name}" for name in resuming.PLACEHOLDERS],
        "number": r"model_(\d+)",
        "partner": "stats_{number}.pkl",
    }
    found = resumed(["x"], rules, str(path), Progress(7, 10))
    assert len(found) == 1 + len(resuming.PLACEHOLDERS)
    assert not any("={" in word for word in found)
