"""Shows the queues of clusters."""

from __future__ import annotations

from collections.abc import Sequence

from dray.cli.arguments import CLUSTER, JSON, Parameter, Verb
from dray.cli.output import GAP, columns, cut, launcher, padded, print_json, terminal_width
from dray.cli.rows import clock, show_amount
from dray.cli.terminal import Shown, joined, lines, say, tell, visible
from dray.errors import UsageError
from dray.job.model import JSON_VERSION
from dray.job.quantities import show_duration
from dray.job.situation import Maintenance, Pool, QueueEntry, QueueView, plain
from dray.launcher.queues import FairOrder, Queued

HEADER = ("", "ID", "OWNER", "STATE", "GPUS", "TIME", "LEFT", "START", "WHY, WHERE")
MOST_SHOWN = 200


def show_queues(on: str | None, everybody: bool, watch: bool, as_json: bool) -> None:
    """Show each cluster's queue: GPUs that are free, who waits, your own jobs in their order, and
    the next maintenance.

    With `order = "fair-gpu"`, a cluster's queue is also shown by this rule: everybody's first GPU
    comes before anybody's second, and so on; below the line are those for whom there is none.
    """
    if watch and as_json:
        raise UsageError(
            "--watch is for people: call dray queue --json again and again instead",
            hint="See dray queue --help",
        )
    verbs = launcher()
    if watch:
        from dray.cli.watching import watch_jobs  # only here

        watch_jobs(verbs, lambda: painted(verbs.queues(on), everybody), pause=30.0)
        return
    found = verbs.queues(on)
    if as_json:
        print_json([as_record(one, everybody) for one in found])
        return
    if not found:
        say("no cluster has told of its queue")
        return
    tell(lines(painted(found, everybody)))


VERB = Verb(
    "queue",
    show_queues,
    (
        Parameter(("--on",), "on", "Only this cluster.", CLUSTER, "CLUSTER"),
        Parameter(("--all",), "everybody", "Everybody's jobs, as far as the cluster shows them."),
        Parameter(("-w", "--watch"), "watch", "Refresh every half minute, until Ctrl-C."),
        JSON,
    ),
)


def as_record(one: Queued, everybody: bool) -> dict[str, object]:
    record = {"version": JSON_VERSION, "cluster": one.cluster, **plain(one.view)}
    if not everybody:
        record["entries"] = [plain(entry) for entry in one.view.entries if is_mine(entry, one.view)]
    return {**record, "fair": plain(one.fair)}


def is_mine(entry: QueueEntry, view: QueueView) -> bool:
    return entry.owner == view.me


def painted(found: Sequence[Queued], everybody: bool) -> list[Shown]:
    shown: list[Shown] = []
    for one in found:
        shown += [visible("")] if shown else []
        shown += of_cluster(one, everybody)
    return shown


def of_cluster(one: Queued, everybody: bool) -> list[Shown]:
    view = one.view
    shown = [joined(one.cluster, ": ", summary(view))]
    ahead = map(told_maintenance, view.maintenance[:1])
    shown += [joined("  maintenance ", words) for words in ahead]
    if one.fair is not None:
        shown += fair_lines(one.fair, view, everybody)
    else:
        wanted = [entry for entry in view.entries if everybody or is_mine(entry, view)]
        places = {entry: at for at, entry in enumerate(view.waiting, 1)} if view.is_ordered else {}
        shown += table_of([(str(places.get(entry, "")), entry) for entry in wanted])
    return shown + [joined("  note: ", remark) for remark in view.remarks]


def summary(view: QueueView) -> str:
    mine = [one for one in view.entries if is_mine(one, view)]
    waiting, running = (
        f"{sum(one.jobs for one in view.entries if one.is_waiting is waits)}"
        f" ({sum(one.jobs for one in mine if one.is_waiting is waits)} yours)"
        for waits in (True, False)
    )
    gpus = ", ".join(map(told_pool, view.pools)) or "no GPUs are told of"
    return f"{gpus}; waiting: {waiting}, running: {running}"


def told_pool(pool: Pool) -> str:
    kind = f"{pool.kind} " if pool.kind else ""
    down = f" ({pool.down} down)" if pool.down else ""
    return f"{show_amount(pool.free)} of {pool.total} {kind}GPUs free{down}"


def told_maintenance(one: Maintenance) -> str:
    return f"{one.name} from {clock(one.start)} to {clock(one.end)}"


def table_of(
    rows: Sequence[tuple[str, QueueEntry]], mark: int = -1, words: str = ""
) -> list[Shown]:
    """Lay the entries out, with a line of words behind so many of them; columns without content
    are left out, and the last one is cut."""
    if not rows:
        return []
    cells = [HEADER, *(cells_of(place, entry) for place, entry in rows[:MOST_SHOWN])]
    filled = [at for at in range(len(HEADER)) if any(row[at] for row in cells[1:])]
    table = [[visible(row[at]) for at in filled] for row in cells]
    room = terminal_width() - 2
    widths = [max(columns(row[at]) for row in table) for at in range(len(filled))]
    shown = []
    for number, row in enumerate(table):
        if number - 1 == mark and words:
            shown.append(joined("  ", cut(visible(words), room)))
        last = max(room - sum(width + GAP for width in widths[:-1]), 8)
        leads = [
            padded(cut(cell, room // 3), width + GAP)
            for cell, width in zip(row[:-1], widths, strict=False)
        ]
        shown.append(joined("  ", *leads, cut(row[-1], last)))
    if mark >= len(table) - 1 and words:
        shown.append(joined("  ", cut(visible(words), room)))
    more = len(rows) - MOST_SHOWN
    return shown + ([visible(f"  … {more} more")] if more > 0 else [])


def cells_of(place: str, one: QueueEntry) -> tuple[str, ...]:
    many = f" ×{one.jobs}" if one.jobs > 1 else ""
    gpus = f"{show_amount(one.gpus)} {one.gpu_type}".rstrip() if one.gpus else ""
    return (
        place,
        f"{one.job or one.number}{many}",
        one.owner,
        one.state,
        gpus,
        show_duration(one.limit) if one.limit else "",
        show_duration(max(one.left, 0)) if one.left is not None else "",
        clock(one.start) if one.start else "",
        one.reason or " ".join(filter(None, (one.partition, one.nodes))),
    )


def fair_lines(fair: FairOrder, view: QueueView, everybody: bool) -> list[Shown]:
    """Show the queue by everybody's first GPU, with the line where the GPUs end."""
    shows = [everybody or is_mine(entry, view) or entry == fair.yields for _, entry in fair.ranked]
    ranked = [
        (str(rank), entry)
        for (rank, entry), is_shown in zip(fair.ranked, shows, strict=True)
        if is_shown
    ]
    above = sum(shows[: fair.above])
    words = f"--- here the {show_amount(fair.gpus)} GPUs end: by the rule, those below wait ---"
    shown = [visible("  by the rule fair-gpu; first, which GPU of its owner's it begins with:")]
    shown += table_of(ranked, above, words)
    if fair.yields is not None:
        owner = fair.yields.owner
        last = fair.yields.number
        shown.append(joined("  would have to yield to a newcomer's first: ", last, f" of {owner}"))
        shown += [joined("    ", line) for line in fair.mail]
    return shown
