"""Shows what ``dray run`` would submit."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.output import hanging, launcher, one_line, print_json, show_image, show_resources
from dray.cli.parameters import (
    BEFORE_COMMAND,
    before_of,
    job_flags,
    job_options,
    json_option,
    start_options,
)
from dray.cli.terminal import joined, lines, multiline, tell
from dray.job.model import Plan, Snapshot
from dray.job.quantities import show_size
from dray.node.jobs.following import ANY, OK

LABEL = 10
WHEN = {OK: "once it is done", ANY: "however it has ended"}


@click.command("plan", context_settings=BEFORE_COMMAND)
@job_options
@start_options
@click.option("--all", "everything", is_flag=True, help="With every file, job.json too.")
@json_option
def command(
    command: tuple[str, ...],
    no_snapshot: bool,
    start_from: str,
    like: str,
    after: tuple[str, ...],
    inputs: tuple[str, ...],
    everything: bool,
    notify: bool | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Show exactly what run would submit: the script, command, code. Nothing is written anywhere.

    The script comes first; with --all, the other files that would be written come last.
    """
    plan, snapshot = launcher(job_flags(values), submits=True).plan(
        command,
        snapshot=not no_snapshot,
        start_from=start_from,
        like=like,
        notify=notify,
        before=before_of(after, inputs),
    )
    if as_json:
        print_json(
            {
                "cluster": plan.cluster,
                "job": plan.job.to_dict(),
                "files": dict(plan.files),
                "command": list(plan.command),
                "notes": list(plan.notes),
            }
        )
        return
    scripts = [path for path in plan.files if path.endswith(".sh")]
    for path in scripts:
        tell_file(path, plan.files[path])
        tell("")
    tell_summary(plan, snapshot)
    others = [path for path in plan.files if path not in scripts]
    if others and not everything:
        names = ", ".join(path.rpartition("/")[2] for path in others)
        tell(f"files     {names}  (dray plan --all shows them)")
    for path in others if everything else ():
        tell("")
        tell_file(path, plan.files[path])


def tell_file(path: str, content: str) -> None:
    tell(f"── {path}")
    tell(multiline(content.rstrip()))


def tell_summary(plan: Plan, snapshot: Snapshot | None) -> None:
    tell(f"cluster   {plan.cluster}")
    if plan.job.recipe:
        tell(f"recipe    {plan.job.recipe}")
    tell(joined("command   ", one_line(plan.job.command)))
    if plan.job.origin:
        tell(joined("from      ", plan.job.origin["told"]))
    for name, when in plan.job.after.items():
        tell(joined("after     ", f"{name}, {WHEN[when]}"))
    for name, one in plan.job.inputs.items():
        tell(joined("input     ", f"{name} = {one.get('told', '')}"))
    tell(f"resources {show_resources(plan.job)}")
    if plan.job.container:
        tell(joined("image     ", show_image(plan.job.container)))
    if snapshot:
        size = f"{snapshot.files} files, {show_size(snapshot.size)}"
        tell(f"snapshot  {snapshot.id}  ({size})")
    else:
        tell("snapshot  none")
    if plan.command:  # else its jobs are started one by one
        tell(joined("starts    ", one_line(plan.command)))
    for note in (*plan.job.notes, *plan.notes, *(snapshot.warnings if snapshot else ())):
        tell(lines(hanging("note      ", note, LABEL)))
