"""Reads long lists of the API server page by page: all pods of a large cluster are more than one
answer may be. Of each object only what is needed is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from dray.clusters.kube.names import items_of, text_at
from dray.transport.kube_api import Api

PAGE = 500  # objects
MOST_PAGES = 200  # a server may go on for ever
LONGEST_MARK = 4096  # characters of what the next page is asked for with

Thing = TypeVar("Thing")


class Listed(Generic[Thing]):
    """What was kept of a list. ``ok``: whether its first page was given; ``is_whole``: the last."""

    def __init__(self, things: list[Thing], *, ok: bool, is_whole: bool) -> None:
        self.things = things
        self.ok = ok
        self.is_whole = is_whole


def read(
    api: Api, path: str, keep: Callable[[Mapping[str, Any]], Thing | None], wanted: str = ""
) -> Listed[Thing]:
    """Read a list to its end, or to where the server does not go on. ``keep`` makes of an object
    what is needed of it, or None; ``wanted`` is a selector."""
    from urllib.parse import quote  # only where the API is asked

    things: list[Thing] = []
    query = f"{path}?{wanted}&limit={PAGE}" if wanted else f"{path}?limit={PAGE}"
    reply = first = api.get(query)
    for _ in range(MOST_PAGES):
        kept = map(keep, items_of(reply.record))
        things += [one for one in kept if one is not None]
        mark = text_at(reply.record, "metadata", "continue")
        if not reply.ok or not mark:
            return Listed(things, ok=first.ok, is_whole=reply.ok)
        if len(mark) > LONGEST_MARK:
            break
        reply = api.get(f"{query}&continue={quote(mark, safe='')}")
    return Listed(things, ok=first.ok, is_whole=False)
