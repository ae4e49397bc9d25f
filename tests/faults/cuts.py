"""Power cuts in the middle of a life: one is recorded, and then cut short at many moments."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from tests.faults.disk import Disk
from tests.faults.invariants import complaints
from tests.faults.kinds import Kind
from tests.faults.lives import Life, go_on, remove, see_through, submit
from tests.faults.points import SEED
from tests.faults.shim import Call
from tests.faults.site import PATIENCE, Said, Site


@dataclass(frozen=True)
class Cut:
    """After the ``moment``-th call of the record, on a disk of this model; ``seed`` decides what of
    the uncertain is there."""

    model: str
    seed: int
    moment: int

    def __str__(self) -> str:
        return f"cut:{self.model}:{self.seed}:{self.moment}"

    @classmethod
    def read(cls, text: str) -> Cut:
        _, model, seed, moment = text.split(":")
        return cls(model, int(seed), int(moment))


@dataclass(frozen=True)
class Record:
    """A life in which nothing went wrong: submitted, interrupted, resumed, done, looked at."""

    site: Site
    kind: Kind
    run: Said
    calls: tuple[Call, ...]
    journal: tuple[tuple[str, ...], ...]
    ended: int  # the clock when the log ended

    def moments(self) -> list[int]:
        """Those that are worth a cut: not each page of the store's."""
        return [
            number
            for number, call in enumerate(self.calls, 1)
            if "/store.db" not in call.path and call.name not in ("fork", "posix_spawn")
        ]

    def sample(self, model: str, size: int) -> list[Cut]:
        chance = random.Random(f"{SEED} {model}")
        moments = sorted(chance.sample(self.moments(), size))
        return [Cut(model, chance.randrange(1000), moment) for moment in moments]


def record(site: Site, kind: Kind) -> Record:
    """Without messages: the disk that is put back has only what was written in this life, and the
    inbox would count those of all cuts together."""
    site.shim.plan(log="contents")
    life = submit(site, kind, kind.way)
    site.becomes_quiet(PATIENCE)
    site("ps", "--all", shimmed=True)
    assert "end" in site.journal_words(), life.run
    journal = tuple(map(tuple, site.journal()))
    calls = tuple(site.shim.calls())
    return Record(site, kind, life.run, calls, journal, time.monotonic_ns())


def restore(told: Record, cut: Cut, *, everything: bool = False) -> list[Call]:
    """Put the disk back as it is after the cut; return the calls that were made before it."""
    calls = list(told.calls[: cut.moment])
    disk = Disk(told.site.home, cut.model)
    disk.replay(calls)
    disk.cut(None if everything else random.Random(cut.seed))
    disk.write(told.ended, time.time_ns())
    return calls


def roll_back(told: Record, calls: list[Call]) -> None:
    """The journal as it goes on after the cut. What the command did before is forgotten, since it
    may rightly do it again; but not an end that dray had written down for good."""
    then = calls[-1].time
    kept = [line for line in told.journal if line[0] == "halfway" and int(line[2]) <= then]
    if end_is_certain(calls):
        kept += [line for line in told.journal if line[0] == "end"]
    told.site.journal_file.write_text("".join(" ".join(line) + "\n" for line in kept))


def recall(told: Record, calls: list[Call]) -> None:
    """Where the command was not started again, an end from before the cut is what dray tells of."""
    if "end" not in told.site.journal_words():
        then = calls[-1].time
        kept = [line for line in told.journal if line[0] == "end" and int(line[2]) <= then]
        with told.site.journal_file.open("a") as file:
            file.writelines(" ".join(line) + "\n" for line in kept)


def end_is_certain(calls: list[Call]) -> bool:
    written = [number for number, call in enumerate(calls) if is_end(call)]
    folders = [call.path for call in calls[written[0] :] if call.name == "fsync"] if written else []
    return bool(written) and os.path.dirname(calls[written[0]].path) in folders


def is_end(call: Call) -> bool:
    """The last attempt's outcome; the job's own end comes later."""
    return call.name == "rename" and call.path.endswith("/002/outcome.json")


def was_printed(calls: list[Call]) -> bool:
    return any(call.what == "say" for call in calls)


def after(told: Record, cut: Cut, clean: frozenset[str] | None) -> list[str]:
    """What is wrong when dray is used again after the cut."""
    site = told.site
    site.said.clear()
    site.is_deadly = True
    calls = restore(told, cut)
    roll_back(told, calls)
    run = told.run if was_printed(calls) else Said("run", -signal.SIGKILL, "", "")
    life = Life(run, {}, {})
    see_through(site, life, power_was_cut=True)
    remove(site, life)
    go_on(site, told.kind, life)
    recall(told, calls)
    wrong = complaints(site, life, clean)
    for pid in site.dray.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return wrong
