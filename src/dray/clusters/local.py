"""This machine as a cluster: a queue without a daemon, a keeper for each job."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import MappingProxyType

from dray import background
from dray.clusters.protocol import (
    Appended,
    Conversion,
    Entrance,
    Found,
    ImagePart,
    ImageState,
    Piece,
    Selection,
    Situation,
    Statuses,
    Unsent,
)
from dray.clusters.share_findings import shared_by
from dray.config.loading import inherited_environment, network_variables
from dray.errors import ClusterError, ImageMissing, NotFound, Refused, StorageError
from dray.job.model import (
    Capabilities,
    Equipment,
    Finding,
    JobArray,
    JobSpec,
    JobState,
    JobView,
    Plan,
    Private,
    Series,
    Snapshot,
)
from dray.job.quantities import show_count, show_size
from dray.landing import Incoming, Landing
from dray.node.formats import faults, files
from dray.node.formats.wire import Refusal
from dray.node.jobs import arrays, staging
from dray.node.jobs.arrays import link_snapshot, rewrite
from dray.node.jobs.jobdir import ENDED, JobDir
from dray.node.jobs.states import unreadable
from dray.node.notifications.notices import LAPTOP
from dray.node.processes import process
from dray.node.root.root import Root
from dray.node.schedulers.queue import Unusable, place_in, queue_of
from dray.programs.local import count_gpus, keeper_command, start_keeper
from dray.records import replace
from dray.reporter import Progress
from dray.transport.tree import copy_changed, copy_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dray.node.root.images import RootImages
    from dray.transport.ways import Way

LITTLE_SPACE = 1 << 30
FAMILIES = {"ImageMissing": ImageMissing, "NotFound": NotFound}  # of what the root refuses


# -- pure ---------------------------------------------------------------------------------------


def refusal(job: JobSpec, have: Equipment) -> str:
    """Return why the job can never run here, or ''."""
    wanted = job.resources
    if wanted.gpu_type:
        return "GPUs are not asked for by type on this machine: write --gpus N"
    if wanted.gpus > have.gpus:
        return (
            f"{show_count(wanted.gpus, 'GPU')} asked for, and this machine has {have.gpus}"
            if have.gpus
            else f"{show_count(wanted.gpus, 'GPU')} asked for, and none was found on this machine"
        )
    if wanted.cpus > have.cpus:
        return f"{show_count(wanted.cpus, 'CPU')} asked for, and this machine has {have.cpus}"
    if wanted.memory and have.memory and wanted.memory > have.memory:
        return (
            f"{show_size(wanted.memory)} of memory asked for, and this machine has "
            f"{show_size(have.memory)}"
        )
    return ""


def spread_refusal(job: JobSpec) -> str:
    """Return why the command cannot be spread here, or ''."""
    if job.resources.nodes > 1:
        return f"{job.resources.nodes} nodes asked for, and this machine is one"
    if job.launch != "none":
        return f"a command is started once on this machine, not by {job.launch}"
    return ""


def waits(view: JobView) -> bool:
    return view.state is JobState.QUEUED and not view.reason


def shared_reason(line: Sequence[str], place: int, shortage: str) -> str:
    """Say why a job waits, in words that it shares with those beside it. What the next one lacks is
    its own, and its array's: who is behind it may ask for less."""
    first, (mine, theirs) = line[0], map(arrays.split, (line[place], line[0]))
    if place == 0 or (mine and theirs and mine[0] == theirs[0]):
        return shortage
    return f"behind {first} in the queue"


def make_plan(job: JobSpec, cluster: str, root: str, settings: Mapping[str, Any]) -> Plan:
    from dray.programs import shipping  # only for a submission

    folder = f"{root}/jobs/{job.id}"
    description = {**job.to_dict(), **shared_by(settings)}
    return Plan(
        job=job,
        cluster=cluster,
        files={f"{folder}/job.json": files.encode(description).decode()},
        command=tuple(keeper_command(f"{root}/node/{shipping.name()}", folder)),
        notes=tuple(f"secret {name}: its value goes to secrets.json" for name in job.secrets),
    )


# -- acting -------------------------------------------------------------------------------------


