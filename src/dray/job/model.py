"""The concepts of dray as frozen types. Nothing here acts.

Small records are named tuples, which take a tenth of a frozen dataclass's time to define: this
module is loaded by every verb."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType

from dray import checks
from dray.checks import (
    Malformed,
    count,
    integer,
    moment,
    note,
    number,
    optional,
    several,
    table,
    texts,
)
from dray.checks import text as text_of
from dray.job.quantities import show_duration
from dray.node.formats.files import encode
from dray.node.formats.shapes import DESCRIPTION_VERSION, FIRST_VERSION, MOST_RECENT, is_record
from dray.node.jobs.staging import NOTIFY, SECRETS
from dray.records import NamedTuple, asdict, dataclass, field, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dray.node.formats.records import AttemptRecord, Description

JSON_VERSION = 1  # of what --json prints; it changes when a key changes its meaning or goes


class JobState(StrEnum):
    """Where a job is. The last four are ends; all but ``done`` can be resumed."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"

    @property
    def active(self) -> bool:
        return self in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a job asks for, for each attempt; GPUs, CPUs and memory are those of one node."""

    nodes: int = 1
    gpus: float = 0.0
    gpu_type: str | None = None
    cpus: int = 1
    memory: int | None = None
    time: float | None = None
    time_min: float | None = None  # what it makes do with, where that lets it start earlier


@dataclass(frozen=True, kw_only=True)
class Resume:
    """How a trainer is resumed: see ``dray.node.checkpoints.resuming``."""

    checkpoint: str | None = None
    number: str | None = None
    args: tuple[str, ...] = ()
    begin_args: tuple[str, ...] = ()
    total: Mapping[str, Any] | None = None
    scale: tuple[Mapping[str, str], ...] = ()
    anew: bool = False
    finished: str | None = None
    partner: str | None = None
    looks_for: str | None = None
    beside: str | None = None
    keep: int | None = None
    signal: str | None = None
    saves: str | None = None
    grace: float = 30.0
    backoff: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a job may use as a whole (see ``node/jobs/budget.py``), and by when it has to begin."""

    total_time: float | None = None
    gpu_hours: float | None = None
    start_by: float | None = None  # unix time


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Where to find out how well a training does: see dray.node.metrics.sources."""

    main: tuple[str, ...] = ()
    tensorboard: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, kw_only=True)
class Container:
    """What a job runs in: see ``dray.node.containers.container``."""

    image: str  # an absolute path on the cluster, or sha256:<hex> of one that dray keeps there
    name: str = ""  # as the user calls it
    runtime: str = "auto"
    binds: tuple[str, ...] = ()  # SOURCE[:TARGET[:ro]]
    pass_env: tuple[str, ...] = ()  # names of the node's variables, or patterns of them
    containall: bool = False
    writable: str = "no"
    home: str = "scratch"
    workdir: str = ""  # where the work tree appears inside; "": where it is outside
    caches: tuple[str, ...] = ()  # NAME:TARGET
    local_copy: str = "auto"
    outside: Mapping[str, str] = field(default_factory=dict)  # what the runtime itself sees

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Container:
        checks.required(record, image=text_of)
        return cls(**checks.fields(record, CONTAINER))


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One job's description: all that a cluster needs to know, and nothing secret."""

    id: str
    name: str
    command: tuple[str, ...]
    folder: str = ""  # where in the tree the command starts
    project: str = ""  # the tree's place on the submitting machine
    snapshot: str | None = None
    resources: Resources = field(default_factory=Resources)
    resume: Resume = field(default_factory=Resume)
    metrics: Metrics = field(default_factory=Metrics)
    container: Container | None = None
    retries: int = 0
    recipe: str = ""
    launch: str = "none"  # how the command is spread: see dray.node.processes.layout
    outputs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()  # names only
    links: Mapping[str, str] = field(default_factory=dict)  # in the folder, to what is on the node
    notes: tuple[str, ...] = ()  # what the recipe has to tell
    created: float = 0.0
    resumed_after: int = 0  # attempts up to this number do not count for retries any more
    start_from: str = ""  # where the attempt after that begins: a checkpoint, or "scratch"
    limits: Limits = field(default_factory=Limits)
    retry_on: tuple[int, ...] = ()  # exit codes after which it is tried again, and uses no retry
    fail_on: tuple[int, ...] = ()  # exit codes after which it is not, whatever is left
    hold: float | None = None  # seconds for which a crashed attempt's allocation is kept
    stall: float | None = None  # seconds without progress after which the command counts as hung
    # The checkpoint of another run that the first attempt begins from: see dray run --from
    origin: Mapping[str, str] = field(default_factory=dict)
    # Which trial of which sweep it is, and with which parameters; empty: none. See dray.node.sweeps
    sweep: Mapping[str, Any] = field(default_factory=dict)
    # Jobs of the same cluster that have to end before it starts: see dray.node.jobs.following
    after: Mapping[str, str] = field(default_factory=dict)
    # Outputs of other jobs that its command reads, by name: see dray.node.code.inputs
    inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    version: int = DESCRIPTION_VERSION  # of this description's form

    def to_dict(self) -> Description:
        """Return what job.json has in it."""
        fields: Any = asdict(self)
        record: Description = fields
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> JobSpec:
        """Read a description; fields that a newer dray wrote are left out."""
        checks.required(record, id=checks.job_id, resources=checks.record, resume=checks.record)
        defaults = {"command": (), "name": "", "version": FIRST_VERSION}
        return cls(**{**defaults, **checks.fields(record, SPEC)})


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of the command. ``outcome`` is None while it runs."""

    number: int
    outcome: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    reason: str = ""
    started: float | None = None
    heartbeat: float | None = None
    ended: float | None = None
    host: str | None = None
    gpus: tuple[int, ...] = ()
    from_checkpoint: str | None = None
    checkpoint: str | None = None
    metric: Mapping[str, Any] | None = None  # the latest value: name, value, step, recent
    deadline: float | None = None  # by the clock of its machine, as started and heartbeat are
    iteration: int | None = None  # at its newest checkpoint, where that is known
    total: int | None = None  # how many there are
    gpu_use: float | None = None  # percent, while it runs
    gpu_idle: float | None = None  # since when its GPUs do nothing, by the clock of its machine
    held: float | None = None  # until when its allocation is, or was, kept for a look
    left: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # what became of checkpoints that it did not begin from

    def to_dict(self) -> AttemptRecord:
        """Return the attempt as the node side tells of it."""
        fields: Any = asdict(self)
        record: AttemptRecord = fields
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Attempt:
        checks.required(record, number=ATTEMPT["number"])
        return cls(**checks.fields(record, ATTEMPT))


IDLE = 600.0  # seconds for which GPUs may do nothing before that is told


def idle_words(idle: float | None, now: float) -> str:
    """Say that GPUs have done nothing for long; '' where they have not. Both times are by the clock
    of their machine."""
    if idle is None or now - idle < IDLE:
        return ""
    return f"GPU idle for {show_duration(now - idle)}"


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as it was last seen: description, state, attempts."""

    spec: JobSpec
    cluster: str
    state: JobState
    reason: str = ""
    ended: float | None = None
    attempts: tuple[Attempt, ...] = ()
    is_unreadable: bool = False  # its files could not be read just now: this tells nothing of it

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], cluster: str, job_id: str) -> JobView:
        """Read what the node side reports of this job (``states.status``). Its id is the one that
        was asked for, whatever its description says: a job can edit that."""
        try:
            told = checks.required(record, state=_state, reason=note, ended=optional(moment))
            spec = JobSpec.from_dict({**checks.record(record.get("job")), "id": job_id})
            attempts = several(Attempt.from_dict, MOST_ATTEMPTS)(record.get("attempts"))
        except Malformed as error:
            reason = f"its files on {cluster} are damaged: {error}"
            told = {"state": JobState.LOST, "reason": note(reason), "ended": None}
            spec, attempts = JobSpec(id=job_id, name="", command=()), ()
        told["is_unreadable"] = record.get("unreadable") is True
        return cls(spec=spec, cluster=cluster, attempts=attempts, **told)

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def metric(self) -> Mapping[str, Any] | None:
        """The latest value that any attempt has reached."""
        found = [one.metric for one in self.attempts if one.metric]
        return found[-1] if found else None

    def to_dict(self) -> dict[str, Any]:
        """Return the documented form that ``show --json`` prints."""
        last = self.attempts[-1] if self.attempts else None
        return {
            "version": JSON_VERSION,
            "id": self.id,
            "name": self.spec.name,
            "cluster": self.cluster,
            "state": str(self.state),
            "reason": self.reason,
            "exit_code": last.exit_code if last else None,
            "signal": last.signal if last else None,
            "created": self.spec.created,
            "ended": self.ended,
            "command": list(self.spec.command),
            "folder": self.spec.folder,
            "project": self.spec.project,
            "snapshot": self.spec.snapshot,
            "resources": asdict(self.spec.resources),
            "resume": _plain(asdict(self.spec.resume)),
            "metrics": _plain(asdict(self.spec.metrics)),
            "container": _plain(asdict(self.spec.container)) if self.spec.container else None,
            "retries": self.spec.retries,
            "retry_on": list(self.spec.retry_on),
            "fail_on": list(self.spec.fail_on),
            "limits": asdict(self.spec.limits),
            "hold": self.spec.hold,
            "stall": self.spec.stall,
            "recipe": self.spec.recipe,
            "launch": self.spec.launch,
            "outputs": list(self.spec.outputs),
            "env": dict(self.spec.env),
            "secrets": list(self.spec.secrets),
            "sweep": dict(self.spec.sweep) or None,
            "begins_from": self.spec.origin.get("told", ""),
            "after": dict(self.spec.after),
            "inputs": {name: one.get("told", "") for name, one in self.spec.inputs.items()},
            "attempts": [_plain(asdict(one)) for one in self.attempts],
        }


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in record.items()
    }


