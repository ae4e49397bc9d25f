"""When a notebook server is idle, and what a job may say of it."""

from __future__ import annotations

import json

import pytest

from dray.checks import Malformed
from dray.launcher.labs import lab_at, lab_command, notes_command, reached_by
from dray.node.lab.jupyter import moment
from dray.node.sessions.idleness import Idleness

HOUR = 3600.0


def test_what_is_used_goes_on() -> None:
    lab = Idleness(HOUR, 0.0)
    for now in range(0, 10 * 3600, 60):
        lab.look(float(now), newest_activity=now - 30.0, cpu=0.0)
        assert not lab.is_over(float(now))


def test_a_kernel_that_computes_is_used_though_it_says_nothing() -> None:
    lab = Idleness(HOUR, 0.0)
    for now in range(0, 10 * 3600, 60):
        lab.look(float(now), newest_activity=0.0, cpu=now * 0.5)
    assert not lab.is_over(10 * HOUR)


def test_an_open_tab_is_no_use() -> None:
    """What is left then is the little that kernels without work take."""
    lab = Idleness(HOUR, 0.0)
    for now in range(0, 3601, 60):
        lab.look(float(now), newest_activity=0.0, cpu=now * 0.005)
    assert lab.is_over(3601.0)


def test_it_is_told_once_before_the_end() -> None:
    lab = Idleness(HOUR, 0.0)
    told = []
    for now in range(0, 7200, 60):
        active = 3200.0 if now >= 3200 else 0.0  # somebody comes back after the first notice
        lab.look(float(now), newest_activity=active, cpu=0.0)
        if lab.is_to_be_noticed(float(now)):
            told.append(now)
    assert told == [3000, 6240]


def test_processes_that_ended_do_not_count_against_it() -> None:
    lab = Idleness(HOUR, 0.0)
    lab.look(60.0, 0.0, 100.0)
    lab.look(120.0, 0.0, 1.0)
    lab.look(180.0, 0.0, 60.0)
    assert lab.used_at == 180.0


def test_never_ends() -> None:
    lab = Idleness(None, 0.0)
    assert not lab.is_over(1e9)
    assert not lab.is_to_be_noticed(1e9)


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        ({"last_activity": "1970-01-01T00:01:40.123456Z"}, 100.0),
        ({"last_activity": None}, 0.0),
        ({}, 0.0),
        ("nonsense", 0.0),
    ],
)
def test_moments(record: object, seconds: float) -> None:
    assert moment(record) == seconds


# -- the command, and what it says --------------------------------------------------------------


def test_the_command_is_recognized() -> None:
    command = lab_command(["/isaac-sim/python.sh"], 1800.0)
    assert command == ["/isaac-sim/python.sh", "-m", "dray_node", "lab", "1800"]
    assert notes_command(command) == ["/isaac-sim/python.sh", "-m", "dray_node", "lab-notes"]
    assert notes_command(lab_command(["env", "python3"], None))[-1] == "lab-notes"
    assert not lab_at(["python", "train.py", "lab"])
    assert not lab_at([])


def test_nothing_is_said_yet() -> None:
    assert reached_by(b"a banner\nnull\n") is None


def test_how_it_is_reached() -> None:
    text = json.dumps({"socket": "/tmp/dray-lab-0-1/s", "token": "ab12"}).encode()
    assert reached_by(text) == ("/tmp/dray-lab-0-1/s", "ab12")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"not json",
        b"[" * 100_000,
        b'{"socket": 3, "token": "a"}',
        b'{"socket": "relative", "token": "a"}',
        b'{"socket": "/s", "token": "a&b=<script>"}',
        b'{"socket": "/s", "token": "\\u0661"}',
        b'{"socket": "/s"}',
    ],
)
def test_what_cannot_be(said: bytes) -> None:
    with pytest.raises(Malformed):
        reached_by(said)
