"""Turns what was found of a shared folder into what ``doctor`` says of it. Pure."""

from __future__ import annotations

from dray.job.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dray.node.formats.records import ShareFacts


SWEPT = ("/tmp/", "/var/tmp/")  # by systemd-tmpfiles or tmpreaper


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
