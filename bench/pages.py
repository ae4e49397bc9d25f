"""Writes figures into the pages of docs/explanation, between two comments."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs/explanation"


def write(page: str, lines: list[str], section: str = "figures") -> None:
    """Put the lines in the place of those that the page has there, and print them."""
    begin, end = f"<!-- {section} -->", f"<!-- end of {section} -->"
    path = FOLDER / page
    head, found, rest = path.read_text("utf-8").partition(begin)
    _, found_too, tail = rest.partition(end)
    if not (found and found_too):
        raise SystemExit(f"{path} has no place for {section}: {begin} … {end}")
    path.write_text(head + "\n".join([begin, *lines, end]) + tail, "utf-8")
    print("\n".join(lines))


def measured(*more: str) -> str:
    """Say when and where: the first half of a sentence."""
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}"
    python = f"Python {platform.python_version()}"
    return ", ".join([f"Measured on {time.strftime('%Y-%m-%d')}", machine, python, *more])
