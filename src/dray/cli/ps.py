from __future__ import annotations

import json

import click

from dray.cli.output import ago, launcher, one_line, print_json, say, table
from dray.cli.parameters import ClusterName, json_option


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

    --on CLUSTER --all also finds jobs there that another machine has submitted.
    """
    rows = launcher().listing(everything=everything, most=most, on=on)
    if as_json:
        print_json([{**row._asdict(), "command": json.loads(row.command)} for row in rows])
    elif not rows:
        say("no jobs" if everything else "no active or recent jobs; dray ps --all lists older ones")
    else:
        lines = [
            (
                row.id,
                row.state,
                row.cluster,
                str(row.attempts),
                ago(row.created),
                f"{one_line(json.loads(row.command))}{f'  ({row.reason})' if row.reason else ''}",
            )
            for row in rows
        ]
        header = ("ID", "STATE", "CLUSTER", "ATTEMPTS", "SUBMITTED", "COMMAND")
        click.echo(table(header, lines, state_column=1))
