"""Which nodes could not take a job's files, as their disks are full, and what follows: others are
asked for while there are any, and a job that no node can take is given up. Pure, but for the
clock."""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Sequence  # noqa: F401

MOST_TRIES = 10  # on each node
AVOIDED = 600.0  # seconds: somebody may have tidied up
LONGEST = 300  # characters of what a node says


class Refusals:
    def __init__(self) -> None:
        self.turn = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew: a node has taken the files."""
        self.tries = {}  # type: Dict[str, int]  # by the node's address
        self.last = {}  # type: Dict[str, float]  # when, by the same
        self.reason = ""  # that of the latest

    def add(self, address: str, reason: str) -> None:
        self.tries[address] = self.tries.get(address, 0) + 1
        self.last[address] = time.monotonic()
        self.reason = "{} could not take its files: {}".format(address, reason[:LONGEST])

    def preferred(self, fitting: "Sequence[str]") -> "List[str]":
        """Return those of the nodes that have not refused lately, or, where all have, least often;
        each time another one first. None where all are alike."""
        now = time.monotonic()
        avoided = [one for one in self.last if now - self.last[one] < AVOIDED]
        found = [one for one in fitting if one not in avoided]
        if not found:
            least = min([self.tries.get(one, 0) for one in fitting] or [0])
            found = [one for one in fitting if self.tries.get(one, 0) == least]
        if len(found) == len(fitting):
            return []
        at = self.turn % len(found)
        self.turn += 1
        return found[at:] + found[:at]

    def why(self) -> str:
        """Say why the job still waits; '' where no node has refused."""
        number = sum(self.tries.values())
        often = " (tried {} times so far)".format(number) if number > 1 else ""
        return self.reason + often

    def end(self, fitting: "Sequence[str]") -> str:
        """Return the reason to give up: all nodes that there are have refused often enough; ''
        where one has not."""
        nodes = list(fitting) or list(self.tries)
        if not nodes or any(self.tries.get(one, 0) < MOST_TRIES for one in nodes):
            return ""
        tried = "tried {} times on {} node{}".format(
            sum(self.tries.values()), len(self.tries), "" if len(self.tries) == 1 else "s"
        )
        return "no node could take its files, {}; the last one: {}".format(tried, self.reason)


def said(error: BaseException) -> str:
    """Return what an error of a node says. Ray puts the whole traceback in front."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip()[:LONGEST]
