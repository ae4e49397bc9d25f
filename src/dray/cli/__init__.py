"""The command line. Help and version are answered before anything heavy is imported."""

import os
import sys

from dray.cli import terminal, warm


def main() -> None:
    arguments = sys.argv[1:]
    if "_DRAY_COMPLETE" not in os.environ:
        if arguments[:1] == ["help"] and len(arguments) > 1:
            arguments = [*arguments[1:], "--help"]
        elif not arguments or arguments[0] in ("--help", "-h", "help"):
            from dray.cli.verbs import overview

            answer(overview())
            return
        if arguments == ["--version"]:
            from dray import __version__

            answer(f"dray {__version__}")
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
    if background.keep_warm:
        warm.start()
    sys.exit(code)


def answer(text: str) -> None:
    terminal.guard()
    try:
        terminal.tell(terminal.multiline(text))
    except BrokenPipeError:
        terminal.drop_output()
