"""Prints or follows what a job has written."""

from __future__ import annotations

from collections.abc import Iterator

from dray.cli.arguments import MOMENT, REGEX, Jobs, Parameter, Verb, at_least
from dray.cli.log_filter import LogPrinter
from dray.cli.output import launcher, named_or_latest
from dray.cli.terminal import say, visible
from dray.job.model import JobView
from dray.job.quantities import show_duration
from dray.launcher import Launcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def print_logs(job: str | None, follow: bool, raw: bool, **how: Any) -> None:
    """Print what the command of a job (the latest, if none is named) wrote, over all attempts. Of
    an array or a batch, what each of its jobs wrote.

    A file or a program gets every byte unchanged. On a terminal, text and colours are shown, and
    any other control character is escaped (\\x1b): no output can clear the screen, move the cursor
    or change the clipboard. --raw prints everything unchanged there, too.

    The times of lines are recorded every ten seconds, and less often in runs of many hours. So
    --since may begin a little early, and --timestamps shows when a line was first seen.
    """
    verbs = launcher()
    job = named_or_latest(verbs, job)
    together = verbs.jobs_in(job)
    if together and not follow:
        for one in together:
            say(f"══ {visible(one)}")
            print_log(verbs, verbs.logs(one, **how), one, LogPrinter(raw=raw))
        return
    pieces = verbs.logs(job, follow=follow, **how)
    print_log(verbs, pieces, job, LogPrinter(raw=raw))
    if follow:
        view = verbs.show(job)
        if not view.state.active:
            say(f"── {describe_end(view)}")


VERB = Verb(
    "logs",
    print_logs,
    (
        Parameter(("-f", "--follow"), "follow", "Keep printing until the job has ended."),
        Parameter(("-n",), "tail", "Only the last N lines.", at_least(0), "N"),
        Parameter(("--tail",), "tail", "", at_least(0), hidden=True),
        Parameter(("--grep",), "grep", "Only lines that match REGEX.", REGEX, "REGEX"),
        Parameter(
            ("--since",),
            "since",
            "Only what was written since then: 10m, 21:00, '2026-11-16 21:00'.",
            MOMENT,
            "TIME",
        ),
        Parameter(
            ("--timestamps",),
            "stamps",
            "Put the time before each line; it may be up to ten seconds late.",
        ),
        Parameter(("--attempt",), "attempt", "Only this attempt.", at_least(1), "N"),
        Parameter(
            ("--rank",),
            "rank",
            "The output of this rank, where the command runs several times (of this node, with "
            "torchrun).",
            at_least(0),
            "N",
            default=0,
        ),
        Parameter(("--raw",), "raw", "Print every byte unchanged, also on a terminal."),
    ),
    Jobs("job"),
)


def print_log(
    verbs: Launcher, pieces: Iterator[tuple[int, bytes]], job: str, printer: LogPrinter
) -> None:
    """Print the output; say on stderr where an attempt begins."""
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


def describe_end(view: JobView) -> str:
    """Say how the job ended, with which exit code, and after how long: train-7f3k is failed: exit
    code 1, after 2h05m."""
    last = view.attempts[-1] if view.attempts else None
    told: list[str] = [visible(view.reason)] if view.reason else []
    code = f"exit code {last.exit_code}" if last and last.exit_code is not None else ""
    if code and code not in view.reason:
        told.append(code)
    spans = [one.ended - one.started for one in view.attempts if one.started and one.ended]
    if spans:
        attempts = f" in {len(view.attempts)} attempts" if len(view.attempts) > 1 else ""
        told.append(f"after {show_duration(max(sum(spans), 0))}{attempts}")
    return f"{visible(view.id)} is {view.state}{': ' if told else ''}{', '.join(told)}"
