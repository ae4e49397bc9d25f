"""Lays out facts as a label and a text, wrapped to the terminal; and shows times and amounts."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dray.cli.output import hanging
from dray.cli.terminal import Shown
from dray.job.quantities import show_duration, show_size

Row = tuple[str, str]  # a label, which is not repeated, and what is to be told
LABEL = 9
BAR_WIDTH = 20
DAY = 86400.0


def rows_of(rows: Sequence[Row]) -> list[Shown]:
    """Return the lines; a label that is the same as before is left out."""
    shown: list[Shown] = []
    last, begin = "", LABEL + 2
    for label, text in rows:
        lead = label if label != last else ""
        last = label or last
        indent = begin + 2 if text.startswith("  ") else begin
        shown += hanging(f"  {lead:<{LABEL}}", text, indent, begin)
    return shown


def clock(moment: float) -> str:
    """Show a time as people say it: 14:20, tomorrow 09:00, Thu 06:00, 2026-12-24 06:00."""
    there, now = time.localtime(moment), time.localtime()
    days = (noon(there) - noon(now)) / DAY
    hour = time.strftime("%H:%M", there)
    if round(days) == 0:
        return hour
    if round(days) == 1:
        return f"tomorrow {hour}"
    return time.strftime("%a %H:%M" if 1 < days < 6.5 else "%Y-%m-%d %H:%M", there)


def noon(day: time.struct_time) -> float:
    return time.mktime((*day[:3], 12, 0, 0, 0, 0, -1))


def show_amount(number: float, unit: str = "") -> str:
    if unit == "bytes":
        return show_size(number)
    if unit == "seconds":
        return show_duration(number)
    return f"{number:,.1f}".removesuffix(".0")


def bar(used: float, most: float) -> str:
    """Draw how much of something is used."""
    share = min(max(used / most, 0.0), 1.0) if most > 0 else 1.0
    filled = round(share * BAR_WIDTH)
    return "█" * filled + "·" * (BAR_WIDTH - filled)
