"""Reads a queue that was written down as JSON: job id → row."""

import json

from ..formats import shapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from ..formats.records import Row

ROW = {"id": shapes.is_text, "state": shapes.is_text, "why": shapes.is_text}


def parse(text: str) -> "Dict[str, Row]":
    """Parse the queue. The text may have been in a file, so every row is checked."""
    try:
        rows = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(rows, dict):
        return {}
    found = {}  # type: Dict[str, Row]
    for name, row in rows.items():
        if shapes.is_id(name) and isinstance(row, dict) and shapes.fits(row, ROW, ROW):
            found[name] = {
                "id": row["id"],
                "state": row["state"],
                "why": row["why"],
                "start": "",
            }
    return found
