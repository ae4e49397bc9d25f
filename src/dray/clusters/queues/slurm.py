"""Reads what Slurm tells of its queue, its nodes, and the limits of its users. Pure.

The commands are in ``dray.node.schedulers.slurm``. What they print is data from elsewhere: a line
that does not fit is left out, and nothing is taken for a number that is none."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dray.clusters.queues.slurm_reasons import reason_of
from dray.job.situation import Limit, Maintenance, Pool, QueueEntry, Share
from dray.node.schedulers.scheduler import SchedulerError
from dray.node.schedulers.slurm import (
    GPU_WIDTHS,
    LIST_FORMAT,
    NODE_WIDTHS,
    SEPARATOR,
    parse_indices,
    parse_time_left,
    split_name,
)

FIELDS = LIST_FORMAT.count(SEPARATOR) + 1
GPU_ASKED = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z][\w.-]*))?[:=](\d{1,6})\b")
TRACKED_GPUS = re.compile(r"\bgres/gpu=(\d{1,6})\b")
PER_TYPE = re.compile(r"gpu(?::([^:,(]+))?:(\d{1,9})(?=[,(]|$)")
WORKING = ("idle", "mixed", "allocated", "planned", "completing", "reserved", "mix", "alloc")
NOT_IN_LINE = ("BeginTime", "Dependency", "JobArrayTaskLimit")  # nobody waits behind these
GUESS = re.compile(
    r"Job \d+ to start at (\S+) using \d+ processors on (?:nodes? )?(\S+)(?: in partition (\S+))?"
)


# -- times --------------------------------------------------------------------------------------


def moment(text: str) -> float | None:
    """Parse a time of Slurm's, which was asked for in UTC."""
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:  # N/A, Unknown, None
        return None


def seconds(text: str) -> float | None:
    return parse_time_left(text[:20]) if text.isascii() else None


# -- the queue ----------------------------------------------------------------------------------


def entries(queue: str, gpus: str, me: str) -> list[QueueEntry]:
    """Read everybody's batch jobs: those that wait in the order of their priority, then those that
    run."""
    asked = gpus_asked(gpus)
    found = [entry for line in queue.splitlines() if (entry := entry_of(line, asked, me))]
    return sorted(found, key=in_order)


def in_order(entry: QueueEntry) -> tuple[bool, float, int]:
    digits = re.match(r"\d{1,18}", entry.number)
    return not entry.is_waiting, -entry.priority, int(digits[0]) if digits else 0


def entry_of(line: str, asked: Mapping[str, tuple[str, int]], me: str) -> QueueEntry | None:
    parts = line.split(SEPARATOR)
    if len(parts) != FIELDS:
        return None
    number, shown, owner, account, partition, qos, state, priority, start, *rest = parts
    limit, left, nodes, per_node, submitted, where, name, why = rest
    is_waiting = state == "PENDING"
    kind, count = asked.get(number, ("", 0))
    here, reason = GPU_ASKED.search(per_node), reason_of(why)
    if here is not None:  # those of one node
        kind, count = here[1] or kind, int(here[2]) * (whole(nodes) or 1)
    return QueueEntry(
        number=shown,
        owner=owner,
        state="waiting" if is_waiting else "running",
        job=split_name(name)[0] if owner == me else "",
        account=account,
        partition=partition,
        qos=qos,
        jobs=jobs_in(shown),
        gpus=count,
        gpu_type=kind,
        priority=float(whole(priority)),
        submitted=moment(submitted),
        start=moment(start) if is_waiting else None,
        limit=seconds(limit),
        left=None if is_waiting else seconds(left),
        nodes=where,
        reason=reason.words if is_waiting else "",
        why=why if is_waiting else "",
        is_held=is_waiting and (reason.never or why in NOT_IN_LINE),
    )


def whole(text: str) -> int:
    found = re.match(r"\d{1,12}", text)
    return int(found[0]) if found and text.isascii() else 0


def jobs_in(number: str) -> int:
    """Count the jobs of an array that share a line: 9_[2-9%2] → 8."""
    inside = re.search(r"_\[(.*)\]$", number)
    try:
        return sum(1 for _ in parse_indices(inside[1])) if inside else 1
    except SchedulerError:
        return 1


def gpus_asked(text: str) -> dict[str, tuple[str, int]]:
    """Read how many GPUs a batch job has in all, as far as that is told: where it asks for them by
    job, and where the accounts track them."""
    found = {}
    for number, per_job, tracked in cut_out(text, GPU_WIDTHS):
        asked, counted = GPU_ASKED.search(per_job), TRACKED_GPUS.search(tracked)
        count = int(asked[2]) if asked else int(counted[1]) if counted else 0
        if count:
            found[number] = (asked[1] or "" if asked else "", count)
    return found


