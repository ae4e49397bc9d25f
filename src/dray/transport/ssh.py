"""The system's OpenSSH, multiplexed through a socket of dray's own.

Whatever ``ssh HOST`` can do works here too: the user's config, ProxyJump, agents, prompts.
"""

from __future__ import annotations

from dray.errors import ClusterError, DrayError
from dray.transport.channel import LinkLost, last_lines
from dray.transport.sockets import socket_folder

CONNECT_SECONDS = 15
ALIVE_SECONDS = 3  # a link that is silent for three times this long is taken for dead
PERSIST_SECONDS = 600
LOST = 255  # ssh's own exit code: the remote command's is never this

# What ssh says, and what to do about it.
ADVICE = (
    ("Permission denied", "Check that 'ssh {host}' logs you in: user, key, agent, password."),
    ("Host key verification failed", "Log in once with 'ssh {host}' and check the host's key."),
    ("REMOTE HOST IDENTIFICATION", "The host's key has changed: ask its admins before you go on."),
    ("Could not resolve", "Is the name right, and are you in the right network (VPN)?"),
    ("Connection refused", "Is this the login node, and is its port right in ~/.ssh/config?"),
    ("timed out", "Are you in the right network (VPN)? Is the login node up?"),
)
FIRM = ("Permission denied", "dentif", "verification")  # trying again does not help


class Ssh:
    """A login on another machine, by the user's own ssh."""

    is_remote = True
    is_fragile = False
    python: tuple[str, ...] = ()

    def __init__(self, host: str) -> None:
        self.place = host

    def spec(self) -> tuple[str, ...]:
        return ("ssh", self.place)

    def argv(self, *words: str, may_ask: bool = True) -> list[str]:
        options = [] if may_ask else ["-o", "BatchMode=yes"]
        return [*ssh_argv(), *options, "--", self.place, *words]

    def explain(self, code: int | None, said: str) -> DrayError | None:
        if code != LOST:
            return None
        kind = ClusterError if any(sign in said for sign in FIRM) else LinkLost
        hint = next((hint for sign, hint in ADVICE if sign in said), "").format(host=self.place)
        return kind(f"no connection to {self.place}: {last_lines(said)}", hint=hint)

    def companion(self, socket: str) -> list[str]:
        del socket
        return []


def ssh_argv() -> list[str]:
    return [
        "ssh",
        "-T",
        *("-o", "ControlMaster=auto"),
        *("-o", f"ControlPath={socket_folder()}/%C"),
        *("-o", f"ControlPersist={PERSIST_SECONDS}"),
        *("-o", f"ConnectTimeout={CONNECT_SECONDS}"),
        *("-o", f"ServerAliveInterval={ALIVE_SECONDS}"),
        *("-o", "ServerAliveCountMax=3"),
    ]
