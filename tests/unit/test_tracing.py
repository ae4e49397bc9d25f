"""What --verbose tells of a conversation with a cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray import tracing
from dray.transport.channel import Here
from dray.transport.link import AgentLink


@pytest.fixture
def told() -> Iterator[list[str]]:
    lines: list[str] = []
    tracing.begin(lines.append)
    yield lines
    tracing.begin(None)


def test_each_request_is_told_by_verb_size_and_time(tmp_path: Path, told: list[str]) -> None:
    AgentLink(Here(), str(tmp_path / "root"), sys.executable, "slurm").ask("ids", token="s3cret")
    request = r"ask this machine to ids on its own session: \d+ bytes, answer in \d+\.\d{3} s"
    assert re.search(request, told[-1])
    assert re.search(r"start /bin/sh -c .{200,}", told[0])
    assert "s3cret" not in "".join(told)


def test_nothing_is_told_unless_somebody_asks(tmp_path: Path, told: list[str]) -> None:
    tracing.begin(None)
    AgentLink(Here(), str(tmp_path / "root"), sys.executable, "slurm").ask("ids")
    assert told == []
