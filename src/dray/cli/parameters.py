"""Options and arguments that several verbs share, made from ``dray.job.options``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dray.cli.arguments import Kind, Parameter, Verb, duration, since
from dray.cli.terminal import visible
from dray.errors import DrayError
from dray.job.options import JOB, LIMITS, Option, kinds
from dray.job.quantities import parse_duration

if TYPE_CHECKING:
    from dray.launcher.pipelines import Before
    from dray.store import Store

# Earlier names of flags, which work for one more version.
FORMER = {
    "job.resume.keep": "--keep",
    "job.resume.saves": "--saves",
    "job.resume.total": "--total",
}
RESUMED = {"start_by": "it waits for as long as it takes"}
DEFAULT_IDLE = "1h"
PATIENCE = 0.2  # seconds for another process to release the store: a key was pressed
PLAIN_WORD = re.compile(r"\w[\w.@+:/-]*")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Parsed(click.ParamType):
    """A value read by the option's own parser, so that flags and files agree."""

    def __init__(self, option: Option) -> None:
        self.option = option
        self.name = option.name
        self.offered = OFFERED.get(option.key)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return self.offered.shell_complete(ctx, param, incomplete) if self.offered else []

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self.option.many:
            return value  # read together, in job_flags
        try:
            return self.option.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def is_offered(name: str, incomplete: str) -> bool:
    """Return whether a completion is one plain word: a shell puts it into the user's command as it
    is."""
    return name.startswith(incomplete) and PLAIN_WORD.fullmatch(name) is not None


class Completed(click.ParamType):
    """A text for which the shell is offered completions: from dray's own files, never from a
    cluster."""

    def words(self, ctx: click.Context) -> Iterable[tuple[str, str]]:
        """Return the completions, each with a remark for shells that show one."""
        raise NotImplementedError

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,
        incomplete: str,
    ) -> list[CompletionItem]:
        try:
            known = list(self.words(ctx))
        except (DrayError, OSError):
            return []
        return [
            # fish splits at commas what it is given.
            CompletionItem(word, help=visible(remark.replace(",", ";")) or None)
            for word, remark in dict(known).items()
            if is_offered(word, incomplete)
        ]


class Regex(click.ParamType):
    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return re.compile(value)
        except (re.error, RecursionError, OverflowError) as error:
            self.fail(f"'{value}' is not a regular expression: {error}", param, ctx)


