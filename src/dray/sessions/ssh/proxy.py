"""What ssh starts to reach the server in a job: its input and output are the connection."""

from __future__ import annotations

import os
from typing import Any

from dray.errors import ClusterError, DrayError, Refused
from dray.node.sessions import sshd
from dray.node.sessions.link import Channel
from dray.records import NamedTuple
from dray.sessions.executing import StandardFiles, code_of, run_with
from dray.sessions.ssh.keys import Pair, checked_user
from dray.sessions.ssh.names import Target
from dray.transport.channel import last_lines
from dray.transport.ways import Way

MOST_SAID = 1 << 16  # bytes, of what the server says of itself
ACCEPTED = "Accepted publickey for "


class Passage(StandardFiles):
    """What the server says of itself is kept: ssh's user is told of it only if it fails."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.said = bytearray()
        outlet = self.outlets[0]  # a pipe to ssh, which nobody else writes to
        if outlet.fd >= 0:
            os.set_blocking(outlet.fd, False)
            outlet.piece = 1 << 16

    def errors(self, piece: bytes) -> None:
        self.said += piece[: max(MOST_SAID - len(self.said), 0)]
        self.channel.consumed(len(piece))


class Served(NamedTuple):
    code: int
    said: str

    @property
    def user(self) -> str:
        """Return the account that the server runs as; '' where that was not said."""
        first = self.said.partition("\n")[0]
        return checked_user(first.removeprefix(sshd.USER)) if first.startswith(sshd.USER) else ""

    @property
    def has_let_in(self) -> bool:
        return ACCEPTED in self.said

    @property
    def has_no_terminal(self) -> bool:
        """Return whether it could not hand a terminal over, as where those of the node belong to
        no group of their own; then it ends."""
        return "chown(/dev/pts" in self.said


def serve(way: Way, pair: Pair, target: Target) -> Served:
    """Be the connection between ssh, at our standard files, and a server in the job, until either
    ends."""
    asked: dict[str, Any] = {"what": "ssh", "host": target.host, **pair._asdict()}
    passage = run_with(way, asked, Passage)
    return Served(code_of(passage.outcome), passage.said.decode("utf-8", "replace"))


def why_not(served: Served, target: Target, is_contained: bool) -> DrayError:
    """Say why the server has let nobody in."""
    job = target.job
    without = f"dray shell {job}, dray exec {job} and dray forward {job} do without."
    if served.code == sshd.NO_SSHD:
        if is_contained and not target.host:
            where = f"in the image of {job}"
            without = f"{without} dray ssh --host {job} uses its node's, outside the container."
        else:
            where = f"on the node of {job}"
        return Refused(f"there is no sshd {where}", hint=without)
    if served.code == sshd.NO_NAME:
        return Refused(f"the user of {job} has no name there, and sshd needs one", hint=without)
    if "chroot(" in served.said:
        reason = f"{job} runs as root without root's rights, and sshd needs them then"
        return Refused(reason, hint=f"Run it as another account; {without}")
    told = last_lines(served.said.partition("\n")[2])
    return ClusterError(f"{job}: sshd there lets nobody in: {told}", hint=without)
