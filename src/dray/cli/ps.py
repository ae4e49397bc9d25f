from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby

import click

from dray.cli.output import ago, launcher, one_line, print_json, say, table
from dray.cli.parameters import ClusterName, json_option
from dray.node.arrays import fold
from dray.store import Row


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
        print_json([{**row._asdict(), "command": json.loads(row.command)} for row in rows])
    elif not rows:
        say("no jobs" if everything else "no active or recent jobs; dray ps --all lists older ones")
    else:
        header = ("ID", "STATE", "CLUSTER", "ATTEMPTS", "SUBMITTED", "COMMAND")
        click.echo(table(header, lines_of(rows), state_column=1))


def lines_of(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for _, alike in groupby(rows, key=kind_of):
        group = list(alike)
        row = group[-1]  # the first of its array: the newest are at the top
        ids = fold(reversed([one.id for one in group]))
        command = one_line(json.loads(row.command)) + (" …" if len(group) > 1 else "")
        reason = f"  ({row.reason})" if row.reason else ""
        shared = (row.state, row.cluster, str(row.attempts), ago(row.created), command + reason)
        lines += [(name, *shared) for name in reversed(ids)]
    return lines


def kind_of(row: Row) -> tuple[object, ...]:
    """What jobs of one array have to have in common to share a line."""
    array = row.id.rpartition(".")[0]
    return (array or row.id, row.state, row.attempts, row.reason)