class LocalCluster:
    kind = "local"
    capabilities = Capabilities(
        is_local=True, gpu_fractions=True, limits_at_once=True, awaits_jobs=True
    )
    may_ask = True  # nobody has to log in here

    def __init__(self, name: str, settings: Mapping[str, Any], data: Path, _: Path) -> None:
        self.name = name
        self.settings = settings
        root = self.root_here(name, settings, data)
        self.root = expand(root) if isinstance(root, str) else root
        self.images = LocalImages(str(self.root), settings)
        self.files = LocalFiles(self)
        self.queue = LocalQueue(self)
        self.sessions = LocalSessions(self)

    @staticmethod
    def root_here(name: str, settings: Mapping[str, Any], data: Path) -> str | Path:
        return settings.get("root") or data / name

    def checked_root(self) -> Root:
        """Return the root if it can be trusted. A folder that belongs to another user, or that
        others can write to, may hold their files: it is not read, and no job runs there."""
        problem = foreign(self.root)
        if problem:
            raise Refused(
                f"{self.name}: {self.root} {problem}",
                hint=f"Set root under [clusters.{self.name}] to a folder of your own.",
            )
        return Root(str(self.root))

    def equipment(self, *, search: bool = True) -> Equipment:
        """Return what this machine has. Without ``search``, only declared GPUs are counted."""
        declared = self.settings.get("gpus")
        return Equipment(
            cpus=self.settings.get("cpus") or os.cpu_count() or 1,
            memory=self.settings.get("memory")
            or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            gpus=declared if declared is not None else count_gpus() if search else 0,
        )

    def check(self, job: JobSpec) -> None:
        reason = spread_refusal(job)
        if reason:
            raise Refused(
                f"{self.name}: {reason}",
                hint="Leave out --nodes and --launch, or choose another cluster: --on CLUSTER. "
                "Several GPUs here: torchrun --standalone in front of the command.",
            )
        reason = refusal(job, self.equipment(search=job.resources.gpus > 0))
        if reason:
            raise Refused(
                f"{self.name}: {reason}",
                hint=f"Ask for less, or declare what there is under [clusters.{self.name}] in "
                "your config.toml.",
            )
        if job.container is None:  # else it is the image's
            check_command(job)

    def plan(self, work: JobSpec | JobArray) -> Plan:
        if isinstance(work, JobArray):
            return Plan.one_by_one(work, self.name, map(self.plan, work.jobs()))
        return make_plan(work, self.name, str(self.root), self.settings)

    def hang_up(self) -> None:
        """Do nothing: no request to this machine can hang."""

    def plain_image(self) -> str:
        return ""

    def environment(self) -> Mapping[str, str]:
        return inherited_environment()

    def last_answer(self) -> float:
        return time.time()

    def partitions(self) -> Sequence[str]:
        return ()

    @property
    def situation(self) -> Situation:
        from dray.clusters.queues.machine import LocalSituation  # not for a listing

        self.checked_root()
        return LocalSituation(str(self.root), self.settings.get("share"))

    def reach(self, seconds: float) -> str:  # noqa: ARG002
        return ""

    def doctor(self) -> list[Finding]:
        from dray.clusters import container_findings  # only here
        from dray.node.containers import runtimes

        containers = container_findings.findings(runtimes.facts())
        place = [self._writable(), self._locks(), self._space(), *self._share()]
        return [*place, *self._machine(), *containers]

    def _writable(self) -> Finding:
        try:
            files.make_folder(str(self.root))
            probe = self.root / f".probe-{os.getpid()}"
            files.write_bytes(str(probe), b"")
            os.link(probe, f"{probe}-link")
            for path in (probe, Path(f"{probe}-link")):
                path.unlink()
        except OSError as error:
            advice = f"Set root under [clusters.{self.name}] to a folder you can write to."
            return Finding(ok=False, what="root", detail=f"{self.root}: {error}", advice=advice)
        return Finding(ok=True, what="root", detail=f"{self.root} can be written to")

    def _locks(self) -> Finding:
        """Check that files can be locked: the queue here is built on locks alone."""
        from dray.node.formats import leases

        try:
            ok = leases.locks_work(str(self.root))
        except OSError as error:
            return Finding(ok=False, what="locks", detail=str(error))
        kind = leases.mount_of(str(self.root))["kind"]
        advice = f"Set root under [clusters.{self.name}] to a folder on a disk of this machine."
        detail = f"files can{'' if ok else 'not'} be locked ({kind})"
        return Finding(ok=ok, what="locks", detail=detail, advice="" if ok else advice)

    def _share(self) -> list[Finding]:
        share = self.settings.get("share")
        if not share:
            return []
        from dray.clusters import share_findings  # only here
        from dray.node.schedulers import sharing

        return share_findings.findings(share, sharing.facts(share))

    def _space(self) -> Finding:
        try:
            usage = os.statvfs(self.root)
        except OSError as error:
            return Finding(ok=False, what="disk", detail=str(error))
        free = usage.f_bavail * usage.f_frsize
        return Finding(
            ok=free > LITTLE_SPACE,
            what="disk",
            detail=f"{show_size(free)} free",
            advice="" if free > LITTLE_SPACE else "Free some space; dray rm removes old jobs.",
        )

    def _machine(self) -> list[Finding]:
        have = self.equipment()
        declared = "declared" if self.settings.get("gpus") is not None else "found with nvidia-smi"
        memory = show_size(have.memory or 0)
        return [
            Finding(ok=True, what="machine", detail=f"{have.cpus} CPUs, {memory} of memory"),
            Finding(ok=True, what="GPUs", detail=f"{have.gpus} {declared}"),
            Finding(
                ok=os.path.isdir("/proc/self"),
                what="processes",
                detail="/proc is there",
                advice="" if os.path.isdir("/proc/self") else "The local cluster needs Linux.",
            ),
        ]