class Series(NamedTuple):
    """The curve of a metric: (step, value, attempt), thinned out where it is long. A value is None
    where it was not a number."""

    name: str = ""
    points: tuple[tuple[int, float | None, int], ...] = ()

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Series:
        """Read what the node side has found. A curve that cannot be read is not drawn; the job
        itself is still shown."""
        try:
            return cls(**checks.required(record, name=note, points=several(_point, MOST_POINTS)))
        except Malformed:
            return cls()

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "points": [list(one) for one in self.points]}


class Snapshot(NamedTuple):
    """The frozen code: a manifest named by its hash, and where its contents can be read."""

    id: str
    project: str
    manifest: bytes
    size: int
    files: int
    warnings: tuple[str, ...] = ()
    contents: Mapping[str, bytes] = MappingProxyType({})  # those that were read already


class JobArray(NamedTuple):
    """Jobs that are submitted together and differ only in their commands. ``common`` has the
    array's id; job N has the id ``<id>.<N>``. Trials of a sweep have one command, which each of
    them fills in when it starts, and are only counted. Where several share a batch job, ``common``
    has the resources of that."""

    common: JobSpec
    commands: tuple[tuple[str, ...], ...] = ()
    trials: int = 0
    study: Mapping[str, Any] = MappingProxyType({})  # of their sweep: see dray.sweep.study

    @property
    def id(self) -> str:
        return self.common.id

    @property
    def size(self) -> int:
        return len(self.commands) or self.trials

    @property
    def ids(self) -> list[str]:
        return [f"{self.id}.{index}" for index in range(self.size)]

    @property
    def at_once(self) -> int | None:
        """How many of them may run at the same time; None: as many as there is room for."""
        most: int | None = self.common.sweep.get("at_once")
        return most

    @property
    def per_node(self) -> int:
        """How many of them share a batch job; 1: none."""
        number: int | None = self.common.sweep.get("per_node")
        return number or 1

    @property
    def resources(self) -> Resources:
        """What each of them has, also one that is resumed alone."""
        from dray.node.jobs.arrays import part_of  # not for a listing

        return Resources(**part_of(asdict(self.common.resources), self.per_node))

    @property
    def part(self) -> dict[str, Any]:
        """Which trials of their sweep they are."""
        first = self.common.sweep.get("first", 0)
        return {"id": self.id, "first": first, "count": self.size, "at_once": self.at_once}

    def command_of(self, index: int) -> tuple[str, ...]:
        return self.commands[index] if self.commands else self.common.command

    def jobs(self) -> Iterator[JobSpec]:
        from dray.node.jobs.arrays import trial_at  # not for a listing

        for index, job_id in enumerate(self.ids):
            command = self.command_of(index)
            job = replace(self.common, id=job_id, command=command, resources=self.resources)
            trial = trial_at(dict(job.sweep), index) if job.sweep else {}
            yield replace(job, sweep=trial)

    def to_dict(self) -> dict[str, Any]:
        """Return what the array's job.json adds to what the jobs have in common."""
        return {"commands": self.commands} if self.commands else {"count": self.trials}


