"""What the two ends of a connection say to each other, one frame at a time. Pure.

A frame is a channel's number, a kind, a length, and so many bytes. Channel 0 is the connection
itself. Who opens a channel numbers it: the laptop with odd numbers, the node with even ones.
"""

import json
import struct

from ..formats.bootstrap import sign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Tuple

VERSION = 1
MARK = sign(b"session")  # comes before the node's first frame: a login shell may print anything

(
    HELLO,  # the first frame of each end: its version
    PING,
    PONG,
    OPEN,  # a channel, as the record says
    OPENED,  # it is open
    REFUSED,  # it is not, and will not be; the record says why
    DATA,
    ERRORS,  # what a process writes to stderr
    END,  # no more data follows
    CREDIT,  # so many more bytes may be sent
    RESIZE,  # a terminal: rows, columns
    SIGNAL,  # for a process
    EXIT,  # how a process ended
    CLOSE,  # the channel is over
) = range(1, 15)

HEAD = struct.Struct("!IBI")
NUMBER = struct.Struct("!I")
SIZE = struct.Struct("!HH")
LARGEST = 1 << 16  # bytes of a frame, without its head
LARGEST_RECORD = 4 << 20  # bytes of one that opens something: a command line may be long
RECORDS = (HELLO, OPEN, OPENED, REFUSED, EXIT)
LENGTHS = {PING: 0, PONG: 0, END: 0, CLOSE: 0, CREDIT: 4, SIGNAL: 4, RESIZE: 4}
WINDOW = 4 << 20  # bytes that are sent ahead on a channel: enough for far and fast links


class BadFrame(Exception):
    """The other end does not speak as it should."""


def frame(channel: int, kind: int, content: bytes = b"") -> bytes:
    return HEAD.pack(channel, kind, len(content)) + content


def record_frame(channel: int, kind: int, record: "Dict[str, Any]") -> bytes:
    return frame(channel, kind, json.dumps(record).encode("ascii"))


def read_record(content: bytes) -> "Dict[str, Any]":
    try:
        record = json.loads(content.decode("ascii"))
    except (ValueError, RecursionError):
        raise BadFrame("a record cannot be read")
    if not isinstance(record, dict):
        raise BadFrame("a record is none")
    return record


class Reader:
    """Takes apart what comes into frames. It keeps no more than one of them."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> "Iterator[Tuple[int, int, bytes]]":
        """Yield the frames that are whole now: channel, kind, content."""
        rest = self._rest
        rest += piece
        at = 0
        try:
            while len(rest) - at >= HEAD.size:
                channel, kind, length = HEAD.unpack_from(rest, at)
                check(kind, length)
                end = at + HEAD.size + length
                if len(rest) < end:
                    break
                content = bytes(rest[at + HEAD.size : end])
                at = end
                yield channel, kind, content
        finally:
            del rest[:at]


def check(kind: int, length: int) -> None:
    if not HELLO <= kind <= CLOSE:
        raise BadFrame("a frame of kind {}".format(kind))
    if LENGTHS.get(kind, length) != length:
        raise BadFrame("a frame of kind {} with {} bytes".format(kind, length))
    if length > (LARGEST_RECORD if kind in RECORDS else LARGEST):
        raise BadFrame("a frame of {} bytes".format(length))
