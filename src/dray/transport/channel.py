"""Channels carry the agent's protocol to the machine where a cluster's root is.

A channel starts a shell command there, with its stdin and stdout here. Everything else (the
protocol, its retries, installing the agent) belongs to the link (``link.py``) and is the same for
every channel.
"""

from __future__ import annotations

from typing import Protocol

from dray.errors import ClusterError, DrayError


class LinkLost(ClusterError):
    """The connection could not be made or broke."""

    transient = True


class ChannelGone(LinkLost):
    """There is nobody at the other end: who answers there has to be started first."""


class Channel(Protocol):
    place: str  # where it leads, as messages call it
    # Whether opening it takes so long that it is kept open between commands, and may ask for a
    # password.
    is_remote: bool
    # Whether what the other side said last is lost when it ends first, and whether something on the
    # way ends a connection on which nothing is said for a while.
    is_fragile: bool
    # The words that start Python there; none where a shell has to find it, and the root as well.
    python: tuple[str, ...]

    def spec(self) -> tuple[str, ...]:
        """Return the arguments from which ``from_spec`` makes the same channel in another
        process."""

    def argv(self, *words: str, may_ask: bool = True) -> list[str]:
        """Return the program that runs these words there; without ``python``, the only one is a
        shell command. ``may_ask``: whether somebody is there to type a password."""

    def explain(self, code: int | None, said: str) -> DrayError | None:
        """Return why the channel itself failed; None where the command there did."""

    def companion(self, socket: str) -> list[str]:
        """Return a program that the standing connection keeps beside it, and which listens on this
        socket; empty for none."""


class Here:
    """A shell on this machine."""

    place = "this machine"
    is_remote = False
    is_fragile = False
    python: tuple[str, ...] = ()

    def spec(self) -> tuple[str, ...]:
        return ("here",)

    def argv(self, *words: str, may_ask: bool = True) -> list[str]:
        del may_ask  # nobody is asked
        return ["/bin/sh", "-c", *words]

    def explain(self, code: int | None, said: str) -> DrayError | None:
        del code, said
        return None

    def companion(self, socket: str) -> list[str]:
        del socket
        return []


def from_spec(kind: str, *arguments: str) -> Channel:
    if kind == "here":
        return Here()
    if kind == "kubectl":
        from dray.transport.kubectl import Kubectl, PodExec  # imports this module

        return PodExec(Kubectl(*arguments[:3]), arguments[3], arguments[5:])
    if kind == "ray":
        from dray.transport.ray_channel import RayHead  # imports this module

        return RayHead(*arguments)
    if kind == "kuberay":
        from dray.transport.kubectl import Kubectl  # imports this module
        from dray.transport.ray_channel import KubeRayHead

        return KubeRayHead(Kubectl(*arguments[:3]), *arguments[3:6])
    from dray.transport.ssh import Ssh  # imports this module

    return Ssh(*arguments)


def last_lines(text: str, count: int = 5) -> str:
    return "\n".join(text.splitlines()[-count:]) or "nothing was said"
