"""The command line. Help and version are answered before anything heavy is imported."""

import os
import sys

from dray.cli import warm


def main() -> None:
    arguments = sys.argv[1:]
    if "_DRAY_COMPLETE" not in os.environ:
        if arguments[:1] == ["help"] and len(arguments) > 1:
            arguments = [*arguments[1:], "--help"]
        elif not arguments or arguments[0] in ("--help", "-h", "help"):
            from dray.cli.verbs import overview

            tell(overview())
            return
        if arguments == ["--version"]:
            from dray import __version__

            tell(f"dray {__version__}")
            return
    try:
        if "_DRAY_COMPLETE" not in os.environ:
            code = warm.ask(arguments)
            if code is not None:
                os._exit(code)  # nothing of ours is left to be done, not even tidying up
        from dray.cli.group import run
    except KeyboardInterrupt:  # Ctrl-C while we were still loading
        sys.exit(130)
    from dray import background

    code = run(arguments)
    if background.wanted:
        warm.start()
    sys.exit(code)


def tell(text: str) -> None:
    accept_all_names()
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_output()


def accept_all_names() -> None:
    """A file's name may be no text: it is printed as it is, or spelled where that cannot be. Python
    does so by itself only where no language is set."""
    if sys.stdout is not None and sys.stdout.errors == "strict":
        is_utf8 = sys.stdout.encoding.lower() in ("utf-8", "utf8")
        errors = "surrogateescape" if is_utf8 else "backslashreplace"
        sys.stdout.reconfigure(errors=errors)  # type: ignore[union-attr]


def say(text: str) -> None:
    """On stderr. Where nobody listens, what was begun goes on, and ends with its exit code."""
    import click  # the quickest of commands do without

    try:
        click.echo(text, err=True)
    except BrokenPipeError:
        drop_output(2)


def drop_output(stream: int = 1) -> None:
    """Whoever read it has left; Python must not complain about that at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
