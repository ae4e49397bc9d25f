"""What of a job's output reaches a terminal, for any bytes cut anywhere."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.cli.log_filter import LONGEST, LogFilter

COLOR = re.compile(rb"\x1b\[[0-9;]*m")
BIDI = {chr(one) for one in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}

# Sequences, their beginnings and their ends, and bytes that a random choice would seldom hit.
PARTS = [
    b"\x1b", b"[", b"31", b";", b"m", b"0", b"\x1b[31m", b"\x1b[0m", b"\x1b[2J",
    b"\x1b]0;title\x07", b"\x1b]52;c;ZXZpbA==\x1b\\", b"\x1b[" + b"1" * LONGEST, b"\x9b",
    b"\xc2\x9b", b"\xc2", b"\xe2", b"\x80", b"\xae", "\u202e".encode(), "日本".encode(),
    b"\xf0\x9f\x9a", "🚚".encode(), b"\xed\xa0", b"\r", b"\n", b"\t", b"\x00", b"\x08", b"\x7f",
    b"\xff", b"text",
]  # fmt: skip
outputs = st.lists(st.sampled_from(PARTS) | st.binary(max_size=4), max_size=12).map(b"".join)
plain = st.text(st.characters(exclude_categories=["Cc", "Cs"])).filter(
    lambda text: not BIDI & {*text}
)


def filtered(*pieces: bytes) -> bytes:
    one = LogFilter()
    return b"".join([*map(one.feed, pieces), one.finish()])


@given(outputs, st.lists(st.integers(0, 200)))
def test_it_does_not_matter_where_the_output_is_cut(output: bytes, places: list[int]) -> None:
    ends = [0, *sorted(place for place in places if place < len(output)), len(output)]
    pieces = [output[start:end] for start, end in pairwise(ends)]
    assert filtered(*pieces) == filtered(output)
    assert filtered(*(bytes([one]) for one in output)) == filtered(output)


@given(outputs)
def test_nothing_but_text_and_colours_passes(output: bytes) -> None:
    text = COLOR.sub(b"", filtered(output)).decode()  # as UTF-8, strictly
    acting = {one for one in text if unicodedata.category(one) == "Cc"} - {"\n", "\r", "\t"}
    assert not acting | (BIDI & {*text})


@given(
    plain.map(str.encode) | st.sampled_from([b"a\tb\r\n", b"10%\r20%\r", b"\x1b[1;31mred\x1b[0m\n"])
)
def test_text_is_unchanged(output: bytes) -> None:
    assert filtered(output) == output


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"\x1b]0;title\x07", rb"\x1b]0;title\x07"),
        (b"\x1b[2J\x1b[1;1H", rb"\x1b[2J\x1b[1;1H"),
        (b"\x1b]52;c;ZXZpbA==\x1b\\", rb"\x1b]52;c;ZXZpbA==\x1b\\"[:-1]),
        (b"\xc2\x9b2J", rb"\x9b2J"),
        (b"\x9b2J caf\xe9", rb"\x9b2J caf\xe9"),
        ("\u202e".encode(), rb"\u202e"),
        (b"a\x08b\x00", rb"a\x08b\x00"),
        (b"\x1b[?25l", rb"\x1b[?25l"),
        (b"\x1b[" + b"1" * 1000 + b"m", rb"\x1b[" + b"1" * 1000 + b"m"),
        (b"\x1b", rb"\x1b"),
        (b"\x1b[31", rb"\x1b[31"),
        (b"\xe2\x80", rb"\xe2\x80"),
    ],
)
def test_what_acts_is_spelled(output: bytes, shown: bytes) -> None:
    assert filtered(output) == shown


@pytest.mark.parametrize(
    ("output", "reset"),
    [
        (b"\x1b[31mred", b"\x1b[0m"),
        (b"\x1b[0;1mbold", b"\x1b[0m"),
        (b"\x1b[31mred\x1b[0m", b""),
        (b"\x1b[31mred\x1b[m", b""),
        (b"\x1b[31mred\x1b[00mplain \x1b[31", b""),
        (b"plain", b""),
    ],
)
def test_a_colour_that_is_left_on_ends(output: bytes, reset: bytes) -> None:
    one = LogFilter()
    one.feed(output)
    assert one.finish().removeprefix(rb"\x1b[31") == reset
    assert one.finish() == b""
    assert one.feed(b"the next attempt") == b"the next attempt"


def test_what_is_whole_is_shown_at_once() -> None:
    one = LogFilter()
    assert one.feed(b"a line\n\x1b[31") == b"a line\n"
    assert one.feed(b"mred") == b"\x1b[31mred"
    assert one.feed("ü".encode()[:1]) == b""
    assert one.feed("ü".encode()[1:]) == "ü".encode()
