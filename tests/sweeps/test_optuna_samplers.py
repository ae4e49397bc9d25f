"""Optuna's own samplers choose the parameters of trials, on the node and without a database."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dray.node.sweeps import optuna_question
from dray.sweep import space
from dray.sweep.study import Objective, Study
from tests.conftest import Dray
from tests.integration.test_sweeps import trials, wait_until_all_are_done

pytestmark = [pytest.mark.sweeps, pytest.mark.xdist_group("sweeps")]

TRAINER = """
import sys
import dray.training as t
own = dict(word.split("=", 1) for word in sys.argv[1:])
lr, n = float(own["lr"]), int(own["n"])
for step in range(1, 11):
    t.report(step=step, reward=-((lr - 0.3) ** 2) - 0.01 * abs(n - 4))
"""
SPACE = space.whole(
    [space.from_flag(one) for one in ("lr=0..1:float", "n=1..9:int", "act=[64,64],[128]")]
)
SAMPLERS = (
    "TPESampler",
    "TPESampler,multivariate=true,constant_liar=true,n_startup_trials=5",
    "CmaEsSampler",
    "NSGAIISampler,population_size=10",
    "RandomSampler",
)


@pytest.mark.parametrize("name", SAMPLERS)
def test_forty_questions_in_a_row(name: str, ask: Callable[..., Any], tmp_path: Path) -> None:
    """Each is put to a new process, which knows what the question tells and nothing else."""
    sampler = "optuna:" + name
    study: Any = Study(id="s", space=SPACE, sampler=sampler, seed=1, mode="min").to_dict()
    found = ask("ask_in_a_row.py", optuna_question.__file__, tmp_path, json.dumps(study), "40")
    assert len(found) == 40
    losses = [
        (one["values"]["lr"] - 0.3) ** 2 + 0.01 * abs(one["values"]["n"] - 4) for one in found
    ]
    assert all(map(math.isfinite, losses))
    assert len({one["values"]["lr"] for one in found}) > 15, "it chooses the same again and again"
    if name == "CmaEsSampler":  # its state is what it has noted on trials
        assert any(key.startswith("cma:optimizer") for key in found[-1].get("attrs", ()))
    if name.startswith(("TPE", "Cma")):  # the others learn nothing, or learn slowly
        assert sum(losses[30:]) < sum(losses[:10]) / 2


@pytest.mark.parametrize(
    "name", ["TPESampler", "NSGAIISampler,population_size=8", "NSGAIIISampler", "RandomSampler"]
)
def test_two_metrics_at_once(name: str, ask: Callable[..., Any], tmp_path: Path) -> None:
    """The one is best at lr = 0.3, the other one at 0.6: the front lies between."""
    goals = (Objective("a", "min"), Objective("b", "min"))
    study: Any = Study(id="s", space=SPACE, sampler="optuna:" + name, objectives=goals).to_dict()
    found = ask("ask_in_a_row.py", optuna_question.__file__, tmp_path, json.dumps(study), "60")
    assert len({one["values"]["lr"] for one in found}) > 15, "it chooses the same again and again"
    between = [0.25 < one["values"]["lr"] < 0.65 for one in found[30:]]
    if name.startswith(("TPE", "NSGAIISampler")):  # by chance it would be 12 of 30
        assert sum(between) > 18
    if name.startswith("NSGAII"):  # its generations are what it has noted on trials
        assert any("generation" in key for key in found[-1].get("attrs", ()))


@pytest.mark.parametrize("name", [*SAMPLERS, "TPESampler,multivariate=true,group=true"])
def test_parameters_that_are_not_always_there(
    name: str, ask: Callable[..., Any], tmp_path: Path
) -> None:
    specs = ("n=1..9:int:when=act:elu", "act=elu,[1]", "lr=0..1:float", "deep=1,2:when=act:[1]")
    own = space.whole([space.from_flag(one) for one in specs])
    study: Any = Study(id="s", space=own, sampler="optuna:" + name, seed=1, mode="min").to_dict()
    found = ask("ask_in_a_row.py", optuna_question.__file__, tmp_path, json.dumps(study), "40")
    names = [set(one["values"]) for one in found]
    assert all(
        set(one["values"]) == {"act", "lr", "n" if one["values"]["act"] == "elu" else "deep"}
        for one in found
    )
    assert {"act", "lr", "n"} in names
    if name.startswith("TPE"):  # n is good only where it is there
        late = [one["values"]["act"] for one in found[20:]]
        assert late.count("elu") > 10


def test_trials_of_a_sweep_are_asked_for_in_their_own_python(dray: Dray, tools: Path) -> None:
    dray.write("train.py", TRAINER)
    flags = ("--trials", "6", "--at-once", "2", "--metric", "reward", "--seed", "4")
    flags += ("--space", "lr=0..1:float", "--space", "n=1..9:int", "--space", "act=elu,relu")
    sampler = "optuna:TPESampler,multivariate=true"
    words = (*flags, "--sampler", sampler, "--", str(tools / "python"), "train.py")
    sweep = dray("sweep", "start", *words).stdout.strip()
    wait_until_all_are_done(dray, sweep)
    found = trials(dray, sweep)
    assert len({one["values"]["lr"] for one in found}) == 6
    assert sampler in dray("sweep", "status", sweep).stdout


def test_a_wrong_argument_is_told_in_optunas_words(dray: Dray, tools: Path) -> None:
    dray.write("train.py", TRAINER)
    flags = ("--trials", "1", "--metric", "reward", "--space", "lr=0..1:float")
    words = (
        *flags,
        "--sampler",
        "optuna:TPESampler,foo=1",
        "--",
        str(tools / "python"),
        "train.py",
    )
    sweep = dray("sweep", "start", *words).stdout.strip()
    dray("wait", sweep, check=False)
    (only,) = trials(dray, sweep)
    assert "TPESampler could not choose: TypeError" in only["reason"]
    assert "'foo'" in only["reason"]
