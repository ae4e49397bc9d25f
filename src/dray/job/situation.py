"""What a cluster tells of its queue, of one's own share of it, and of why a job waits.

Frozen types, like those in ``model``; apart from them, as most verbs do not need any of these."""

from __future__ import annotations

from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Reason(NamedTuple):
    """Why a job waits, in plain words."""

    words: str
    never: bool = False  # as it is, it will not start until somebody changes something
    advice: str = ""


class QueueEntry(NamedTuple):
    """A batch job, or those of an array that wait together, as the scheduler lists it."""

    number: str  # the scheduler's own
    owner: str
    state: str  # "waiting" or "running"
    job: str = ""  # dray's id, if it is one's own
    account: str = ""
    partition: str = ""
    qos: str = ""
    jobs: int = 1
    gpus: float = 0.0  # of each job, on all its nodes together
    gpu_type: str = ""
    priority: float = 0.0
    submitted: float | None = None
    start: float | None = None  # of a waiting one: when the scheduler plans to start it
    limit: float | None = None  # seconds
    left: float | None = None  # seconds, of a running one
    nodes: str = ""
    reason: str = ""  # in plain words
    why: str = ""  # as the scheduler puts it
    is_held: bool = False  # it waits for something else than its turn: nobody is behind it

    @property
    def is_waiting(self) -> bool:
        return self.state == "waiting"


class Pool(NamedTuple):
    """GPUs of one kind; '' where they have no name. ``total`` are those of nodes that work."""

    kind: str
    free: float
    total: int
    nodes: int
    down: int = 0  # GPUs of nodes that do not


class Maintenance(NamedTuple):
    """A time in which nodes are kept free for the admins."""

    name: str
    start: float
    end: float
    nodes: str = ""


class QueueView(NamedTuple):
    """The queue of a cluster, the next job first and then those that run."""

    entries: tuple[QueueEntry, ...] = ()
    pools: tuple[Pool, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    as_of: float = 0.0
    me: str = ""  # the user's name there
    remarks: tuple[str, ...] = ()  # what could not be seen, and why
    is_ordered: bool = True  # whether the order of those that wait means anything

    @property
    def waiting(self) -> list[QueueEntry]:
        return [one for one in self.entries if one.is_waiting]


class Limit(NamedTuple):
    """How much of something may be used; ``used`` is None where it applies to each job alone."""

    what: str  # "GPUs", "running jobs", …
    most: float
    used: float | None = None
    scope: str = ""  # whose it is: "QOS normal, for you", "account rl"
    unit: str = ""  # "", "hours", "bytes" or "seconds"

    @property
    def is_reached(self) -> bool:
        return self.used is not None and self.used >= self.most


class Share(NamedTuple):
    """What fair share makes of past use."""

    account: str
    factor: float  # from 0 to 1; the higher, the earlier its jobs start
    used: float | None = None  # as a multiple of one's share
    half_life: float | None = None  # seconds


class Alternative(NamedTuple):
    """A change with which the job would start earlier."""

    change: str  # "--time 2h"
    start: float  # 0: at once
    where: str = ""
    command: str = ""  # that makes the change
    basis: str = "as the scheduler guesses"


class Explanation(NamedTuple):
    """Why a job waits, with all that is known of it."""

    reason: Reason
    place: int = 0  # among those that wait; 0 where that is not known
    waiting: int = 0  # how many do
    gpus_before: float = 0.0  # that those before it ask for
    pool: Pool | None = None  # of the GPUs that it asks for
    partition: str = ""
    start: float | None = None
    frees: tuple[float, str] | None = None  # when GPUs of this kind are free at the latest, where
    limits: tuple[Limit, ...] = ()
    holders: tuple[str, ...] = ()  # one's own jobs that use up a limit, or the machine
    share: Share | None = None
    maintenance: tuple[Maintenance, ...] = ()
    sooner: tuple[Alternative, ...] = ()
    remarks: tuple[str, ...] = ()


class Disk(NamedTuple):
    """What may be stored in a place, and what is; in bytes and in files."""

    name: str
    path: str
    used: int | None = None
    most: int | None = None
    files: int | None = None
    most_files: int | None = None
    scope: str = ""  # whose: "you", "the group rl", "everybody"


class Own(NamedTuple):
    """What dray itself occupies on a cluster."""

    what: str  # the folder below its root
    size: int
    files: int
    is_whole: bool = True  # else there is more than could be counted in time


class Allowance(NamedTuple):
    """What the user may use of a cluster, and has used."""

    limits: tuple[Limit, ...] = ()
    shares: tuple[Share, ...] = ()
    disks: tuple[Disk, ...] = ()
    own: tuple[Own, ...] = ()
    remarks: tuple[str, ...] = ()


def plain(value: Any) -> Any:
    """Turn these types into what JSON has, at any depth."""
    if hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return value