class LocalSessions:
    """The way into a job of this machine: straight to its socket."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def entrance(self) -> Entrance:
        """Make a folder as a job does for its socket."""
        from dray.node.sessions import door  # only here

        try:
            path, lock = door.make_folder()
            os.rmdir(path)
            os.close(lock)
        except OSError as error:
            return Entrance("", f"there is no place for a socket: {error}")
        return Entrance("a socket of this machine")

    def way(self, job_id: str, rank: int) -> Way:
        from dray.node.sessions.entering import find_door  # only here
        from dray.transport.ways import SocketWay

        with refusing():
            door = find_door(self.cluster.checked_root().job(job_id), rank)
        return SocketWay(door["socket"])


class LocalQueue:
    """The jobs of this machine: a line of tickets, and a keeper for each job."""

    may_have_got = True
    array_size = 1000

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.root = cluster.root
        shared = shared_by(cluster.settings)
        self.queue = queue_of(str(cluster.root), shared.get("share"), shared.get("order"))
        self.images = cluster.images

    @property
    def _files(self) -> Root:
        return self.cluster.checked_root()

    def prepared(self) -> AbstractContextManager[None]:
        """Require the foreground, as a job here inherits the limits and the priority of the process
        that submits it."""
        background.require_foreground()
        return nullcontext()

    def submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        with self._begun_sweep(plan):
            for one in plan.each or (plan,):
                self._submit(one, secrets, code, progress)

    @contextmanager
    def _begun_sweep(self, plan: Plan) -> Iterator[None]:
        """Write down the sweep that the jobs are trials of, if they are; forget them if none could
        be submitted."""
        if not plan.study:
            yield
            return
        study: Any = plan.study
        part: Any = plan.part
        with refusing():
            self._files.begin_sweep(study, part)
        try:
            yield
        except BaseException:
            self._files.withdraw_sweep(study["id"], part)
            raise

    def _submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        job = plan.job
        self.cluster.checked_root()
        self.images.require(job)
        bring(str(self.root), code, progress)
        faults.reach("run:packs-written")
        job_dir = self._files.job(job.id)
        if os.path.lexists(job_dir.job):
            return  # this very job was submitted before, and its answer was lost
        self._prepare(job)
        self._files.sweep("jobs")
        jobs = str(self.root / "jobs")
        with staging.New(jobs, job.id, staging.ALIVE) as new:
            for folder in (job_dir.attempts, job_dir.outputs):
                files.make_folder(os.path.join(new.path, os.path.basename(folder)), durable=False)
            link_snapshot(new.path, self._files.snapshot(job.snapshot))
            if job.origin or job.inputs:
                with refusing():
                    self._files.give(job.to_dict(), new.path)
            new.write(contents_of(plan), durable=True)
            with holding_signals():
                ticket = self.queue.take_ticket(job.id, job.to_dict()["resources"])
                new.write(secrets.files(), durable=True)
                new.become(job_dir.path)
                files.sync_folder(jobs)
                faults.reach("run:job-committed")
                self._start(plan, job_dir, new.held, ticket)

    def _prepare(self, job: JobSpec) -> None:
        """Make what every job here needs: folders, the record of what the machine has, the node
        program."""
        from dray.programs import shipping

        files.make_folder(str(self.root / "jobs"))
        try:
            self.queue.make()
        except Unusable as error:
            raise Refused(f"{self.cluster.name}: {error}") from error
        have = self.cluster.equipment(search=job.resources.gpus > 0)
        known = self.queue.read_capacity()
        gpus = have.gpus if job.resources.gpus > 0 else max(have.gpus, known.get("gpus") or 0)
        capacity = {"cpus": have.cpus, "memory": have.memory, "gpus": gpus}
        if capacity != known:
            files.write_json(self.queue.capacity, capacity)
        shipping.install(self.root)

    def _start(self, plan: Plan, job_dir: JobDir, alive: int, ticket: int) -> None:
        try:
            log = job_dir.dray_log
            extra = {**faults.requested(), **network_variables()}
            start_keeper(plan.command, alive, ticket, log, extra)
            faults.reach("run:keeper-started")
        except ClusterError:  # killed, maybe, when the keeper was on its own already
            if not has_keeper(job_dir):
                raise
        finally:
            os.close(ticket)

    def status(self, ids: Sequence[str], *, brief: bool = False) -> Statuses:
        """Return the jobs as they are now. With ``brief``, all that wait have the same reason, so
        that they can share a line."""
        tell = shared_reason if brief else place_in
        return Statuses(self._with_reasons(self._look(ids), tell))

    def _with_reasons(
        self, found: dict[str, JobView], tell: Callable[[Sequence[str], int, str], str]
    ) -> dict[str, JobView]:
        """Add to each waiting job what it waits for."""
        if not any(waits(view) for view in found.values()):
            return found
        try:
            line, shortage = self.queue.waiting()
        except OSError:  # whoever made the folder that accounts share has closed it
            return found
        for place, job_id in enumerate(line):
            if job_id in found and waits(found[job_id]):
                reason = tell(line, place, shortage)
                found[job_id] = replace(found[job_id], reason=reason)
        return self._with_held(found)

    def _with_held(self, found: dict[str, JobView]) -> dict[str, JobView]:
        """Add to each trial that only waits for others of its sweep that it does."""
        few = [one for one in found.values() if waits(one) and one.spec.sweep.get("at_once")]
        if few:
            from dray.node.schedulers.slots import Held  # not for every listing

            held = Held(str(self.root))
            found.update(
                (one.id, replace(one, reason=held.why(one.id, one.spec.sweep))) for one in few
            )
        return found

    def _look(self, ids: Sequence[str]) -> dict[str, JobView]:
        root = self._files
        root.sweep("jobs", thoroughly=False)
        found, over = {}, []
        for job_id in ids:
            try:
                record = root.status(job_id)
            except Exception as error:  # the files of one job must not hide all others
                record = unreadable(job_id, "lost", error)
            if record is not None:
                found[job_id] = JobView.from_dict(record, self.cluster.name, job_id)
                if record["state"] in ENDED and not record.get("unreadable"):
                    over.append(record)
        root.unsent(over, LAPTOP)
        return found

    def unsent(self) -> Sequence[Unsent]:
        return ()  # this machine has tried it already

    def settle(self, message: Unsent) -> None:
        self._files.settle([message.id], message.over)

    def ids(self) -> Iterator[str]:
        yield from self._files.ids()

    def stop(self, ids: Sequence[str], *, now: bool) -> None:
        for job_id in ids:
            self._stop_one(job_id, now)

    def _stop_one(self, job_id: str, now: bool) -> None:
        job_dir = self._files.job(job_id)
        files.write_json(job_dir.stop, {"now": now, "time": time.time()})
        pid = job_dir.keeper_pid()
        if pid is None or not job_dir.is_supervised():
            return
        # Wakes a keeper that waits; a supervisor looks for the request once a second anyway.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def resume(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        job = plan.job
        job_dir = self._files.job(job.id)
        if not os.path.lexists(job_dir.job):
            raise NotFound(f"{job_dir.path} is gone: there is nothing to resume")
        with refusing():
            self._files.require_checkpoint(job.id, job.start_from, job.to_dict())
        self.images.require(job)
        bring(str(self.root), code, progress)
        self._prepare(job)
        contents = {**contents_of(plan), **secrets.files()}
        with holding_signals():
            alive = self._take_over(job_dir)
            try:
                ticket = self.queue.take_ticket(job.id, job.to_dict()["resources"])
                rewrite(job_dir, contents, self._files.snapshot(job.snapshot))
                files.remove(job_dir.stop)
                files.remove(job_dir.end)
                self._start(plan, job_dir, alive, ticket)
            finally:
                os.close(alive)

    def _take_over(self, job_dir: JobDir) -> int:
        alive = files.open_lock(job_dir.alive)
        for _ in range(50):  # a keeper may be on its way out, or somebody may be looking
            if files.try_lock(alive):
                return alive
            time.sleep(0.02)
        os.close(alive)
        raise ClusterError(f"{job_dir.id} is being run or resumed by another process right now")

    def remove(self, ids: Sequence[str]) -> None:
        root = self._files
        for job_id in ids:
            process.send(process.marked_with(job_id), signal.SIGKILL)  # left by a lost supervisor
        left = root.remove(ids)
        if left:
            raise StorageError(
                f"{left[0]} could not be removed", hint="Is it another user's? Remove it by hand."
            )


class LocalFiles:
    """The files of this machine's jobs."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    @property
    def _files(self) -> Root:
        return self.cluster.checked_root()

    def path(self, job_id: str = "") -> str:
        return str(Path(self._files.path, "jobs", job_id))  # without a slash at its end

    def read_log(self, job_id: str, attempt: int, offset: int = 0, rank: int = 0) -> Piece:
        size, data = self._files.read_log(job_id, attempt, offset, rank)
        return Piece(data, size)

    def log_times(self, job_id: str, attempt: int) -> Sequence[tuple[float, int]]:
        return self._files.log_times(job_id, attempt)

    def curve(self, job_id: str, name: str = "") -> Series:
        return Series.from_dict(self._files.curve(job_id, name))

    def pull(
        self, job_id: str, landing: Landing, progress: Progress, wanted: Selection
    ) -> tuple[int, int]:
        root = self._files
        root.rescue_outputs(job_id)  # of a job that was lost with its supervisor
        with refusing():
            found = root.list_outputs(job_id, *wanted[:2])
            top = Path(root.outputs(job_id))
        return copy_changed(top, [Incoming(**one) for one in found], landing, progress)

    def appended(
        self, job_id: str, globs: Sequence[str], known: Mapping[str, int]
    ) -> Sequence[Appended]:
        with refusing():
            parts, pieces = self._files.appended_outputs(job_id, globs, dict(known))
        return [
            Appended(one["path"], one["offset"], piece)
            for one, piece in zip(parts, pieces, strict=True)
        ]

    def sweep(self, sweep_id: str) -> Mapping[str, Any]:
        with refusing():
            return self._files.sweep_files(sweep_id)

    def tell_others(self, sweep_id: str, others: Mapping[str, Any]) -> None:
        with refusing():
            self._files.hear_of_others(sweep_id, dict(others))

    def close_sweep(self, sweep_id: str) -> None:
        with refusing():
            self._files.close_sweep(sweep_id)

    def checkpoint(self, job_id: str, name: str, rules: Mapping[str, Any]) -> Found:
        root = self._files
        told: Any = dict(rules)
        with refusing():
            found = root.checkpoint(job_id, name, told)
        top = root.outputs(job_id)
        return Found(
            found.path, tuple(followed(top, one) for one in found.files), tuple(found.remarks)
        )

    def fetch(self, job_id: str, found: Found, landing: Landing, progress: Progress) -> None:
        with refusing():
            top = Path(self._files.outputs(job_id))
        copy_files(top, found.files, landing, progress)

    def bring(self, given: Snapshot, progress: Progress) -> None:
        bring(self._files.path, given, progress)


