"""Opens JupyterLab on a cluster, in the browser of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import click

from dray.cli import browser
from dray.cli.output import launcher
from dray.cli.parameters import (
    BEFORE_COMMAND,
    idle_option,
    job_flags,
    job_options,
    sync_option,
)
from dray.cli.terminal import say, tell

DEFAULT_PYTHON = ("python3",)


@click.command("lab", context_settings=BEFORE_COMMAND)
@job_options
@idle_option(
    "End it when no kernel or terminal has done anything for so long. An open tab is nothing."
)
@sync_option
@click.option("--port", type=click.IntRange(1, 65535), help="The port on this machine.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def command(
    command: tuple[str, ...],
    no_snapshot: bool,
    notify: bool | None,
    idle: float | None,
    sync: bool,
    port: int | None,
    no_browser: bool,
    **values: Any,
) -> None:
    """Open JupyterLab on a cluster, with the code of this folder, in the browser of this machine.

    It is a job like any other: it waits in the queue, has the GPUs that you ask for, and ends at
    --time, when it is idle, or with dray stop. Where one of this folder is there already, that one
    is opened. COMMAND is the Python that has JupyterLab, if it is not python3.

    Ctrl-C closes the way to it; it goes on, and dray lab opens it again. What you save is copied to
    the job's outputs at once.
    """
    from dray.launcher.labs import Labs, lab_command
    from dray.sessions.forwarding import Forward

    flags = {"job.name": "lab", "job.recipe": "generic", **job_flags(values)}
    verbs = launcher(flags, submits=True)
    labs = Labs(verbs.context)
    job_id = labs.running(verbs.config.on)
    if job_id is None:
        words = lab_command(command or DEFAULT_PYTHON, idle)
        job_id = verbs.run(words, snapshot=not no_snapshot, notify=notify)
    reached = labs.wait(job_id)

    say(f"{job_id} is open until Ctrl-C; it goes on then. End it: dray stop {job_id}")
    with ExitStack() as stack, suppress(KeyboardInterrupt):

        def show(names: Sequence[str]) -> None:
            address = f"http://{names[0]}/lab"
            private = f"{address}?token={reached.token}"
            if no_browser or not browser.has_desktop():
                tell(private)
                return
            tell(address)
            browser.open_page(stack.enter_context(browser.private_page(private)))

        forwards = [Forward(port or 0, reached.socket)]
        verbs.sessions.forward(job_id, forwards, ready=show, sync=sync)
