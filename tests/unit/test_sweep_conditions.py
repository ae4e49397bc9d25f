"""Parameters that are there only if a choice has some value."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dray.config.reading import Document
from dray.errors import ConfigError, UsageError
from dray.node.sweeps import optuna_question, population, presence, sampler
from dray.node.sweeps.filling import fill
from dray.node.sweeps.space import NoSuchPoint, point_of
from dray.sweep import file, pictures, space, table
from dray.sweep.export import optuna, tables
from dray.sweep.study import Parameter, Study, Trial

SPECS = (
    "momentum=0.8..0.99:when=opt:sgd,rms",
    "opt=sgd,adam,rms",
    "beta=0.9,0.99:when=opt:adam",
    "nesterov=true,false:when=opt:sgd",
    "warm=1..3:int:when=nesterov:true",
    "lr=0.1,0.01",
    "twice==warm*2",
)


def space_of(*specs: str) -> tuple[Parameter, ...]:
    return space.whole([space.from_flag(one) for one in specs])


SPACE = space_of(*SPECS)
RECORDS = space.records_of(SPACE)
WITH_SGD = {"momentum", "opt", "nesterov", "lr"}


def there_with(values: dict[str, Any]) -> set[str]:
    """What has to be there, said otherwise."""
    wanted = {"opt", "lr", "beta" if values["opt"] == "adam" else "momentum"}
    if values["opt"] == "sgd":
        wanted.add("nesterov")
        if values["nesterov"]:
            wanted |= {"warm", "twice"}
    return wanted


# -- how they are written -------------------------------------------------------------------------


def test_a_text_and_a_table_of_a_file_say_the_same() -> None:
    text = """
[sweep]
[sweep.space]
"agent.opt" = ["sgd", "adam", 3]
"agent.momentum" = { float = [0.8, 0.99], when = { opt = "sgd" } }
beta = { choice = [0.9, 0.99], when = { "agent.opt" = ["adam", 3] } }
"""
    read = file.read_sweep(Document(Path("sweep.toml"), text.encode()))
    _, momentum, beta = space.whole(read.parameters)
    assert momentum.when == {"agent.opt": ("sgd",)}
    assert beta.when == {"agent.opt": ("adam", 3)}
    flags = ("agent.opt=sgd,adam,3", "agent.momentum=0.8..0.99:when=opt:sgd")
    assert space_of(*flags, "beta=0.9,0.99:when=agent.opt:adam,3")[1:] == (momentum, beta)
    both = space_of("a=1,2", "b=3,4", "c=0..1:float:step=0.5:when=a:1:when=b:3,4")[2]
    assert both.when == {"a": (1,), "b": (3, 4)}


def test_a_space_is_written_and_read_back() -> None:
    assert all(Parameter.from_dict(json.loads(json.dumps(one.to_dict()))) == one for one in SPACE)
    assert "when" not in SPACE[1].to_dict(), "what is always there is written as ever"
    written = file.written({"sweep.trials": 3}, SPACE)
    read = file.read_sweep(Document(Path("sweep.toml"), written.encode()))
    assert space.whole(read.parameters) == SPACE


@pytest.mark.parametrize(
    ("specs", "why"),
    [
        (("opt=sgd,adam", "m=1,2:when=opd:sgd"), "no parameter 'opd'. Did you mean 'opt'?"),
        (("opt=sgd,adam", "m=1,2:when=opt:adm"), "'opt' is never adm. Did you mean 'adam'?"),
        (("opt=1,2", "m=1,2:when=opt:true"), "'opt' is never true. It is one of 1, 2."),
        (("opt=0..1:float", "m=1,2:when=opt:0.5"), "'opt' is a range"),
        (("a=1,2:when=b:1", "b=1,2:when=a:1"), "whether 'a' is there would depend on itself"),
        (("a=1,2:when=a:1",), "whether 'a' is there would depend on itself"),
        (("opt=sgd,adam", "m=1,2:when=opt"), "write :when=optimizer:sgd"),
        (("opt=sgd,adam", "m=1,2:when=opt:"), "has an empty value"),
        (("opt=sgd,adam", "m=1,2:when=opt:sgd:when=opt:adam"), "for each choice once"),
    ],
)
def test_conditions_that_cannot_be_met_are_refused(specs: tuple[str, ...], why: str) -> None:
    with pytest.raises(space.SpaceError) as caught:
        space_of(*specs)
    assert why in str(caught.value)


def test_a_files_condition_is_refused_with_its_line() -> None:
    text = '[sweep]\n[sweep.space]\nopt = ["a", "b"]\nm = { float = [0, 1], when = "a" }\n'
    with pytest.raises(ConfigError, match=r"sweep.toml:4: .*write when = "):
        file.read_sweep(Document(Path("sweep.toml"), text.encode()))
    with pytest.raises(ConfigError, match="Did you mean 'when'"):
        file.read_sweep(Document(Path("sweep.toml"), text.replace("when", "wenn").encode()))


def test_a_choice_that_is_fixed_settles_what_depends_on_it() -> None:
    """As where a flag replaces a file's choice by one value."""
    flags = [space.from_flag("opt=sgd")]
    found = space.whole(space.merged([space.from_flag(one) for one in SPECS], flags))
    assert [one.name for one in found] == ["momentum", "opt", "nesterov", "warm", "lr", "twice"]
    assert [one.name for one in found if one.when] == ["warm"]