class Plan(NamedTuple):
    """Exactly what is submitted: the cluster writes these files and starts this command, and adds
    only what is known there alone, such as the number of a batch job that has to be over first."""

    job: JobSpec  # or what the jobs of an array share
    cluster: str
    files: Mapping[str, str]  # path on the cluster → content
    command: tuple[str, ...]  # what is started there
    notes: tuple[str, ...] = ()
    is_array: bool = False
    each: tuple[Plan, ...] = ()  # of an array's jobs, where the cluster takes them one by one
    study: Mapping[str, Any] = MappingProxyType({})  # of the sweep that they belong to,
    part: Mapping[str, Any] = MappingProxyType({})  # and which of its trials they are

    @classmethod
    def one_by_one(cls, array: JobArray, cluster: str, each: Iterable[Plan]) -> Plan:
        """Plan an array as single jobs."""
        alone = cls(job=array.common, cluster=cluster, files={}, command=(), each=tuple(each))
        return alone.of_sweep(array)

    def of_sweep(self, array: JobArray) -> Plan:
        """Add the sweep that the jobs are trials of, if they are."""
        return self._replace(study=array.study, part=array.part) if array.study else self


class Private(NamedTuple):
    """What is sent with a job and is never part of its description."""

    secrets: Mapping[str, str] = MappingProxyType({})  # for the command's environment
    notify: Mapping[str, Any] = MappingProxyType(
        {}
    )  # who is told of it: see dray.node.notifications.notify

    def files(self) -> dict[str, bytes]:
        """Return the files to write, by their names in the job's directory."""
        both = ((SECRETS, self.secrets), (NOTIFY, self.notify))
        return {name: encode(dict(content)) for name, content in both if content}