class Read(click.ParamType):
    """A value that a function reads; its error is shown as it is."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class KindName(Completed):
    """A kind of cluster, built in or of another package."""

    name = "kind"

    def words(self, ctx: click.Context) -> Iterable[tuple[str, str]]:
        return ((one, "") for one in kinds.names())

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not kinds.is_known(value):
            self.fail(f"there is no kind '{value}'; there is {', '.join(kinds.names())}")
        return value


class ClusterName(Completed):
    name = "cluster"

    def words(self, ctx: click.Context) -> Iterable[tuple[str, str]]:
        from dray.config import loading

        clusters = loading.load(submits=False).clusters.values()
        return ((one.name, one.settings.get("host") or one.kind) for one in clusters)


class JobId(Completed):
    name = "job"

    def words(self, ctx: click.Context) -> Iterable[tuple[str, str]]:
        from dray.cli.output import age

        with known_jobs() as store:
            recent = store.recent() if store else []
        return ((job_id, f"{state}, {age(created)} ago") for job_id, state, created in recent)


class RecipeName(Completed):
    name = "recipe"

    def words(self, ctx: click.Context) -> Iterable[tuple[str, str]]:
        from dray import recipes

        yield from ((name, recipes.find(name).summary) for name in recipes.RECIPES)
        yield from ((name, "of another package") for name in recipes.announced())


class PartitionName(Completed):
    """A partition or queue of the cluster that the command names, as last seen; where it names
    none that is known, of any."""

    name = "partition"

    def words(self, ctx: click.Context) -> Iterable[tuple[str, str]]:
        from dray.config import loading
        from dray.launcher import Launcher

        verbs = Launcher(loading.load(submits=False))
        clusters = verbs.config.clusters
        named = [name for name in clusters if name == ctx.params.get("name")]
        for name in named or clusters:
            yield from ((one, f"of {name}") for one in verbs.cluster(name).partitions())


class ImageName(Completed):
    """An image that a job has run in, or that the project names."""

    name = "image"

    def words(self, ctx: click.Context) -> Iterable[tuple[str, str]]:
        from dray.cli.output import age
        from dray.config import loading

        with known_jobs() as store:
            used = store.recent_images() if store else {}
        yield from ((name, f"used {age(created)} ago") for name, created in used.items())
        chosen = loading.load(submits=False).job.get("job.image")
        yield from [(chosen, "this project's")] if chosen else []


@contextmanager
def known_jobs() -> Iterator[Store | None]:
    """Yield the store, if there is one: a missing or damaged one would be filled by asking
    clusters."""
    from dray.home import find_home
    from dray.store import Store

    path = find_home().store
    store = Store(path, PATIENCE) if path.exists() else None
    try:
        yield store
    finally:
        if store:
            store.close()


OFFERED = {"job.on": ClusterName(), "job.recipe": RecipeName(), "job.image": ImageName()}


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all options that describe a job, and the command behind them."""
    return job_settings(click.argument("command", nargs=-1, type=click.UNPROCESSED)(function))


def job_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all options that describe a job."""
    function = click.option(
        "--no-snapshot", is_flag=True, help="Send no code along: the command needs none."
    )(function)
    function = click.option(
        "--notify/--no-notify",
        default=None,
        help="Send notifications about this job, however quickly it ends, or send none.  [default:"
        " as [notify] in config.toml says]",
    )(function)
    for option in (one for one in reversed(JOB) if one.flag):
        function = declared(option)(function)
        if option.key in FORMER:
            former = click.option(
                FORMER[option.key], variable(option), type=Parsed(option), hidden=True
            )
            function = former(function)
    return function


def declared(option: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the flag of a setting, with its help and its default."""
    default = option.shown_default
    text = f"{option.help}  [default: {default}]" if default else option.help
    return click.option(
        option.flag,
        variable(option),
        metavar=option.metavar,
        type=Parsed(option),
        multiple=option.many,
        help=text,
    )


def limit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the limits of a job as a whole, for one that is resumed."""
    for option in reversed(LIMITS):
        text = f"{option.help}  [default: {RESUMED.get(option.name, 'its own')}]"
        function = click.option(
            option.flag, variable(option), metavar=option.metavar, type=Parsed(option), help=text
        )(function)
    return function


def refuse_empty(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Refuse an empty word, such as "$unset": without it the verb would do something else."""
    if "" in ((value,) if isinstance(value, str) else value):
        source = ctx.get_parameter_source(param.name or "")
        if source is click.core.ParameterSource.COMMANDLINE:
            raise click.BadParameter("it is empty: is a variable not set?", ctx, param)
    return value


