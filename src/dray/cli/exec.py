"""Runs a program beside a job's command."""

from __future__ import annotations

import click

from dray.cli.output import launcher
from dray.cli.parameters import host_option, job_argument, rank_option
from dray.errors import UsageError


class JobFirst(click.Command):
    """A verb whose job stands in front of --, which click takes for no sign of that."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            before = args[: args.index("--")]
            found = self.make_parser(ctx).parse_args(list(before))[0]
            if not (isinstance(found.get("job"), str) or {*before} & {*ctx.help_option_names}):
                raise click.UsageError("JOB is missing: dray exec JOB -- PROGRAM…", ctx)
        return super().parse_args(ctx, args)


@click.command("exec", cls=JobFirst)
@rank_option
@host_option
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal: for top, htop, a debugger.")
@job_argument()
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM…")
def command(job: str, program: tuple[str, ...], rank: int, host: bool, tty: bool) -> int:
    """Run PROGRAM on the node of a running job, beside its command: with its variables, GPUs,
    folder and container.

    Its arguments, input and output are passed on byte for byte, and its exit code is this
    command's; 128 and the signal's number, if a signal ended it.
    """
    if not program[0]:
        raise UsageError("the program has no name", hint="Behind -- stands what to run, and how.")
    sessions = launcher().sessions
    if tty:
        return sessions.show(job, program, rank=rank, host=host)
    return sessions.execute(job, program, rank=rank, host=host)
