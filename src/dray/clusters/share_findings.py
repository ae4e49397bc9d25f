"""A machine that accounts share: what a job has to know of it, and what ``doctor`` says of the
folder. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dray.job.model import Finding
from dray.node.schedulers import fair_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dray.node.formats.records import ShareFacts


SWEPT = ("/tmp/", "/var/tmp/")  # by systemd-tmpfiles or tmpreaper


def shared_by(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what a job's description says of the folder, and of the order of the line there."""
    share = settings.get("share")
    if not share:
        return {}
    is_fair = settings.get("order") == fair_order.NAME
    return {"share": share, **({"order": fair_order.NAME} if is_fair else {})}


def findings(share: str, facts: ShareFacts | None) -> list[Finding]:
    """Return whether accounts can share the machine through this folder; an empty list where
    nothing was found out about it."""
    if facts is None:
        return []
    if facts["problem"]:
        return [Finding(ok=False, what="share", detail=facts["problem"])]
    detail = f"{share}: other accounts that name it wait in the same queue"
    if facts["owner"] != "root":
        detail += f"; {facts['owner']}, whose folder it is, can remove what they keep in it"
    if share.startswith(SWEPT):
        detail += "; many machines remove old files there: better choose another place"
    return [Finding(ok=True, what="share", detail=detail)]
