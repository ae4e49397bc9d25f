"""A session that answers nothing, or complains without end, is killed."""

from __future__ import annotations

import math
import signal

import pytest

from dray.transport import session
from dray.transport.session import Session


def test_silence_has_an_end() -> None:
    with Session(["sleep", "60"]) as silent, silent.watch.expecting(0.1):
        assert silent.stdout.read() == b""
        assert silent.process.wait() == -signal.SIGKILL


def test_complaints_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FLOOD", 1 << 20)
    with Session(["sh", "-c", "exec yes >&2"]) as loud:
        assert loud.stdout.read() == b""
        assert loud.process.wait() == -signal.SIGKILL
        assert loud.complaints().endswith(b"y\ny\n")


def test_who_answers_in_time_is_left_alone() -> None:
    with Session(["sh", "-c", "echo fine; read word; exit 7"]) as prompt:
        with prompt.watch.expecting(30):
            assert prompt.stdout.readline() == b"fine\n"
        assert prompt.watch.until == math.inf  # what follows may take any time
        prompt.stdin.close()
        assert prompt.end() == 7


def test_complaints_behind_an_answer_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FLOOD", 1 << 20)
    with Session(["sh", "-c", "echo fine; exec yes >&2"]) as loud:
        with loud.watch.expecting(30):
            assert loud.stdout.readline() == b"fine\n"
        assert loud.stdout.read() == b""
        assert loud.process.wait() == -signal.SIGKILL


def test_the_watch_ends_with_the_session() -> None:
    with Session(["true"]) as short:
        pass
    short.watch.join(30)
    assert not short.watch.is_alive()
