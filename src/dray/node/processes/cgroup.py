"""Reads how much memory a container uses, of how much it may, from its control group."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

V2 = "/sys/fs/cgroup"
V1 = "/sys/fs/cgroup/memory"
UNLIMITED = 1 << 60  # what version 1 says where there is no limit
NEAR = 0.9  # of the limit: what used that much, and was killed, was killed for it


class Meter:
    """The memory of the container that this process is in."""

    def __init__(self, v2: str = V2, v1: str = V1) -> None:
        self.is_v2 = os.path.exists(os.path.join(v2, "memory.max"))
        self.folder = v2 if self.is_v2 else v1
        self.kills_before = self.kills()

    def limit(self) -> "Optional[int]":
        limit = self._number("memory.max" if self.is_v2 else "memory.limit_in_bytes")
        return limit if limit is not None and limit < UNLIMITED else None

    def used(self) -> "Optional[int]":
        """Return the bytes in use, without what the kernel can give back at once."""
        used = self._number("memory.current" if self.is_v2 else "memory.usage_in_bytes")
        key = "inactive_file" if self.is_v2 else "total_inactive_file"
        return None if used is None else max(used - self._entry("memory.stat", key), 0)

    def kills(self) -> int:
        """Count the processes that the kernel has killed for want of memory."""
        return self._entry("memory.events" if self.is_v2 else "memory.oom_control", "oom_kill")

    def has_killed(self) -> bool:
        """Return whether there were more of these since the last time it was asked."""
        before, self.kills_before = self.kills_before, self.kills()
        return self.kills_before > before

    def why_killed(self) -> str:
        """Say that a process was killed for want of memory; nothing where none was."""
        if not self.has_killed():
            return ""
        limit = self.limit() or 0
        return "out of memory: killed at {}".format(in_words(limit, limit))

    def _number(self, name: str) -> "Optional[int]":
        try:
            with open(os.path.join(self.folder, name)) as file:
                return int(file.read(100))
        except (OSError, ValueError):  # "max": no limit
            return None

    def _entry(self, name: str, key: str) -> int:
        try:
            with open(os.path.join(self.folder, name)) as file:
                found = [line.split() for line in file]
        except OSError:
            return 0
        return sum(int(words[1]) for words in found if len(words) == 2 and words[0] == key)


def in_words(used: float, limit: float) -> str:
    scale, unit = (2.0**30, "GB") if limit >= 2**30 else (2.0**20, "MB")
    return "{:.1f} {unit} used of {:.1f} {unit}".format(used / scale, limit / scale, unit=unit)
