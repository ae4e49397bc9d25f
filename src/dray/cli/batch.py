"""Submits the jobs of a batch file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from dray.cli.output import launcher, one_line, print_json
from dray.cli.parameters import ClusterName, json_option
from dray.cli.plan import tell_summary
from dray.cli.terminal import joined, say, tell
from dray.config import batch_file, task_file
from dray.config.batch_file import BatchFile
from dray.errors import UsageError
from dray.job.model import JSON_VERSION, Snapshot
from dray.job.quantities import show_count
from dray.launcher.batches.submitting import Planned, Submitted

MOST_COMMANDS = 10  # of one array that a plan shows


@click.command("batch")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--on",
    metavar="CLUSTER[,CLUSTER…]",
    type=ClusterName(),
    help="The cluster of the jobs that name none themselves; they are dealt out among several.",
)
@click.option(
    "--secret",
    "secrets",
    metavar="NAME",
    multiple=True,
    help="Give the jobs this variable's value, which is not written down anywhere else. A batch "
    "file cannot choose secrets by itself. Can be repeated.",
)
@click.option(
    "--allow-job",
    "allowed",
    metavar="JOB",
    multiple=True,
    help="Let the file name this job, array or batch of another project in after and inputs. It "
    "cannot do so by itself. Can be repeated.",
)
@click.option("--plan", is_flag=True, help="Show what would be submitted; nothing is.")
@json_option
def command(
    file: Path,
    arguments: tuple[str, ...],
    on: str | None,
    secrets: tuple[str, ...],
    allowed: tuple[str, ...],
    plan: bool,
    as_json: bool,
) -> None:
    """Submit the jobs of FILE, each with its own command and resources, with the code of this
    folder as it is now.

    Prints only the batch's id to stdout. ps, wait, stop, rm and logs take it for all of its jobs.
    If the submission is cut short, the same command goes on with it.

    FILE may also be the YAML of Isaac Lab's task_runner.py, or wrap_resources.py with its ARGUMENTS
    behind --.
    """
    flags: dict[str, object] = {"job.on": on} if on else {}
    if secrets:
        flags["job.secrets"] = secrets
    verbs = launcher(flags, submits=True)
    found = read(file, arguments)
    for note in found.notes:
        say(note)
    if plan:
        tell_plans(*verbs.plan_batch(found, allowed), as_json=as_json)
        return
    submitted = verbs.batch(found, allowed)
    if as_json:
        print_json(as_record(submitted))
    else:
        tell(submitted.id)
    number, them = len(submitted.jobs), "them" if len(submitted.jobs) > 1 else "it"
    say(f"{show_count(number, 'job')} queued; look at {them} with: dray ps {submitted.id}")


def read(file: Path, arguments: tuple[str, ...]) -> BatchFile:
    if file.name == task_file.WRAPPER:
        return task_file.read_wrapped(arguments)
    if arguments:
        raise UsageError(f"nothing comes behind {file}", hint="Only wrap_resources.py has more.")
    return task_file.read(file) if task_file.is_tasks(file) else batch_file.read(file)


def as_record(submitted: Submitted) -> dict[str, object]:
    jobs = [{"id": job_id, "cluster": cluster} for job_id, cluster in submitted.jobs]
    return {"version": JSON_VERSION, "id": submitted.id, "jobs": jobs}


def tell_plans(plans: Sequence[Planned], snapshot: Snapshot, *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "cluster": one.plan.cluster,
                    "job": one.plan.job.to_dict(),
                    "commands": [list(words) for words in one.commands],
                    "files": dict(one.plan.files),
                    "command": list(one.plan.command),
                }
                for one in plans
            ]
        )
        return
    for at, one in enumerate(plans):
        if at:
            tell("")
        many = f" ({len(one.commands)} jobs)" if len(one.commands) > 1 else ""
        tell(joined("job       ", one.plan.job.name, many))
        tell_summary(one.plan, snapshot)
        for words in one.commands[1:MOST_COMMANDS]:
            tell(joined("and       ", one_line(words)))
        if len(one.commands) > MOST_COMMANDS:
            tell(f"and       {len(one.commands) - MOST_COMMANDS} more")
