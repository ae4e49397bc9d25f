"""Waits out a cluster that does not answer for a while."""

from __future__ import annotations

import time

from dray.errors import ClusterError
from dray.reporter import Reporter

PAUSE = 3.0  # seconds between two tries
FIRM = 30.0  # seconds for which a refusal is not believed: a server that comes back may err


class Patience:
    """For so many seconds on end; for what seldom passes by itself, not as many."""

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
        seconds = self.seconds if error.transient else min(FIRM, self.seconds)
        if now - began >= seconds:
            raise error
        if self.since is None:
            self.reporter.say(f"{error.message}. It is tried again.")
        self.since = began
        time.sleep(PAUSE)
