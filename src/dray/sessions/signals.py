"""Signals as something to wait for, beside files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from dray.node.sessions.ready import READ, Interests


class Signals:
    """Calls ``heed`` for each of these signals, in the caller's own turn, while the context
    lasts."""

    def __init__(self, heed: Callable[[int], None], *numbers: int) -> None:
        self._heed = heed
        self._numbers = numbers
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._reader, self._writer = os.pipe()
        for fd in (self._reader, self._writer):
            os.set_blocking(fd, False)
        self._woken = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in self._numbers:
            self._before[number] = signal.signal(number, ignore)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woken)
        os.close(self._reader)
        os.close(self._writer)

    def interests(self, wanted: Interests) -> None:
        wanted.add(self._reader, READ, self._read)

    def _read(self) -> None:
        for number in os.read(self._reader, 64):
            if number in self._numbers:
                self._heed(number)


def ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing here: the number is read from the pipe."""
