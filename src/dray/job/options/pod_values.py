"""Parsers of settings that describe pods."""

from __future__ import annotations

import re
from typing import Any

from dray.job.options.values import count_from_zero, text, texts

OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def object_name(value: object) -> str:
    """Read the name of an object of Kubernetes: it becomes part of a path of the API."""
    name = text(value)
    if not OBJECT_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} names nothing in Kubernetes: small letters, digits, '-' and '.'"
        )
    return name


def mapping(value: object) -> dict[str, str]:
    """Read a table of names and words; a flag gives them as NAME=WORD, with commas between."""
    if isinstance(value, str):
        pairs = [one.partition("=") for one in value.split(",") if one]
        value = {name: word for name, _, word in pairs}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ValueError('expected a table of words, such as { name = "word" }')
    return {str(name): one for name, one in value.items()}


def volume_texts(value: object) -> tuple[str, ...]:
    found = texts(value)
    for one in found:
        kind, _, rest = one.partition(":")
        least = {"pvc": 2, "nfs": 3, "host": 2}.get(kind)
        parts = rest.removesuffix(":ro").split(":")
        if kind == "pvc":
            object_name(parts[0])
        if least is None or len(parts) != least or not parts[-1].startswith("/") or not parts[0]:
            raise ValueError(
                f"{one!r} is not a volume: write pvc:CLAIM:/path, nfs:SERVER:/export:/path or "
                "host:/path:/path, with :ro behind it for reading only"
            )
    return found


def absolute_path(value: object) -> str:
    found = text(value)
    if not found.startswith("/") or any(sign in found for sign in "$\\\0\n"):
        raise ValueError(f"{found!r} is not an absolute path: pods have no home folder")
    return found.rstrip("/")


def patch_table(value: object) -> dict[str, Any]:
    """Read JSON that is merged into the pods' spec; a table in TOML."""
    import json  # only where there is a patch

    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"the patch is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("expected a table")
    return value


def group_ids(value: object) -> tuple[int, ...]:
    listed = value if isinstance(value, list | tuple) else [value]
    return tuple(count_from_zero(one) for one in listed)
