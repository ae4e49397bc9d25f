"""Calls the user's own kubectl.

Whatever ``kubectl`` can log in with works here too: exec plugins, OIDC, certificates, proxies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from dray.errors import ClusterError, DrayError, LoginNeeded
from dray.records import NamedTuple
from dray.transport.channel import ChannelGone, LinkLost, last_lines

PROGRAM = "kubectl"
# How long kubectl waits for a pod that is not running. One that is not there is created instead.
RUNNING_SECONDS = 1

LONGEST = 2000  # characters of a complaint that are told

# What kubectl says of its own, in front of anything else.
OWN_WORDS = ("error:", "Error from server", "Error in configuration", "Unable to connect")
COMMAND = re.compile(r'\?command=[^"\s]*')  # the whole of it, in an address of the API server's
# There is no pod, or none any more.
GONE = (
    "(NotFound)",
    "completed pod",
    "container not found",
    "timed out waiting for the condition",
    "does not have a host assigned",
    "not found in pod",
    "is not running",
    "pod does not exist",
    "error dialing backend",  # its node does not answer
    "error sending request: Post",
)
LOGIN = ("(Unauthorized)", "must be logged in", "getting credentials")
FIRM = ("(Forbidden)", "configuration", "credential")
# What kubectl says, and what to do about it.
ADVICE = (
    ("must be logged in", "Log in anew: does 'kubectl get pods' work in this namespace?"),
    ("(Unauthorized)", "Log in anew: does 'kubectl get pods' work in this namespace?"),
    ("pods/exec", "dray needs the right to create pods/exec in this namespace: ask its admins."),
    ("(Forbidden)", "Ask the namespace's admins for this right; 'dray doctor' lists all of them."),
    ("context was not found", "See 'kubectl config get-contexts', and the setting context."),
    ("no such host", "Are you in the right network (VPN)?"),
    ("connection refused", "Is the API server's address right in the kubeconfig?"),
    ("timeout", "Are you in the right network (VPN)?"),
)


class Kubectl(NamedTuple):
    """How kubectl is called for one namespace; what is empty is left to its own settings."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""

    def argv(self, *words: str) -> list[str]:
        flags = [f"--{name}={value}" for name, value in self._asdict().items() if value]
        return [PROGRAM, *flags, *words]


class PodExec:
    """A process in a pod's first container, by ``kubectl exec``. ``target``: pod/NAME, or job/NAME
    for the pod of a Job. ``python``: the words that start Python there; an image need not have a
    shell."""

    is_remote = True
    is_fragile = True

    def __init__(self, kubectl: Kubectl, target: str, python: Sequence[str]) -> None:
        self.kubectl = kubectl
        self.target = target
        self.python = tuple(python)
        self.place = f"pod {target.partition('/')[2]}"

    def spec(self) -> tuple[str, ...]:
        stamp = kubeconfig_stamp(self.kubectl)
        return ("kubectl", *self.kubectl, self.target, stamp, *self.python)

    def argv(self, *words: str, may_ask: bool = True) -> list[str]:
        del may_ask  # kubectl's plugins know by their input whether somebody is there
        wait = f"--pod-running-timeout={RUNNING_SECONDS}s"
        return self.kubectl.argv("exec", "--stdin", "--quiet", wait, self.target, "--", *words)

    def companion(self, socket: str) -> list[str]:
        """Return the program that the standing connection keeps beside it: the way to the API."""
        return self.kubectl.argv("proxy", f"--unix-socket={socket}")

    def explain(self, code: int | None, said: str) -> DrayError | None:
        said = COMMAND.sub("", said)
        if code is None or code > 128 or "command terminated with exit code" in said:
            return LinkLost(f"{self.place} ended while it was asked: {last_lines(said)}")
        if not any(line.startswith(OWN_WORDS) for line in said.splitlines()):
            return None
        if any(sign in said for sign in GONE):
            return ChannelGone(f"{self.place} is not there: {last_lines(said)}")
        return explain(said)


def explain(said: str) -> DrayError:
    """Return the error that kubectl's complaint is about."""
    kind: type[ClusterError] = LinkLost
    if any(sign in said for sign in FIRM):
        kind = ClusterError
    if any(sign in said for sign in LOGIN):
        kind = LoginNeeded
    hint = next((hint for sign, hint in ADVICE if sign in said), "")
    return kind(f"kubectl: {last_lines(said)[:LONGEST]}", hint=hint)


def missing() -> ClusterError:
    return ClusterError("kubectl was not found", hint="Install it, or set PATH to find it.")


def kubeconfig_stamp(kubectl: Kubectl) -> str:
    """Return what changes when another cluster may be meant: a connection must not stay with the
    context that was the current one when it was opened, nor with one of the same name in the
    kubeconfig of another shell."""
    default = os.path.expanduser("~/.kube/config")
    paths = kubectl.kubeconfig or os.environ.get("KUBECONFIG") or default
    if kubectl.context:
        return paths
    stamps = []
    for path in paths.split(os.pathsep):
        try:
            status = os.stat(path)
        except OSError:
            continue
        stamps.append(f"{path}:{status.st_mtime_ns}:{status.st_size}")
    return ",".join(stamps)
