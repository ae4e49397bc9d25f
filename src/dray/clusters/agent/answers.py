"""What an agent answers, read with suspicion: it is data, whoever speaks there.

A login node may be in other hands, and a job can edit its own files. So every field is checked,
jobs that were not asked for are dropped, and nothing is expanded before its size is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from dray import checks, landing
from dray.checks import Malformed, count, integer, note, number, optional, several, table, text
from dray.clusters.protocol import Appended, Found, ImageState, Unsent
from dray.errors import ClusterError
from dray.job.model import JobView
from dray.landing import Incoming
from dray.node.notifications.notify import CHANNELS
from dray.records import NamedTuple

MOST_JOBS = 10**5  # that one cluster may list
MOST_WORDS = 16  # that start dray on a node
MOST_TIMES = 10**4  # at which an agent tells how long a log was
MOST_UNSENT = 10**4  # messages that one cluster may ask to send
MOST_APPENDED = 10**4  # files that an agent sends a part of at once
MOST_GUESSES = 3  # that a scheduler is asked for at once
LOG_PIECE = 1 << 20  # bytes that the agent sends of a log at once
RANGE = re.compile(rf"({checks.WITHOUT_INDEX})\.([0-9]{{1,9}})-([0-9]{{1,9}})")
DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{40,64}")
DIALECTS = ("openpbs", "torque")

Record = Mapping[str, Any]  # as it came: records.Answer says what an honest agent puts there


@contextmanager
def reading(cluster: str) -> Iterator[None]:
    """Turn what is malformed into an error that says whose answer it was."""
    try:
        yield
    except Malformed as error:
        raise ClusterError(
            f"{cluster} sent an answer that cannot be read: {error}",
            hint="Nothing was changed here. Is that login node what you think it is?",
        ) from None


# -- jobs ---------------------------------------------------------------------------------------


def job_views(
    answer: Record, cluster: str, asked: Collection[str], waiting_reason: Callable[[Record], str]
) -> dict[str, JobView]:
    """Read the jobs in an answer; those that were not asked for are dropped."""
    found = {}
    for one in checks.required(answer, jobs=several(checks.record))["jobs"]:
        job_id = text(one.get("id"))
        if job_id not in asked:
            continue
        queued = optional(queue_row)(one.get("scheduler"))
        if one.get("state") == "queued" and queued:
            one = {**one, "reason": waiting_reason(queued) or one.get("reason", "")}
        found[job_id] = JobView.from_dict(one, cluster, job_id)
    return found


def waiting_groups(answer: Record, asked: Collection[str]) -> Iterator[tuple[list[str], Record]]:
    """Yield groups of jobs that wait for the same reason, each with the scheduler's record."""
    for group in checks.required(answer, waiting=several(checks.record))["waiting"]:
        listed = unfold(group.get("ids"), len(asked))
        yield [job_id for job_id in listed if job_id in asked], queue_row(group)


def queue_row(value: Any) -> dict[str, str]:
    return checks.required(value, why=note, start=note)


def job_ids(answer: Record) -> list[str]:
    return unfold(answer.get("ids"), MOST_JOBS)


def unfold(value: Any, most: int) -> list[str]:
    """Expand an entry such as sweep-7f3k.0-999 into ids, at most ``most`` of them."""
    found: list[str] = []
    for one in several(text)(value):
        match = RANGE.fullmatch(one)
        if match is None:
            found.append(checks.job_id(one))
            continue
        array, first, last = match[1], int(match[2]), int(match[3])
        if last - first >= most - len(found):
            raise Malformed(f"{checks.brief(one)} names more jobs than there can be")
        found += [f"{array}.{index}" for index in range(first, last + 1)]
    if len(found) > most:
        raise Malformed(f"{len(found)} jobs are named, more than there can be")
    return found


def unsent(answer: Record) -> list[Unsent]:
    """Read the messages that could not be sent there; most answers have none. A channel that is not
    known here, such as one of a newer dray, is left out."""
    found = several(unsent_message, MOST_UNSENT)(answer.get("unsent", ()))
    return [one for one in found if one.channels]


def unsent_message(value: Any) -> Unsent:
    named = several(note, len(CHANNELS))
    read = checks.required(value, id=checks.job_id, over=checks.boolean, channels=named)
    known = tuple(one for one in CHANNELS if one in read["channels"])
    return Unsent(**{**read, "channels": known})


# -- their files --------------------------------------------------------------------------------


def log_piece(answer: Record) -> tuple[int, int]:
    """Return how long the log is, and how many bytes of it follow."""
    read = checks.required(answer, size=integer, payload=lambda one: integer(one, 0, LOG_PIECE))
    return max(read["size"], 0), read["payload"]


def door(answer: Record) -> tuple[dict[str, str], str, tuple[str, ...]]:
    """Read where the door of a job is: the place of its node, its path, and the words that start
    dray there."""
    found = checks.required(answer, place=table(text), path=text, words=several(text, MOST_WORDS))
    return found["place"], found["path"], found["words"]


