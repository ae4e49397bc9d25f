"""Reads TensorBoard's event files, as far as curves go: one number under a tag at a step.

A file is a row of records (length, checksum of it, data, checksum of it); the data is a protobuf
message, of which four small ones matter here. The checksums are not compared: a file that is being
written is cut short at its end, which the lengths show.

    Event    1 wall_time (double), 2 step (int), 5 summary (Summary)
    Summary  1 value (Value, several)
    Value    1 tag (text), 2 simple_value (float), 8 tensor (Tensor)
    Tensor   1 dtype, 4 content (bytes), 5 float_val, 6 double_val
"""

import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, List, Optional, Pattern, Tuple

    Scalar = Tuple[str, int, float, float]  # tag, step, value, time

FRAME = 12  # before the data: its length, and a checksum
CHECKSUM = 4
LARGEST = 1 << 16  # what is longer is a picture, a video, a histogram or a graph
FLOAT, DOUBLE = 1, 2
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5


def read(
    path: str, offset: int, wanted: "Pattern[bytes]", most: "Optional[int]" = None
) -> "Tuple[List[Scalar], int]":
    """Return the numbers from ``offset`` on, and where the last whole record ends.

    Only records in which ``wanted`` is found are parsed: parsing is what takes time. ``most``: how
    many bytes to look at.
    """
    found = []  # type: List[Scalar]
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None:
            size = min(size, offset + most)
        file.seek(offset)
        while offset + FRAME <= size:
            (length,) = struct.unpack_from("<Q", file.read(FRAME))
            end = offset + FRAME + length + CHECKSUM
            if end > size:
                break
            if length <= LARGEST:
                data = file.read(length)
                file.seek(CHECKSUM, os.SEEK_CUR)
                if wanted.search(data):
                    found += scalars(data)
            else:
                file.seek(end)
            offset = end
    return found, offset


def scalars(event: bytes) -> "List[Scalar]":
    """Return the numbers of an event; none if it is damaged or holds no number."""
    try:
        return list(_scalars(event))
    except (ValueError, IndexError, TypeError, AttributeError, struct.error):
        return []


def _scalars(event: bytes) -> "Iterator[Scalar]":
    time, step, summaries = 0.0, 0, []
    for number, value in fields(event):
        if number == 1:
            (time,) = struct.unpack("<d", value)
        elif number == 2:
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number == 5:
            summaries.append(value)
    for summary in summaries:
        for number, value in fields(summary):
            tag, scalar = tagged(value) if number == 1 else ("", None)
            if tag and scalar is not None:
                yield tag, step, scalar, time


def tagged(message: bytes) -> "Tuple[str, Optional[float]]":
    tag, scalar = "", None  # type: str, Optional[float]
    for number, value in fields(message):
        if number == 1:
            tag = value.decode("utf-8", "replace")
        elif number == 2:
            (scalar,) = struct.unpack("<f", value)
        elif number == 8:
            scalar = number_in(value)
    return tag, scalar


def number_in(tensor: bytes) -> "Optional[float]":
    """Return the only number of a tensor; None if it holds more, or something else."""
    kind, content = 0, b""
    for number, value in fields(tensor):
        if number == 1:
            kind = value
        elif number in (4, 5, 6):
            content = value
    layout = {(FLOAT, 4): "<f", (DOUBLE, 8): "<d"}.get((kind, len(content)))
    return float(struct.unpack(layout, content)[0]) if layout else None


def fields(message: bytes) -> "Iterator[Tuple[int, Any]]":
    """Yield the number and the value of each field, up to the first one of an unknown kind."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(message, at)
            yield key >> 3, value
            continue
        length = {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(kind)
        if kind == BYTES:
            length, at = varint(message, at)
        if length is None or at + length > len(message):
            raise ValueError("not a message")
        yield key >> 3, message[at : at + length]
        at += length


def varint(message: bytes, at: int) -> "Tuple[int, int]":
    """Read a number with seven bits in each byte, the lowest first; return it and where it ends."""
    value, shift = 0, 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
