"""The command line. Help and version are answered before anything heavy is imported."""

from __future__ import annotations

import os
import sys

from dray.cli.verbs import overview


def main() -> None:
    arguments = sys.argv[1:]
    if "_DRAY_COMPLETE" not in os.environ:
        if arguments[:1] == ["help"] and len(arguments) > 1:
            arguments = [*arguments[1:], "--help"]
        elif not arguments or arguments[0] in ("--help", "-h", "help"):
            print(overview())
            return
        if arguments == ["--version"]:
            from dray import __version__

            print(f"dray {__version__}")
            return
    try:
        from dray.cli.group import run
    except KeyboardInterrupt:  # Ctrl-C while we were still loading
        sys.exit(130)
    sys.exit(run(arguments))
