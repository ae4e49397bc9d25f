"""Lists jobs as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from dray.cli.arguments import CLUSTER, JSON, TEXT, Jobs, Parameter, Verb, at_least, one_of
from dray.cli.output import (
    GAP,
    age,
    colored,
    columns,
    cut,
    last_part,
    launcher,
    padded,
    print_json,
    show_range,
    show_value,
    sparkline,
    terminal_width,
    time_there,
    told_commands,
)
from dray.cli.terminal import Shown, joined, lines, say, tell, visible
from dray.errors import UsageError
from dray.job.model import JSON_VERSION, JobState, idle_words
from dray.job.quantities import show_duration
from dray.launcher import JobFilter, Listing
from dray.node.jobs.arrays import fold, split
from dray.records import NamedTuple
from dray.store import Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEADER = ("ID", "STATE", "CLUSTER", "ATTEMPTS", "TIME", "LEFT", "PROGRESS", "METRIC", "AGE")
STATE = HEADER.index("STATE")
# A narrow terminal does without these, the first of them first.
SPARED = ("ATTEMPTS", "CLUSTER")
COMFORTABLE, SMALLEST = 24, 12  # columns for the command
LONGEST_NAME = 12  # of a metric, on a narrow terminal
BELOW = "    "  # before a reason that has a line of its own
STATES = [str(state) for state in JobState]


class Line(NamedTuple):
    """One line of the listing: a job, or several that do the same."""

    cells: tuple[str, ...]
    reason: str
    command: str


def list_jobs(
    jobs: tuple[str, ...],
    everything: bool,
    most: int,
    on: str | None,
    states: tuple[str, ...],
    here: bool,
    text: str | None,
    watch: bool,
    as_json: bool,
) -> None:
    """List active jobs and those of the last day, newest first; or those that are named, of which
    each may be an array or a batch.

    TIME and LEFT are those of the running attempt. PROGRESS is the iteration of the newest
    checkpoint. METRIC is the latest value, and its course over the attempt. Jobs that were
    submitted together and are in the same state share a line: sweep-7f3k.0-999.
    --on CLUSTER --all also finds jobs there that another machine has submitted.
    """
    if watch and as_json:
        raise UsageError(
            "--watch is for people: call dray ps --json again and again instead",
            hint="See dray ps --help",
        )
    verbs = launcher()
    named = frozenset(verbs.find_all(jobs))
    job_filter = None
    if states or here or text or jobs:
        job_filter = JobFilter(states, here, text or "", named)
        everything = everything or bool(jobs and not on)

    def look() -> Listing:
        return verbs.listing(everything=everything, most=most, on=on, job_filter=job_filter)

    if watch:
        from dray.cli.watching import watch_jobs  # only here

        watch_jobs(verbs, lambda: screen(look(), job_filter))
        return
    found = look()
    if as_json:
        print_json([as_record(row) for row in found.rows])
        return
    if found.rows:
        tell(lines(table_of(found)))
    for line in footer(found, job_filter):
        say(line)


VERB = Verb(
    "ps",
    list_jobs,
    (
        Parameter(("--all",), "everything", "Every job, however old."),
        Parameter(
            ("-n",),
            "most",
            "Show at most N recent jobs; active ones are always shown.",
            at_least(1),
            "N",
            default=50,
        ),
        Parameter(("--on",), "on", "Only this cluster's jobs.", CLUSTER, "CLUSTER"),
        Parameter(
            ("--state",),
            "states",
            f"Only jobs that are {', '.join(STATES[:-1])} or {STATES[-1]}. Can be repeated.",
            one_of(STATES),
            "STATE",
            many=True,
        ),
        Parameter(("--here",), "here", "Only jobs of this project."),
        Parameter(
            ("--grep",),
            "text",
            "Only jobs with TEXT in their id, command or reason.",
            TEXT,
            "TEXT",
        ),
        Parameter(("-w", "--watch"), "watch", "Refresh every two seconds, until Ctrl-C."),
        JSON,
    ),
    Jobs("jobs", many=True),
)


def screen(found: Listing, job_filter: JobFilter | None) -> list[str]:
    return [*table_of(found), *footer(found, job_filter)]


def footer(found: Listing, job_filter: JobFilter | None) -> list[str]:
    """Return lines on what the table does not show."""
    if not found.rows and not found.hidden:
        return ["no jobs" if job_filter is None else "no such jobs"]
    if not found.hidden:
        return []
    how = "dray ps --all" if job_filter is None else "add --all"
    none = "" if found.rows else "no active or recent jobs; "
    many = "1 older job" if found.hidden == 1 else f"{found.hidden:,} older jobs"
    return [f"{none}{many} not shown: {how}"]


def as_record(row: Row) -> dict[str, Any]:
    encoded = ("command", "metric", "last_attempt")
    told = {name: json.loads(getattr(row, name)) for name in encoded}
    return {"version": JSON_VERSION, **row._asdict(), **told}


# -- the table ----------------------------------------------------------------------------------


def table_of(found: Listing) -> list[Shown]:
    room = terminal_width()
    return arranged(lines_of(found.rows, room), room) if found.rows else []


def arranged(rows: Sequence[Line], room: int) -> list[Shown]:
    """Lay out the columns that are not empty, then the command in the rest of the line. A reason
    comes before the command, or on a line of its own where it does not fit."""
    table = [HEADER, *(row.cells for row in rows)]
    cells = [[cut(visible(cell), room // 2) for cell in one] for one in table]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    filled = [at for at in range(len(HEADER)) if any(row.cells[at] for row in rows)]
    shown, left = chosen(filled, widths, room)
    arranged = [aligned(cells[0], shown, widths, "COMMAND" if left else "")]
    for row, texts in zip(rows, cells[1:], strict=True):
        fits = columns(visible(row.reason)) + GAP < left
        told = f"({row.reason}) {row.command}" if row.reason and fits else row.command
        last = cut(visible(told), left) if left else ""
        arranged.append(aligned(texts, shown, widths, last, row.cells[STATE]))
        if row.reason and not fits:
            arranged.append(visible(BELOW + cut(visible(row.reason), room - len(BELOW))))
    return arranged


def chosen(filled: Sequence[int], widths: Sequence[int], room: int) -> tuple[list[int], int]:
    """Choose the columns to show; return them, and the room that is left for a command, or 0 if
    that is too little."""
    for spared in range(len(SPARED) + 1):
        shown = [at for at in filled if HEADER[at] not in SPARED[:spared]]
        left = room - sum(widths[at] + GAP for at in shown)
        if left >= COMFORTABLE:
            break
    return shown, left if left >= SMALLEST else 0


def aligned(
    cells: Sequence[str], shown: Sequence[int], widths: Sequence[int], last: str, state: str = ""
) -> Shown:
    parts = []
    for at in shown:
        cell = padded(cells[at], widths[at] + GAP)
        parts.append(colored(cell, state) if at == STATE and state else cell)
    return joined(*parts, last)


# -- a line of it -------------------------------------------------------------------------------


def lines_of(rows: Iterable[Row], room: int) -> list[Line]:
    found: list[Line] = []
    for _, alike in groupby(rows, key=kind_of):
        group = list(alike)
        row = group[-1]  # the first of its array: the newest are at the top
        attempts = str(row.attempts) if row.attempts > 1 else ""
        shared = (row.state, row.cluster, attempts, *times_of(group), metric_of(group, room))
        command = " & ".join(told_commands(json.loads(row.command)))
        command += " …" if len(group) > 1 else ""
        names = reversed(fold(reversed([one.id for one in group])))
        reason = row.reason or idle_of(group)
        found += [Line((name, *shared, age(row.created)), reason, command) for name in names]
    return found


def idle_of(group: Sequence[Row]) -> str:
    """Say that the GPUs of running jobs do nothing; of several jobs the one that does longest."""
    last = [one for row in group if (one := json.loads(row.last_attempt))]
    running = [one for one in last if group[0].state == JobState.RUNNING and one.get("gpu_idle")]
    now = {one["gpu_idle"]: one["heartbeat"] or one["gpu_idle"] for one in running}
    return max((idle_words(since, now[since]) for since in sorted(now)), key=bool, default="")


def times_of(group: Sequence[Row]) -> tuple[str, str, str]:
    """Return how long the running attempt has run, how long it has left, and how far it has come;
    of several jobs the longest, the shortest, and both ends."""
    last = [one for row in group if (one := json.loads(row.last_attempt))]
    running = [one for one in last if group[0].state == JobState.RUNNING and one["started"]]
    now = {one["started"]: time_there(one["heartbeat"] or one["started"]) for one in running}
    ran = [now[one["started"]] - one["started"] for one in running]
    left = [one["deadline"] - now[one["started"]] for one in running if one["deadline"]]
    return (
        show_duration(max(max(ran), 0)) if ran else "",
        show_duration(max(min(left), 0)) if left else "",
        progress_of(last),
    )


def progress_of(attempts: Sequence[Mapping[str, Any]]) -> str:
    """Return the iteration and the total, or '' where either is not known."""
    known = [one for one in attempts if one["total"] is not None and one["iteration"] is not None]
    if not known or len({one["total"] for one in known}) > 1:
        return ""
    reached = [one["iteration"] for one in known]
    span = str(min(reached)) if min(reached) == max(reached) else f"{min(reached)}-{max(reached)}"
    return f"{span}/{known[0]['total']}"


def metric_of(group: Sequence[Row], room: int) -> str:
    """Show the metric; of several jobs the lowest and the highest value, under the first one's name
    for it."""
    found = [json.loads(row.metric) for row in group if row.metric != "null"]
    values = [one["value"] for one in found if one["name"] == found[0]["name"]]
    if len(found) < 2 or all(value is None for value in values):
        return one_metric(found[0], room) if found else ""
    return show_range(found[0]["name"], values)


def one_metric(metric: Mapping[str, Any], room: int) -> str:
    """Show the latest value and its course: mean_reward 12.3 ▁▃▄▆▇███."""
    name = cut(visible(last_part(metric["name"])), max(LONGEST_NAME, room // 8))
    course = sparkline([*metric.get("recent", ()), metric["value"]])
    return f"{name} {show_value(metric['value'])} {course}".rstrip()


def kind_of(row: Row) -> tuple[object, ...]:
    """Return what jobs of one array need to have in common to share a line."""
    place = split(row.id)
    return (place[0] if place else row.id, row.state, row.attempts, row.reason)
