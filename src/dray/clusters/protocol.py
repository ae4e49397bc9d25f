"""What a cluster can do, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType

from dray.job.model import (
    Capabilities,
    Equipment,
    Finding,
    JobArray,
    JobSpec,
    JobView,
    Plan,
    Private,
    Series,
    Snapshot,
)
from dray.landing import Incoming, Landing
from dray.records import NamedTuple
from dray.reporter import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol
else:
    Protocol = object  # only type checkers ask what fits


class Selection(NamedTuple):
    """Which outputs are wanted: what fits a glob, and the newest whole checkpoint; see
    dray.node.checkpoints.selecting. All of them, where nothing is said."""

    globs: tuple[str, ...] = ()
    latest_checkpoint: bool = False
    # What the job's checkpoints are called, as this machine knows it: a cluster could name any file
    # as the newest one.
    checkpoint_globs: tuple[str, ...] = ()

    def takes(self) -> Callable[[str], bool]:
        """What tells of a path that a cluster offers whether it may be one that is wanted."""
        if not self.globs and not self.latest_checkpoint:
            return lambda path: True
        from dray.node.checkpoints.selecting import matcher  # not for a listing

        return matcher(self.globs + self.checkpoint_globs)


class ImageState(NamedTuple):
    """An image as a cluster has it: ready to run, being made so by a job, or lacking these layers,
    each with the parts (offset, length) that have arrived."""

    ready: bool
    job: str = ""
    machine: str = ""  # as uname tells it
    builders: Sequence[str] = ()  # the programs there that can make one ready
    lacking: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({})


class ImagePart(NamedTuple):
    """A piece of a layer on its way: ``content`` is a gzip of it."""

    layer: str
    offset: int
    length: int
    is_last: bool
    content: bytes


class Found(NamedTuple):
    """A checkpoint of a job: ``path`` and ``files`` are relative to its outputs."""

    path: str
    files: tuple[Incoming, ...]
    remarks: tuple[str, ...] = ()  # on newer ones that were passed over


class Conversion(NamedTuple):
    """How a cluster makes an image ready to run: by its settings, and with what Python."""

    runtime: str = "auto"
    convert: str = "auto"
    modules: bool = False  # programs may only be found once modules are loaded
    python: str = "python3"

    @classmethod
    def of(cls, settings: Mapping[str, Any], python: str) -> Conversion:
        modules = bool(settings.get("modules") or settings.get("setup"))
        runtime, convert = settings.get("container", "auto"), settings.get("convert", "auto")
        return cls(runtime, convert, modules, python)


class Unsent(NamedTuple):
    """A message that somebody is waiting for: a job's, or an array's."""

    id: str
    over: bool  # of its end, not of its start
    channels: tuple[str, ...] = ()  # by which it was not sent so far


class Statuses(NamedTuple):
    """Jobs as they are now. ``waiting``: those of which only the reason for that is told."""

    jobs: dict[str, JobView]
    waiting: Mapping[str, str] = MappingProxyType({})


class Piece(NamedTuple):
    """A piece of a log; and how long the whole of it is by now."""

    data: bytes
    size: int


END = 1 << 62  # an offset in a log behind which there is nothing: only its size is told


class Cluster(Protocol):
    """A place to run jobs. Planning is pure; everything else acts on the cluster."""

    name: str
    kind: str
    capabilities: Capabilities
    may_ask: bool  # whether a login may ask the user for a password; else it raises LoginNeeded

    @property
    def queue(self) -> Queue: ...

    @property
    def files(self) -> JobFiles: ...

    @property
    def images(self) -> ImageStore: ...

    @property
    def sessions(self) -> Sessions | None: ...

    def equipment(self) -> Equipment:
        """What it has, asked anew."""

    def check(self, job: JobSpec) -> None:
        """Raise Refused, with what to change, where the job cannot run here."""

    def plan(self, work: JobSpec | JobArray) -> Plan:
        """Say exactly what ``submit`` does for a job or an array; touches nothing."""

    def environment(self) -> Mapping[str, str]:
        """Variables of the submitting shell that a job there sees."""

    def partitions(self) -> Sequence[str]:
        """Its partitions or queues, as far as they are known here; nobody is asked."""

    def last_answer(self) -> float | None:
        """When it last answered a command of this machine; None where none is known of."""

    def hang_up(self) -> None:
        """End what another thread is asking it at this moment."""

    def reach(self, seconds: float) -> str:
        """Ask whether it answers, without a question to the user; nothing is installed. Returns
        why not, or ''."""

    def doctor(self) -> list[Finding]:
        """Everything a job here depends on, checked."""


class Queue(Protocol):
    """What has the jobs: submits, tells, stops, resumes and removes them."""

    @property
    def may_have_got(self) -> bool:
        """Whether a job may be there that was being submitted when it failed."""

    @property
    def array_size(self) -> int:
        """How many jobs it takes in one array."""

    def prepared(self) -> AbstractContextManager[None]:
        """While a submission is being made ready: begins what takes a while, such as connecting."""

    def submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        """Bring the code there, then carry out the plan. Done twice, its jobs are queued once."""

    def resume(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        """Start another attempt of an ended job, with this description."""

    def status(self, ids: Sequence[str], *, brief: bool = False) -> Statuses:
        """The jobs as they are now, in one query; those unknown here are left out. With ``brief``,
        those that still wait for their first attempt may be told by their reason alone: ten
        thousand of them in a few lines."""

    def stop(self, ids: Sequence[str], *, now: bool) -> None:
        """Ask for the end: with a checkpoint first, or at once."""

    def ids(self) -> Iterator[str]:
        """Every job that lies here, for rebuilding the store."""

    def remove(self, ids: Sequence[str]) -> None:
        """Delete the jobs' directories, and code that no other job needs."""

    def unsent(self) -> Sequence[Unsent]:
        """Messages that the cluster could not send, as of the last look at its jobs."""

    def settle(self, message: Unsent) -> None:
        """Say that nobody there need send it any more."""


