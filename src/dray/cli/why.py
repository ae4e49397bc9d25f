"""Tells what is the matter with a job."""

from __future__ import annotations

import time

from dray.cli.arguments import JSON, Jobs, Verb
from dray.cli.output import colored, launcher, named_or_latest, print_json, show_resources, when
from dray.cli.rows import Row, clock, rows_of, show_amount
from dray.cli.terminal import Shown, joined, lines, tell
from dray.job.model import JSON_VERSION, JobState, JobView
from dray.job.quantities import show_duration
from dray.job.situation import Alternative, Explanation, Limit, Share, plain
from dray.launcher.explaining import Diagnosis, Waits


def explain_job(job: str | None, as_json: bool) -> None:
    """Tell what is the matter with a job (the latest, if none is named).

    Of one that waits: its place, who is before it, what is free, when it may start, the limits
    that hold, and what would start it sooner. Of one that runs: what may slow it. Of one that has
    ended: why.
    """
    verbs = launcher()
    found = verbs.why(named_or_latest(verbs, job))
    if as_json:
        print_json(as_record(found))
        return
    tell(lines([*heading(found.view), *rows_of(details(found)), *advice(found)]))


VERB = Verb("why", explain_job, (JSON,), Jobs("job"))


def as_record(found: Diagnosis) -> dict[str, object]:
    view = found.view
    return {
        "version": JSON_VERSION,
        "id": view.id,
        "cluster": view.cluster,
        "state": str(view.state),
        "reason": view.reason,
        "explanation": plain(found.explanation),
        "waits": plain(found.waits),
        "findings": list(found.findings),
        "last_lines": list(found.last_lines),
        "cause": found.cause,
    }


def heading(view: JobView) -> list[Shown]:
    state = colored(str(view.state), str(view.state))
    start = joined(view.id, " is ", state, f" on {view.cluster}")
    if view.state is JobState.QUEUED:
        waited = show_duration(max(time.time() - since(view), 0))
        return [joined(start, f" for {show_resources(view.spec)}; since {waited}")]
    return [joined(start, f": {view.reason}" if view.reason else "")]


def since(view: JobView) -> float:
    """Return when the job began to wait: at its submission, or after its last attempt."""
    ended = [one.ended for one in view.attempts if one.ended]
    return ended[-1] if ended else view.spec.created


def details(found: Diagnosis) -> list[Row]:
    if found.explanation is not None:
        return waiting_rows(found.explanation, found.waits)
    rows: list[Row] = [("", one) for one in found.findings]
    if found.last_lines:
        rows.append(("output", "its last lines were"))
        rows += [("", f"| {line}") for line in found.last_lines]
    return rows + ([("cause", f"likely: {found.cause}")] if found.cause else [])


def waiting_rows(found: Explanation, waits: Waits | None) -> list[Row]:
    never = " (it will not start as it is)" if found.reason.never else ""
    rows: list[Row] = [("reason", f"{found.reason.words or 'not told'}{never}")]
    rows += [("", found.reason.advice)] if found.reason.advice else []
    rows += [("now", one) for one in [place_words(found)] if one]
    rows += [("", one) for one in [frees_words(found)] if one]
    rows += [("start", one) for one in [start_words(found)] if one]
    rows += [("" if found.start else "start", waits_words(waits))] if waits else []
    rows += [("rank", share_words(found.share))] if found.share else []
    rows += [("limits", limit_words(one)) for one in found.limits]
    rows += [("", f"in use by {', '.join(found.holders)}")] if found.holders else []
    for one in found.maintenance:
        rows.append(("ahead", f"maintenance {clock(one.start)} to {clock(one.end)}: {one.name}"))
    for alternative in found.sooner:
        rows += [("sooner", sooner_words(alternative)), ("", f"  {alternative.command}")]
    return rows + [("note", one) for one in found.remarks]


def place_words(found: Explanation) -> str:
    parts = []
    if found.place:
        there = f" in partition {found.partition}" if found.partition else ""
        parts.append(f"number {found.place} of {found.waiting} that wait{there}")
        if found.place > 1 and found.gpus_before:
            parts.append(f"those before it want {show_amount(found.gpus_before)} GPUs")
    if found.pool:
        kind = f"{found.pool.kind} " if found.pool.kind else ""
        free = f"{show_amount(found.pool.free)} of {found.pool.total} {kind}GPUs are free"
        parts.append(free + (f" ({found.pool.down} are down)" if found.pool.down else ""))
    return "; ".join(parts)


def frees_words(found: Explanation) -> str:
    if found.frees is None or (found.pool and found.pool.free > 0):
        return ""
    moment, nodes = found.frees
    where = f" on {nodes}" if nodes else ""
    return f"one that runs{where} ends at {clock(moment)} at the latest"


def start_words(found: Explanation) -> str:
    if not found.start:
        return ""
    return f"{clock(found.start)} by the scheduler's plan (it goes by time limits: often earlier)"


def waits_words(waits: Waits) -> str:
    like = "jobs like this one" if waits.alike else "jobs there"
    span = f"{show_duration(waits.shortest)} to {show_duration(waits.longest)}"
    half = show_duration(waits.half)
    return f"your last {waits.jobs} {like} waited {span}, half of them up to {half}"


def share_words(share: Share) -> str:
    if share.used is None:
        used = "how much of your share is used is not known yet"
    elif share.used == 0:
        used = "nothing of your share is used"
    else:
        used = f"you have used {share.used:.1f} times your share"
    halves = f"; past use halves every {show_duration(share.half_life)}" if share.half_life else ""
    return f"fair share {share.factor:.2f} in {share.account}: {used}{halves}"


def limit_words(limit: Limit) -> str:
    most = show_amount(limit.most, limit.unit)
    if limit.used is None:
        return f"{limit.what}: {most} at most ({limit.scope})"
    used = show_amount(limit.used, limit.unit)
    reached = ": no more now" if limit.is_reached else ""
    return f"{used} of {most} {limit.what} ({limit.scope}){reached}"


def sooner_words(one: Alternative) -> str:
    start = clock(one.start) if one.start else "at once"
    where = f" on {one.where}" if one.where else ""
    return f"with {one.change}: {start}{where}, {one.basis}"


def advice(found: Diagnosis) -> list[str]:
    view = found.view
    if view.state.active or view.state is JobState.DONE:
        return []
    told = [f"ended {when(view.ended)}"] if view.ended else []
    return [*told, f"its output: dray logs {view.id}    for the admins: dray ticket {view.id}"]