def log_times(answer: Record) -> list[tuple[float, int]]:
    """Read at which time the log had which length, sorted so that it can be searched."""
    found = checks.required(answer, times=several(log_time, MOST_TIMES))["times"]
    return sorted(found, key=lambda one: one[1])


def log_time(value: Any) -> tuple[float, int]:
    read = several(lambda one: one, 2)(value)
    if len(read) != 2:
        raise Malformed(f"{checks.brief(value)} is not a time and a size")
    return checks.moment(read[0]), integer(read[1], 0)


def output_files(answer: Record) -> list[Incoming]:
    found = list(checks.required(answer, files=several(output_file))["files"])
    if len({file.path for file in found}) < len(found):
        raise Malformed("a file is named twice")
    return found


def checkpoint(answer: Record) -> Found:
    """Read which checkpoint of a job was found; its contents come later."""
    read = checks.required(answer, path=text, remarks=several(note, 1000))
    found = output_files(answer)
    for path in (read["path"], *(file.path for file in found)):
        landing.split(path)  # raises where it would lead elsewhere
    if not found or any(file.link is not None for file in found):
        raise Malformed("a checkpoint without files, or with links among them")
    beside = read["path"].rpartition("/")[0]
    if any(beside and not file.path.startswith(f"{beside}/") for file in found):
        raise Malformed("a checkpoint with files that lie elsewhere")
    return Found(read["path"], tuple(found), tuple(read["remarks"]))


def promised_files(answer: Record, asked: Collection[str]) -> list[Incoming]:
    """Read which files follow: those of the requested ones that still exist, each once."""
    found = output_files(answer)
    if not {file.path for file in found} <= set(asked) or len(found) > len(asked):
        raise Malformed("files follow that were not asked for")
    return found


def appended(answer: Record, known: Mapping[str, int], data: bytes) -> list[Appended]:
    """Read what was appended to files: each part begins where its file is known to end, or anew.
    ``data`` follows the answer; where the link broke, it is only the beginning."""
    parts = checks.required(answer, parts=several(appended_part, MOST_APPENDED))["parts"]
    if len({part.path for part in parts}) < len(parts):
        raise Malformed("a file is named twice")
    found, at = [], 0
    for path, offset, length in parts:
        if offset not in (0, known.get(path, 0)):
            raise Malformed(f"{checks.brief(path)} goes on where it had not ended")
        found.append(Appended(path, offset, data[at : at + length]))
        at += length
    return [one for one in found if one.data]


class AppendedPart(NamedTuple):
    path: str
    offset: int
    length: int


def appended_part(value: Any) -> AppendedPart:
    size = partial(integer, least=0)
    read = checks.required(value, path=text, offset=size, length=size)
    landing.split(read["path"])  # raises where it would lead elsewhere
    return AppendedPart(**read)


def output_file(value: Any) -> Incoming:
    read = checks.required(
        value,
        path=text,
        size=lambda one: integer(one, 0),
        mtime=integer,
        mode=integer,
        link=optional(text),
    )
    return Incoming(**read)


def left_behind(answer: Record) -> tuple[str, ...]:
    return tuple(checks.required(answer, left=several(note))["left"])


def missing_contents(answer: Record) -> set[str]:
    """Read the hashes of what the cluster lacks of a snapshot."""
    return set(several(digest)(answer.get("missing", ())))


def digest(value: Any) -> str:
    if not DIGEST.fullmatch(text(value)):
        raise Malformed(f"{checks.brief(value)} is not a digest")
    return text(value)


# -- what the scheduler says --------------------------------------------------------------------


class Told(NamedTuple):
    """What the scheduler said to questions, by their names; and who asked, as it knows them."""

    texts: Mapping[str, str]
    errors: Mapping[str, str]
    as_of: float = 0.0
    user: str = ""
    uid: int = -1

    def text(self, name: str) -> str:
        return self.texts.get(name, "")


def told(answer: Record) -> Told:
    read = checks.required(answer, answers=table(known_answer))["answers"]
    who = checks.fields(answer, {"user": line, "uid": integer})
    return Told(
        texts={name: one["text"] for name, one in read.items()},
        errors={name: one["error"] for name, one in read.items() if one["error"]},
        as_of=min((one["time"] for one in read.values()), default=0.0),
        **who,
    )


def guesses(answer: Record) -> list[str]:
    """Read what the scheduler guesses for each change, in the order in which they were asked."""
    read = several(known_answer, MOST_GUESSES)(answer.get("guesses", ()))
    return [one["text"] for one in read]


def known_answer(value: Any) -> dict[str, Any]:
    return checks.required(value, time=checks.moment, text=listing, error=line)


# -- images -------------------------------------------------------------------------------------


