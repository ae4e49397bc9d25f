"""Waits for jobs, and says how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dray.cli.arguments import DURATION, Jobs, Parameter, Verb
from dray.cli.output import cut, launcher, named_or_latest
from dray.cli.terminal import Shown, lines, say, visible
from dray.job.model import JobState, JobView
from dray.launcher import Launcher

MANY = 10  # jobs, from which on they are counted and not named
LONGEST_LINE = 400  # columns of a line of output: progress bars and dumped tensors have no end


def wait_for_jobs(jobs: tuple[str, ...], timeout: float | None) -> int:
    """Wait until the jobs, or the latest one, have ended.

    Exit code 0 if all are done, 1 if one is not.
    """
    verbs = launcher()
    views = verbs.wait_all(verbs.find_all(jobs or [named_or_latest(verbs, None)]), timeout)
    code = tell_ends(views)
    if len(views) == 1:
        tell_failure(verbs, views[0])
    return code


TIMEOUT = Parameter(
    ("--timeout",), "timeout", "Give up after this long (exit code 9).", DURATION, "TIME"
)
VERB = Verb("wait", wait_for_jobs, (TIMEOUT,), Jobs("jobs", many=True))


def tell_ends(views: Sequence[JobView]) -> int:
    """Say how each job ended, or, if there are many, how many ended in which state; return the exit
    code."""
    if len(views) <= MANY:
        return max((tell_end(view) for view in views), default=0)
    counts = Counter(str(view.state) for view in views)
    told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    say(f"{len(views)} jobs: {told}")
    return 0 if set(counts) == {JobState.DONE} else 1


def tell_failure(verbs: Launcher, view: JobView, *, only_cause: bool = False) -> None:
    """Print the last lines of a failed command, and the likely cause; with ``only_cause``, as its
    output has been seen, the cause alone."""
    if view.state is not JobState.FAILED:
        return
    words = last_output(verbs.last_lines(view), only_cause=only_cause)
    if words:
        say(words)


def last_output(output: list[str], *, only_cause: bool = False) -> Shown:
    """Show the last lines of a failed command, and the likely cause, where it is known."""
    from dray.launcher.causes import cause_of

    told = [] if only_cause or not output else ["the end of its output:"]
    told += [f"  | {cut(line, LONGEST_LINE)}" for line in output if told]
    cause = cause_of(output)
    return lines(told + ([f"likely cause: {cause}"] if cause else []))


def tell_end(view: JobView) -> int:
    """Say how the job ended; return the exit code for that."""
    say(f"{visible(view.id)} is {view.state}{f': {visible(view.reason)}' if view.reason else ''}")
    return 0 if view.state is JobState.DONE else 1
