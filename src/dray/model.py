"""The words of dray as frozen types. Nothing here acts.

Small records are named tuples, which take a tenth of a frozen dataclass's time to define: this
module is loaded by every verb.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple


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


@dataclass(frozen=True, kw_only=True)
class Resume:
    """How a trainer is resumed: see ``dray.node.resuming``."""

    checkpoint: str | None = None
    number: str | None = None
    args: tuple[str, ...] = ()
    total: Mapping[str, Any] | None = None
    scale: tuple[Mapping[str, str], ...] = ()
    anew: bool = False
    finished: str | None = None
    partner: str | None = None
    looks_for: str | None = None
    keep: int | None = None
    signal: str | None = None
    saves: str | None = None
    grace: float = 30.0
    backoff: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Where it is seen how a training does: see dray.node.metrics."""

    main: tuple[str, ...] = ()
    tensorboard: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, kw_only=True)
class Container:
    """What a job runs in: see ``dray.node.container``."""

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
        lists = {key: tuple(record.get(key) or ()) for key in ("binds", "pass_env", "caches")}
        built: Container = _build(cls, {**record, **lists})
        return built


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
    launch: str = "none"  # how the command is spread: see dray.node.layout
    outputs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()  # names only
    notes: tuple[str, ...] = ()  # what the recipe has to tell
    created: float = 0.0
    resumed_after: int = 0  # attempts up to this number do not count for retries any more

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> JobSpec:
        """Tolerates fields that a newer dray wrote."""
        known = {key: record[key] for key in cls.__dataclass_fields__ if key in record}
        known["resources"] = _build(Resources, record["resources"])
        known["resume"] = _build(Resume, record["resume"])
        known["resume"] = replace(
            known["resume"], args=tuple(known["resume"].args), scale=tuple(known["resume"].scale)
        )
        metrics = record.get("metrics") or {}
        known["metrics"] = _build(Metrics, {**metrics, "main": tuple(metrics.get("main", ()))})
        container = record.get("container")
        known["container"] = Container.from_dict(container) if container else None
        for key in ("command", "outputs", "secrets", "notes"):
            known[key] = tuple(record.get(key, ()))
        return cls(**known)


def _build(cls: Any, record: Mapping[str, Any]) -> Any:
    return cls(**{key: record[key] for key in cls.__dataclass_fields__ if key in record})


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
    metric: Mapping[str, Any] | None = None  # the latest value: name, value, step
    left: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Attempt:
        known = {key: record[key] for key in cls.__dataclass_fields__ if key in record}
        for key in ("gpus", "left"):
            known[key] = tuple(known.get(key) or ())
        return cls(**known)


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as it was last seen: description, state, attempts."""

    spec: JobSpec
    cluster: str
    state: JobState
    reason: str = ""
    ended: float | None = None
    attempts: tuple[Attempt, ...] = ()

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], cluster: str) -> JobView:
        """From what the node side tells of the job (``dray.node.jobdir.status``)."""
        return cls(
            spec=JobSpec.from_dict(record["job"]),
            cluster=cluster,
            state=JobState(record["state"]),
            reason=record["reason"],
            ended=record["ended"],
            attempts=tuple(Attempt.from_dict(one) for one in record["attempts"]),
        )

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def metric(self) -> Mapping[str, Any] | None:
        """The latest value that any attempt has come to."""
        found = [one.metric for one in self.attempts if one.metric]
        return found[-1] if found else None

    def to_dict(self) -> dict[str, Any]:
        """The documented form that ``show --json`` prints."""
        last = self.attempts[-1] if self.attempts else None
        return {
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
            "recipe": self.spec.recipe,
            "launch": self.spec.launch,
            "outputs": list(self.spec.outputs),
            "env": dict(self.spec.env),
            "secrets": list(self.spec.secrets),
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
        return cls(record["name"], tuple((one[0], one[1], one[2]) for one in record["points"]))

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
    array's id; job N has the id ``<id>.<N>``."""

    common: JobSpec
    commands: tuple[tuple[str, ...], ...]

    @property
    def id(self) -> str:
        return self.common.id

    @property
    def ids(self) -> list[str]:
        return [f"{self.id}.{index}" for index in range(len(self.commands))]

    def jobs(self) -> Iterator[JobSpec]:
        for job_id, command in zip(self.ids, self.commands, strict=True):
            yield replace(self.common, id=job_id, command=command)


class Plan(NamedTuple):
    """Exactly what would be submitted."""

    job: JobSpec
    cluster: str
    files: Mapping[str, str]  # path on the cluster → content
    command: tuple[str, ...]  # what is started there
    notes: tuple[str, ...] = ()


class Capabilities(NamedTuple):
    """What a cluster can give one job, and whether it can do the special things."""

    cpus: int
    memory: int | None
    gpus: int
    gpu_fractions: bool = False
    suggested: tuple[tuple[str, str], ...] = ()  # settings to use it with, found out there


class Finding(NamedTuple):
    """One line of ``dray doctor``."""

    ok: bool
    what: str
    detail: str = ""
    advice: str = ""
