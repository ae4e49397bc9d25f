"""The head of a Ray cluster, reached through its HTTP API: a job of Ray's runs the agent.

Of one on Kubernetes, that API is reached through the API server, by the user's own kubectl.
"""

from __future__ import annotations

import sys

from dray.errors import ClusterError, DrayError, LoginNeeded
from dray.transport.channel import LinkLost, last_lines
from dray.transport.kubectl import Kubectl, kubeconfig_stamp
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
        return [*self.way(), self.token, self.interpreter, "/bin/sh", "-c", *words]

    def way(self) -> list[str]:
        """Return the program that leads there, and what it is told of the place."""
        return [sys.executable, "-P", "-m", "dray.transport.ray_pipe", self.place]

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


class KubeRayHead(RayHead):
    """The head of a RayCluster, an object of Kubernetes that KubeRay's operator looks after."""

    def __init__(self, kubectl: Kubectl, name: str, token: str, interpreter: str) -> None:
        super().__init__(f"RayCluster {name}", token, interpreter)
        self.kubectl = kubectl
        self.name = name

    def spec(self) -> tuple[str, ...]:
        stamp = kubeconfig_stamp(self.kubectl)
        return ("kuberay", *self.kubectl, self.name, self.token, self.interpreter, stamp)

    def way(self) -> list[str]:
        module = "dray.transport.kuberay_pipe"
        return [sys.executable, "-P", "-m", module, *self.kubectl, self.name]
