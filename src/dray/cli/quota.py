"""Shows what the user may use of clusters, and has used."""

from __future__ import annotations

from collections.abc import Sequence

from dray.cli.arguments import CLUSTER, JSON, Parameter, Verb
from dray.cli.output import launcher, print_json
from dray.cli.rows import Row, bar, rows_of, show_amount
from dray.cli.terminal import Shown, joined, lines, say, tell, visible
from dray.cli.why import limit_words, share_words
from dray.job.model import JSON_VERSION
from dray.job.quantities import show_size
from dray.job.situation import Allowance, Disk, Limit, Own, plain

NEARLY = 0.95


def show_quotas(on: str | None, as_json: bool) -> None:
    """Show what you may use of each cluster, and have used: GPUs, jobs, hours, fair share; room on
    disks, in bytes and in files; and what dray itself occupies there."""
    verbs = launcher()
    found = verbs.allowances(on)
    if as_json:
        print_json(
            [
                {"version": JSON_VERSION, "cluster": name, **plain(allowance)}
                for name, allowance in found
            ]
        )
        return
    if not found:
        say("no cluster has told of its limits")
        return
    shown: list[Shown] = []
    for name, allowance in found:
        shown += [visible("")] if shown else []
        shown += [joined(name), *rows_of(rows(allowance))]
    tell(lines(shown))


VERB = Verb(
    "quota",
    show_quotas,
    (Parameter(("--on",), "on", "Only this cluster.", CLUSTER, "CLUSTER"), JSON),
)


def rows(allowance: Allowance) -> list[Row]:
    found: list[Row] = [("limits", limit_line(one)) for one in allowance.limits]
    found = found or [("limits", "none are told of")]
    found += [("share", share_words(one)) for one in allowance.shares]
    for disk in allowance.disks:
        found += [("disk", line) for line in disk_lines(disk)]
    found += [("dray", line) for line in own_lines(allowance.own)]
    return found + [("note", one) for one in allowance.remarks]


def limit_line(limit: Limit) -> str:
    drawn = f"{bar(limit.used, limit.most)} " if limit.used is not None else ""
    return f"{drawn}{limit_words(limit)}"


def disk_lines(disk: Disk) -> list[str]:
    """Tell of bytes and of files: often it is the files that run out."""
    where = f"{disk.path} ({disk.name}, for {disk.scope})"
    used = show_size(disk.used or 0)
    if not disk.most:
        found = [f"{used} used, {where}: no limit"]
    else:
        drawn = bar(disk.used or 0, disk.most)
        found = [f"{drawn} {used} of {show_size(disk.most)}{full(disk.used, disk.most)}, {where}"]
    if disk.most_files and disk.files is not None:
        most = disk.most_files
        amount = f"{show_amount(disk.files)} of {show_amount(most)} files{full(disk.files, most)}"
        found.append(f"{bar(disk.files, most)} {amount}")
    return found


def full(used: int | None, most: int) -> str:
    return ", nearly full" if (used or 0) >= NEARLY * most else ""


def own_lines(own: Sequence[Own]) -> list[str]:
    if not own:
        return []
    told = []
    for one in own:
        least = "" if one.is_whole else "at least "
        files = f"{one.files:,} file{'' if one.files == 1 else 's'}"
        told.append(f"{least}{show_size(one.size)} in {files}: {one.what}")
    return [*told, "dray rm JOB removes a job's files, dray image rm an image"]