class LocalImages:
    """The images of this machine's jobs."""

    def __init__(self, root: str, settings: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.root = root
        self.conversion = Conversion.of(settings, sys.executable)

    @property
    def _images(self) -> RootImages:
        from dray.node.root.images import RootImages  # not for a listing

        return RootImages(self.root, Root(self.root).active)

    def require(self, job: JobSpec) -> None:
        if job.container is None:
            return
        with refusing():
            if self._images.awaited(job.container.image):
                raise ImageMissing(f"the image {job.container.image} is not ready")

    def look(self, image: str, layers: Sequence[str]) -> ImageState:
        return ImageState(**self._images.look(image, list(layers)))

    def announce(self, record: Mapping[str, Any]) -> None:
        told: Any = dict(record)
        self._images.announce(told)

    def take(self, part: ImagePart) -> None:
        path = self._images.part(part.layer, part.offset, part.length, part.is_last)
        files.write_bytes(path, part.content, durable=False)

    def listing(self) -> list[dict[str, Any]]:
        return [dict(one) for one in self._images.listing()]

    def remove(self, image: str) -> None:
        with refusing():
            self._images.remove(image)


def bring(root: str, code: Snapshot | None, progress: Progress) -> None:
    """Write what a job needs of this machine's files below the root."""
    if code is not None:
        from dray.snapshot import write_snapshot  # only for a submission

        write_snapshot(root, code, progress)


def followed(top: str, path: str) -> Incoming:
    """Describe a file of a checkpoint; links are followed, as they are known to stay within the
    outputs."""
    status = os.stat(os.path.join(top, path))
    return Incoming(path, status.st_size, status.st_mtime_ns, status.st_mode)


def contents_of(plan: Plan) -> dict[str, bytes]:
    """Return the plan's files, by their names in the job's directory."""
    return {os.path.basename(path): text.encode() for path, text in plan.files.items()}


def foreign(root: Path) -> str:
    """Return why a root cannot be trusted, or ''. One that does not exist yet is made by us."""
    try:
        about = os.stat(root)
    except OSError:
        return ""
    if about.st_uid != os.getuid():
        return "belongs to another user"
    return "can be written to by others (chmod go-w)" if about.st_mode & 0o022 else ""


def has_keeper(job_dir: JobDir) -> bool:
    """Return whether a keeper has taken charge, waiting a moment for it."""
    for _ in range(50):
        pid = job_dir.keeper_pid()
        if pid is not None and os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.02)
    return False