class Capabilities(NamedTuple):
    """What a kind of cluster can do: declared by its module, and known without asking a cluster.
    Other code goes by these, never by the kind."""

    is_local: bool = False  # its jobs run on this machine, with the user's own environment
    has_host: bool = False  # it is reached by SSH, unless its settings name no host
    other_ways: tuple[str, ...] = ()  # settings that lead there in place of a host
    found_by: str = ""  # a program that is there where a cluster of this kind is
    gpu_fractions: bool = False
    arrays: bool = False  # many jobs can be submitted in one step
    limits_at_once: bool = False  # of jobs that were submitted together, only some run at a time
    shared_batch_jobs: bool = False  # several jobs of an array can share what one batch job has
    whole_nodes: bool = False  # a job may be given whole nodes, however little it asks for
    launchers: tuple[str, ...] = ()  # what can start a command once for each task
    # The variables by which a library takes itself for a part of a batch job begin with this.
    batch_variables: str = ""
    awaits_images: bool = False  # a job waits in the queue until its image is ready
    awaits_jobs: bool = False  # a job that comes after others holds nothing while it waits
    registry_images: bool = False  # images are pulled from a registry, by name
    own_images: bool = True  # a job can have an image of its own


class Equipment(NamedTuple):
    """What a cluster can give one job, on its largest node."""

    cpus: int
    memory: int | None
    gpus: int
    suggested: tuple[tuple[str, str], ...] = ()  # settings to use it with, found out there


class Finding(NamedTuple):
    """One line of ``dray doctor``."""

    ok: bool
    what: str
    detail: str = ""
    advice: str = ""


# -- what each field has to be, in a record that was written elsewhere ----------------------------

MOST_ATTEMPTS = 100_000
MOST_POINTS = 100_000
MOST_CODES = 256
LARGEST_VALUE = 1e150  # of a metric: what is beyond cannot be drawn


def _state(value: Any) -> JobState:
    try:
        return JobState(value)
    except ValueError:
        raise Malformed(f"{checks.brief(value)} is not a state of a job") from None


def _snapshot(value: Any) -> str:
    if not SNAPSHOT.fullmatch(text_of(value)):
        raise Malformed(f"{checks.brief(value)} is not the name of a snapshot")
    return text_of(value)


def _point(value: Any) -> tuple[int, float | None, int]:
    read = several(lambda one: one, 3)(value)
    if len(read) != 3:
        raise Malformed(f"{checks.brief(value)} is not a point of a curve")
    value = optional(number)(read[1])
    plain = value if value is None or abs(value) < LARGEST_VALUE else None
    return integer(read[0]), plain, count(read[2])