def start_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for a job that takes something over from another one."""
    function = click.option(
        "--input",
        "inputs",
        metavar="NAME=JOB[:PATH]",
        multiple=True,
        callback=refuse_empty,
        help="Read another job's outputs, or a file or folder among them, at $DRAY_INPUT_NAME. "
        "Waits until that job is done; from another cluster, copies what it has written. Can be "
        "repeated.",
    )(function)
    function = click.option(
        "--after",
        metavar="JOB[:ok|any]",
        type=JobId(),
        multiple=True,
        callback=refuse_empty,
        help="Start once this job, array or batch is done (with :any, however it ended). If it "
        "ends otherwise, this one is stopped without having started. Can be repeated.",
    )(function)
    function = click.option(
        "--like",
        metavar="JOB",
        type=JobId(),
        default="",
        callback=refuse_empty,
        help="Take over this job's settings, and its command if there is no COMMAND. Flags given "
        "here win; the code is what its folder holds now.",
    )(function)
    return click.option(
        "--from",
        "start_from",
        metavar="JOB[:CHECKPOINT]|PATH",
        default="",
        callback=refuse_empty,
        help="Start from a checkpoint of another job (the newest complete one, or the one named), "
        "or from a file or folder of this machine, which is sent along.",
    )(function)


def before_of(after: tuple[str, ...], inputs: tuple[str, ...]) -> Before | None:
    """Read the options for jobs that come before the new one."""
    if not after and not inputs:
        return None
    from dray.launcher.pipelines import Before  # only here

    return Before.of(after, inputs)


def variable(option: Option) -> str:
    return option.key.replace(".", "_")


def job_flags(values: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, by config key."""
    from dray.description.describing import add_to_environment

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
    """Add the argument for jobs. With ``or_latest``, the verb takes the latest job where none is
    named."""
    name, number = ("jobs", -1) if many else ("job", 1)
    return click.argument(name, type=JobId(), nargs=number, required=not or_latest)


def rank_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--rank",
        type=click.IntRange(0),
        default=0,
        metavar="N",
        help="Where the command runs several times: beside this rank (this node, with torchrun).",
    )(function)


def host_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--host", is_flag=True, help="Outside the command's container.")(function)


def sync_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--sync",
        is_flag=True,
        help="Send what is edited in the project's folder here into the session's, as long as this "
        "command runs.",
    )(function)


def idle_option(what: str) -> Decorator:
    return click.option(
        "--idle",
        type=Read("duration", idle_of),
        default=DEFAULT_IDLE,
        show_default=True,
        metavar="TIME|never",
        help=what,
    )


def idle_of(text: str) -> float | None:
    return None if text == "never" else parse_duration(text)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON, in a format that stays compatible."
    )(function)


# -- verbs that declare their parameters as data (see dray.cli.arguments) -------------------------


class OnCluster(click.Command):
    """A verb that takes no words, where a cluster is a likely one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            word = ctx.args[0]
            told = f"'{word}' is one word too many. A cluster: {ctx.command_path} --on {word}"
            raise click.UsageError(told, ctx)
        return rest


def click_command(verb: Verb) -> click.Command:
    declared: list[click.Parameter] = []
    if verb.jobs:
        number = -1 if verb.jobs.many else 1
        declared.append(
            click.Argument([verb.jobs.variable], type=JobId(), nargs=number, required=False)
        )
    declared += map(click_option, verb.parameters)
    about = inspect.cleandoc(verb.act.__doc__ or "")
    takes_cluster = not verb.jobs and any("--on" in one.flags for one in verb.parameters)
    kind = OnCluster if takes_cluster else click.Command
    return kind(verb.name, params=declared, callback=verb.act, help=about)


def click_option(one: Parameter) -> click.Option:
    names = [*one.flags, one.variable]
    if one.kind is None:
        return click.Option(names, is_flag=True, help=one.help, hidden=one.hidden)
    return click.Option(
        names,
        type=click_type(one.kind),
        metavar=one.metavar,
        multiple=one.many,
        default=one.default,
        show_default=bool(one.default),
        help=one.help,
        hidden=one.hidden,
    )


def click_type(kind: Kind) -> click.ParamType:
    if kind.name == "number":
        return click.IntRange(kind.least)
    if kind.name == "choice":
        return click.Choice(kind.choices)
    return TYPES[kind.name]


TYPES: dict[str, click.ParamType] = {
    "text": click.STRING,
    "cluster": ClusterName(),
    "regex": Regex(),
    "moment": Read("moment", since),
    "duration": Read("duration", duration),
}
BEFORE_COMMAND = {"allow_interspersed_args": False, "ignore_unknown_options": False}
