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


class Channel(Protocol):
    place: str  # where it leads, as messages call it
    # Whether opening it takes so long that it is kept open between commands, and may ask for a
    # password.
    is_remote: bool

    def spec(self) -> tuple[str, ...]:
        """Return the arguments from which ``from_spec`` makes the same channel in another
        process."""

    def argv(self, command: str, *, may_ask: bool = True) -> list[str]:
        """Return the program that runs a shell command there. ``may_ask``: whether somebody is
        there to type a password."""

    def explain(self, code: int | None, said: str) -> DrayError | None:
        """Return why the channel itself failed; None where the command there did."""


class Here:
    """A shell on this machine."""

    place = "this machine"
    is_remote = False

    def spec(self) -> tuple[str, ...]:
        return ("here",)

    def argv(self, command: str, *, may_ask: bool = True) -> list[str]:
        del may_ask  # nobody is asked
        return ["/bin/sh", "-c", command]

    def explain(self, code: int | None, said: str) -> DrayError | None:
        del code, said
        return None


def from_spec(kind: str, *arguments: str) -> Channel:
    if kind == "here":
        return Here()
    from dray.transport.ssh import Ssh  # imports this module

    return {"ssh": Ssh}[kind](*arguments)


def last_lines(text: str, count: int = 5) -> str:
    return "\n".join(text.splitlines()[-count:]) or "nothing was said"
