"""Starts sweeps, and shows, extends and stops them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from random import SystemRandom
from typing import Any

import click

from dray.cli.output import age, cut, launcher, one_line, print_json, table, terminal_width
from dray.cli.parameters import (
    ClusterName,
    declared,
    job_flags,
    job_options,
    json_option,
    variable,
)
from dray.cli.sweep_export import export, picture
from dray.cli.sweep_ids import SweepId
from dray.cli.sweep_import import from_python, import_sweep, say_notes
from dray.cli.terminal import Shown, lines, say, tell, visible
from dray.errors import UsageError
from dray.job.model import JSON_VERSION
from dray.job.options import JOB
from dray.job.quantities import show_count
from dray.launcher import Launcher
from dray.launcher.sweep_checks import number_of
from dray.launcher.sweep_views import Sweep, best_trials, look_steps
from dray.sweep import file as sweep_file
from dray.sweep import space as spaces
from dray.sweep import table as tables
from dray.sweep.options import SWEEP, modes
from dray.sweep.space_text import space_lines
from dray.sweep.study import Objective, Parameter, Stop, Study

MOST_REASONS = 3  # of failed trials
WIDEST = 200  # columns of a table that goes to no terminal
BEHIND = "dray.cli.sweep.command"  # the words of the command, in the context
LARGEST_SEED = 2**31
BEHIND_DASHES = "The command stands behind --: dray sweep start --space … -- python train.py"
# What the options of a job say already: its name, and the metric that matters.
OF_JOB = ("sweep.name", "sweep.metric")


sweep_argument = click.argument("sweep", type=SweepId())
on_option = click.option(
    "--on",
    type=ClusterName(),
    metavar="CLUSTER[,CLUSTER…]",
    help="The clusters of a sweep that another machine has submitted.",
)


@click.group("sweep")
def command() -> None:
    """Try many configurations of a training, each as a job of its own.

    The trials are the cluster's own array: this machine may be switched off. Each asks for its
    parameters when it starts, and is resumed over time limits and preemptions like any job.
    """


class CommandBehindDashes(click.Command):
    """A verb with arguments of its own in front of --, and the words of a command behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[BEHIND] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "[FILE]", "--", "COMMAND…"]


# -- starting -------------------------------------------------------------------------------------


class Start(CommandBehindDashes):
    """The verb that starts a sweep. What it says of --metric is what that means for sweeps."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        (metric,) = (one for one in SWEEP if one.key == "sweep.metric")
        for one in self.params:
            if isinstance(one, click.Option) and metric.flag in one.opts:
                one.help = f"{metric.help}  [default: {metric.shown_default}]"


def sweep_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a sweep."""
    for option in (one for one in reversed(SWEEP) if one.flag and one.key not in OF_JOB):
        function = declared(option)(function)
    return function


