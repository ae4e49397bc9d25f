from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import click

from dray.cli.output import ago, launcher, one_line, print_json, show_metric, show_range, table
from dray.cli.parameters import ClusterName, json_option
from dray.cli.terminal import say, tell
from dray.node.arrays import fold
from dray.store import Row

METRIC_COLUMN = 5

Line = tuple[str, ...]


@click.command("ps")
@click.option("--all", "everything", is_flag=True, help="Every job, however old.")
@click.option(
    "-n",
    "most",
    metavar="N",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="At most so many recent jobs; active ones are always shown.",
)
@click.option("--on", metavar="CLUSTER", type=ClusterName(), help="Only this cluster's jobs.")
@json_option
def command(everything: bool, most: int, on: str | None, as_json: bool) -> None:
    """List active jobs and those of the last day, newest first.

    Jobs that were submitted together and are in the same state share a line: sweep-7f3k.0-999.
    --on CLUSTER --all also finds jobs there that another machine has submitted.
    """
    rows = launcher().listing(everything=everything, most=most, on=on)
    if as_json:
        print_json([as_record(row) for row in rows])
    elif not rows:
        say("no jobs" if everything else "no active or recent jobs; dray ps --all lists older ones")
    else:
        header = ("ID", "STATE", "CLUSTER", "ATTEMPTS", "SUBMITTED", "METRIC", "COMMAND")
        tell(table(*without_empty(header, lines_of(rows), METRIC_COLUMN), state_column=1))


def as_record(row: Row) -> dict[str, Any]:
    texts = {"command": json.loads(row.command), "metric": json.loads(row.metric)}
    return {**row._asdict(), **texts}


def without_empty(header: Line, rows: Sequence[Line], column: int) -> tuple[Line, list[Line]]:
    """Without that column, if no row has anything in it."""
    if any(row[column] for row in rows):
        return header, list(rows)
    lines = [(*row[:column], *row[column + 1 :]) for row in (header, *rows)]
    return lines[0], lines[1:]


def lines_of(rows: Iterable[Row]) -> list[Line]:
    lines: list[Line] = []
    for _, alike in groupby(rows, key=kind_of):
        group = list(alike)
        row = group[-1]  # the first of its array: the newest are at the top
        ids = fold(reversed([one.id for one in group]))
        command = one_line(json.loads(row.command)) + (" …" if len(group) > 1 else "")
        reason = f"  ({row.reason})" if row.reason else ""
        metric = metric_of(group)
        shared = (row.state, row.cluster, str(row.attempts), ago(row.created), metric)
        lines += [(name, *shared, command + reason) for name in reversed(ids)]
    return lines


def metric_of(group: Sequence[Row]) -> str:
    """Of several jobs the lowest and the highest value, under the name that the first has it."""
    found = [json.loads(row.metric) for row in group if row.metric != "null"]
    values = [one["value"] for one in found if one["name"] == found[0]["name"]]
    known = [value for value in values if value is not None]
    if len(found) < 2 or not known:
        return show_metric(found[0] if found else None)
    return show_range(found[0]["name"], min(known), max(known))


def kind_of(row: Row) -> tuple[object, ...]:
    """What jobs of one array have to have in common to share a line."""
    array = row.id.rpartition(".")[0]
    return (array or row.id, row.state, row.attempts, row.reason)
