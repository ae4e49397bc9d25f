"""Finds the values of secrets. They are never part of a job's description."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from dray import background
from dray.errors import UsageError

KEYRING_SERVICE = "dray"

# Tools that keep their key in ~/.netrc under their host's name; others may use the variable's name.
NETRC_MACHINES = {"WANDB_API_KEY": "api.wandb.ai"}


def resolve(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values, from the environment, the system's keyring or ~/.netrc, in this order."""
    return {name: _resolve_one(name, environ) for name in names}


def _resolve_one(name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name) or _from_keyring(name) or _from_netrc(name, environ)
    if not value:
        machine = NETRC_MACHINES.get(name, name)
        raise UsageError(
            f"the secret {name} was found nowhere",
            hint=f"Set the variable {name}, or store it with 'keyring set {KEYRING_SERVICE} {name}'"
            f" (needs dray[keyring]), or add 'machine {machine}' to ~/.netrc.",
        )
    return value


def _from_keyring(name: str) -> str | None:
    background.require_foreground()  # a keyring may ask for its password
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        return None
    try:
        value: str | None = keyring.get_password(KEYRING_SERVICE, name)
    except Exception:  # no unlocked keyring in this session: the next source is asked
        return None
    return value


def _from_netrc(name: str, environ: Mapping[str, str]) -> str | None:
    import netrc  # only for a job with secrets

    path = Path(environ.get("NETRC") or Path(environ.get("HOME") or Path.home()) / ".netrc")
    try:
        entries = netrc.netrc(path)
    except FileNotFoundError:
        return None
    except (netrc.NetrcParseError, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    for machine in (NETRC_MACHINES.get(name), name):
        found = entries.hosts.get(machine) if machine else None
        if found:
            return found[2]
    return None