def image_state(answer: Record, layers: Collection[str]) -> ImageState:
    """Read the state of an image; ``layers`` are those that were asked about."""
    checks.required(answer, ready=checks.boolean)
    read = checks.fields(answer, IMAGE_STATE)
    lacking = {layer: have for layer, have in read.get("lacking", {}).items() if layer in layers}
    return ImageState(**{**read, "lacking": lacking})


def image_records(answer: Record) -> list[dict[str, Any]]:
    records = checks.required(answer, images=several(checks.record))["images"]
    return [{**one, **checks.required(one, **IMAGE)} for one in records]


def sizes(value: Any) -> dict[str, int]:
    return checks.required(value, file=integer, layers=integer)


def part(value: Any) -> tuple[int, ...]:
    read = several(integer, 2)(value)
    if len(read) != 2:
        raise Malformed(f"{checks.brief(value)} is not a part of a layer")
    return read


IMAGE_STATE: Mapping[str, checks.Check[Any]] = {
    "ready": checks.boolean,
    "job": checks.job_id,
    "machine": note,
    "builders": several(note, 100),
    "lacking": table(several(part)),
}
IMAGE: Mapping[str, checks.Check[Any]] = {
    "id": digest,
    "name": note,
    "ready": checks.boolean,
    "sizes": sizes,
    "jobs": several(checks.job_id),
}


# -- what the cluster is like -------------------------------------------------------------------


def facts(answer: Record) -> dict[str, Any]:
    """Read the facts that ``doctor`` shows and that jobs are checked by."""
    checks.required(answer, root=note, python=note, free=number, time=number)
    return {**UNKNOWN, **checks.fields(answer, FACTS)}


class Inspected(NamedTuple):
    """What a job would find on a node of a Ray cluster. ``versions`` are those of the Ray that its
    Python imports, and of that Python; ``devices``: how many GPUs the node's driver lists."""

    address: str
    gpus: int
    trouble: str = ""
    visible: str = ""
    devices: int = 0
    versions: tuple[str, ...] = ()
    complaint: str = ""
    root: bool = False


def inspected(answer: Record) -> list[Inspected]:
    known = {
        "address": line,
        "gpus": count,
        "trouble": line,
        "visible": line,
        "devices": count,
        "versions": several(line, 2),
        "complaint": line,
        "root": checks.boolean,
    }
    rows = several(lambda one: checks.fields(one, known), 1000)(answer.get("inspected"))
    for row in rows:
        checks.required(row, address=line, gpus=count)
    return [Inspected(**row) for row in rows]


def line(value: Any) -> str:
    """Read a text that is shown in one line."""
    return " ".join(note(value).split())


def dialect(value: Any) -> str:
    if value not in DIALECTS:
        raise Malformed(f"{checks.brief(value)} is not a dialect of PBS")
    return text(value)


def container_facts(value: Any) -> dict[str, Any]:
    """Read what is known of container runtimes; empty if there is none."""
    if not checks.record(value):
        return {}
    yes_or_no = dict.fromkeys(("setuid", "namespaces", "subuid", "fuse"), checks.boolean)
    return checks.required(value, runtimes=table(note), **yes_or_no)


def lock_facts(value: Any) -> dict[str, Any]:
    return checks.required(
        value,
        file_system=note,
        options=several(note, 100),
        work=checks.boolean,
        only_here=checks.boolean,
    )


def share_facts(value: Any) -> dict[str, str]:
    return checks.required(value, problem=line, owner=line)


def node_shape(value: Any) -> dict[str, int]:
    return checks.required(value, nodes=count, cpus=count, kilobytes=integer, gpus=count)


LISTING = 1 << 22  # characters of what a scheduler prints about itself


def listing(value: Any) -> str:
    return plain(text(value, LISTING))


def plain(read: str) -> str:
    """Replace digits that are not ASCII, which int() would take for numbers."""
    if read.isascii():
        return read
    return "".join("?" if one.isdigit() and not one.isascii() else one for one in read)


FACTS: Mapping[str, checks.Check[Any]] = {
    "time": number,
    "root": line,
    "python": line,
    "free": lambda value: min(number(value), 2.0**80),
    "files": optional(integer),
    "container_facts": container_facts,
    "locks": lock_facts,
    "links": checks.boolean,
    "share": share_facts,
    # Slurm
    **dict.fromkeys(("accounts", "partitions"), listing),
    **dict.fromkeys(("slurm", "slurm_error", "accounts_error", "partitions_error"), line),
    "config": table(note),
    # Kubernetes
    "machine": line,
    "pod_python": several(text, 10),
    "pod_python_error": line,
    # Ray
    **dict.fromkeys(("ray", "ray_error", "ray_of_python"), line),
    # PBS
    "version": line,
    "dialect": dialect,
    "queues": table(table(lambda one: plain(note(one)))),
    "queues_error": note,
    "nodes": several(node_shape, 10**5),
}
UNKNOWN: Mapping[str, Any] = {  # where an agent does not tell
    "files": None,
    "slurm": "",
    "version": "",
    "dialect": "openpbs",
    "queues": {},
    "nodes": (),
}
