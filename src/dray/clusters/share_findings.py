"""What ``doctor`` says of the folder through which accounts share a machine. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dray.job.model import Finding


def findings(share: str, facts: Mapping[str, str] | None) -> list[Finding]:
    """Tell whether the folder can be used, by what was found out where it is."""
    if facts is None:
        return []
    if facts["problem"]:
        return [Finding(ok=False, what="share", detail=facts["problem"])]
    detail = f"{share}: other accounts that name it wait in the same queue"
    if facts["owner"] != "root":
        detail += f"; {facts['owner']}, whose folder it is, can remove what they keep in it"
    return [Finding(ok=True, what="share", detail=detail)]