class JobFiles(Protocol):
    """The files of jobs: what they wrote, and what they begin from."""

    def path(self, job_id: str = "") -> str:
        """Where the job's directory is, or all of them are, for people."""

    def read_log(self, job_id: str, attempt: int, offset: int = 0, rank: int = 0) -> Piece:
        """A piece of a rank's raw output, from ``offset``; empty at the end."""

    def log_times(self, job_id: str, attempt: int) -> Sequence[tuple[float, int]]:
        """When the first rank's output was how long, in order; see dray.node.jobs.log_times."""

    def curve(self, job_id: str) -> Series:
        """The job's main metric over all attempts."""

    def pull(
        self, job_id: str, landing: Landing, progress: Progress, wanted: Selection
    ) -> tuple[int, int]:
        """Bring new and changed outputs of those that are wanted: (files copied, files in all)."""

    def checkpoint(self, job_id: str, name: str, rules: Mapping[str, Any]) -> Found:
        """The checkpoint of this name, or the newest whole one; by these ``rules`` where the job
        itself has none. Raises Refused where there is none."""

    def fetch(self, job_id: str, found: Found, landing: Landing, progress: Progress) -> None:
        """Bring the files of a checkpoint, all of them whole."""

    def bring(self, given: Snapshot, progress: Progress) -> None:
        """Take files there that a job begins from; only what is not there yet."""


class ImageStore(Protocol):
    """The images of one cluster: see dray.node.containers.images."""

    conversion: Conversion

    def look(self, image: str, layers: Sequence[str]) -> ImageState: ...

    def announce(self, record: Mapping[str, Any]) -> None:
        """Write down what it is, before its layers come."""

    def take(self, part: ImagePart) -> None: ...

    def listing(self) -> list[dict[str, Any]]: ...

    def remove(self, image: str) -> None:
        """With the layers that no other image has."""


class Sessions(Protocol):
    """A way into a running job; no kind of cluster has one yet."""

    def exec(self, job_id: str, argv: Sequence[str], stdio: tuple[int, int, int]) -> int:
        """Run a program beside the job's command, with these file descriptors as its input, output
        and errors; return its exit code."""

    def forward(self, job_id: str, port: int) -> AbstractContextManager[int]:
        """Have a port of the job's node on this machine meanwhile; its number here."""
