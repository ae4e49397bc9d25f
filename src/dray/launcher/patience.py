"""Waits out a cluster that does not answer for a while."""

from __future__ import annotations

import time

from dray.errors import ClusterError
from dray.reporter import Reporter

PAUSE = 3.0  # seconds between two tries


class Patience:
    """For so many seconds on end; none for what would not pass by itself."""

    def __init__(self, seconds: float, reporter: Reporter) -> None:
        self.seconds = seconds
        self.reporter = reporter
        self.since: float | None = None  # when the outage began

    def renew(self) -> None:
        """Note that the cluster answers."""
        self.since = None

    def wait(self, error: ClusterError) -> None:
        """Wait a moment for the next try; raise the error where there is none."""
        now = time.monotonic()
        began = now if self.since is None else self.since
        if not error.transient or now - began >= self.seconds:
            raise error
        if self.since is None:
            self.reporter.say(f"{error.message}. It is tried again.")
        self.since = began
        time.sleep(PAUSE)
