"""A job's life, as a user leads it: with a fault somewhere, commands are simply given again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.kinds import Kind
from tests.faults.site import PATIENCE, TRAINER, Said, Site

TRIES = 4  # a user gives up then

Rows = dict[str, dict[str, Any]]


@dataclass
class Life:
    """What was seen of it."""

    run: Said
    rows: Rows  # when all was settled, and every lost job resumed
    before_resume: Rows  # when it had settled for the first time
    shown: dict[str, Any] | None = None
    secrets: list[str] = field(default_factory=list)  # where they lie though the job is over
    removed: bool = False
    next_job: list[Said] = field(default_factory=list)  # what was said of the job after it
    stopped: str = ""  # the state that a stop has led to


def train(site: Site, kind: Kind) -> Life:
    """Submitted, interrupted halfway, resumed, done; then removed."""
    life = submit(site, kind, kind.way)
    see_through(site, life)
    remove(site, life)
    go_on(site, kind, life)
    return life


def manage(site: Site, kind: Kind) -> Life:
    """Submitted, stopped, resumed, done; then removed."""
    life = submit(site, kind, "wait")
    job = accepted(site, life.run)
    if job:
        wait_for_start(site, job)
        stop(site, life, job)
    (site.outside / "go").touch()
    if job:
        again(lambda: site("resume", job, shimmed=True), lambda: has_resumed(site, job))
    see_through(site, life)
    remove(site, life)
    go_on(site, kind, life)
    return life


def vary(site: Site, kind: Kind) -> Life:
    """The only trial of a sweep: submitted, interrupted halfway, resumed, done; then removed."""
    sweep = ("start", "--space", "x=1..2:float", "--trials", "1")
    life = submit(site, kind, kind.way, "sweep", *sweep)
    if life.run.out:
        life.run.out = f"{life.run.out.strip()}.0\n"
    see_through(site, life)
    remove(site, life)
    go_on(site, kind, life)
    return life


LIVES: dict[str, Callable[[Site, Kind], Life]] = {"train": train, "manage": manage, "vary": vary}


def submit(site: Site, kind: Kind, way: str, verb: str = "run", *words: str) -> Life:
    flags = ("--secret", "SEKRET", "--output", "logs", "--checkpoint", "logs/model_*.pt")
    command = (kind.python, str(TRAINER), str(site.journal_file), way)
    given = (*words, *kind.flags, *flags, "--grace", "2s", "--", *command)
    run = site(verb, *given, shimmed=True)
    return Life(run, {}, {})


def accepted(site: Site, run: Said) -> str:
    """The job's id; a ``dray run`` that was killed may not have come to print it."""
    return run.out.strip() or next(iter(site.rows()), "")


def see_through(site: Site, life: Life, power_was_cut: bool = False) -> None:
    """Until it is settled; what is lost is resumed. A checkpoint that the trainer has not synced
    may be gone with the power: dray says so, and the user begins anew."""
    life.rows = life.before_resume = site.settle()
    for _ in range(TRIES):
        lost = [job for job, row in life.rows.items() if row["state"] == "lost"]
        for job in lost:
            site("resume", job)
        cut = [job for job, row in life.rows.items() if power_was_cut and has_lost_all(row)]
        for job in cut:
            site("resume", job, "--from", "scratch")
        if not lost and not cut:
            break
        life.rows = site.settle()
    for job in life.rows:
        life.shown = site.dray.show(job)
    life.secrets = site.leftover_secrets()


def has_lost_all(row: dict[str, Any]) -> bool:
    return row["state"] == "failed" and "no whole checkpoint any more" in row["reason"]


def remove(site: Site, life: Life) -> None:
    for job in life.rows:
        life.removed = again(
            lambda job=job: site("rm", job, shimmed=True),  # type: ignore[misc]
            lambda job=job: job not in site.rows(),  # type: ignore[misc]
        )


def go_on(site: Site, kind: Kind, life: Life) -> None:
    """Days later: another job comes and goes, and with it what the fault has left."""
    site.shim.plan()
    site.age()
    site.rows()
    run = site("run", *kind.flags, "--", "/bin/true")
    job = run.out.strip()
    life.next_job = [run, site("wait", "--timeout", "90s", job), site("rm", job)]
    site.hang_up()


def wait_for_start(site: Site, job: str) -> None:
    """Until the command runs; what is lost before is resumed."""
    until = time.monotonic() + PATIENCE
    while "start" not in site.journal_words() and time.monotonic() < until:
        if site.rows().get(job, {}).get("state") == "lost":
            site("resume", job)
        time.sleep(0.05)


def stop(site: Site, life: Life, job: str) -> None:
    """One that was not heard is told again; then it has to show."""
    again(lambda: site("stop", job, shimmed=True), lambda: site.said[-1].code == 0)
    life.stopped = site.settle().get(job, {}).get("state", "gone")


def has_resumed(site: Site, job: str) -> bool:
    state = site.rows().get(job, {}).get("state")
    return state in ("queued", "running", "done")


def again(command: Callable[[], Said], succeeded: Callable[[], bool]) -> bool:
    """Give a command as often as a patient user would; whether it came true."""
    for _ in range(TRIES):
        command()
        if succeeded():
            return True
    return False
