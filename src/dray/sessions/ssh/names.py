"""What a job is called as a host: JOB.dray. Pure."""

from __future__ import annotations

import re

from dray.checks import JOB_ID
from dray.errors import UsageError
from dray.records import NamedTuple

DOMAIN = ".dray"
HOST = ".host"
RANK = ".rank"
FORM = re.compile(
    rf"(?P<job>{JOB_ID.pattern})(?P<host>\.host)?(?:\.rank(?P<rank>[1-9][0-9]{{0,8}}))?\.dray"
)


class Target(NamedTuple):
    """Beside which command of a job, or outside its container."""

    job: str
    rank: int = 0
    host: bool = False

    @property
    def name(self) -> str:
        rank = f"{RANK}{self.rank}" if self.rank else ""
        return f"{self.job}{HOST if self.host else ''}{rank}{DOMAIN}"


def find(name: str) -> Target | None:
    """Return what a host's name means; None where it is no job's."""
    found = FORM.fullmatch(name)
    if found is None:
        return None
    return Target(found["job"], int(found["rank"] or 0), bool(found["host"]))


def parse(name: str) -> Target:
    found = find(name)
    if found is None:
        raise UsageError(
            f"'{name}' is not the name of a job",
            hint="JOB.dray, as dray ps shows JOB; JOB.rank1.dray for another rank, JOB.host.dray "
            "for outside its container.",
        )
    return found
