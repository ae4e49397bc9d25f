"""The head of a Ray cluster, reached through its HTTP API: a job of Ray's runs the agent."""

from __future__ import annotations

import sys

from dray.errors import ClusterError, DrayError, LoginNeeded
from dray.transport.channel import LinkLost, last_lines
from dray.transport.ray_pipe import FAILED

FAMILIES = {"LinkLost": LinkLost, "LoginNeeded": LoginNeeded}


class RayHead:
    """``token``: where the token is found; it is in no command line itself."""

    is_remote = True
    is_fragile = False
    python: tuple[str, ...] = ()

    def __init__(self, address: str, token: str, interpreter: str) -> None:
        self.place = address
        self.token = token
        self.interpreter = interpreter

    def spec(self) -> tuple[str, ...]:
        return ("ray", self.place, self.token, self.interpreter)

    def argv(self, *words: str, may_ask: bool = True) -> list[str]:
        del may_ask  # nobody is asked
        program = [sys.executable, "-P", "-m", "dray.transport.ray_pipe"]
        return [*program, self.place, self.token, self.interpreter, "/bin/sh", "-c", *words]

    def explain(self, code: int | None, said: str) -> DrayError | None:
        """Read what the program said that is the way there: see ray_pipe.fail."""
        if code != FAILED:
            return None
        family, _, message = said.partition(": ")
        lines = message.splitlines() or [""]
        hint = lines[-1] if len(lines) > 1 else ""
        kind = FAMILIES.get(family.splitlines()[-1] if family else "", ClusterError)
        return kind(last_lines("\n".join(lines[:-1] or lines)), hint=hint)

    def companion(self, socket: str) -> list[str]:
        del socket
        return []
