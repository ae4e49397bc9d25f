"""What a kind finds out for a new cluster, before there is one to ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Choice(NamedTuple):
    """A setting that only the user can decide."""

    setting: str
    why: str
    options: tuple[str, ...] = ()  # as they would be written; none where nothing was found
    advice: str = ""


class Suggestion(NamedTuple):
    """Settings, a remark on each of them, and what is left to decide. A kind's class may have a
    function ``suggest`` that returns one for the settings that are known; it is called again with
    what the user has decided."""

    settings: Mapping[str, Any]
    remarks: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