# -- who is there ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(40))
def test_what_is_not_there_has_no_value(number: int) -> None:
    for values in (
        sampler.at_random(RECORDS, 1, number),
        sampler.spread_evenly(RECORDS, 1, number),
    ):
        assert set(values) == there_with(values)
        point_of(RECORDS, values)


def test_a_grid_has_each_combination_once() -> None:
    records = space.records_of(space_of("momentum=0.8,0.9:when=opt:sgd,rms", *SPECS[1:]))
    size = sampler.grid_size(records)
    # sgd: 2 momenta with (3 warm + 1 without nesterov); adam: 2 betas; rms: 2 momenta; all at 2 lr
    assert size == 2 * (2 * 4 + 2 + 2)
    found = [sampler.on_grid(records, number) for number in range(size)]
    assert all(set(one) == there_with(one) for one in found)
    assert len({json.dumps(one, sort_keys=True) for one in found}) == size
    assert sampler.on_grid(records, size) == found[0]
    many = space_of("x=1,2:when=" + ":when=".join(f"c{n}:1" for n in range(9)), *CHOICES)
    with pytest.raises(ValueError, match="too many choices"):
        sampler.grid_size(space.records_of(many))


CHOICES = tuple(f"c{n}=1,2,3,4" for n in range(9))


def test_values_must_be_whole_but_not_more() -> None:
    values = {"opt": "adam", "beta": 0.9, "lr": 0.1}
    assert point_of(RECORDS, values) == [None, 1, 0, None, None, 0]
    with pytest.raises(NoSuchPoint):
        point_of(RECORDS, {"opt": "sgd", "beta": 0.9, "lr": 0.1})
    assert point_of(RECORDS, {**values, "momentum": "of a branch that is not there"})


def test_a_record_that_somebody_has_made_up_ends_nothing() -> None:
    """Conditions in a circle, or on what is not there, are never met."""
    records: Any = [
        {"name": "a", "kind": "choice", "values": [1], "when": {"b": [1]}},
        {"name": "b", "kind": "choice", "values": [1], "when": {"a": [1]}},
        {"name": "c", "kind": "choice", "values": [1], "when": {"nothing": [1]}},
        {"name": "d", "kind": "choice", "values": [1]},
    ]
    assert sampler.at_random(records, 0, 0) == {"d": 1}
    chain: Any = [{"name": "0", "kind": "choice", "values": [1]}]
    chain += [
        {"name": str(n), "kind": "choice", "values": [1], "when": {str(n - 1): [1]}}
        for n in range(1, 1000)
    ]
    assert len(presence.present(chain, dict.fromkeys(map(str, range(1000)), 1))) == 1000


# -- learning -------------------------------------------------------------------------------------


def loss(values: dict[str, Any]) -> float:
    """Best with sgd, nesterov and a momentum of 0.9; adam is the second best."""
    if values["opt"] != "sgd":
        return 1.0 if values["opt"] == "adam" else 2.0
    return 20 * abs(values["momentum"] - 0.9) + (0.0 if values["nesterov"] else 0.5)