def _plain_value(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise Malformed(f"{checks.brief(value)} is not a text or a number")
    return text_of(value) if isinstance(value, str) else value


def _step(value: Any) -> int | float:
    return integer(value) if isinstance(value, int) else number(value)


def _course(value: Any) -> tuple[float | None, ...]:
    read = several(optional(number), MOST_RECENT)(value)
    return tuple(one if one is None or abs(one) < LARGEST_VALUE else None for one in read)


def _metric(value: Any) -> dict[str, Any] | None:
    """Return None for a metric that cannot be read; the job itself is still shown."""
    try:
        read = checks.required(value, name=note, value=optional(number), step=_step)
        return {**read, "recent": (), **checks.fields(value, {"recent": _course})}
    except Malformed:
        return None


def _sweep(value: Any) -> dict[str, Any]:
    """Read which trial of a sweep a job is, and its parameters."""
    read = checks.fields(value, SWEEP)
    if read and "id" not in read:
        raise Malformed("a trial's sweep has no id")
    return read


def _parameters(value: Any) -> Mapping[str, Any]:
    if not is_record(value):
        raise Malformed(f"{checks.brief(value)} is not a record of parameters")
    return checks.record(value)


def _built(cls: Any, fields: Mapping[str, checks.Check[Any]]) -> checks.Check[Any]:
    return lambda value: cls(**checks.fields(value, fields))


SNAPSHOT = re.compile(r"[0-9a-f]{40}")
RESOURCES: Mapping[str, checks.Check[Any]] = {
    "nodes": count,
    "gpus": number,
    "gpu_type": optional(text_of),
    "cpus": count,
    "memory": optional(integer),
    "time": optional(moment),
    "time_min": optional(moment),
}
LIMITS: Mapping[str, checks.Check[Any]] = {
    "total_time": optional(moment),
    "gpu_hours": optional(number),
    "start_by": optional(moment),
}
SWEEP: Mapping[str, checks.Check[Any]] = {
    "id": checks.job_id,
    "first": count,
    "trial": count,
    "at_once": optional(count),
    "per_node": optional(count),
    "asked_for": optional(checks.boolean),
    "values": _parameters,
    "template": texts,
}
RESUME: Mapping[str, checks.Check[Any]] = {
    **dict.fromkeys(("checkpoint", "number", "finished", "partner"), optional(text_of)),
    **dict.fromkeys(("looks_for", "beside", "signal", "saves"), optional(text_of)),
    "args": texts,
    "begin_args": texts,
    "total": optional(table(_plain_value)),
    "scale": several(table(text_of)),
    "anew": checks.boolean,
    "keep": optional(count),
    "grace": number,
    "backoff": number,
}
METRICS: Mapping[str, checks.Check[Any]] = {
    "main": texts,
    "tensorboard": optional(text_of),
    "pattern": optional(text_of),
}
CONTAINER: Mapping[str, checks.Check[Any]] = {
    **dict.fromkeys(("image", "name", "runtime", "writable", "home", "workdir"), text_of),
    "binds": texts,
    "pass_env": texts,
    "containall": checks.boolean,
    "caches": texts,
    "local_copy": text_of,
    "outside": table(text_of),
}
SPEC: Mapping[str, checks.Check[Any]] = {
    "version": count,
    "id": checks.job_id,
    "name": note,
    "command": texts,
    "folder": text_of,
    "project": text_of,
    "snapshot": optional(_snapshot),
    "resources": _built(Resources, RESOURCES),
    "resume": _built(Resume, RESUME),
    "metrics": _built(Metrics, METRICS),
    "container": optional(Container.from_dict),
    "retries": count,
    "recipe": text_of,
    "launch": text_of,
    "outputs": texts,
    "env": table(text_of),
    "links": table(text_of),
    "secrets": several(checks.variable),  # they appear in commands to copy
    "notes": texts,
    "created": moment,
    "resumed_after": count,
    "start_from": text_of,
    "limits": _built(Limits, LIMITS),
    "retry_on": several(integer, MOST_CODES),
    "fail_on": several(integer, MOST_CODES),
    "hold": optional(moment),
    "stall": optional(moment),
    "origin": table(text_of),
    "sweep": _sweep,
    "after": table(text_of),
    "inputs": table(table(text_of)),
}
ATTEMPT: Mapping[str, checks.Check[Any]] = {
    "number": lambda value: integer(value, 1, 10**6),
    "outcome": optional(note),
    "exit_code": optional(integer),
    "signal": optional(note),
    "reason": note,
    **dict.fromkeys(("started", "heartbeat", "ended", "deadline", "held"), optional(moment)),
    "gpu_use": optional(number),
    "gpu_idle": optional(moment),
    **dict.fromkeys(("iteration", "total"), optional(integer)),
    "host": optional(note),
    "gpus": lambda value: several(count, 1000)(value or ()),
    "from_checkpoint": optional(note),
    "checkpoint": optional(note),
    "metric": _metric,
    **dict.fromkeys(("left", "remarks"), lambda value: several(note)(value or ())),
}
