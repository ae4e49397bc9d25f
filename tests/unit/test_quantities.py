"""What people write for times, sizes and counts is read as they mean it, or refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.job.quantities import (
    parse_count,
    parse_duration,
    parse_gpus,
    parse_size,
    show_duration,
    show_size,
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("4h", 14400),
        ("1d12h", 129600),
        ("1w", 604800),
        ("1.5h", 5400),
        (" 4H ", 14400),
        ("1h30m15s", 5415),
        ("04:00:00", 14400),
        ("100:00:01", 360001),
        ("1-12:00:00", 129600),
        ("0.5s", 0.5),
    ],
)
def test_durations(written: str, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        "",
        "4",
        4,
        "h",
        "4x",
        "4 h",
        "-4h",
        "1e3s",
        "nan",
        "04:00",
        "01:60:00",
        "01:00:60",
        "4h-",
        True,
    ],
)
def test_unreadable_durations_are_told_with_examples(written: object) -> None:
    with pytest.raises(ValueError, match=r"cannot read the time '.*': write 90s, .* 04:00:00"):
        parse_duration(written)


@pytest.mark.parametrize("written", ["0s", "0h0m", "00:00:00"])
def test_no_time_at_all_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="not more than zero"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("512M", 512 * 2**20),
        ("32G", 32 * 2**30),
        ("1.5T", 3 * 2**39),
        ("32GB", 32 * 2**30),
        ("32GiB", 32 * 2**30),
        ("32 g", 32 * 2**30),
        ("64K", 65536),
        (2**30, 2**30),
        ("1048576", 2**20),
    ],
)
def test_sizes(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "G", "5", 32, "1023B", "-1G", "1X", "1GG", True, None])
def test_unreadable_sizes_are_told_with_examples(written: object) -> None:
    with pytest.raises(ValueError, match=r"cannot read the size '.*': write 512M, 32G or 1\.5T"):
        parse_size(written)


def test_a_size_of_nothing_is_refused() -> None:
    """Zero must not be taken for "not limited"."""
    for written in ("0G", "0.0000001K"):
        with pytest.raises(ValueError, match="not more than zero"):
            parse_size(written)


@pytest.mark.parametrize(
    ("written", "count"),
    [(0, 0), ("1", 1), (8, 8), ("0.5", 0.5), (0.25, 0.25), ("2.0", 2), ("-0", 0)],
)
def test_gpus(written: object, count: float) -> None:
    assert parse_gpus(written) == count
    assert math.copysign(1, parse_gpus(written)) == 1


@pytest.mark.parametrize("written", ["", "x", "1.5", -1, "nan", "inf", "10000", 0.001, 1e-9, True])
def test_impossible_gpus_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="GPU"):
        parse_gpus(written)


def test_counts() -> None:
    assert parse_count("4") == parse_count(4) == 4
    assert parse_count(0, least=0) == 0


@pytest.mark.parametrize("written", ["", "0", 0, -1, "2.5", 2.5, "x", True, "1 ", "9" * 5000])
def test_what_is_not_a_count_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="is not a whole number of at least 1"):
        parse_count(written)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (260, "4m20s"),
        (3600, "1h00m"),
        (7500, "2h05m"),
        (86400, "1d0h"),
        (273600, "3d4h"),
        (1e308, "?"),
        (math.inf, "?"),
        (-math.inf, "?"),
        (math.nan, "?"),
    ],
)
def test_durations_are_shown_in_two_units(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (150 * 1024, "150 KB"),
        (1.5 * 2**30, "1.5 GB"),
        (3 * 2**40, "3.0 TB"),
        (5000 * 2**40, "5000.0 TB"),
    ],
)
def test_sizes_are_shown(size: float, shown: str) -> None:
    assert show_size(size) == shown


@given(st.text(max_size=20) | st.from_regex(r"[0-9]{1,400}(\.[0-9]{1,400})?[smhdwKMGTP:]?"))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    """Nothing else than ValueError comes out, and nothing infinite, negative or NaN goes in."""
    for parse in (parse_duration, parse_size, parse_gpus, parse_count):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert 0 <= value < math.inf


@given(st.integers(1, 10**7))
def test_what_is_shown_of_whole_minutes_can_be_written_again(minutes: int) -> None:
    seconds = minutes * 60
    assert abs(parse_duration(show_duration(seconds)) - seconds) < 3600