def expand(root: str) -> Path:
    path = Path(os.path.expandvars(root)).expanduser()
    if "$" in str(path):
        raise ClusterError(f"the root '{root}' names a variable that is not set")
    return path.absolute()


def check_command(job: JobSpec) -> None:
    """Raise Refused if the job's program does not exist, before anything is queued."""
    program = job.command[0]
    if "/" in program:
        place = Path(job.project) / job.folder / program
        found = os.access(place, os.X_OK) and place.is_file()
        missing = f"There is no such file: {place}"
        advice = "Make it executable (chmod +x)." if place.is_file() else missing
    else:
        import shutil

        found = shutil.which(program, path=job.env.get("PATH")) is not None
        advice = "Is it installed, and is its environment active?"
    if not found:
        message = f"the command '{program}' cannot be run: not found or not a program"
        raise Refused(message, hint=advice)


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what the root refuses into the error that a verb raises."""
    try:
        yield
    except Refusal as error:
        raise FAMILIES.get(error.family, Refused)(str(error)) from error
    except Exception as error:
        from dray.node.checkpoints.origin import NothingToGoOnFrom  # with all its formats

        if not isinstance(error, NothingToGoOnFrom):
            raise
        raise Refused(str(error)) from error


@contextmanager
def holding_signals() -> Iterator[None]:
    """Hold back Ctrl-C for the few milliseconds in which a job is neither queued nor gone."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
