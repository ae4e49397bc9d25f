"""Whose a port of this machine is, as the kernel tells it."""

import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Set

WAITING = {"tcp": "0A", "udp": "07"}  # the states of sockets that take what comes from anybody
ADDRESSES = (
    (socket.AF_INET, ("127.0.0.1", "0.0.0.0")),
    (socket.AF_INET6, ("::ffff:127.0.0.1", "::ffff:0.0.0.0", "::")),
)


def require_own(port: int, protocol: str) -> None:
    """Raise ValueError if what comes to this port of the loopback may go to another account."""
    others = owners(port, protocol) - {os.getuid()}
    if others:
        raise ValueError("another account of the node (uid {}) has this port".format(min(others)))


def owners(port: int, protocol: str) -> "Set[int]":
    found = set()  # type: Set[int]
    for name in (protocol, protocol + "6"):
        try:
            with open("/proc/net/" + name) as file:
                found |= owners_in(file, port, WAITING[protocol])
        except OSError:  # there is no IPv6 here
            continue
    return found


def owners_in(lines: "Iterable[str]", port: int, state: str) -> "Set[int]":
    """Read who waits at this port, from what the kernel says. Pure."""
    places = {"{}:{:04X}".format(address, port) for address in spelled()}
    rows = (line.split() for line in lines)
    return {int(row[7]) for row in rows if len(row) > 7 and row[3] == state and row[1] in places}


def spelled() -> "Iterable[str]":
    """Spell the addresses that 127.0.0.1 reaches as the kernel does: by words of this machine."""
    for family, addresses in ADDRESSES:
        for address in addresses:
            packed = socket.inet_pton(family, address)
            words = struct.unpack("={}I".format(len(packed) // 4), packed)
            yield "".join("{:08X}".format(word) for word in words)
