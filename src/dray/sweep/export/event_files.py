"""Makes TensorBoard's event files: scalars, texts, and the table of its HParams tab.

See dray.node.metrics.tfevents for the format. What the HParams tab reads lies in the metadata of
values without content:

    Value              1 tag, 8 tensor, 9 metadata: 1 plugin data: 1 name, 2 content
    HParamsPluginData  1 version (0), 3 session start, 4 session end
    session start      1 parameters (map of name → protobuf's Value), 4 group, 5 time
    session end        1 status, 2 time
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from dray.board.events import FILE_VERSION, STEP, SUMMARY, WALL_TIME, field, record, varint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5
NO_NUMBERS = field(1, VARINT, varint(1)) + field(2, BYTES, b"\x04" + b"\x12\x02\x08\x00")
TEXT_KIND = 7  # of a tensor: DT_STRING
SUCCESS, FAILURE, RUNNING = 1, 2, 3  # of a session


def message(number: int, content: bytes) -> bytes:
    return field(number, BYTES, varint(len(content)) + content)


def text(number: int, content: str) -> bytes:
    return message(number, content.encode("utf-8", "replace"))


def double(number: int, value: float) -> bytes:
    return field(number, DOUBLE, struct.pack("<d", value))


def event(time: float, step: int, content: bytes) -> bytes:
    return record(double(WALL_TIME, time) + field(STEP, VARINT, varint(step)) + content)


def version(time: float) -> bytes:
    """Return the record that a file begins with."""
    return event(time, 0, text(FILE_VERSION, "brain.Event:2"))


def scalar(tag: str, value: float, step: int, time: float) -> bytes:
    try:
        number = struct.pack("<f", value)
    except OverflowError:  # more than a float of TensorBoard's can hold
        number = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return event(time, step, summary(text(1, tag) + field(2, FLOAT, number)))


def string(tag: str, content: str, time: float) -> bytes:
    """Return what the Text tab shows."""
    shape = message(2, field(1, VARINT, varint(1)))
    tensor = field(1, VARINT, varint(TEXT_KIND)) + message(2, shape) + text(8, content)
    value = text(1, f"{tag}/text_summary") + message(8, tensor) + message(9, plugin("text", b""))
    return event(time, 0, summary(value))


def session_start(parameters: Mapping[str, Any], group: str, time: float) -> bytes:
    """Return the record of a trial's parameters. Trials of the same group are repeats."""
    entries = [
        message(1, text(1, name) + message(2, protobuf_value(value)))
        for name, value in parameters.items()
    ]
    content = b"".join(entries) + text(4, group) + double(5, time)
    return hparams("_hparams_/session_start_info", message(3, content), time)


def session_end(status: int, time: float) -> bytes:
    content = field(1, VARINT, varint(status)) + double(2, time)
    return hparams("_hparams_/session_end_info", message(4, content), time)


def protobuf_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return field(4, VARINT, varint(value))
    return double(2, value) if isinstance(value, int | float) else text(3, str(value))


def hparams(tag: str, content: bytes, time: float) -> bytes:
    metadata = message(9, plugin("hparams", content))
    return event(time, 0, summary(text(1, tag) + message(8, NO_NUMBERS) + metadata))


def plugin(name: str, content: bytes) -> bytes:
    return message(1, text(1, name) + (message(2, content) if content else b""))


def summary(value: bytes) -> bytes:
    return message(SUMMARY, message(1, value))
