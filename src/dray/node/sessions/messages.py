"""Messages on a channel: a record and content behind it, each with its length before it. Pure."""

import json
import struct

from .frames import BadFrame, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Tuple

HEAD = struct.Struct("!II")
LARGEST_RECORD = 1 << 20
LARGEST_CONTENT = 64 << 20  # bytes; both sides hold one in memory


def packed(record: "Dict[str, Any]", content: bytes = b"") -> bytes:
    text = json.dumps(record).encode("ascii")
    return HEAD.pack(len(text), len(content)) + text + content


class Reader:
    """Takes apart what comes into messages. It keeps no more than one of them."""

    def __init__(self, most: int = LARGEST_CONTENT) -> None:
        self.most = most
        self._rest = bytearray()

    def feed(self, piece: bytes) -> "Iterator[Tuple[Dict[str, Any], bytes]]":
        """Yield the messages that are whole now."""
        rest = self._rest
        rest += piece
        while len(rest) >= HEAD.size:
            about, content = HEAD.unpack_from(rest)
            if about > LARGEST_RECORD or content > self.most:
                raise BadFrame("a message of {} bytes".format(about + content))
            begin = HEAD.size + about
            if len(rest) < begin + content:
                return
            record = read_record(bytes(rest[HEAD.size : begin]))
            body = bytes(rest[begin : begin + content])
            del rest[: begin + content]
            yield record, body
