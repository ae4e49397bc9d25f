from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from dray.cli.output import launcher, say
from dray.cli.parameters import job_argument
from dray.launcher import Launcher


@click.command("logs")
@job_argument()
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
def command(job: str, follow: bool, attempt: int | None, rank: int, tail: int | None) -> None:
    """Print what the command wrote, byte for byte, over all attempts."""
    verbs = launcher()
    pieces = verbs.logs(job, attempt=attempt, rank=rank, tail=tail, follow=follow)
    print_log(verbs, pieces, job)


def print_log(
    verbs: Launcher, pieces: Iterator[tuple[int, bytes]], job: str, to_stderr: bool = False
) -> None:
    """Bytes go through unchanged; where an attempt begins is told on stderr."""
    stream = (sys.stderr if to_stderr else sys.stdout).buffer
    before = 0
    for attempt, piece in pieces:
        if before and attempt != before:
            stream.flush()
            say(f"── {describe_start(verbs, job, attempt)}")
        before = attempt
        stream.write(piece)
        stream.flush()


def describe_start(verbs: Launcher, job: str, number: int) -> str:
    for attempt in verbs.show(job).attempts:
        if attempt.number == number and attempt.from_checkpoint:
            return f"attempt {number}, from {attempt.from_checkpoint}"
    return f"attempt {number}"