def cut_out(text: str, widths: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Cut the fields of the long format out again."""
    for line in text.splitlines():
        at, fields = 0, []
        for _, width in widths:
            fields.append(line[at : at + width].strip())
            at += width
        if fields[0]:
            yield fields


# -- nodes --------------------------------------------------------------------------------------


def pools(text: str, partitions: Iterable[str] = ()) -> list[Pool]:
    """Count the GPUs by kind; with ``partitions``, only those of their nodes."""
    wanted = set(partitions)
    nodes: dict[str, tuple[str, str, str]] = {}
    for name, partition, state, have, used, _ in cut_out(text, NODE_WIDTHS):
        if not wanted or partition.rstrip("*") in wanted:
            nodes[name] = (state, have, used)
    found: dict[str, list[int]] = {}
    for state, have, used in nodes.values():
        works = state.rstrip("*~#$@+^-!%").lower() in WORKING
        taken = by_type(used)
        for kind, count in by_type(have).items():
            free, total, number, down = found.setdefault(kind, [0, 0, 0, 0])
            if works:
                left = max(count - taken.get(kind, 0), 0)
                found[kind] = [free + left, total + count, number + 1, down]
            else:
                found[kind] = [free, total, number, down + count]
    return [Pool(kind, *counts) for kind, counts in sorted(found.items())]


def by_type(gres: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind, count in PER_TYPE.findall(gres):
        if count.isascii():
            found[kind] = found.get(kind, 0) + int(count)
    return found


def partitions(text: str) -> list[str]:
    return list(dict.fromkeys(one[1].rstrip("*") for one in cut_out(text, NODE_WIDTHS)))


def troubles(text: str) -> dict[str, str]:
    """Return why nodes do not work, as their admins have put it."""
    return {
        name: reason
        for name, _, state, _, _, reason in cut_out(text, NODE_WIDTHS)
        if reason not in ("none", "") and state.rstrip("*~#$@+^-!%").lower() not in WORKING
    }


def maintenances(text: str) -> list[Maintenance]:
    """Read the reservations that are for maintenance, the next one first."""
    found = []
    for line in text.splitlines():
        about = fields_of(line)
        start, end = moment(about.get("StartTime", "")), moment(about.get("EndTime", ""))
        if "MAINT" in about.get("Flags", "").split(",") and start and end:
            nodes = about.get("Nodes", "")
            found.append(Maintenance(about.get("ReservationName", ""), start, end, nodes))
    return sorted(found, key=lambda one: one.start)


def fields_of(line: str) -> dict[str, str]:
    """Read what scontrol prints on one line: Name=value Other=value."""
    return {key: value for key, _, value in (word.partition("=") for word in line.split())}


def guess_of(text: str) -> tuple[float, str, str] | None:
    """Read what ``sbatch --test-only`` says: when, on which nodes, in which partition."""
    found = GUESS.search(text)
    start = moment(found[1]) if found else None
    if found is None or start is None:
        return None
    return start, found[2], found[3] or ""


# -- shares and limits --------------------------------------------------------------------------


def shares(text: str, config: str, me: str) -> list[Share]:
    """Read the user's fair share in each account."""
    half_life = seconds(setting(config, "PriorityDecayHalfLife"))
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 6 or parts[1] != me:
            continue
        factor, level = decimal(parts[4]), parts[5]
        if factor is None:
            continue
        # LevelFS is the share divided by the use; 0 where Slurm has not reckoned yet.
        ratio = decimal(level)
        used = 0.0 if level == "inf" else 1 / ratio if ratio else None
        found.append(Share(parts[0], factor, used, half_life or None))
    return found


def decimal(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,12})?", text, re.A) else None


def setting(config: str, name: str) -> str:
    found = re.search(rf"^{name}\s*= (.*)$", config, re.M)
    return found[1].strip() if found else ""


def hides_others(config: str) -> bool:
    """Return whether users see only their own jobs."""
    return "jobs" in re.split(r"[,\s]+", setting(config, "PrivateData"))


AMOUNTS = {"cpu": "CPUs", "mem": "memory", "node": "nodes", "billing": "billing units"}
COUNTS = (
    ("GrpJobs", "running jobs"),
    ("GrpSubmitJobs", "jobs in the queue"),
    ("MaxJobs", "running jobs"),
    ("MaxSubmitJobs", "jobs in the queue"),
    ("MaxJobsPU", "running jobs"),
    ("MaxSubmitJobsPU", "jobs in the queue"),
    ("MaxJobsPA", "running jobs"),
    ("MaxSubmitJobsPA", "jobs in the queue"),
)
TABLES = (
    ("GrpTRES", ""),
    ("MaxTRESPU", ""),
    ("MaxTRESPA", ""),
    ("GrpTRESMins", "hours"),
    ("GrpTRESRunMins", "promised"),
    ("MaxTRESPJ", "job"),
)
LIMITED = re.compile(r"(\d{1,15})\((\d{1,15})\)", re.A)


