"""Shows the livestream of a headless simulation on this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from contextlib import suppress

import click

from dray.cli import browser
from dray.cli.output import launcher, named_or_latest
from dray.cli.parameters import Read, job_argument, rank_option
from dray.cli.terminal import say, tell


def loopback(text: str) -> str:
    """Read an address of this machine's loopback: nobody else is to see the picture."""
    try:
        if ipaddress.IPv4Address(text).is_loopback:
            return text
    except ValueError:
        pass
    raise ValueError(f"'{text}' is no address of this machine's loopback, such as 127.0.0.2")


@click.command("view")
@job_argument(or_latest=True)
@rank_option
@click.option(
    "--address",
    type=Read("address", loopback),
    default="127.0.0.1",
    show_default=True,
    help="Where on this machine it is shown: 127.0.0.2 for a second one (on macOS, make that first:"
    " sudo ifconfig lo0 alias 127.0.0.2).",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def command(job: str | None, rank: int, address: str, no_browser: bool) -> None:
    """Watch a simulation that runs without a screen: bring the livestream of Isaac Sim in a job
    (the latest, if none is named) to this machine, until Ctrl-C.

    It waits until the simulation offers one, forwards its ports (TCP 49100, UDP 47998, and 8210 or
    8211 where it serves a page), and opens the page, or says which client to connect to which
    address. The job has to be started with a livestream that comes from that address: in Isaac Lab
    with --env LIVESTREAM=1 --env PUBLIC_IP=127.0.0.1.
    """
    from dray.launcher.viewing import Viewing, advice

    verbs = launcher()
    job_id = named_or_latest(verbs, job)
    viewing = Viewing(verbs.context, address)
    stream = viewing.wait(job_id, rank)
    forwards = viewing.forwards(job_id, stream)

    def show(_: Sequence[str]) -> None:
        first, *more = advice(stream, address)
        tell(first)
        for line in more:
            say(line)
        if stream.page and not no_browser:
            browser.open_page(first)

    if not forwards:
        show(())
        return
    with suppress(KeyboardInterrupt):
        verbs.sessions.forward(job_id, forwards, rank=rank, ready=show)
