"""How values get into a command, and the small expressions of a sweep."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dray.node.sweeps.expressions import Condition, NotAnExpression, evaluate, names_in
from dray.node.sweeps.filling import NoSuchName, fill, names_of, text_of

SPACE: Any = [
    {"name": "--num-envs", "kind": "choice", "values": [512]},
    {"name": "agent.lr", "kind": "float", "low": 0, "high": 1},
    {"name": "flag", "kind": "choice", "values": [True]},
    {"name": "rest", "kind": "fixed", "value": "--headless", "emit": "value"},
    {"name": "hidden", "kind": "fixed", "value": 1, "emit": "none"},
]
VALUES = {"--num-envs": 512, "agent.lr": 3e-05, "flag": True, "rest": "--headless", "hidden": 1}


def test_what_no_word_names_is_added_in_its_own_way() -> None:
    assert fill(["python", "train.py"], SPACE, VALUES) == [
        "python",
        "train.py",
        "--num-envs",
        "512",
        "agent.lr=3e-05",
        "flag=true",
        "--headless",
    ]


def test_words_are_filled_wherever_a_name_stands() -> None:
    template = ["x", "--lr={lr}", "{agent.lr}", "run-{trial}-{repeat}-{seed}", "{{lr}}", "{hidden}"]
    argv = fill(template, SPACE, VALUES, trial=17, repeat=2, seed=5)
    assert argv[1:6] == ["--lr=3e-05", "3e-05", "run-17-2-5", "{lr}", "1"]
    assert "agent.lr=3e-05" not in argv


@pytest.mark.parametrize("word", ["{lrr}", "{", "a}b", "{}"])
def test_a_brace_that_stands_for_nothing_is_refused(word: str) -> None:
    with pytest.raises(NoSuchName, match="stands for nothing"):
        fill([word], SPACE, VALUES)


def test_a_short_name_that_two_have_is_no_name() -> None:
    space: Any = [{"name": "a.lr", "kind": "float"}, {"name": "b.lr", "kind": "float"}]
    assert names_of(space) == {"a.lr": "a.lr", "b.lr": "b.lr"}
    assert "trial" not in names_of([{"name": "x.trial", "kind": "float"}])


@pytest.mark.parametrize(
    ("value", "flag", "assignment"),
    [
        ("a b", "a b", "a b"),
        (True, "True", "true"),
        (None, "None", "null"),
        (0.1, "0.1", "0.1"),
        ([1, 2.5, "x"], "[1,2.5,x]", "[1,2.5,x]"),
        ([{"a": 1, "b": False}], "[{a:1,b:False}]", "[{a:1,b:false}]"),
    ],
)
def test_values_are_written_as_their_readers_expect(value: Any, flag: str, assignment: str) -> None:
    assert text_of(value, as_assignment=False) == flag
    assert text_of(value, as_assignment=True) == assignment


def test_arithmetic() -> None:
    known = {"envs": 8, "agent.lr": 0.5}
    assert evaluate("envs * 4 // 3 % 7", known) == 3
    assert evaluate("-min(envs, 2.5) + round(agent.lr) ** 2", known) == -2.5
    assert evaluate("round(agent.lr * 1.23456, 3) + round(envs * 123, -2)", known) == 1000.617
    assert names_in("max(envs, 2) * agent.lr") == {"envs", "agent.lr"}


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')",
        "envs.__class__.__base__",
        "[1][0]",
        "envs if envs else 1",
        "9 ** 9 ** 9",
        "10 ** 64 * 10 ** 64 * 10 ** 64",
        "1 / 0",
        "missing",
        "'a' * 3",
        "(lambda: 1)()",
        "max()",
        "(" * 500,
        "1" * 2000,
        "round(envs, -99999)",
        "round(envs, 10 ** 30)",
        "round(1e999 - 1e999)",
        "int(1e999 - 1e999)",
        "1e999 - 1e999",
        "max(10 ** 999, 1)",
    ],
)
def test_nothing_but_arithmetic_is_evaluated(formula: str) -> None:
    with pytest.raises(NotAnExpression):
        evaluate(formula, {"envs": 8})


def test_conditions() -> None:
    one = Condition("Episode/out of bounds (mean) > 0.85 after 20")
    assert one.name == "Episode/out of bounds (mean)"
    assert not one.holds(19, 0.9)
    assert one.holds(20, 0.9)
    assert not one.holds(20, 0.8)
    assert not one.holds(20, None)
    assert Condition("Loss<=-1e3").holds(1, -1000.0)
    assert Condition("Reward / Total reward (mean) > 3").name == "Reward / Total reward (mean)"
    assert Condition("nan").holds(1, math.nan)
    assert Condition("nan").holds(1, None)
    assert not Condition("nan").holds(1, 3.0)


def test_a_long_condition_is_refused_before_it_is_read() -> None:
    with pytest.raises(NotAnExpression, match="of more than 1000 characters"):
        Condition("x<" + "1" * 10_000 + "x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Loss",
        "Loss > ",
        "Loss > x",
        "> 3",
        "Loss > 3 after x",
        "reward >> 3",
        "reward => 3",
        '__import__("os") > 1',
        "a > 1 and b > 2",
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(NotAnExpression):
        Condition(text)
