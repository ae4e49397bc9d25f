from __future__ import annotations

from typing import Any

import click

from dray.cli.output import launcher, one_line, print_json, show_image
from dray.cli.parameters import BEFORE_COMMAND, job_flags, job_options, json_option
from dray.cli.terminal import joined, multiline, tell
from dray.quantities import show_size


@click.command("plan", context_settings=BEFORE_COMMAND)
@job_options
@json_option
def command(
    command: tuple[str, ...], no_snapshot: bool, notify: bool | None, as_json: bool, **values: Any
) -> None:
    """Show exactly what run would submit: files, command, code. Nothing is written anywhere."""
    plan, snapshot = launcher(job_flags(values), submits=True).plan(
        command, snapshot=not no_snapshot, notify=notify
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
    tell(f"cluster   {plan.cluster}")
    if plan.job.recipe:
        tell(f"recipe    {plan.job.recipe}")
    tell(joined("command   ", one_line(plan.job.command)))
    if plan.job.container:
        tell(joined("image     ", show_image(plan.job.container)))
    if snapshot:
        size = f"{snapshot.files} files, {show_size(snapshot.size)}"
        tell(f"snapshot  {snapshot.id}  ({size})")
    else:
        tell("snapshot  none")
    tell(joined("starts    ", one_line(plan.command)))
    for note in (*plan.job.notes, *plan.notes, *(snapshot.warnings if snapshot else ())):
        tell(f"note      {note}")
    for path, content in plan.files.items():
        tell("")
        tell(f"── {path}")
        tell(multiline(content.rstrip()))
