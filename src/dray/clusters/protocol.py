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

    from dray.job.situation import Allowance, Explanation, QueueView
    from dray.transport.ways import Way
else:
    Protocol = object  # only type checkers ask what fits


class Selection(NamedTuple):
    """Which outputs to bring: those that match a glob, and the newest whole checkpoint; see
    dray.node.checkpoints.selecting. By default, all of them."""

    globs: tuple[str, ...] = ()
    latest_checkpoint: bool = False
    # What the job's checkpoints are called, as this machine knows it: a cluster could name any file
    # as the newest one.
    checkpoint_globs: tuple[str, ...] = ()

    def takes(self) -> Callable[[str], bool]:
        """Return a function that tells whether a path that a cluster offers may be selected."""
        if not self.globs and not self.latest_checkpoint:
            return lambda path: True
        from dray.node.checkpoints.selecting import matcher  # not for a listing

        return matcher(self.globs + self.checkpoint_globs)


class ImageState(NamedTuple):
    """An image on a cluster: ready to run, being converted by a job, or lacking these layers, each
    with the parts (offset, length) that have arrived."""

    ready: bool
    job: str = ""
    machine: str = ""  # as uname tells it
    builders: Sequence[str] = ()  # the programs there that can make one ready
    lacking: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({})


class ImagePart(NamedTuple):
    """A piece of a layer to upload: ``content`` is a gzip of it."""

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
    """A message about a job or an array that has not been sent yet."""

    id: str
    over: bool  # of its end, not of its start
    channels: tuple[str, ...] = ()  # by which it was not sent so far


class Statuses(NamedTuple):
    """Jobs as they are now. ``waiting`` holds those of which only the reason is reported."""

    jobs: dict[str, JobView]
    waiting: Mapping[str, str] = MappingProxyType({})


class Piece(NamedTuple):
    """A piece of a log, and the current length of the whole log."""

    data: bytes
    size: int


class Appended(NamedTuple):
    """What was written to a file behind ``offset``; ``path`` is relative to the job's outputs."""

    path: str
    offset: int
    data: bytes


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

    @property
    def situation(self) -> Situation: ...

    def equipment(self) -> Equipment:
        """Ask the cluster what it has: CPUs, memory and GPUs."""

    def check(self, job: JobSpec) -> None:
        """Raise Refused, with what to change, where the job cannot run here."""

    def plan(self, work: JobSpec | JobArray) -> Plan:
        """Return exactly what ``submit`` does for a job or an array, without doing it."""

    def environment(self) -> Mapping[str, str]:
        """Return the variables of the submitting shell that a job there sees."""

    def plain_image(self) -> str:
        """Return an image for a job that needs no other, or '' where jobs run without one."""

    def partitions(self) -> Sequence[str]:
        """Return the names of its partitions or queues, as far as they are known here, without
        asking the cluster."""

    def last_answer(self) -> float | None:
        """Return when it last answered a command of this machine, or None if unknown."""

    def hang_up(self) -> None:
        """Abort the request that another thread is making to it."""

    def reach(self, seconds: float) -> str:
        """Ask whether it answers, and return why not, or ''. Never prompts the user, and installs
        nothing."""

    def doctor(self) -> list[Finding]:
        """Check everything that a job here depends on."""


