"""The small reader of arguments says what click says, or leaves it to click."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.cli import plan, run
from dray.cli.arguments import Verb, read
from dray.cli.parameters import FORMER, click_command, variable
from dray.cli.running import LOOKING
from dray.job.options import JOB

VERBS: dict[str, Verb] = {name: import_module(f"dray.cli.{name}").VERB for name in LOOKING.values()}
VALUES = ["", "-", "--", "0", "1", "-1", "5", "+7", " 7", "1_0", "done", "failed", "10m", "21:00"]
VALUES += ["2h", "(", "a.*", "job-1", "=x", "x=", "--help", "-h", "é", "\udce9", "soon"]


def by_click(verb: Verb, words: list[str]) -> dict[str, Any] | None:
    """The values that click would call the verb with; None where it would not."""
    try:
        with click_command(verb).make_context(verb.name, list(words)) as context:
            return dict(context.params)
    except (click.ClickException, click.exceptions.Exit):
        return None


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """What a moment was read as depends on when it was read."""
    moments = one.pop("since", None), other.pop("since", None)
    same_moment = None in moments or abs(moments[0] - moments[1]) < 60
    return one == other and same_moment and moments.count(None) != 1


@st.composite
def lines(draw: st.DrawFn) -> tuple[Verb, list[str]]:
    """A verb, and words that are mostly flags of its own, in all spellings."""
    verb = VERBS[draw(st.sampled_from(sorted(VERBS)))]
    flags = [flag for one in verb.parameters for flag in one.flags]
    letters = "".join(flag[1:] for flag in flags if not flag.startswith("--")) + "hx5"
    value = st.sampled_from(VALUES) | st.text(max_size=4)
    word = st.one_of(
        st.sampled_from(flags),
        value,
        st.builds("{}={}".format, st.sampled_from(flags), value),
        st.builds("-{}{}".format, st.text(letters, min_size=1, max_size=3), value),
    )
    return verb, draw(st.lists(word, max_size=6))


@given(lines())
def test_what_is_read_is_what_click_reads(line: tuple[Verb, list[str]]) -> None:
    verb, words = line
    ours = read(verb, words)
    if ours is not None:
        theirs = by_click(verb, words)
        assert theirs is not None
        assert alike(ours, theirs)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ps", ""),
        ("ps", "--json"),
        ("ps", "-n 5 --all"),
        ("ps", "-wn5 --on=hpc --state done --state failed --grep x --here"),
        ("show", "train-1 --json"),
        ("logs", "-f train-1"),
        ("logs", "-fn5 train-1"),
        ("logs", "-n 5 --grep a.* --since 10m --timestamps --attempt 2 --rank 1 --raw -- train-1"),
        ("wait", "train-1 train-2 --timeout 2h"),
        ("cluster_list", "--check --json"),
    ],
)
def test_what_people_write_needs_no_click(name: str, line: str) -> None:
    ours = read(VERBS[name], line.split())
    theirs = by_click(VERBS[name], line.split())
    assert ours is not None
    assert theirs is not None
    assert alike(ours, theirs)


@pytest.mark.parametrize("line", ["--help", "-h", "--bogus", "-n 0", "-n", "--all=1"])
def test_all_else_is_left_to_click(line: str) -> None:
    assert read(VERBS["ps"], line.split()) is None


@pytest.mark.parametrize("command", [run.command, plan.command], ids=["run", "plan"])
@pytest.mark.parametrize(("key", "value"), [(key, "1") for key in FORMER])
def test_earlier_names_of_flags_work_and_are_not_shown(
    command: click.Command, key: str, value: str
) -> None:
    option = next(one for one in JOB if one.key == key)
    value = {"--saves": "periodically", "--total": "--n"}.get(FORMER[key], value)
    read = []
    for flag in (option.flag, FORMER[key]):
        with command.make_context("run", [f"{flag}={value}", "--", "true"]) as context:
            read.append(context.params[variable(option)])
            assert f"  {FORMER[key]} " not in command.get_help(context)
    assert read[0] == read[1] == option.parse(value)
