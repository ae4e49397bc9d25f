"""Limits how often something that is costly to look at is looked at."""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEARTBEAT = 10.0  # seconds between two heartbeats of a supervisor
SHARE = 100  # at most one part in this many of the time goes into looking
CPU_SHARE = 2000  # and of a CPU: 0.05 %


class Pace:
    """A context manager that times each look. The cheaper of the last two counts: one that stalls
    once (a busy disk, the very first one) is no measure, and would make us wait a hundred times as
    long."""

    def __init__(self) -> None:
        self.looks = [(0.0, 0.0), (0.0, 0.0)]
        self.began = (0.0, 0.0)

    def __enter__(self) -> None:
        self.began = (time.monotonic(), time.process_time())

    def __exit__(self, *error: "Any") -> None:
        took = time.monotonic() - self.began[0]
        used = time.process_time() - self.began[1]
        self.looks = [self.looks[1], (took, used)]

    def took(self) -> float:
        return min(took for took, _ in self.looks)

    def rest(self) -> float:
        used = min(used for _, used in self.looks)
        return max(self.took() * SHARE, used * CPU_SHARE)
