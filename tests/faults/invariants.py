"""What must hold after any fault, in words for whoever reads the report."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

from tests.faults.lives import Life
from tests.faults.site import Site

MOST_MESSAGES = 2
NEVER = {
    "overlap": "two attempts at once",
    "torn": "went on from a checkpoint that is not whole",
    "no-secret": "started without its secret",
    "forgotten": "was never asked to end",
}


def complaints(site: Site, life: Life, clean: frozenset[str] | None) -> list[str]:
    """Everything that is wrong. ``clean``: the shape of the tree after a life without a fault."""
    found = [*of_the_submission(life), *of_the_job(site, life), *of_the_commands(site, life)]
    found += [*of_what_is_left(site, life, clean), *of_the_store(site)]
    return found


def of_the_submission(life: Life) -> Iterator[str]:
    run, printed = life.run, life.run.out.strip()
    if run.code == 0 and len(printed.split()) != 1:
        yield f"run: exit code 0, and it printed {printed!r}"
    if printed and printed not in life.rows:
        yield f"run printed {printed}, which is not in ps"
    if len(life.rows) > 1:
        yield f"{len(life.rows)} jobs in ps"
    seen = {row["state"] for row in life.before_resume.values()}
    if run.code > 0 and seen - {"lost"}:
        yield f"run failed, and the job is there ({', '.join(seen)}): {first_line(run.err)}"


def of_the_job(site: Site, life: Life) -> Iterator[str]:
    words = Counter(site.journal_words())
    yield from (f"the command {why}" for word, why in NEVER.items() if words[word])
    if not life.rows and words["start"]:
        yield "the command ran, and ps knows of no job"
    for job, row in life.rows.items():
        if row["state"] != "done":
            yield f"{job} is {row['state']}: {row['reason']}"
        elif not words["end"]:
            yield f"{job} is told as done, and its command never ended"
    if life.stopped not in ("", "stopped"):
        yield f"after dray stop it is {life.stopped}"
    yield from of_the_attempts(site, life)
    yield from of_the_messages(site, life)


def of_the_messages(site: Site, life: Life) -> Iterator[str]:
    """Each end is told, and once: twice only where the sender could not write down that it has."""
    told = Counter(site.told())
    for job, row in life.rows.items():
        if site.tells and row["state"] == "done" and not 1 <= told[job] <= MOST_MESSAGES:
            yield f"{told[job]} messages that {job} is done"


def of_the_attempts(site: Site, life: Life) -> Iterator[str]:
    if life.shown is None or life.shown["state"] != "done":
        return
    told = {one["number"]: one["outcome"] for one in life.shown["attempts"]}
    started = {int(line[1]) for line in site.journal() if line[0] == "start"}
    if not started <= set(told):
        yield f"attempts that ran are not told of: {sorted(started - set(told))}"
    ended = [int(line[1]) for line in site.journal() if line[0] == "end"]
    # Nobody saw the end of one whose supervisor was killed before it could write it down.
    seen = [one for one in ended if not (site.is_deadly and told.get(one) == "lost")]
    if [number for number, outcome in told.items() if outcome == "done"] != seen or len(seen) > 1:
        yield f"the command ended in attempts {ended}, and dray tells {told}"


def of_the_commands(site: Site, life: Life) -> Iterator[str]:
    for said in site.said:
        if "Traceback" in said.err:
            yield f"{said.verb}: a traceback: {said.err.strip().splitlines()[-1]}"
        if said.verb == "ps" and said.code != 0:
            yield f"ps fails: {first_line(said.err)}"
    for said in life.next_job:
        if said.code != 0:
            yield f"the next job: {said.verb} fails: {first_line(said.err)}"
            return


def of_what_is_left(site: Site, life: Life, clean: frozenset[str] | None) -> Iterator[str]:
    secrets = life.secrets or site.leftover_secrets()
    if secrets:
        yield f"the secret is left in {', '.join(secrets)}"
    if life.rows and not life.removed:
        yield "rm does not remove it"
    if clean is not None:
        left = sorted(path for path in site.tree() if shape(path) not in clean)
        if left:
            yield f"left behind: {', '.join(left)}"
    if not site.becomes_quiet():
        yield f"processes are left: {site.dray.processes()}"


def of_the_store(site: Site) -> Iterator[str]:
    path = site.home / "dray/store.db"
    if not path.exists():
        return
    with closing(sqlite3.connect(path)) as store:
        verdict = store.execute("PRAGMA integrity_check").fetchone()[0]
    if verdict != "ok":
        yield f"store.db: {verdict}"
    aside = [one.name for one in path.parent.glob("store.db.damaged*")]
    if aside:
        yield f"the store was given up: {aside}"


# What differs from one life to the next: ids and hashes, numbers, random endings.
VARYING = (
    (re.compile(r"(?<=-)[0-9a-f]{8}\b"), "HASH"),
    (re.compile(r"\btrainer-[0-9a-z]{4}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{12,}\b"), "HASH"),
    (re.compile(r"\d+"), "N"),
)


def shape(path: str) -> str:
    """The kind of file that this is, whatever job and moment it is of."""
    for pattern, word in VARYING:
        path = pattern.sub(word, path)
    return path


def first_line(text: str) -> str:
    """An error's message; its hint comes behind it."""
    return text.strip().splitlines()[0] if text.strip() else "nothing said"
