"""Forwards ports of a job's node."""

from __future__ import annotations

import click

from dray.cli.output import launcher
from dray.cli.parameters import job_argument, rank_option


@click.command("forward")
@job_argument()
@click.argument("ports", nargs=-1, required=True, metavar="PORT…")
@rank_option
@click.option(
    "--reverse", is_flag=True, help="Lead who connects to REMOTE, in the job, to LOCAL, here."
)
@click.option("--udp", is_flag=True, help="Forward datagrams.")
def command(job: str, ports: tuple[str, ...], rank: int, reverse: bool, udp: bool) -> None:
    """Forward ports of a running job's node to the same ports of this machine, until Ctrl-C.

    PORT is a number; LOCAL:REMOTE, where they differ (0 is any free one); or the path of a UNIX
    socket there. LOCAL is the port of this machine, with --reverse, too. Only this machine's own
    processes can connect (127.0.0.1). A lost connection is made again.
    """
    from dray.errors import UsageError
    from dray.sessions.forwarding import parse

    if reverse and udp:
        raise UsageError("--udp and --reverse do not go together")
    forwards = [parse(one, reverse=reverse, udp=udp) for one in ports]
    launcher().sessions.forward(job, forwards, rank=rank)
