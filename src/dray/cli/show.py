"""Describes one job, its attempts and its learning curve."""

from __future__ import annotations

from dray.cli.arguments import JSON, Jobs, Verb
from dray.cli.output import (
    colored,
    columns,
    hanging,
    in_color,
    launcher,
    named_or_latest,
    print_json,
    show_image,
    show_metric,
    show_resources,
    terminal_width,
    time_there,
    told_commands,
    when,
)
from dray.cli.terminal import Shown, joined, lines, only_colors, tell
from dray.cli.wait import last_output
from dray.job.model import Attempt, JobState, JobView, Series, idle_words
from dray.job.quantities import show_duration
from dray.launcher import GONE
from dray.node.jobs import budget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

WIDEST_CURVE = 100
CURVE_LINES = 16
LABEL = 11  # columns of a row's name
DETAILS = 7  # the column at which what is told of an attempt goes on
SHORT_HASH = 12


def show_job(job: str | None, as_json: bool) -> None:
    """Describe one job (the latest, if none is named): its settings, how each attempt went, why
    it ended, and the curve of its main metric."""
    verbs = launcher()
    view = verbs.show(named_or_latest(verbs, job))
    curve = verbs.metrics(view)
    output = verbs.last_lines(view) if view.state is JobState.FAILED else []
    if as_json:
        found = {"directory": verbs.place(view), "curve": curve.to_dict()}
        print_json({**view.to_dict(), **found, "last_lines": output})
        return
    tell(describe(view, verbs.place(view)))
    if output:
        tell("")
        tell(last_output(output))
    if curve.points:
        tell("")
        tell(curve.name)
        tell(draw(curve))


VERB = Verb("show", show_job, (JSON,), Jobs("job"))


def describe(view: JobView, directory: str) -> Shown:
    spec = view.spec
    commands = told_commands(spec.command)
    rows = [
        *(("" if at else "command", one) for at, one in enumerate(commands)),
        ("trial", describe_trial(spec.sweep)),
        ("from", spec.origin.get("told", "")),
        ("after", ", ".join(spec.after)),
        (
            "inputs",
            ", ".join(f"{name} = {one.get('told', '')}" for name, one in spec.inputs.items()),
        ),
        ("image", show_image(spec.container) if spec.container else ""),
        ("cluster", view.cluster),
        ("resources", show_resources(view.spec)),
        ("limits", describe_limits(view)),
        ("submitted", when(spec.created)),
        ("ended", when(view.ended) if view.ended else ""),
        ("code", f"{spec.snapshot[:SHORT_HASH]} of {spec.project}" if spec.snapshot else "none"),
        ("directory", directory),
        ("outputs", ", ".join(spec.outputs)),
        ("checkpoint", spec.resume.checkpoint or ""),
        ("secrets", ", ".join(spec.secrets)),
        ("metric", describe_metric(view)),
    ]
    told: list[str] = [f"{'job':<{LABEL}}{spec.id}", *describe_state(view)]
    told += [joined(f"{name:<{LABEL}}", value) for name, value in rows if value]
    if view.attempts:
        told += ["", "attempts"]
    without_end = "running" if view.state.active else str(JobState.LOST)
    for attempt in view.attempts:
        told += describe_attempt(attempt, directory, without_end=without_end)
    gone = view.reason.endswith(GONE)
    if not view.state.active and view.state is not JobState.DONE and not gone:
        resume = f"dray resume {spec.id}{more_of_limits(view)}"
        told += ["", f"its output: dray logs {spec.id}    go on with it: {resume}"]
    return lines(told)


def describe_trial(sweep: Mapping[str, Any]) -> str:
    """Say which trial of a sweep it is, and with which parameters."""
    if not sweep:
        return ""
    values = sweep.get("values") or {}
    told = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"{sweep.get('trial')} of {sweep['id']}{f': {told}' if told else ', not begun yet'}"


def describe_state(view: JobView) -> list[Shown]:
    state, colon = str(view.state), ": " if view.reason else ""
    lead = joined(f"{'state':<{LABEL}}", colored(state, state), colon)
    return hanging(lead, view.reason, LABEL, LABEL + len(state) + len(colon))


def more_of_limits(view: JobView) -> str:
    """Return the flag that a job needs to be resumed if it has used up its limits, or ''."""
    attempts = [one.to_dict() for one in view.attempts]
    if budget.used_up(view.spec.to_dict(), attempts) is None:
        return ""
    return " --gpu-hours …" if view.spec.limits.gpu_hours else " --total-time …"


def draw(curve: Series) -> Shown:
    from dray.cli.plot import Point, terminal_plot  # only where there is one

    points = [Point(step, value, n) for step, value, n in curve.points if value is not None]
    width = min(terminal_width(), WIDEST_CURVE)
    return only_colors(terminal_plot(points, width, CURVE_LINES, in_color(), "step"))


def describe_metric(view: JobView) -> str:
    """Show the metric, and say so if it is not the one that was asked for."""
    shown, main = show_metric(view.metric), view.spec.metrics.main
    if view.metric is None or not main or view.metric["name"] in main:
        return shown
    return f"{shown} (instead of {' or '.join(main)}, not found)"


def describe_limits(view: JobView) -> str:
    """Show the limits of the job as a whole, and how much of them is used."""
    limits, parts = view.spec.limits, []
    ended = [one.to_dict() for one in view.attempts if one.outcome]
    running = [one for one in view.attempts if not one.outcome]
    used = budget.spent(ended) + sum(map(duration_of, running))
    if limits.total_time:
        parts.append(f"{show_duration(used)} of {show_duration(limits.total_time)} used in all")
    if limits.gpu_hours:
        hours = used / 3600 * view.spec.resources.gpus * view.spec.resources.nodes
        parts.append(f"{hours:.1f} of {limits.gpu_hours:g} GPU hours used")
    if limits.start_by:
        parts.append(f"has to begin by {when(limits.start_by)}")
    return ", ".join(parts)


def describe_attempt(attempt: Attempt, directory: str, *, without_end: str) -> list[str]:
    """Show an attempt; one that has written down no outcome is ``without_end``."""
    outcome = attempt.outcome or without_end
    took = show_duration(duration_of(attempt))
    number, ago = f"  {attempt.number:>3}  ", f"  {took:>7}  "
    start = joined(number, colored(outcome.ljust(11), outcome), ago)
    details = [attempt.reason] if attempt.reason else []
    if attempt.outcome is None and attempt.gpu_use is not None:
        idle = idle_words(attempt.gpu_idle, attempt.heartbeat or 0.0)
        details.append(idle or f"GPU {attempt.gpu_use:.0f} % busy")
    if attempt.from_checkpoint:
        details.append(f"from {attempt.from_checkpoint}")
    if attempt.checkpoint:
        details.append(f"reached {attempt.checkpoint}")
    taken = columns(number) + max(11, columns(outcome)) + columns(ago)
    told: list[str] = [*hanging(start, "; ".join(details), DETAILS, taken)]
    for remark in attempt.remarks:
        told += hanging(" " * DETAILS, remark, DETAILS)
    if attempt.left:
        some = ", ".join(attempt.left[:3]) + (" …" if len(attempt.left) > 3 else "")
        where = f"{directory}/attempts/{attempt.number:03d}/left"
        left = f"written outside the outputs, kept in {where}: {some}"
        told += hanging(" " * DETAILS, left, DETAILS)
    return told


def duration_of(attempt: Attempt) -> float:
    """Return how long the attempt has run, by the clock of its machine."""
    if attempt.started is None:
        return 0.0
    now = time_there(attempt.heartbeat or attempt.started)
    return (attempt.ended or now) - attempt.started
