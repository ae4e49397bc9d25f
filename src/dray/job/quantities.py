"""Durations, sizes and GPU counts: reads them as people write them, and writes them as people read
them."""

from __future__ import annotations

import re
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
NUMBER = r"\d{1,15}(?:\.\d{1,15})?"  # bounded: no text becomes infinity
LONGEST_SHOWN = 1e20  # seconds
SMALLEST_SHARE = 0.01  # of a GPU
BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def parse_duration(value: object) -> float:
    """Parse '90s', '30m', '4h', '1d12h', '04:00:00', '1-12:00:00' to seconds.

    '04:00' is refused: Slurm's users read it as minutes, everybody else as hours."""
    text = str(value).strip().lower()
    clock = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,6}):([0-5]\d):([0-5]\d)", text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        total = float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
    elif re.fullmatch(rf"(?:{NUMBER}[smhdw])+", text):
        parts = re.findall(rf"({NUMBER})([smhdw])", text)
        total = sum(float(number) * SECONDS[unit] for number, unit in parts)
    else:
        raise ValueError(f"cannot read the time '{value}': write 90s, 30m, 4h, 1d12h or 04:00:00")
    if total <= 0:
        raise ValueError(f"the time '{value}' is not more than zero")
    return total


def parse_shortest(value: object) -> float:
    """Parse a duration; '0' and 'none' are 0."""
    return 0.0 if str(value).strip().lower() in ("0", "none") else parse_duration(value)


def parse_hours(value: object) -> float:
    """Parse a number of hours: '8', '0.5'; '8h' is understood, too."""
    found = re.fullmatch(rf"({NUMBER})h?", str(value).strip().lower())
    if not found or float(found[1]) <= 0:
        raise ValueError(f"cannot read the hours '{value}': write 8 or 0.5")
    return float(found[1])


def parse_moment(value: object) -> float | datetime:
    """Parse a duration from now on ('2h') to seconds, or a moment: '2026-11-17 08:00'. Without a
    time zone, it is that of this machine."""
    from datetime import datetime  # only where one is given

    try:
        return datetime.fromisoformat(str(value).strip())
    except ValueError:
        pass
    try:
        return parse_duration(value)
    except ValueError:
        raise ValueError(
            f"cannot read the moment '{value}': write 2h, or 2026-11-17T08:00"
        ) from None


def parse_since(value: object, now: float) -> float:
    """Parse '10m' (that long ago), '21:00', '2026-11-16 21:00' or '2026-11-16T21:00:05' to unix
    seconds.

    A time of day means its last occurrence."""
    text = str(value).strip()
    if ":" not in text:
        with suppress(ValueError):
            return now - parse_duration(text)
    day = time.strftime("%Y-%m-%d", time.localtime(now))
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"):
        for given, back in ((text.replace("T", " "), 0), (f"{day} {text}", 86400)):
            try:
                found = time.mktime(time.strptime(given, form))
            except (ValueError, OverflowError):
                continue
            return found - back if found > now else found
    raise ValueError(f"cannot read the time '{value}': write 10m, 21:00 or '2026-11-16 21:00'")


def parse_size(value: object) -> int:
    """Parse '512M', '32G', '1.5T' to bytes (1024-based)."""
    match = re.fullmatch(rf"({NUMBER})\s*([KMGTP]?)(?:i?B)?", str(value).strip(), re.I)
    if not match or (match[2] == "" and float(match[1]) < 2**20):
        raise ValueError(f"cannot read the size '{value}': write 512M, 32G or 1.5T")
    size = int(float(match[1]) * BYTES[match[2].upper()])
    if size <= 0:
        raise ValueError(f"the size '{value}' is not more than zero")
    return size


def parse_gpus(value: object) -> float:
    """Parse a whole number of GPUs, or a fraction of one."""
    try:
        number = float(str(value))
    except ValueError:
        raise ValueError(f"cannot read the GPU count '{value}': write 1, 2 or 0.5") from None
    whole = 0 <= number < 10_000 and number == int(number)
    if not whole and not SMALLEST_SHARE <= number < 1:
        raise ValueError(f"'{value}' GPUs: write a whole number, or a fraction between 0.01 and 1")
    return abs(number)  # -0 is 0


def parse_count(value: object, least: int = 1) -> int:
    if (
        isinstance(value, bool)
        or not re.fullmatch(r"\d{1,9}", str(value))
        or int(str(value)) < least
    ):
        raise ValueError(f"'{value}' is not a whole number of at least {least}")
    return int(str(value))


def show_duration(seconds: float) -> str:
    """Show the two largest units: 3d4h, 2h05m, 4m20s, 12s; and '?' for what no time can be."""
    if not abs(seconds) <= LONGEST_SHOWN:  # nan, too
        return "?"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def show_count(number: float, what: str) -> str:
    """Write ``1 GPU``, ``2 GPUs``."""
    return f"{number:g} {what}{'' if number == 1 else 's'}"


def show_size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"
