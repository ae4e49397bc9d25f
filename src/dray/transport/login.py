"""What ssh and a login node tell before anything is set up there."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile

from dray import tracing
from dray.transport.ssh import ssh_words

NOBODY = "dray-asks-about-no-host"


def is_known(host: str) -> bool:
    """Whether the user's ssh config says anything about this host."""
    shown, other = _resolve(host), _resolve(NOBODY)
    if shown.get("hostname", host.lower()) != host.lower():
        return True
    differing = {key for key in {*shown, *other} if shown.get(key) != other.get(key)}
    return any(
        host.lower() not in shown.get(key, "").lower() for key in differing - {"host", "hostname"}
    )


def _resolve(host: str) -> dict[str, str]:
    """ssh's settings for the host; nothing where there is no ssh, or it cannot say."""
    try:
        ended = subprocess.run(
            ["ssh", "-G", "--", host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in ended.stdout.splitlines():
        key, _, value = line.partition(" ")
        found[key] = f"{found[key]}\n{value}" if key in found else value
    return found


def has_variable(host: str, name: str) -> bool:
    """Whether a command on the login node sees this variable, as dray's own would."""
    return _holds(host, f'test -n "${{{name}}}"')


def has_command(host: str | None, name: str) -> bool:
    """Whether there is such a program on the login node, or without a host on this machine."""
    return _holds(host, f"command -v {name}") if host else shutil.which(name) is not None


def _holds(host: str, condition: str) -> bool:
    script = f'{condition} >/dev/null && printf "\\nit-%s\\n" holds'
    words = [*ssh_words(), "--", host, f"exec /bin/sh -c {shlex.quote(script)}"]
    tracing.trace_program(words)
    with tempfile.TemporaryFile() as said:  # no pipe: the shared connection would keep it open
        try:
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False)
        except OSError:
            return False
        said.seek(0)
        return b"\nit-holds\n" in said.read()
