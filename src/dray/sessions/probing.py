"""Waits until ports of a job's node answer, over one connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from dray.node.sessions.link import Channel, End, Link
from dray.node.sessions.ready import Interests
from dray.transport.ways import Connection, Way

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

PATIENCE = 10.0  # seconds for a port to accept or refuse
PAUSE = 2.0  # seconds between two looks


class Probe(End):
    """A connection that is closed as soon as it is there."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.answers: bool | None = None

    def opened(self, record: dict[str, Any]) -> None:
        del record
        self.answers = True
        self.channel.close()

    def refused(self, record: dict[str, Any]) -> None:
        del record
        self.answers = False

    def closed(self) -> None:
        self.answers = self.answers or False


def wait_for_ports(
    way: Way,
    ports: Sequence[int],
    judge: Callable[[set[int]], T | None],
    in_vain: Callable[[], None],
) -> T:
    """Look which of the ports accept connections, and are of no other account, until ``judge``
    makes something of them; return that. ``in_vain`` is called after each look that was not
    enough. Raises an error when the link is lost."""
    with Connection(way) as connection:
        wait(connection, lambda: connection.link.hello is not None)
        while True:
            probes = {port: probe(connection.link, port) for port in ports}
            wait(connection, lambda probes=probes: all_known(probes), PATIENCE)  # type: ignore[misc]
            found = judge({port for port, one in probes.items() if one.answers})
            if found is not None:
                return found
            in_vain()
            wait(connection, bool, PAUSE)


def probe(link: Link, port: int) -> Probe:
    made: list[Probe] = []

    def make(channel: Channel) -> End:
        made.append(Probe(channel))
        return made[0]

    link.open({"what": "tcp", "port": port, "own": True}, make)
    return made[0]


def all_known(probes: dict[int, Probe]) -> bool:
    return all(one.answers is not None for one in probes.values())


def wait(connection: Connection, condition: Callable[[], bool], seconds: float = 1e9) -> None:
    """Go on until the condition holds, or for so long."""
    until = time.monotonic() + seconds
    while not condition() and (left := until - time.monotonic()) > 0:
        if not connection.link.is_alive:
            raise connection.why_lost()
        connection.turn(Interests(), most=left)