@command.command("start", cls=Start)
@click.argument("path", metavar="[FILE]", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--space",
    "space",
    multiple=True,
    metavar="NAME=SPEC",
    help="A parameter: lr=1e-5..1e-1:log, n=1..10:int, act=elu,relu, mini==envs*8; with "
    ":when=act:elu behind it, only if another one has that value. May be repeated.",
)
@click.option(
    "--isaaclab",
    metavar="FILE.py:CLASS",
    help="A JobCfg class of Isaac Lab's tuner, instead of FILE. Runs the file on this machine.",
)
@sweep_options
@click.option("--stop-first", type=click.IntRange(1), metavar="STEP", help="The first comparison.")
@click.option(
    "--stop-total", type=click.IntRange(1), metavar="STEP", help="The steps of a whole training."
)
@click.option(
    "--stop-change",
    multiple=True,
    metavar="NAME",
    help="With pbt: a parameter that may change while a training goes on. May be repeated.  "
    "[default: all floating-point numbers]",
)
@job_options
@click.pass_context
def start(
    ctx: click.Context,
    /,
    path: str | None,
    isaaclab: str | None,
    space: tuple[str, ...],
    command: tuple[str, ...],
    no_snapshot: bool,
    notify: bool | None,
    stop_first: int | None,
    stop_total: int | None,
    stop_change: tuple[str, ...],
    **values: Any,
) -> None:
    """Submit the trials of a sweep, with the code of this folder as it is now.

    FILE is a TOML file with [sweep] and [sweep.space], and [job] as in dray.toml; flags win.
    Prints only the sweep's id to stdout. {lr} in COMMAND stands for the value of lr, {trial},
    {repeat} and {seed} for those numbers; a parameter that is not named there is added at the end,
    as --name VALUE or name=VALUE. Two braces stand for one. --metric given several times means
    several metrics at once, with a --mode for each.
    """
    if command:
        raise UsageError(
            f"'{command[0]}' is one word too many in front of --",
            hint=BEHIND_DASHES,
        )
    own = sweep_flags(values)
    found = file_of(path, isaaclab, own.get("sweep.trials"), own.get("sweep.repeats"))
    flags = job_flags(values)
    settings = {**found.settings, **own}
    verbs = launcher({**job_settings(found), **flags}, submits=True)
    study = described(found, space, settings, flags, (stop_first, stop_total), stop_change)
    words = ctx.meta[BEHIND] or settings.get("sweep.command") or ()
    if not words:
        raise UsageError("there is no command", hint=BEHIND_DASHES)
    sweep_id = verbs.sweeping.start(
        study,
        words,
        settings.get("sweep.trials"),
        at_once=settings.get("sweep.at_once"),
        per_node=settings.get("sweep.per_node", 1),
        snapshot=not no_snapshot,
        notify=notify,
    )
    tell(sweep_id)
    known = verbs.sweeping.sizes_of(sweep_id)
    for line in space_lines(study.space):
        say(visible(line))
    for line in begun(study, sweep_id, known, verbs.sweeping.at_once_of(sweep_id)):
        say(line)
    wanted = number_of(study, settings.get("sweep.trials")) * study.repeats
    if sum(known.values()) < wanted:  # why was said on the way
        ctx.exit(1)


def file_of(
    path: str | None, isaaclab: str | None, trials: int | None, repeats: int | None
) -> sweep_file.SweepFile:
    """Read the sweep that a file describes; an empty one where there is none."""
    if path and isaaclab:
        raise UsageError("FILE and --isaaclab both describe a sweep: name one of them")
    if isaaclab:
        from dray.sweep.importing.python_space import ISAAC_REPEATS  # only here

        repeats = repeats or ISAAC_REPEATS
        imported = from_python(isaaclab, None, trials * repeats if trials else None, repeats)
        say_notes(imported)
        return imported.as_file()
    return sweep_file.read(Path(path)) if path else sweep_file.SweepFile()


