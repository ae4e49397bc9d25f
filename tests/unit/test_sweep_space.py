"""What a sweep varies, as people write it: texts, TOML, and the file around them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.checks import Malformed
from dray.config.reading import Document
from dray.config.toml_lines import show_key
from dray.errors import ConfigError, UsageError
from dray.sweep import file, space
from dray.sweep.space_text import space_lines
from dray.sweep.study import KINDS, Parameter, Stop, Study, Trial

WHOLE = """\
[sweep]
trials = 50
metric = "Train/mean_reward"
stop = { rule = "asha", first = 100 }
stop_if = "Loss/value > 100 after 20"
command = ["python", "train.py", "--lr={lr}"]

[sweep.space]
"--num_envs" = [512, 1024]
"agent.lr" = { log = [1e-5, 1e-1] }
gamma = "0.9..0.999"
epochs = { int = [1, 10] }
minibatch = "=num_envs*epochs//4"
activation = "elu,relu"
task = "Isaac-Cartpole-v0"

[job.resources]
gpus = 1
"""


def read(text: str) -> file.SweepFile:
    return file.read_sweep(Document(Path("sweep.toml"), text.encode()))


def record(spec: str) -> dict[str, Any]:
    return space.from_flag(spec).to_dict()


# -- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("a=elu,relu", {"kind": "choice", "values": ["elu", "relu"]}),
        ("a=512, 1e-3,true,no", {"kind": "choice", "values": [512, 0.001, True, "no"]}),
        ("a=[64,64],[128]", {"kind": "choice", "values": [[64, 64], [128]]}),
        ('a="x,y",z', {"kind": "choice", "values": ["x,y", "z"]}),
        ("a=../one,../two", {"kind": "choice", "values": ["../one", "../two"]}),
        ("a=elu", {"kind": "fixed", "value": "elu"}),
        ("a=0.9..0.999", {"kind": "float", "low": 0.9, "high": 0.999, "log": False, "step": None}),
        ("a=1e-5..1:log", {"kind": "float", "low": 1e-5, "high": 1.0, "log": True, "step": None}),
        ("a=-3..3:int", {"kind": "int", "low": -3, "high": 3, "log": False, "step": 1}),
        ("a=8..64:int:step=8", {"kind": "int", "low": 8, "high": 64, "log": False, "step": 8}),
        ("a=1..10:float", {"kind": "float", "low": 1.0, "high": 10.0, "log": False, "step": None}),
        ("a==b*2", {"kind": "formula", "formula": "b*2", "of": []}),
    ],
)
def test_a_text_says_what_is_varied(spec: str, expected: dict[str, Any]) -> None:
    assert record(spec) == {"name": "a", "emit": "assignment", **expected}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("lr", "write lr=1e-5..1e-1:log"),
        ("a=1..10", "1..10:int for whole numbers"),
        ("a=1..10:itn", "Did you mean 'int'?"),
        ("a=1..many", "cannot read the range"),
        ("a=5..1:int", "5 is more than 1"),
        ("a=0..1:log", "begins above zero"),
        ("a=0.5..2.5:int", "are integers"),
        ("a=1..64:int:log:step=8", "has no steps"),
        ("a=0.0..1.0:step=0", "not more than zero"),
        ("a=x,,y", "an empty value"),
        ("a=[b]", "as JSON"),
        ("a b=1,2", "not the name of a parameter"),
        ("seed=1,2", "--space --seed=1,2"),
        ("a=1e-5...1e-1", "has three dots"),
        ("a=0.1,0.2:log", "':log' is for ranges: write 1e-5..1e-1:log, or a list alone"),
        ("a=1,2:int", "':int' is for ranges: write 1..10:int, or a list alone"),
        ("a=8,16:step=8", "':step=8' is for ranges"),
        ("a=0..1e400:float", "out of bounds"),
        ("a=-1e308..1e308:float", "out of bounds"),
        ("a=1e-5..1e101:log", "out of bounds: at most 1e+100"),
        ("a=0..1e400:int", "out of bounds"),
        ("a=-1e308..1e308:int", "out of bounds"),
        ("a=0..1e30:int", "out of bounds"),  # a value of it could not be read back
        ("a=1..10:int:step=1e400", "out of bounds"),
        ("a=0..1e99:step=1e-10", "steps of 1e-10 are too small"),
        ("a=1,1e400", "out of bounds"),
        ("a=-1e400", "out of bounds"),
        ("a=1,2:when=b:1e400", "out of bounds"),
    ],
)
def test_a_text_that_cannot_be_read_says_why(spec: str, told: str) -> None:
    with pytest.raises(space.SpaceError, match=re.escape(told)):
        space.from_flag(spec)


def test_large_ranges_stay_what_they_were() -> None:
    for spec in ("seed_=0..4294967295:int", "a=1e-99..1e99:log", "a=-1e99..1e99:step=1e90"):
        parameter = space.whole([space.from_flag(spec)])[0]
        assert Parameter.from_dict(json.loads(json.dumps(parameter.to_dict()))) == parameter


def test_a_flag_becomes_two_words_and_anything_else_one() -> None:
    assert record("--num_envs=512,1024")["emit"] == "flag"
    assert record("agent.lr=1,2")["emit"] == "assignment"


# -- all of them --------------------------------------------------------------------------------


def made(*specs: str) -> tuple[Parameter, ...]:
    return space.whole([space.from_flag(one) for one in specs])


def test_a_formula_knows_parameters_by_their_short_names() -> None:
    found = made("--num_envs=512,1024", "agent.params.horizon=16,32", "mini==num_envs*horizon//4")
    assert {*found[-1].of} == {"--num_envs", "agent.params.horizon"}


@pytest.mark.parametrize(
    ("specs", "name", "told"),
    [
        (("a=1,2", "b==c+1"), "b", "there is no parameter 'c'"),
        (("num_envs=1,2", "b==num_enfs+1"), "b", "Did you mean 'num_envs'?"),
        (("x.a=1,2", "y.a=1,2", "b==a+1"), "b", "there is no parameter 'a'"),
        (("a=1,2", "b==a+"), "b", "not arithmetic"),
        (("a=1,2", "b==__import__(a)"), "b", "there is no function"),
        (("a=x,y", "b==a*2"), "b", "is not a number"),
        (("a==b", "b==a"), "a", "made of itself"),
        (("a=0..4:int", "b==8/a"), "b", "division by zero, with a = 0"),
        (("a=-2..2:int", "b==8/a"), "b", "division by zero, with a = 0"),
        (("a=1.0..4.0", "c=1,4", "b==8//(c-a)"), "b", "with a = 1.0, c = 1"),
        (("k=x,y", "a=0..4:int:when=k:y", "b==8/a"), "b", "with k = y, a = 0"),
        (("a=1,2", "a=3,4"), "a", "there twice"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    specs: tuple[str, ...], name: str, told: str
) -> None:
    with pytest.raises(space.SpaceError, match=re.escape(told)) as error:
        made(*specs)
    assert error.value.name == name


def test_a_flag_replaces_what_the_file_says_and_keeps_its_place() -> None:
    own = [space.from_flag("a=1,2"), space.from_flag("b=1,2")]
    found = space.merged(own, [space.from_flag("a=3,4"), space.from_flag("c=5,6")])
    assert [(one.name, one.values) for one in found] == [
        ("a", (3, 4)),
        ("b", (1, 2)),
        ("c", (5, 6)),
    ]


def test_braces_that_name_nothing_are_told_before_anything_is_sent() -> None:
    known = made("agent.lr=1e-5..1e-1:log")
    space.check_template(["train.py", "--lr={lr}", "--at={agent.lr}", "{trial}", "{{x}}"], known)
    with pytest.raises(UsageError, match=r"Did you mean 'trial'\?"):
        space.check_template(["--name", "run-{trail}"], known)
    with pytest.raises(UsageError, match="written twice"):
        space.check_template(["${HOME"], known)


# -- the file -----------------------------------------------------------------------------------


def test_a_file_says_it_all() -> None:
    found = read(WHOLE)
    assert found.sweep("trials") == 50
    assert found.sweep("repeats") == 1
    assert found.sweep("stop") == Stop("asha", first=100)
    assert found.sweep("stop_if") == ("Loss/value > 100 after 20",)
    assert found.settings["job.resources.gpus"].number == 1
    kinds = {one.name: one.kind for one in space.whole(found.parameters)}
    assert kinds == {
        "--num_envs": "choice",
        "agent.lr": "float",
        "gamma": "float",
        "epochs": "int",
        "minibatch": "formula",
        "activation": "choice",
        "task": "fixed",
    }


@pytest.mark.parametrize(
    ("before", "after", "line", "told"),
    [
        ("trials = 50", "trails = 50", 2, "Did you mean 'trials'?"),
        ("trials = 50", "trials = 0", 2, "at least 1"),
        ("log = [1e-5", "lgo = [1e-5", 10, "Did you mean 'log'?"),
        ("num_envs*epochs", "num_envz*epochs", 13, "Did you mean 'num_envs'?"),
        ("[512, 1024]", "[]", 9, "no values"),
        ("int = [1, 10]", "int = [1, 2.5]", 12, "are integers"),
        ("int = [1, 10]", "int = [1, 10], float = [1, 2]", 12, "write one of"),
        ('rule = "asha"', 'rule = "asah"', 4, "none of asha, median"),
        ("first = 100", "fist = 100", 4, "none of rule, first"),
        ("gpus = 1", "gpu = 1", 18, "Did you mean 'gpus'?"),
        ("[job.resources]", "[clusters.x]", 17, "unknown key"),
        ("trials = 50", "trials = ", 2, "not valid TOML"),
        ("int = [1, 10]", f"int = [1, 1{'0' * 300}]", 12, "is not a range"),
        ("int = [1, 10]", f"int = [1, 1{'0' * 400}]", 12, "is not a range"),
        ("int = [1, 10]", f"int = [1, 0x1{'0' * 5000}]", 12, "a list of 2 is not a range"),
        ("int = [1, 10]", f"float = [1, 10], step = 1{'0' * 400}", 12, "is not a number"),
        ("int = [1, 10]", "int = [1, 10000000000000000000]", 12, "out of bounds"),
        ("int = [1, 10]", "fixed = [1, { a = inf }]", 12, "is not a number that can be used"),
        ("int = [1, 10]", "fixed = [1, { a = 1e101 }]", 12, "out of bounds"),
        ("int = [1, 10]", "table = [[[1], 2]], of = 5", 12, "of = 5 is no list of names"),
        ("int = [1, 10]", "table = [[[1], 2]], of = [5]", 12, "of = [5] is no list of names"),
        ("trials = 50", "sampler = { optuna = 1, a = 1979-05-27 }", 2, "a is no number"),
    ],
)
def test_a_mistake_is_told_with_its_line(before: str, after: str, line: int, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^sweep.toml:{line}: ") as error:
        read(WHOLE.replace(before, after, 1))
    assert told in str(error.value)


FORGED = "x\\ndray: all is well\\u001b[2J"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("trials = 50", f'"{FORGED}" = 50'),
        ("trials = 50", f'trials = "{FORGED}"'),
        ("epochs = { int", f'"{FORGED}" = {{ int'),
        ("int = [1, 10]", f'int = [1, 10], "{FORGED}" = 1'),
        ("int = [1, 10]", f'int = [1, 10], when = {{ "{FORGED}" = 1 }}'),
        ("int = [1, 10]", f'int = [1, 10], when = {{ activation = "{FORGED}" }}'),
        ("gpus = 1", f'"{FORGED}" = 1'),
        ("gpus = 1", f'gpus = "{FORGED}"'),
    ],
)
def test_an_error_about_a_file_has_no_lines_of_the_files_own(before: str, after: str) -> None:
    with pytest.raises(ConfigError, match="all is well") as error:
        read(WHOLE.replace(before, after, 1))
    assert str(error.value).isprintable()


def test_a_key_that_is_shown_is_one_of_toml() -> None:
    for name in ("a b", 'a"b', "a\\b", "a\nb", "\x1b[2J", "ü"):
        assert tomllib.loads(f"{show_key(('x', name))} = 1") == {"x": {name: 1}}
        assert show_key((name,)).isprintable()


def test_a_file_for_something_else_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"there is no \[sweep\] in it"):
        read("[job]\n")


def test_what_is_written_is_read_back() -> None:
    found = read(WHOLE)
    told = [
        *found.parameters,
        space.from_table("t", {"table": [[[512], "a"], [[1024], "b"]], "of": ["--num_envs"]}),
        space.from_table("d", {"drawn": [[{"k": 1}], [{"k": 2}]], "emit": "none"}),
        space.from_table("v", {"fixed": "--headless", "emit": "value"}),
        space.from_table("i", {"int": [1, 1000], "log": True}),
        space.from_table("f", {"float": [0.0, 1.0], "step": 0.25}),
    ]
    text = file.written({"sweep.trials": 7, "job.resources.gpus": 1}, told, ["one\nnote"])
    again = read(text)
    assert again.sweep("trials") == 7
    assert space.whole(again.parameters) == space.whole(told)


# -- what comes back from a cluster -------------------------------------------------------------


def test_a_study_comes_back_as_it_was() -> None:
    known = Study(
        id="policy-7f3k",
        space=space.whole(read(WHOLE).parameters),
        stop=Stop("median", total=900),
        stop_if=("nan",),
        created=1.5,
    )
    assert Study.from_dict(json.loads(json.dumps(known.to_dict()))) == known


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../x"},
        {"id": "x.1"},
        {"sampler": "rm"},
        {"mode": "best"},
        {"repeats": 0},
        {"space": [{"name": "a", "kind": "choice", "values": []}]},
        {"space": [{"name": "a", "kind": "other"}]},
        {"space": [{"name": "a{b}", "kind": "fixed", "value": 1}]},
        {"space": [{"name": "a", "kind": "fixed", "value": 1}] * 2},
        {"space": [{"name": "a", "kind": "float", "low": 0, "high": float("inf")}]},
        {"space": [{"name": "a", "kind": "table", "of": ["b"], "rows": [[[1, 2], 3]]}]},
        {"stop": {"rule": "asha", "factor": 1}},
        {"created": 1e300},
    ],
)
def test_a_study_that_somebody_has_changed_is_refused(change: dict[str, Any]) -> None:
    known = Study(id="a-1", space=(space.from_flag("a=1,2"),)).to_dict()
    with pytest.raises(Malformed):
        Study.from_dict({**known, **change})


def test_values_that_are_no_numbers_are_kept_and_are_the_worst() -> None:
    told = '{"number": 3, "configuration": 1, "value": NaN, "rungs": {"100": "inf", "300": 2}}'
    trial = Trial.from_dict(json.loads(told))
    assert str(trial.value) == "nan"
    assert trial.rungs == {100: float("inf"), 300: 2.0}
    for mode in ("max", "min"):
        study = Study(id="a", space=(), mode=mode)
        assert study.is_better(-1e300 if mode == "max" else 1e300, float("nan"))
        assert not study.is_better(float("inf"), 0.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


FIELDS = ("values", "low", "high", "log", "step", "formula", "of", "rows", "value", "emit")


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_parameter_is_read_or_refused(kind: str, told: dict[str, Any]) -> None:
    try:
        read = Parameter.from_dict({"name": "a", "kind": kind, **told})
    except Malformed:
        return
    assert Parameter.from_dict(json.loads(json.dumps(read.to_dict()))) == read


@given(st.text())
def test_any_text_is_a_space_or_refused(text: str) -> None:
    try:
        found = space.whole([space.from_spec("a", text)])
    except space.SpaceError:
        return
    assert Parameter.from_dict(json.loads(json.dumps(found[0].to_dict()))) == found[0]


def test_a_table_without_a_row_for_the_first_configuration_says_which() -> None:
    table = space.from_table("t", {"table": [[[512], "a"]], "of": ["--num_envs"]})
    with pytest.raises(space.SpaceError, match=r"the table has no row for --num_envs = \d+"):
        space.whole([space.from_flag("--num_envs=1024,2048"), table])


def test_formulas_without_end_are_refused() -> None:
    """A cloned file could have the laptop compute for hours."""
    choices = [space.from_flag(f"c{at}=1,2") for at in range(100)]
    all_of_them = "+".join(f"c{at}" for at in range(100))
    formulas = [space.from_flag(f"f{at}=={all_of_them}+{at}") for at in range(30)]
    with pytest.raises(space.SpaceError, match="together name more than 2000"):
        space.whole([*choices, *formulas])


def test_what_is_made_of_too_many_others_is_refused() -> None:
    chain = [space.from_flag(f"f{at}==f{at - 1}+1") for at in range(1, 200)]
    with pytest.raises(space.SpaceError, match="made of more than 100 others"):
        space.whole([space.from_flag("f0=1,2"), *chain])


def test_formulas_are_tried_with_so_many_values_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    computed, real = [], space.complete

    def complete(parts: list[Any], *rest: Any) -> Any:
        computed.append(len(parts))
        return real(parts, *rest)

    monkeypatch.setattr(space, "complete", complete)
    monkeypatch.setattr(space, "MOST_EFFORT", 1000)
    choices = [space.from_flag(f"c{at}=1,2,3,4,5") for at in range(6)]
    formulas = [space.from_flag(f"f{at}==c0+c1+c2+c3+c4+c5") for at in range(20)]
    assert len(space.whole([*choices, *formulas])) == 26
    assert 0 < sum(computed) <= 1000


@pytest.mark.parametrize("spec", ["log(1e-5,1e-1)", "uniform(0, 1)", "a,f(b,c)"])
def test_a_comma_inside_parentheses_is_refused(spec: str) -> None:
    with pytest.raises(space.SpaceError, match=r"comma inside parentheses.*1e-5\.\.1e-1:log"):
        space.from_flag(f"lr={spec}")


def test_parentheses_without_a_comma_are_a_text() -> None:
    assert space.from_flag("loss=huber(1),mse").values == ("huber(1)", "mse")
    assert space.from_flag('loss="f(a,b)",mse').values == ("f(a,b)", "mse")


@pytest.mark.parametrize("spec", ["1..4:int:step=8", "0.5..0.6:float:step=0.2"])
def test_a_step_that_is_larger_than_its_range_is_refused(spec: str) -> None:
    with pytest.raises(space.SpaceError, match="larger than the whole range"):
        space.from_flag(f"n={spec}")


def test_how_a_space_was_read_is_said() -> None:
    flags = (
        "lr=1e-5..1e-1:log",
        "n=8..64:int:step=8",
        "momentum=0..1:float:when=act:elu,relu",
        "act=elu,relu,tan h,1.0,true,[64,64],2e3",
        "size==n*4",
        "task=Isaac-Ant-v0",
    )
    found = space.whole([space.from_flag(one) for one in flags])
    assert space_lines(found) == [
        "  lr        any number from 1e-05 to 0.1, even in its logarithm",
        "  n         a whole number from 8 to 64, in steps of 8",
        "  momentum  any number from 0 to 1, if act is elu or relu",
        "  act       one of elu, relu, 'tan h', 1, True, [64,64], 1 more",
        "  size      = n*4",
        "  task      always 'Isaac-Ant-v0'",
    ]
    many = space.whole([space.from_flag(f"p{n}=1..9:int") for n in range(20)])
    assert len(space_lines(many)) == 13
    assert space_lines(many)[-1] == "  and 8 parameters more"


def test_a_flag_calls_a_files_parameter_by_its_last_name() -> None:
    known = [space.from_flag("agent.opt=sgd,adam"), space.from_flag("m=0..1:float:when=opt:sgd")]
    found = space.whole(space.merged(known, [space.from_flag("opt=sgd")]))
    assert [(one.name, one.kind) for one in found] == [("agent.opt", "fixed"), ("m", "float")]
    two = [space.from_flag("actor.lr=1,2"), space.from_flag("critic.lr=1,2")]
    with pytest.raises(space.SpaceError, match=r"write actor\.lr or critic\.lr"):
        space.merged(two, [space.from_flag("lr=3")])
    assert len(space.merged(two, [space.from_flag("--lr=3")])) == 3


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("1..10:int:float", "not both"),
        ("5..1", "5 is more than 1: the smaller end comes first"),
        ("nan..1", "is no range, whose ends are numbers"),
        ("a,b,a", "a is there twice"),
        ("1,1", "1 is there twice"),
    ],
)
def test_slips_in_a_spec_are_refused(spec: str, why: str) -> None:
    with pytest.raises(space.SpaceError, match=why):
        space.from_flag(f"x={spec}")


def test_values_of_different_kinds_are_no_twins() -> None:
    assert space.from_flag('x=1,1.0,"1",true').values == (1, 1.0, "1", True)


def test_a_formula_that_grows_out_of_bounds_is_refused() -> None:
    flags = ("x=1000000..1000001:int", "y==x**10")
    with pytest.raises(space.SpaceError, match="out of bounds, with x = 1000000"):
        space.whole([space.from_flag(one) for one in flags])


def test_endless_digits_are_read_in_a_time_that_grows_with_them() -> None:
    with pytest.raises(space.SpaceError):
        space.from_flag("x=" + "9" * 10**6 + "..")
