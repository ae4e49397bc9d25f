"""What Optuna is asked for a configuration, and which of its answers are believed."""

from __future__ import annotations

from typing import Any

import pytest

from dray.errors import UsageError
from dray.launcher.sweep_checks import require_python, require_sound
from dray.node.sweeps import optuna_question as optuna
from dray.sweep import options, space
from dray.sweep.study import Stop, Study

SPECS = (
    "lr=1e-5..1e-1:log",
    "n=2..16:int:step=2",
    "gamma=0..1:float:step=0.25",
    "act=[64,64],[128]",
)
SPACE = space.whole([space.from_flag(one) for one in (*SPECS, "twice==n*2")])


def record(**more: Any) -> Any:
    return Study(id="s", space=SPACE, sampler="optuna:TPESampler", seed=3, **more).to_dict()


def values(lr: float = 0.01, n: int = 4) -> dict[str, Any]:
    return {"lr": lr, "n": n, "gamma": 0.5, "act": [128], "twice": 2 * n}


def answered(**changed: Any) -> dict[str, Any]:
    return {"values": {"lr": 0.01, "n": 4, "gamma": 0.25, "act": "[64, 64]", **changed}}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("optuna:GPSampler", ("GPSampler", {})),
        ("optuna:TPESampler,multivariate=true", ("TPESampler", {"multivariate": True})),
        (
            'optuna:A, x=[1,2], y={"a": "b,c"},z=word,w=1e-3',
            ("A", {"x": [1, 2], "y": {"a": "b,c"}, "z": "word", "w": 0.001}),
        ),
    ],
)
def test_a_name_has_its_arguments_behind_it(name: str, found: Any) -> None:
    assert optuna.parsed(name) == found
    assert options.sampler(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("optuna:", "write optuna:CmaEsSampler"),
        ("optuna:os.system", "write optuna:CmaEsSampler"),
        ("optuna:A,b", "is not an argument"),
        ("optuna:A,b=1,b=2", "b is given twice"),
        ("optuna:A,seed=1", "the seed is that of the sweep"),
        ("optuna:QMCSampler", "use quasi"),
        ("optuna:GridSampler,search_space={}", "use grid"),
        ("optuna:A,b=" + "x" * 2000, "write optuna:CmaEsSampler"),
        ("bayes", "is not a sampler"),
    ],
)
def test_other_names_are_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        options.sampler(name)


def test_a_table_of_a_file_is_the_same_as_the_name() -> None:
    table = {"optuna": "TPESampler", "multivariate": True, "gamma": "x,y"}
    name = options.sampler(table)
    assert optuna.parsed(name) == ("TPESampler", {"multivariate": True, "gamma": "x,y"})
    with pytest.raises(ValueError, match="write optuna:"):
        options.sampler({"multivariate": True})


def test_it_is_told_what_all_trials_have_reached() -> None:
    given = {one: {"values": values(n=2 * one + 2), "by": ""} for one in range(4)}
    given[3]["attrs"] = {"cma:n": 1}
    given[4] = {"values": {"lr": 5.0}, "by": "not of this space"}
    results: Any = {
        0: {"state": "done", "value": 1.5},
        1: {"state": "done", "value": 2.5},  # the two repeats of configuration 0
        2: {"state": "failed"},
        4: {"state": "running", "value": 9.0},
    }
    asked = optuna.question(record(repeats=2), 7, given, results)  # type: ignore[arg-type]
    assert [one["state"] for one in asked["trials"]] == ["done", "failed", "running", "running"]
    assert [one["losses"] for one in asked["trials"]] == [[-2.0], None, None, None]
    assert asked["trials"][0]["values"] == {"lr": 0.01, "n": 2, "gamma": 0.5, "act": "[128]"}
    assert asked["trials"][3]["attrs"] == {"cma:n": 1}
    assert [one["name"] for one in asked["space"]] == ["lr", "n", "gamma", "act"]
    assert asked["space"][3]["choices"] == ["[64, 64]", "[128]"]
    assert asked["seed"] == optuna.question(record(repeats=2), 7, {}, {})["seed"]
    assert asked["seed"] != optuna.question(record(repeats=2), 8, {}, {})["seed"]


def test_an_answer_is_completed_by_what_follows_from_it() -> None:
    found = optuna.chosen(record(), 0, {**answered(), "attrs": {"a": 1}})
    assert found == {
        "values": {"lr": 0.01, "n": 4, "gamma": 0.25, "act": [64, 64], "twice": 8},
        "by": "optuna:TPESampler",
        "attrs": {"a": 1},
    }


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"values": [1]},
        answered(lr=1.0),
        answered(lr=float("nan")),
        answered(lr="0.01"),
        answered(lr=True),
        answered(lr=10**400),
        answered(n=3),
        answered(n=4.5),
        answered(n=None),
        answered(gamma=0.3),
        answered(act="[1]"),
        answered(act=[64, 64]),
        answered(act="not JSON"),
        {"values": {"lr": 0.01}},
    ],
)
def test_an_answer_that_is_not_of_the_space_is_no_answer(answer: dict[str, Any]) -> None:
    with pytest.raises(optuna.NoAnswer):
        optuna.chosen(record(), 0, answer)


def test_what_went_wrong_there_is_told_and_not_all_of_it() -> None:
    with pytest.raises(optuna.NoAnswer, match="xxx") as caught:
        optuna.chosen(record(), 0, {"problem": "x" * 10**6})
    assert len(str(caught.value)) == optuna.LONGEST_TOLD


@pytest.mark.parametrize(
    ("named", "command", "found"),
    [
        ((), ["/opt/conda/bin/python3.11", "train.py"], ["/opt/conda/bin/python3.11"]),
        ((), ["/isaac-sim/python.sh", "train.py"], ["/isaac-sim/python.sh"]),
        ((), ["torchrun", "train.py"], ["python3"]),
        (("conda", "run", "python"), ["torchrun"], ["conda", "run", "python"]),
    ],
)
def test_which_python_is_asked(named: tuple[str, ...], command: list[str], found: Any) -> None:
    assert optuna.python_of(record(sampler_python=named), command) == found


def test_a_python_that_comes_with_the_code_is_refused() -> None:
    study = Study(id="s", space=SPACE, sampler="optuna:TPESampler")
    require_python(study, ["python", "train.py"])
    with pytest.raises(UsageError, match="before the project's code is unpacked"):
        require_python(study, [".venv/bin/python", "train.py"])
    with pytest.raises(UsageError, match="goes with --sampler optuna"):
        require_python(Study(id="s", space=SPACE, sampler_python=("python",)), ["python"])


def test_a_population_asks_no_sampler() -> None:
    stop = Stop("pbt", first=1, total=9)
    with pytest.raises(UsageError, match="spread evenly"):
        require_sound(Study(id="s", space=SPACE, sampler="optuna:TPESampler", stop=stop))
