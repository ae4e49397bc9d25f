"""Shows notifications on this machine's desktop."""

from __future__ import annotations

import shutil
import subprocess

PATIENCE = 5.0
SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


def commands(title: str, text: str) -> list[list[str]]:
    """Return the commands that show it, on Linux and on macOS. The text is never a script, an
    option or markup."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    script = [word for line in SCRIPT for word in ("-e", line)]
    return [
        ["notify-send", "--app-name=dray", "--", title, safe],
        ["osascript", *script, f"dray: {title}", text],
    ]


def show(title: str, text: str) -> str:
    """Show a notification. Return why it could not be shown; "" if it was."""
    for program, *arguments in commands(title, text):
        found = shutil.which(program)
        if found is None:
            continue
        try:
            ended = subprocess.run(
                [found, *arguments], capture_output=True, timeout=PATIENCE, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{program}: {type(error).__name__}"
        return "" if ended.returncode == 0 else f"{program}: exit code {ended.returncode}"
    return "there is neither notify-send nor osascript"
