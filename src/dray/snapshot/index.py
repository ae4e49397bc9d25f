"""Reads from git's index which files it tracks. Git itself is not run: it would obey the
repository's own configuration, which can name programs to run.

The format: https://git-scm.com/docs/index-format
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from dray import plain_files
from dray.records import NamedTuple

MOST = 128 << 20  # bytes of an index, and of the names in it: a million files
LONGEST = 4096  # bytes of a name
HASHES = (20, 32)  # bytes of SHA-1 and SHA-256: only the configuration says which one it is
STAT, FLAGS = 40, 2  # bytes before and behind the hash of an entry
EXTENDED, LENGTH = 0x4000, 0xFFF
KNOWN = (b"link", b"sdir")  # of the extensions that a reader must understand
WORD = 64


class Unreadable(Exception):
    """The index is damaged, too big, or in a format that is newer than this program."""


class Index(NamedTuple):
    names: list[bytes]
    link: bytes  # to another index that this one changes; empty if there is none
    hash_size: int


def tracked(path: str) -> list[bytes]:
    """Return the files in this index, as paths from the top of the work tree; none if there is no
    index.

    A sparse index also lists folders that are not there, each with a trailing slash.
    """
    try:
        index = parse(read(path))
        return with_base(index, path) if any(index.link[: index.hash_size]) else index.names
    except FileNotFoundError:
        return []


def read(path: str) -> bytes:
    try:
        return plain_files.read(path, MOST)[0]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable(error.strerror) from error


def parse(data: bytes) -> Index:
    for hash_size in HASHES:
        try:
            names, at = read_entries(data, hash_size)
            return Index(names, find_link(data, at, len(data) - hash_size), hash_size)
        except (Unreadable, ValueError):
            continue
    raise Unreadable("it is damaged, or of a new format")


def read_entries(data: bytes, hash_size: int) -> tuple[list[bytes], int]:
    """Return the names, and where the extensions begin."""
    version = int.from_bytes(data[4:8], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise Unreadable
    names: list[bytes] = []
    at, name, room = 12, b"", MOST
    for _ in range(int.from_bytes(data[8:12], "big")):
        begin = at + STAT + hash_size
        flags = int.from_bytes(data[begin : begin + FLAGS], "big")
        begin += 2 * FLAGS if flags & EXTENDED else FLAGS
        dropped, begin = varint(data, begin) if version == 4 else (len(name), begin)
        end = data.index(b"\0", begin, begin + LONGEST)
        name = name[: max(len(name) - dropped, 0)] + data[begin:end]
        room -= len(name)
        if min(len(name), LENGTH) != flags & LENGTH or len(name) > LONGEST or room < 0:
            raise Unreadable
        names.append(name)
        at = end + 1 if version == 4 else at + (end - at + 8) // 8 * 8
    return names, at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length; return it and where it ends."""
    value = data[at] & 0x7F if at < len(data) else 0
    while data[at : at + 1] >= b"\x80":
        at += 1
        value = ((value + 1) << 7) + (data[at] & 0x7F) if at < len(data) else 0
        if value > MOST:
            raise Unreadable
    return value, at + 1


def find_link(data: bytes, at: int, end: int) -> bytes:
    """Return the ``link`` extension. Those in capital letters may be skipped."""
    link = b""
    while at < end:
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "big")
        if not kind[:1].isupper() and kind not in KNOWN:
            raise Unreadable
        if kind == b"link":
            link = data[at + 8 : at + 8 + size]
        at += 8 + size
    if at != end:
        raise Unreadable
    return link


def with_base(index: Index, path: str) -> list[bytes]:
    """Return the names of a split index: those it adds to another index, without the ones that a
    bitmap marks as removed."""
    base = f"sharedindex.{index.link[: index.hash_size].hex()}"
    try:
        names = parse(read(os.path.join(os.path.dirname(path), base))).names
    except FileNotFoundError as error:  # most tracked files would be left out silently
        raise Unreadable(f"{base} is missing") from error
    removed = set(bits(index.link[index.hash_size :], len(names)))
    kept = [name for number, name in enumerate(names) if number not in removed]
    return kept + [name for name in index.names if name]


def bits(data: bytes, count: int) -> Iterator[int]:
    """Yield which of the first ``count`` bits are set in an EWAH bitmap: runs of equal words, each
    followed by literal words."""
    end = 8 + 8 * int.from_bytes(data[4:8], "big")
    words = [int.from_bytes(data[at : at + 8], "big") for at in range(8, min(end, len(data)), 8)]
    at = position = 0
    while at < len(words) and position < count:
        run, plain = (words[at] >> 1 & 0xFFFFFFFF) * WORD, words[at] >> 33
        if words[at] & 1:
            yield from range(position, min(position + run, count))
        position += run
        yield from set_in(words[at + 1 : at + 1 + plain], position, count)
        position += plain * WORD
        at += 1 + plain


def set_in(words: Sequence[int], position: int, count: int) -> Iterator[int]:
    for number, word in enumerate(words):
        if position + number * WORD >= count:
            return
        for bit in range(WORD):
            if word >> bit & 1:
                yield position + number * WORD + bit
