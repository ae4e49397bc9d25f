"""Reads what the other side sends: in bounded pieces, and trusting none of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from dray.node.formats.wire import HEAD_LIMIT, MARK, TEXT_LIMIT, read_head

PIECE = 1 << 18
BANNER_LIMIT = 1 << 20  # what a login shell may print before the agent is started
LINE = 1 << 16
MOST_PARTS = 1 << 24  # of an answer in JSON: those of a hundred thousand jobs are fewer


class Truncated(Exception):
    """The connection ended inside a message."""


class NotAMessage(Exception):
    """What was read is not a message."""


def skip_to(stream: IO[bytes], *signs: bytes) -> tuple[bytes | None, bytes]:
    """Return which of the signs came (None at the end of the stream), and what was read last."""
    seen, left = b"", BANNER_LIMIT
    while line := stream.readline(LINE):
        seen, left = (seen + line)[-4000:], left - len(line)
        for sign in signs:
            if seen.endswith(sign):
                return sign, seen
        if left < 0:
            raise NotAMessage("it prints without end before it answers")
    return None, seen


def read_record(stream: IO[bytes]) -> tuple[dict[str, Any], int]:
    """Return an answer's record, and how many bytes follow it."""
    head = stream.readline(HEAD_LIMIT)
    if not head.endswith(b"\n") and len(head) < HEAD_LIMIT:
        raise Truncated
    lengths = read_head(head)
    if lengths is None:
        raise NotAMessage(f"{head!r} is not the head of an answer of at most {TEXT_LIMIT >> 20} MB")
    text = read_most(stream, lengths[0])
    if len(text) < lengths[0]:
        raise Truncated
    return parse(text), lengths[1]


def read_most(stream: IO[bytes], length: int) -> bytearray:
    """Read this many bytes, or what there is. Memory is used only for what really comes."""
    found = bytearray()
    while len(found) < length and (piece := stream.read(min(length - len(found), PIECE))):
        found += piece
    return found


def decode(text: bytes | bytearray) -> Any:
    """Read JSON, unless it has so many parts that they would fill the memory: an empty list takes
    three bytes here, and twenty times as many there."""
    if sum(map(text.count, (b",", b"[", b"{"))) > MOST_PARTS:
        raise ValueError(f"it has more than {MOST_PARTS:,} parts")
    return json.loads(text)


def parse(text: bytearray) -> dict[str, Any]:
    try:
        record = decode(text)
    except (ValueError, RecursionError, MemoryError) as error:
        raise NotAMessage(f"its answer is not JSON that can be read ({error})") from None
    if not isinstance(record, dict):
        raise NotAMessage("its answer is not a JSON object")
    return record


class AgentRefusal:
    """The agent's answer that it could not do what was asked, every field checked for its type."""

    LONGEST = 4000
    ERRNOS = range(1, 4096)

    def __init__(self, record: Mapping[str, Any]) -> None:
        text, family, errno = record["error"], record.get("family"), record.get("errno")
        self.text = (text if isinstance(text, str) else repr(text))[-self.LONGEST :]
        self.family = family if isinstance(family, str) else ""
        self.errno = errno if type(errno) is int and errno in self.ERRNOS else None


class MessageBuffer:
    """A message that arrives in pieces, up to a limit. With a mark, whatever comes before it is
    skipped."""

    def __init__(self, limit: int, mark: bytes = b"") -> None:
        self._limit, self._mark = limit, mark
        self._bytes = bytearray()
        self._skipped = 0
        self._length: int | None = None

    def feed(self, piece: bytes) -> bool:
        """Add a piece. Return whether the message is whole."""
        self._bytes += piece
        if self._length is None and self._is_at_mark():
            self._length = self._find_length()
        return self._length is not None and len(self._bytes) >= self._length

    def whole(self) -> bytes:
        return bytes(self._bytes[: self._length])

    def is_exact(self) -> bool:
        """Return whether nothing follows the message."""
        return len(self._bytes) == self._length

    def _is_at_mark(self) -> bool:
        place = self._bytes.find(self._mark)
        before = place if place >= 0 else max(len(self._bytes) - len(self._mark), 0)
        del self._bytes[:before]
        self._skipped += before
        if self._skipped > BANNER_LIMIT:
            raise NotAMessage
        return place >= 0

    def _find_length(self) -> int | None:
        start = len(self._mark)
        end = self._bytes.find(b"\n", start, start + HEAD_LIMIT) + 1
        so_far = self._bytes[start : start + HEAD_LIMIT]
        if not end and len(so_far) < HEAD_LIMIT and not so_far.strip(b"0123456789 "):
            return None
        lengths = read_head(bytes(self._bytes[start:end]))
        if lengths is None or sum(lengths) > self._limit:
            raise NotAMessage
        return end + sum(lengths)


def answer_from_agent(limit: int) -> MessageBuffer:
    return MessageBuffer(limit, MARK)