class Queue(Protocol):
    """The jobs of a cluster: submits, reports, stops, resumes and removes them."""

    @property
    def may_have_got(self) -> bool:
        """Whether a submission that failed may have left a job there all the same."""

    @property
    def array_size(self) -> int:
        """The largest number of jobs that it accepts in one array."""

    def prepared(self) -> AbstractContextManager[None]:
        """Return a context for preparing a submission. On entry it starts what takes a while, such
        as connecting."""

    def submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        """Bring the code there, then carry out the plan. Repeating it does not queue a job
        twice."""

    def resume(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        """Start another attempt of an ended job, with this description."""

    def status(self, ids: Sequence[str], *, brief: bool = False) -> Statuses:
        """Return the jobs as they are now, in one query; unknown ones are left out. With ``brief``,
        jobs that wait for their first attempt may be reported by their reason alone, so that ten
        thousand of them fit into a few lines."""

    def stop(self, ids: Sequence[str], *, now: bool) -> None:
        """Ask the jobs to end: after a checkpoint, or at once."""

    def ids(self) -> Iterator[str]:
        """Return the ids of all jobs there, for rebuilding the store."""

    def remove(self, ids: Sequence[str]) -> None:
        """Delete the jobs' directories, and code that no other job needs."""

    def unsent(self) -> Sequence[Unsent]:
        """Return the messages that the cluster could not send, as of the last status."""

    def settle(self, message: Unsent) -> None:
        """Tell the cluster that it need not send this message any more."""


class Situation(Protocol):
    """What a cluster tells of its queue and of one's own share of it; asked by people, and of a
    scheduler no more than once in half a minute for everybody."""

    def view(self) -> QueueView:
        """Return everybody's jobs as far as they are shown, free GPUs, and what lies ahead."""

    def explain(self, view: JobView) -> Explanation:
        """Say why a job waits, and what would start it sooner."""

    def allowance(self) -> Allowance:
        """Return what the user may use there, and has used."""

    def description(self, job_id: str) -> Mapping[str, str]:
        """Return what the scheduler itself says of a job, by what was asked, for its admins."""


class JobFiles(Protocol):
    """The files of jobs: what they wrote, and what they begin from."""

    def path(self, job_id: str = "") -> str:
        """Return where the job's directory is, or that of all jobs, for people to read."""

    def read_log(self, job_id: str, attempt: int, offset: int = 0, rank: int = 0) -> Piece:
        """Read a piece of a rank's raw output from ``offset`` on; empty at the end."""

    def log_times(self, job_id: str, attempt: int) -> Sequence[tuple[float, int]]:
        """Return, in order, at which time the first rank's output had which length; see
        dray.node.jobs.log_times."""

    def curve(self, job_id: str, name: str = "") -> Series:
        """Return the metric of this name over all attempts; the job's main one where it has none,
        or none is named."""

    def pull(
        self, job_id: str, landing: Landing, progress: Progress, wanted: Selection
    ) -> tuple[int, int]:
        """Bring new and changed outputs among the selected ones. Returns how many files were
        copied, and how many there are."""

    def appended(
        self, job_id: str, globs: Sequence[str], known: Mapping[str, int]
    ) -> Sequence[Appended]:
        """Read what was written to the outputs that match since they had these lengths, by path.
        Where that is much, a part of it; nothing once all is known."""

    def sweep(self, sweep_id: str) -> Mapping[str, Any]:
        """Return all that the cluster has of a sweep, unchecked (records.StudyFiles). Raises
        NotFound where it has none of that id."""

    def tell_others(self, sweep_id: str, others: Mapping[str, Any]) -> None:
        """Tell the cluster how the trials of a sweep do on other ones (records.OthersRecord)."""

    def close_sweep(self, sweep_id: str) -> None:
        """Let no further trial of a sweep start."""

    def checkpoint(self, job_id: str, name: str, rules: Mapping[str, Any]) -> Found:
        """Find the checkpoint of this name, or the newest whole one. ``rules`` apply where the job
        has none of its own. Raises Refused where there is no such checkpoint."""

    def fetch(self, job_id: str, found: Found, landing: Landing, progress: Progress) -> None:
        """Bring all files of a checkpoint, each of them whole."""

    def bring(self, given: Snapshot, progress: Progress) -> None:
        """Upload the files that a job begins from, as far as they are not there yet."""


class ImageStore(Protocol):
    """The images of one cluster: see dray.node.containers.images."""

    conversion: Conversion

    def look(self, image: str, layers: Sequence[str]) -> ImageState: ...

    def announce(self, record: Mapping[str, Any]) -> None:
        """Register an image, before its layers are sent."""

    def take(self, part: ImagePart) -> None: ...

    def listing(self) -> list[dict[str, Any]]: ...

    def remove(self, image: str) -> None:
        """Remove an image, and the layers that no other image has."""


class Entrance(NamedTuple):
    """Which way leads into a cluster's running jobs, as far as can be told without one; '' where
    there is none, with the reason."""

    way: str
    reason: str = ""


class Sessions(Protocol):
    """The way into a running job."""

    def entrance(self) -> Entrance: ...

    def way(self, job_id: str, rank: int) -> Way:
        """Return the way to a rank's command, which can be opened more than once. Raises Refused,
        with why, where it can tell that the job does not run."""