def limits(text: str, me: str, uid: int, account: str = "", qos: str = "") -> list[Limit]:
    """Read the limits that hold for the user, with what is used of them. ``account`` and ``qos``:
    only those of a job that is charged to them."""
    found: list[Limit] = []
    above: dict[str, str] = {}
    accounts: dict[str, list[Limit]] = {}
    mine: list[str] = []
    for line in text.splitlines():
        about = fields_of(line)
        if line.startswith("QOS="):
            found += limits_of_qos(line, me, uid, account, qos)
        elif line.startswith("ClusterName="):
            name = about.get("Account", "")
            if about.get("UserName", "").partition("(")[0] == me:
                if account in ("", name):
                    mine.append(name)
                    found += limits_in(about, f"you in {name}")
            elif not about.get("UserName"):
                above[name] = about.get("ParentAccount", "").partition("(")[0]
                accounts[name] = limits_in(about, f"account {name}", shared=True)
    seen: set[str] = set()
    for name in mine:
        while name and name not in seen:
            seen.add(name)
            found += accounts.get(name, [])
            name = above.get(name, "")
    return found


def limits_of_qos(line: str, me: str, uid: int, account: str, qos: str) -> list[Limit]:
    name = line[len("QOS=") :].partition("(")[0]
    if qos and name != qos:
        return []
    own, _, rest = line.partition("Account Limits=")
    per_account, _, per_user = rest.partition("User Limits=")
    found = []
    user = block_of(per_user, f"{uid}(?:\\({re.escape(me)}\\))?") or block_of(
        per_user, f"{re.escape(me)}(?:\\({uid}\\))?"
    )
    if user is None and not qos:
        return []  # nothing of the user's is counted there
    found += limits_in(fields_of(own), f"QoS {name}")
    found += limits_in(fields_of(user or ""), f"QoS {name}, for you")
    if account:
        mine = block_of(per_account, re.escape(account))
        found += limits_in(fields_of(mine or ""), f"QoS {name}, for account {account}")
    return found


def block_of(text: str, name: str) -> str | None:
    found = re.search(rf"(?:^|[\s}}]){name}={{([^}}]*)}}", text)
    return found[1] if found else None


def limits_in(about: Mapping[str, str], scope: str, *, shared: bool = False) -> list[Limit]:
    """Read the limits in one record. An account's limits for single users are left out, as they are
    repeated with each of them."""
    found = []
    for key, what in COUNTS:
        number = LIMITED.fullmatch(about.get(key, ""))
        if number and not (shared and key.startswith("Max")):
            found.append(Limit(what, float(number[1]), float(number[2]), scope))
    for key, how in TABLES:
        if not (shared and key.startswith("Max")):
            found += [
                one for part in about.get(key, "").split(",") if (one := amount(part, how, scope))
            ]
    wall = re.fullmatch(r"\d{1,12}", about.get("MaxWallPJ", ""), re.A)
    if wall and not shared:
        found.append(Limit("time of one job", float(wall[0]) * 60, None, scope, "seconds"))
    return found


def amount(part: str, how: str, scope: str) -> Limit | None:
    """Read one resource of a limit: gres/gpu=8(6) is six of eight; of one job only the most."""
    name, _, value = part.partition("=")
    thing = AMOUNTS.get(name) or gpu_name(name)
    number = re.match(r"(\d{1,15})(?:\((\d{1,15})\))?", value, re.A)
    if not thing or number is None or (not number[2] and how != "job"):
        return None
    most, used = float(number[1]), float(number[2] or 0)
    if how in ("hours", "promised"):
        kind = thing.removesuffix("s")
        words = f"{kind} hours" if how == "hours" else f"{kind} hours promised to running jobs"
        return Limit(words, most / 60, used / 60, scope, "hours")
    unit, scale = ("bytes", 2.0**20) if thing == "memory" else ("", 1.0)
    if how == "job":
        return Limit(f"{thing} of one job", most * scale, None, scope, unit)
    return Limit(thing, most * scale, used * scale, scope, unit)


def gpu_name(name: str) -> str:
    if name == "gres/gpu":
        return "GPUs"
    kind = re.fullmatch(r"gres/gpu:([\w.-]+)", name)
    return f"{kind[1]} GPUs" if kind else ""
