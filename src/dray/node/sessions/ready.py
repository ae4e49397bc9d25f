"""Waits until one of many files can be read or written."""

import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Tuple  # noqa: F401

READ, WRITE = 1, 2
# The poll of macOS does not know terminals.
HAS_POLL = hasattr(select, "poll") and sys.platform != "darwin"


class Interests:
    """What is waited for in one turn: a file, whether to read or write, and who is told."""

    def __init__(self) -> None:
        self.wanted = {}  # type: Dict[int, int]
        self.told = {}  # type: Dict[Tuple[int, int], Callable[[], None]]

    def add(self, fd: int, what: int, then: "Callable[[], None]") -> None:
        self.wanted[fd] = self.wanted.get(fd, 0) | what
        self.told[fd, what] = then

    def wait(self, seconds: float) -> "List[Callable[[], None]]":
        """Return who is to be told; nobody where the time is over first."""
        found = self._poll(seconds) if HAS_POLL else self._select(seconds)
        return [self.told[one] for one in found if one in self.told]

    def _poll(self, seconds: float) -> "List[Tuple[int, int]]":
        poll = select.poll()
        for fd, what in self.wanted.items():
            events = (select.POLLIN if what & READ else 0) | (select.POLLOUT if what & WRITE else 0)
            poll.register(fd, events)
        found = []  # type: List[Tuple[int, int]]
        for fd, event in poll.poll(max(int(seconds * 1000 + 0.999), 0)):
            # An error is found by whoever reads or writes.
            if event & ~select.POLLOUT:
                found.append((fd, READ))
            if event & ~select.POLLIN:
                found.append((fd, WRITE))
        return found

    def _select(self, seconds: float) -> "List[Tuple[int, int]]":
        readers = [fd for fd, what in self.wanted.items() if what & READ]
        writers = [fd for fd, what in self.wanted.items() if what & WRITE]
        read, written, _ = select.select(readers, writers, [], max(seconds, 0.0))
        return [(fd, READ) for fd in read] + [(fd, WRITE) for fd in written]
