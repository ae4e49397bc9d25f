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
    if not URL.fullmatch(found):
        raise ValueError("must be the address of Ray's dashboard, such as http://10.0.0.5:8265")
    return found.rstrip("/")


def token_source(value: Any) -> str:
    """Check where a token is found; the token itself is none."""
    found = text(value)
    if not TOKEN.fullmatch(found):
        raise ValueError("must be env:NAME, file:PATH or command:WORDS, and not the token itself")
    return found