def sweep_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of the sweep that were given, by key."""
    found = {}
    for option in (one for one in SWEEP if one.flag and one.key not in OF_JOB):
        value = values.get(variable(option))
        if value is not None and value != ():
            found[option.key] = option.parse(list(value)) if option.many else value
    return found


def job_settings(found: sweep_file.SweepFile) -> dict[str, Any]:
    """Return what the file says of the jobs. It may come from anywhere: what decides which secrets
    go out, or what runs besides the command, is said by the user."""
    harmless = {one.key: one for one in JOB if one.harmless}
    settings = {key: one for key, one in found.settings.items() if not key.startswith("sweep.")}
    for key in settings:
        if key not in harmless:
            raise UsageError(
                f"{found.path}: {key} is not taken from a sweep's file",
                hint="Give it as a flag, or in dray.toml.",
            )
    if "sweep.name" in found.settings:
        settings["job.name"] = found.settings["sweep.name"]
    return settings


def described(
    found: sweep_file.SweepFile,
    flags: tuple[str, ...],
    settings: Mapping[str, Any],
    job: Mapping[str, Any],
    steps: tuple[int | None, int | None],
    change: tuple[str, ...],
) -> Study:
    """Return the study that file and flags describe, without its id."""
    told = found._replace(settings=settings)
    metrics = job.get("job.metrics.main") or settings.get("sweep.metric") or ()
    goals = goals_of(tuple(metrics), modes(told.sweep("mode")))
    return Study(
        id="",
        space=space_of(found.parameters, flags),
        sampler=told.sweep("sampler"),
        sampler_python=tuple(settings.get("sweep.sampler_python", ())),
        seed=chosen_seed(settings.get("sweep.seed")),
        metric=goals[0].metric,
        mode=goals[0].mode,
        objectives=goals if len(goals) > 1 else (),
        repeats=told.sweep("repeats"),
        stop=stop_rule(settings.get("sweep.stop"), *steps, change),
        stop_if=tuple(settings.get("sweep.stop_if", ())),
        max_failures=settings.get("sweep.max_failures"),
        mlflow=settings.get("sweep.mlflow", ""),
        experiment=settings.get("sweep.experiment", ""),
    )


def goals_of(metrics: tuple[str, ...], modes: tuple[str, ...]) -> tuple[Objective, ...]:
    """Return each metric with its mode: one for all, or one for each."""
    names = metrics or ("",)
    if len(modes) not in (1, len(names)):
        raise UsageError(
            f"--mode {','.join(modes)} is for {show_count(len(modes), 'metric')}, and there "
            f"{'is' if len(names) == 1 else 'are'} {len(names)}",
            hint="Name them in the same order: --metric reward --metric energy --mode max,min",
        )
    every = modes if len(modes) > 1 else modes * len(names)
    return tuple(Objective(*one) for one in zip(names, every, strict=True))


def chosen_seed(given: int | None) -> int:
    return SystemRandom().randrange(LARGEST_SEED) if given is None else given


def space_of(known: tuple[Parameter, ...], flags: tuple[str, ...]) -> tuple[Parameter, ...]:
    try:
        own = [spaces.from_flag(one) for one in flags]
        found = spaces.whole(spaces.merged(known, own))
    except spaces.SpaceError as error:
        where = f"--space {error.name}: " if error.name else ""
        raise UsageError(f"{where}{error}") from None
    if not found:
        raise UsageError(
            "there is nothing to vary",
            hint="Say what: --space lr=1e-5..1e-1:log, or [sweep.space] in a file.",
        )
    return found


def stop_rule(
    rule: Stop | None, first: int | None, total: int | None, change: tuple[str, ...]
) -> Stop | None:
    if rule is None:
        if first or total:
            raise UsageError("--stop-first and --stop-total go with --stop asha, median or pbt")
        if change:
            raise UsageError("--stop-change goes with --stop pbt")
        return None
    change = change or rule.change
    if change and rule.rule != "pbt":
        raise UsageError(f"--stop {rule.rule} changes no parameter: --stop-change goes with pbt")
    return rule._replace(first=first or rule.first, total=total or rule.total, change=change)


def begun(study: Study, sweep_id: str, sizes: Mapping[str, int], at_once: int | None) -> list[str]:
    trials = sum(sizes.values())
    told = [f"{show_count(trials, 'trial')} of {show_count(len(study.space), 'parameter')}"]
    told += [f"{number} on {name}" for name, number in sizes.items() if len(sizes) > 1]
    told += [f"{at_once} at once"] if at_once else []
    told += [f"told to {study.mlflow}"] if study.mlflow else []
    if study.stop:
        told.append(f"compared by {study.stop.rule} at step {look_steps(study)}")
    return [", ".join(told), f"queued; look at it with: dray sweep status {sweep_id}"]


# -- looking --------------------------------------------------------------------------------------


@command.command("status")
@click.argument("sweep", type=SweepId(), required=False)
@click.option("-f", "--follow", is_flag=True, help="Refresh every few seconds, until Ctrl-C.")
@click.option("--all", "everything", is_flag=True, help="Every configuration.")
@click.option(
    "--columns",
    metavar="NAME[,NAME…]",
    help="Show these metrics and parameters instead of all parameters.",
)
@on_option
@json_option
def status(
    sweep: str | None,
    follow: bool,
    everything: bool,
    columns: str | None,
    on: str | None,
    as_json: bool,
) -> None:
    """Show how a sweep stands: its configurations, the best first. Without SWEEP, list the
    sweeps."""
    verbs = launcher()
    if sweep is None:
        list_sweeps(verbs, on, as_json)
        return
    if follow and as_json:
        raise UsageError("--follow is for people: call it with --json again and again instead")
    sweep_id = sweep if on else verbs.sweeping.find(sweep)

    def paint() -> list[str]:
        found = verbs.sweeping.look(sweep_id, on)
        most = len(found.trials) if everything else tables.USUAL_ROWS
        names = [one for one in (columns or "").split(",") if one]
        shown = tables.status(found.study, found.trials, width(), most, names)
        about = [*failure_lines(found), *state_lines(found), *problem_lines(found)]
        return [*laid_out(shown), *about]

    if follow:
        from dray.cli.watching import watch_jobs  # only here

        watch_jobs(verbs, paint)
        return
    if as_json:
        print_record(verbs.sweeping.look(sweep_id, on))
        return
    tell(lines(paint()))


def list_sweeps(verbs: Launcher, on: str | None, as_json: bool) -> None:
    found = verbs.sweeping.known(on)
    if as_json:
        print_json(
            [
                {
                    "version": JSON_VERSION,
                    "id": one.id,
                    "cluster": one.where,
                    "created": one.created,
                    "trials": sum(part["count"] for part in one.parts),
                }
                for one in found
            ]
        )
        return
    if not found:
        say(
            f"no sweeps on {on}"
            if on
            else "no sweeps; start one with: dray sweep start --space lr=1e-5..1e-1:log -- COMMAND"
        )
        return
    rows = [
        (one.id, one.where, str(sum(part["count"] for part in one.parts)), age(one.created))
        for one in found
    ]
    tell(table(("ID", "CLUSTER", "TRIALS", "AGE"), rows))


def width() -> int:
    return min(terminal_width(), WIDEST)


def laid_out(shown: tables.Table) -> list[str]:
    body = table(shown.header, shown.rows, shown.state_column).split("\n") if shown.rows else []
    return [*map(visible, shown.above), *map(Shown, body), *map(visible, shown.below)]


def failure_lines(sweep: Sweep) -> list[str]:
    """Say why trials have failed, the commonest reasons first, each on one line of the terminal."""
    found = tables.failures([one for one in sweep.trials if one.values])
    told = [f"{number} failed: {reason}" for reason, number in found[:MOST_REASONS]]
    rest = sum(number for _, number in found[MOST_REASONS:])
    told += [f"{rest} failed for other reasons: --json has them"] if rest else []
    first = next((one.job for one in sweep.trials if one.state == "failed" and one.values), "")
    told += [f"dray logs {first} shows how one of them ended"] if first else []
    return [cut(visible(one), width()) for one in told]


def state_lines(sweep: Sweep) -> list[str]:
    return [f"closed, {sweep.why_closed}: no further trial starts"] if sweep.why_closed else []


def problem_lines(sweep: Sweep) -> list[str]:
    return [
        visible(f"{name} was not reached, its trials are as last seen: {why}")
        for name, why in sweep.problems.items()
    ]


def print_record(sweep: Sweep, is_best: bool = False, most: int | None = None) -> None:
    """Print all that is known of a sweep as JSON; with ``is_best``, so many of its best
    configurations."""
    record = tables.as_record(sweep.study, sweep.trials)
    if is_best:
        last = 1 if sweep.study.objectives else math.inf  # of several metrics, the Pareto front
        found = [one for one in record["configurations"] if (one["rank"] or math.inf) <= last]
        ranked = [one for one in found if one["rank"] is not None]
        record["configurations"] = sorted(ranked, key=itemgetter("rank"))[:most]
    told = {
        "cluster": ",".join(sweep.clusters),
        "closed": bool(sweep.why_closed),
        "problems": dict(sweep.problems),
        "time": time.time(),
    }
    print_json({"version": JSON_VERSION, **told, **record})


@command.command("best")
@sweep_argument
@click.option(
    "-n",
    "most",
    type=click.IntRange(1),
    metavar="N",
    help="How many.  [default: 5; of several metrics all]",
)
@click.option("--command", "as_command", is_flag=True, help="Print the commands alone.")
@on_option
@json_option
def best(sweep: str, most: int | None, as_command: bool, on: str | None, as_json: bool) -> None:
    """Show the best configurations, of those that were trained to their end. Where the sweep has
    several metrics, that is the Pareto front: no other one is better in a metric without being
    worse in another."""
    verbs = launcher()
    found = verbs.sweeping.look(sweep if on else verbs.sweeping.find(sweep), on)
    most = most or (None if found.study.objectives else tables.USUAL_BEST)
    if as_json:
        print_record(found, is_best=True, most=most)
        return
    if as_command:
        trials = best_trials(found, most)
        if not trials:
            say("nothing is best yet: no configuration was trained to its end, with a number")
        for trial in trials:
            tell(one_line(verbs.sweeping.command_of(found, trial)))
        return
    shown = tables.best(found.study, found.trials, width(), most)
    tell(lines([*laid_out(shown), *problem_lines(found)]))


# -- changing -------------------------------------------------------------------------------------


@command.command("add")
@sweep_argument
@click.argument("number", type=click.IntRange(1, 10**6))
@click.pass_context
def add(ctx: click.Context, sweep: str, number: int) -> None:
    """Submit NUMBER further configurations of a sweep, with the code and the settings of the first
    ones. A sweep that was stopped is open again; one in which too many have failed is not."""
    verbs = launcher(submits=True)
    sweep_id = verbs.sweeping.find(sweep)
    trials = verbs.sweeping.add(sweep_id, number)
    told = [show_count(number, "configuration")] if trials > number else []
    say(f"{', '.join([*told, show_count(trials, 'trial')])} more in {sweep_id}")
    if trials < number * verbs.sweeping.repeats_of(sweep_id):  # why was said on the way
        ctx.exit(1)


@command.command("stop")
@sweep_argument
@click.option("--now", is_flag=True, help="Kill at once, without asking for a checkpoint.")
@click.option("--waiting", is_flag=True, help="Only those that have not begun; the others go on.")
def stop(sweep: str, now: bool, waiting: bool) -> None:
    """Start no further trial, and stop those that run, with a checkpoint first."""
    verbs = launcher()
    sweep_id = verbs.sweeping.find(sweep)
    number = verbs.sweeping.stop(sweep_id, now=now, waiting=waiting)
    say(f"{sweep_id} is closed; {show_count(number, 'trial')} stopped")


@command.command("go-on")
@sweep_argument
@click.option(
    "--best",
    "most",
    type=click.IntRange(1),
    required=True,
    metavar="N",
    help="How many: those that came farthest, of them the best.",
)
def go_on(sweep: str, most: int) -> None:
    """Let trials that were pruned by comparison go on from their checkpoints, to their end. Those
    that --stop-if has ended are left out."""
    verbs = launcher(submits=True)
    for job_id in verbs.sweeping.go_on(verbs.sweeping.find(sweep), most):
        tell(job_id)


for verb in (export, picture, import_sweep):
    command.add_command(verb)
