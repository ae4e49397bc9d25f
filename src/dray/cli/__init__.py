"""The command line. Help and version are answered before anything heavy is imported."""

import gc
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
        gc.disable()  # what is imported stays: looking through it only takes time
        from dray.cli.running import run
    except KeyboardInterrupt:  # Ctrl-C while we were still loading
        sys.exit(130)
    from dray import background

    background.remember_ends()
    code = run(arguments, collect_garbage)
    if background.keep_warm:
        warm.start()
    leave(code)


def collect_garbage() -> None:
    """Collect garbage from now on, as some verbs last; but not among what was imported so far."""
    gc.freeze()
    gc.enable()


def leave(code: int) -> None:
    """End the process, at once where an orderly exit would only take time."""
    import atexit

    from dray import background

    background.end()
    if "threading" in sys.modules or atexit._ncallbacks():
        sys.exit(code)
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code)


def answer(text: str) -> None:
    terminal.guard()
    try:
        terminal.tell(terminal.multiline(text))
    except BrokenPipeError:
        terminal.drop_output()
