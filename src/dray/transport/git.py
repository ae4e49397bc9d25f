"""What git knows of a project."""

from __future__ import annotations

import subprocess


def tracked(folder: str) -> bytes:
    """The files that it tracks below this folder, each path with a NUL behind it; none where
    there is no git, or it does not want to tell."""
    words = ("git", "-C", folder, "ls-files", "-z", "--cached")
    try:
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return b""
    return b"" if ended.returncode else ended.stdout