def test_tpe_learns_in_the_branch_that_is_good() -> None:
    found = Counter[str]()
    away = []
    for seed in range(5):
        told: list[tuple[Any, float | None]] = []
        for number in range(60):
            values = sampler.suggest(RECORDS, seed, number, told, [])
            assert set(values) == there_with(values)
            told.append((values, loss(values)))
        found.update(values["opt"] for values, _ in told[30:])
        late = [values for values, _ in told[30:] if values["opt"] == "sgd"]
        away += [abs(one["momentum"] - 0.9) for one in late]
    assert found["sgd"] > found["adam"] + found["rms"]
    assert sorted(away)[len(away) // 2] < 0.03, "by chance it is 0.05"


def test_without_conditions_the_choice_is_what_it_always_was() -> None:
    records = space.records_of(space_of("lr=1e-5..1e-1:log", "n=1..9:int:step=2", "act=elu,1,true"))
    told: list[tuple[Any, float | None]] = []
    for number in range(40):
        values = sampler.suggest(records, 7, number, told, [one for one, _ in told[-2:]])
        away = (math.log10(values["lr"]) + 3) ** 2 + abs(values["n"] - 5)
        told.append((values, None if number % 9 == 8 else away))
    assert told[-1][0] == {"lr": pytest.approx(8.50890684368621e-05), "n": 5, "act": "elu"}


def test_a_population_draws_what_a_changed_choice_brings_along() -> None:
    values = {"opt": "adam", "beta": 0.9, "lr": 0.1}
    rule: Any = {"rule": "pbt", "change": ["opt"]}
    seen = set()
    for number in range(30):
        changed = population.changed(RECORDS, rule, values, number, Random(number))
        assert set(changed) == there_with(changed)
        seen.add(changed["opt"])
    assert seen == {"sgd", "adam", "rms"}


# -- the command ----------------------------------------------------------------------------------


def test_the_command_has_what_is_there() -> None:
    values = {"opt": "adam", "beta": 0.9, "lr": 0.1}
    assert fill(["train", "--lr={lr}"], RECORDS, values) == [
        "train",
        "--lr=0.1",
        "opt=adam",
        "beta=0.9",
    ]


@pytest.mark.parametrize("word", ["{momentum}", "--m={momentum}", "{twice}"])
def test_a_word_may_not_name_what_is_not_always_there(word: str) -> None:
    with pytest.raises(UsageError, match="is not always there") as caught:
        space.check_template(["train", word], SPACE)
    assert "added at the end" in str(caught.value.hint)
    space.check_template(["train", "--lr={lr}", "{opt}"], SPACE)


# -- Optuna ---------------------------------------------------------------------------------------


def record() -> Any:
    return Study(id="s", space=SPACE, sampler="optuna:TPESampler").to_dict()


def test_optuna_is_asked_for_choices_before_what_depends_on_them() -> None:
    trials: Any = {0: {"values": {"opt": "adam", "beta": 0.9, "lr": 0.1}, "by": ""}}
    asked = optuna_question.question(record(), 1, trials, {})
    names = [one["name"] for one in asked["space"]]
    assert names == ["opt", "lr", "momentum", "beta", "nesterov", "warm"]
    assert asked["space"][2]["when"] == {"opt": ['"sgd"', '"rms"']}
    assert asked["trials"][0]["values"] == {"opt": '"adam"', "beta": "0.9", "lr": "0.1"}


def test_an_answer_of_optunas_has_what_is_there_and_no_less() -> None:
    answer = {"opt": '"sgd"', "lr": "0.1", "momentum": 0.9, "nesterov": "true", "warm": 2}
    found = optuna_question.chosen(record(), 0, {"values": {**answer, "beta": "0.9"}})
    assert found["values"] == {
        "momentum": 0.9,
        "opt": "sgd",
        "nesterov": True,
        "warm": 2,
        "lr": 0.1,
        "twice": 4,
    }
    del answer["warm"]
    with pytest.raises(optuna_question.NoAnswer, match="None for warm"):
        optuna_question.chosen(record(), 0, {"values": answer})


# -- what people see ------------------------------------------------------------------------------


def trial(number: int, values: dict[str, Any], value: float) -> Trial:
    return Trial(number, number, f"s.{number}", "here", values, "done", value, 10)


TRIALS = (
    trial(0, {"opt": "adam", "beta": 0.9, "lr": 0.1}, 1.0),
    trial(1, {"momentum": 0.9, "opt": "rms", "lr": 0.1}, 2.0),
)


def test_status_shows_a_dash() -> None:
    study = Study(id="s", space=SPACE)
    shown = table.status(study, TRIALS, 200)
    at = {name: place for place, name in enumerate(shown.header)}
    assert [row[at["momentum"]] for row in shown.rows] == ["0.9", "-"]
    assert [row[at["beta"]] for row in shown.rows] == ["-", "0.9"]
    assert [row[at["twice"]] for row in shown.rows] == ["-", "-"]


def test_other_tools_get_what_is_there() -> None:
    study = Study(id="s", space=SPACE)
    lines = optuna.journal(study, TRIALS)[3:]
    assert [sorted(one["params"]) for one in lines] == [
        ["beta", "lr", "opt"],
        ["lr", "momentum", "opt"],
    ]
    assert sorted(lines[0]["distributions"]) == ["beta", "lr", "opt"]
    rows = tables.as_csv(study, TRIALS).splitlines()
    assert rows[1].endswith(",,adam,0.9,,,0.1,")
    assert pictures.parallel_picture(study, TRIALS).count("<polyline") == 2
