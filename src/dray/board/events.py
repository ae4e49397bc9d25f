"""Reads and writes the few records of TensorBoard's event files that merging attempts takes.

See dray.node.metrics.tfevents for the format. A record that says that a training was started again
(a SessionLog with the status START) makes TensorBoard drop what an earlier file of the same run has
from that step on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache

from dray.node.metrics.tfevents import CHECKSUM, FRAME, fields
from dray.records import NamedTuple

LONGEST = 64 << 20  # bytes of a record: what claims to be longer is damaged
WALL_TIME, STEP, FILE_VERSION, SUMMARY, SESSION_LOG = 1, 2, 3, 5, 7
BYTES, VARINT, DOUBLE = 2, 0, 1
START = 1


class Damaged(ValueError):
    """This is not an event file."""


class Event(NamedTuple):
    """A record: when it was written, its step, and whether it holds values; ``end`` is where the
    next record begins."""

    time: float
    step: int
    has_values: bool
    is_version: bool
    end: int


def events(data: bytes) -> Iterator[Event]:
    """Yield the whole records at the beginning of an event file. Raises Damaged."""
    at = 0
    while at + FRAME <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if length > LONGEST:
            raise Damaged
        end = at + FRAME + length + CHECKSUM
        if end > len(data):
            return
        yield read_event(data[at + FRAME : at + FRAME + length], end)
        at = end


def read_event(message: bytes, end: int) -> Event:
    time, step, has_values, is_version = 0.0, 0, False, False
    try:
        for number, value in fields(message):
            if number == WALL_TIME:
                (time,) = struct.unpack("<d", value)
            elif number == STEP:
                step = int(value)
            elif number == SUMMARY:
                has_values = True
            elif number == FILE_VERSION:
                is_version = True
    except (ValueError, IndexError, TypeError, struct.error):
        raise Damaged from None
    return Event(time, step, has_values, is_version, end)


def started_again(step: int, time: float) -> bytes:
    """Return a record that says that the training went on from before this step."""
    log = field(1, VARINT, varint(START))
    return record(
        field(WALL_TIME, DOUBLE, struct.pack("<d", time))
        + field(STEP, VARINT, varint(step))
        + field(SESSION_LOG, BYTES, varint(len(log)) + log)
    )


def field(number: int, kind: int, content: bytes) -> bytes:
    return varint(number << 3 | kind) + content


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(written) + bytes([number])


def record(message: bytes) -> bytes:
    head = struct.pack("<Q", len(message))
    return head + checksum(head) + message + checksum(message)


def checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C that TensorBoard compares."""
    value, table = 0xFFFFFFFF, crc_table()
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@cache
def crc_table() -> tuple[int, ...]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ 0x82F63B78 if number & 1 else number >> 1
        table.append(number)
    return tuple(table)
