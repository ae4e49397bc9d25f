"""The click group, with one module per verb, and its messages for mistakes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from typing import Any

import click

from dray import tracing
from dray.cli.arguments import Verb
from dray.cli.parameters import click_command
from dray.cli.running import say_error, say_interrupted
from dray.cli.terminal import drop_output, say
from dray.cli.verbs import ELSEWHERE, SUMMARIES, overview
from dray.errors import DrayError, UsageError, nearest


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in SUMMARIES:
            return None
        module = importlib.import_module(f"dray.cli.{name}")
        verb: Verb | None = getattr(module, "VERB", None)
        command: click.Command = click_command(verb) if verb else module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in SUMMARIES and not args[0].startswith("-"):
            known = ELSEWHERE.get(args[0])
            hint = f" Did you mean {known}?" if known else nearest(args[0], SUMMARIES)
            raise click.UsageError(f"there is no verb '{args[0]}'.{hint} See dray --help.", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would take it for a failure
            drop_output()
            return 0

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(overview() + "\n")


@click.group(
    cls=LazyGroup,
    subcommand_metavar="VERB …",
    context_settings={"help_option_names": ["--help", "-h"]},
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.option("--verbose", "-v", is_flag=True, help="Report every program and request, with times.")
@click.version_option(package_name="dray", prog_name="dray", message="%(prog)s %(version)s")
def cli(debug: bool, verbose: bool) -> None:
    """Take a training run to a cluster, keep it alive, and bring the results home."""
    log = "-" if verbose else os.environ.get("DRAY_LOG")
    if log:
        tracing.begin(to_stderr if log in ("-", "1") else to_file(log))


def to_stderr(line: str) -> None:
    say(f"dray: {line}")


def to_file(path: str) -> Callable[[str], None]:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(
            f"DRAY_LOG: {path} cannot be written: {error.strerror}",
            hint="Name a file to append to, or 1 for stderr.",
        ) from error

    def append(line: str) -> None:
        with suppress(OSError):  # a full disk must not end a submission
            os.write(fd, f"{os.getpid()} {line}\n".encode("utf-8", "backslashreplace"))

    return append


def run_click(arguments: list[str]) -> int:
    """Carry out a command line with click, and return the exit code."""
    debug = "--debug" in takewhile(lambda one: one.startswith("-"), arguments)
    try:
        result = cli.main(arguments, prog_name="dray", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return say_interrupted()
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        say(f"dray: {error.format_message()}")
        if context is not None and context.command is not cli:
            say(f"      See {context.command_path} --help")
        return error.exit_code
    except (DrayError, OSError) as error:
        return say_error(error, debug=debug)
