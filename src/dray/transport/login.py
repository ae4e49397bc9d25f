"""Finds out what ssh and a login node say before anything is set up there."""

from __future__ import annotations

import math
import shlex
import shutil
import subprocess
import tempfile

from dray import tracing
from dray.transport.ssh import LOST, ssh_argv

NOBODY = "dray-asks-about-no-host"


def is_known(host: str) -> bool:
    """Return whether the user's ssh config says anything about this host."""
    shown, other = _resolve(host), _resolve(NOBODY)
    if shown.get("hostname", host.lower()) != host.lower():
        return True
    differing = {key for key in {*shown, *other} if shown.get(key) != other.get(key)}
    return any(
        host.lower() not in shown.get(key, "").lower() for key in differing - {"host", "hostname"}
    )


def _resolve(host: str) -> dict[str, str]:
    """Return ssh's settings for the host; nothing if there is no ssh, or it cannot tell."""
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
    """Return whether a command on the login node sees this variable, as dray's own would."""
    return _holds(host, f'test -n "${{{name}}}"')


def has_command(host: str | None, name: str) -> bool:
    """Return whether this program exists on the login node or, without a host, on this machine."""
    return _holds(host, f"command -v {name}") if host else shutil.which(name) is not None


def reach(host: str, seconds: float) -> str:
    """Return why nobody answers there, in ssh's own words; '' if somebody does. A login that needs
    a password counts as a failure, unless an earlier connection is still open."""
    first = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={math.ceil(seconds)}"]
    argv = [*first, *ssh_argv()[1:], "--", host, "exit 0"]
    tracing.trace_program(argv)
    with tempfile.TemporaryFile() as said:  # no pipe: the shared connection would keep it open
        try:
            code = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"no answer in {seconds:g} s"
        except OSError as error:
            return f"ssh cannot be started: {error.strerror}"
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
    return (lines[-1] if lines else f"ssh ended with exit code {code}") if code == LOST else ""


def _holds(host: str, condition: str) -> bool:
    script = f'{condition} >/dev/null && printf "\\nit-%s\\n" holds'
    argv = [*ssh_argv(), "--", host, f"exec /bin/sh -c {shlex.quote(script)}"]
    tracing.trace_program(argv)
    with tempfile.TemporaryFile() as said:  # no pipe: the shared connection would keep it open
        try:
            subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False)
        except OSError:
            return False
        said.seek(0)
        return b"\nit-holds\n" in said.read()
