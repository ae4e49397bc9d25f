"""Options and arguments that several verbs share, made from ``dray.options``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from dray.cli.terminal import visible
from dray.errors import DrayError
from dray.options import JOB, Option

PLAIN_WORD = re.compile(r"\w[\w.@+-]*")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Parsed(click.ParamType):
    """A value read by the option's own parser, so that flags and files agree."""

    def __init__(self, option: Option) -> None:
        self.option = option
        self.name = option.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self.option.many:
            return value  # read together, in job_flags
        try:
            return self.option.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def is_offered(name: str, incomplete: str) -> bool:
    """A shell puts it into the user's command as it is: only what it reads as one plain word."""
    return name.startswith(incomplete) and PLAIN_WORD.fullmatch(name) is not None


class ClusterName(click.ParamType):
    name = "cluster"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from dray import config

        try:
            names = list(config.load(submits=False).clusters)
        except (DrayError, OSError):
            return []
        return [CompletionItem(name) for name in names if is_offered(name, incomplete)]


class JobId(click.ParamType):
    name = "job"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from dray import config
        from dray.launcher import Launcher

        try:
            settings = config.load(submits=False)
            known = Launcher(settings).store.recent_ids() if settings.home.store.exists() else []
        except (DrayError, OSError):
            return []
        return [
            CompletionItem(job_id, help=visible(state))
            for job_id, state in known
            if is_offered(job_id, incomplete)
        ]


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """All options that describe a job, and the command behind them."""
    function = click.argument("command", nargs=-1, type=click.UNPROCESSED)(function)
    function = click.option(
        "--no-snapshot", is_flag=True, help="The command needs no code: take none along."
    )(function)
    function = click.option(
        "--notify/--no-notify",
        default=None,
        help="Whether somebody is told of this job, however quickly it ends.  [default: as"
        " [notify] in config.toml says]",
    )(function)
    for option in (one for one in reversed(JOB) if one.flag):
        kind = ClusterName() if option.key == "job.on" else Parsed(option)
        text = f"{option.help}  [default: {option.default}]" if option.default else option.help
        function = click.option(
            option.flag,
            variable(option),
            metavar=option.metavar,
            type=kind,
            multiple=option.many,
            help=text,
        )(function)
    return function


def variable(option: Option) -> str:
    return option.key.replace(".", "_")


def job_flags(values: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given, by config key."""
    from dray.description import add_to_environment

    flags = {}
    for option in JOB:
        value = values.get(variable(option))
        if value is None or value == ():
            continue
        if option.key == "job.env":
            value = add_to_environment(value)
        elif option.many:
            try:
                value = option.parse(list(value))
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint=option.flag) from error
        flags[option.key] = value
    return flags


def job_argument(many: bool = False, or_latest: bool = False) -> Decorator:
    """``or_latest``: where none is named, the verb takes the job that was submitted last."""
    name, number = ("jobs", -1) if many else ("job", 1)
    return click.argument(name, type=JobId(), nargs=number, required=not or_latest)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="For programs; stable.")(function)


BEFORE_COMMAND = {"allow_interspersed_args": False, "ignore_unknown_options": False}
