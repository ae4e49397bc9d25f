from __future__ import annotations

from collections.abc import Iterator

import click

from dray.cli.log_filter import LogPrinter
from dray.cli.output import launcher, named_or_latest
from dray.cli.parameters import job_argument
from dray.cli.terminal import say, visible
from dray.launcher import Launcher


@click.command("logs")
@job_argument(or_latest=True)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Only this attempt.")
@click.option(
    "--rank",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Of this rank, where the command runs many times (of this node, with torchrun).",
)
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--raw", is_flag=True, help="Byte for byte, on a terminal too.")
def command(
    job: str | None, follow: bool, attempt: int | None, rank: int, tail: int | None, raw: bool
) -> None:
    """Print what the command of a job (the latest, if none is named) wrote, over all attempts.

    To a file or a program it goes byte for byte. On a terminal, text and colours are shown, and
    any other control character is spelled (\\x1b for an escape): no output can clear the screen,
    move the cursor or change the clipboard. --raw passes all of it.
    """
    verbs = launcher()
    job = named_or_latest(verbs, job)
    pieces = verbs.logs(job, attempt=attempt, rank=rank, tail=tail, follow=follow)
    print_log(verbs, pieces, job, LogPrinter(raw=raw))


def print_log(
    verbs: Launcher, pieces: Iterator[tuple[int, bytes]], job: str, printer: LogPrinter
) -> None:
    """Where an attempt begins is told on stderr."""
    before = 0
    with printer:
        for attempt, piece in pieces:
            if before and attempt != before:
                printer.end_attempt()
                say(f"── {describe_start(verbs, job, attempt)}")
            before = attempt
            printer.write(piece)


def describe_start(verbs: Launcher, job: str, number: int) -> str:
    for attempt in verbs.show(job).attempts:
        if attempt.number == number and attempt.from_checkpoint:
            return f"attempt {number}, from {visible(attempt.from_checkpoint)}"
    return f"attempt {number}"
