"""Parsers of the settings that only Ray clusters have."""

from __future__ import annotations

import re
from typing import Any

from dray.job.options.values import text

URL = re.compile(r"https?://[\w.:\[\]-]+(/[\w./:~-]*)?", re.A)
TOKEN = re.compile(r"env:\w+|file:.+|command:.+", re.S)


def api_address(value: Any) -> str:
    """Check the address of Ray's HTTP API."""
    found = text(value)
    if not URL.fullmatch(found) or not has_port(found):
        raise ValueError("must be the address of Ray's dashboard, such as http://10.0.0.5:8265")
    return found.rstrip("/")


def token_source(value: Any) -> str:
    """Check where a token is found; the token itself is none."""
    found = text(value)
    if not TOKEN.fullmatch(found) or not has_words(found):
        raise ValueError("must be env:NAME, file:PATH or command:WORDS, and not the token itself")
    return found


def has_port(address: str) -> bool:
    """Return whether what stands for a port can be one."""
    from urllib.parse import urlsplit  # only for these clusters

    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def has_words(source: str) -> bool:
    """Return whether a command for the token can be taken apart into words."""
    import shlex  # only for these clusters

    how, _, words = source.partition(":")
    try:
        return how != "command" or bool(shlex.split(words))
    except ValueError:
        return False
