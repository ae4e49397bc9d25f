"""Looks again and again at a tree, in a thread of its own, and tells when it has changed."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from dray.errors import DrayError
from dray.job.model import Snapshot
from dray.snapshot.scan import Scanner

SHORTEST_PAUSE = 0.5  # seconds between two looks
LAZINESS = 25  # a look takes no more than one part of so many of a processor


class TreeWatch:
    """Reading ``wake`` tells that there is news: a newer snapshot, or trouble."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.latest: Snapshot | None = None
        self.trouble = ""
        self.wake, self._waker = os.pipe()
        for fd in (self.wake, self._waker):
            os.set_blocking(fd, False)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> TreeWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        os.close(self.wake)
        os.close(self._waker)

    def hear(self) -> None:
        """Take note of the news."""
        with suppress(BlockingIOError):
            os.read(self.wake, 4096)

    def _watch(self) -> None:
        while not self._is_over.is_set():
            began = time.monotonic()
            self._look()
            took = time.monotonic() - began
            self._is_over.wait(max(SHORTEST_PAUSE, took * LAZINESS))

    def _look(self) -> None:
        before, trouble = self.latest, ""
        try:
            found = self.scanner.take(remember=False)
            if before is None or found.id != before.id:
                self.latest = found._replace(contents={})  # read again when they are sent
        except (DrayError, OSError) as error:  # it may be better at the next look
            trouble = error.message if isinstance(error, DrayError) else str(error)
        if self.latest is not before or trouble != self.trouble:
            self.trouble = trouble
            with suppress(BlockingIOError):
                os.write(self._waker, b"!")
