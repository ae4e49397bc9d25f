"""How long to leave alone what costs something to look at."""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEARTBEAT = 10.0  # seconds between two signs of life of a supervisor
SHARE = 100  # of the time, at most one part in so many goes into looking
CPU_SHARE = 2000  # and of a CPU: 0.05 %


class Pace:
    """Each look is made in it. The cheaper of the last two counts: one that stalls once (a busy
    disk, the first one of all) is no measure, and would leave us blind for a hundred times as
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
