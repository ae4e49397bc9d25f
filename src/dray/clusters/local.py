"""This machine as a cluster: a queue without a daemon, a keeper for each job."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dray import background
from dray.clusters.protocol import Found, ImagePart, ImageState, Selection, Unsent
from dray.config.loading import inherited_environment, way_out
from dray.errors import ClusterError, ImageMissing, NotFound, Refused, StorageError
from dray.job.model import (
    Capabilities,
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
from dray.job.quantities import show_size
from dray.landing import Landing
from dray.node.code.pack_store import prune
from dray.node.code.worktree import rescue_outputs
from dray.node.containers.images import Images
from dray.node.formats import faults, files, shapes
from dray.node.jobs import staging
from dray.node.jobs.arrays import link_snapshot, rewrite
from dray.node.jobs.jobdir import ENDED, JobDir, hung, status, unreadable
from dray.node.notifications import notices
from dray.node.processes import process
from dray.node.schedulers.queue import Queue, shortage
from dray.programs import shipping
from dray.programs.local import count_gpus, keeper_command, start_keeper
from dray.reporter import Progress
from dray.snapshot import write_snapshot
from dray.transport.tree import copy_files, copy_tree, described

LOG_PIECE = 1 << 20
LITTLE_SPACE = 1 << 30


# -- pure ---------------------------------------------------------------------------------------


def refusal(job: JobSpec, have: Capabilities) -> str:
    """Why the job can never run here, or nothing."""
    wanted = job.resources
    if wanted.gpu_type:
        return "GPUs are not asked for by type on this machine: write --gpus N"
    if wanted.gpus > have.gpus:
        return (
            f"{wanted.gpus:g} GPUs asked for, and this machine has {have.gpus}"
            if have.gpus
            else f"{wanted.gpus:g} GPUs asked for, and none was found on this machine"
        )
    if wanted.cpus > have.cpus:
        return f"{wanted.cpus} CPUs asked for, and this machine has {have.cpus}"
    if wanted.memory and have.memory and wanted.memory > have.memory:
        return (
            f"{show_size(wanted.memory)} of memory asked for, and this machine has "
            f"{show_size(have.memory)}"
        )
    return ""


def spread_refusal(job: JobSpec) -> str:
    """Why the command cannot be spread here, or nothing."""
    if job.resources.nodes > 1:
        return f"{job.resources.nodes} nodes asked for, and this machine is one"
    if job.launch != "none":
        return f"a command is started once on this machine, not by {job.launch}"
    return ""


def waits(view: JobView) -> bool:
    return view.state is JobState.QUEUED and not view.reason


def place_in(line: Sequence[str], place: int, shortage: str) -> str:
    """Why the job at this place of the queue does not run yet, as far as that can be told."""
    if place == 0:
        return f"next in the queue, {shortage}" if shortage else ""
    behind = f"place {place + 1} in the queue, behind {line[place - 1]}"
    return f"{behind}; {line[0]} is next, {shortage}" if shortage else behind


def make_plan(job: JobSpec, cluster: str, root: str) -> Plan:
    folder = f"{root}/jobs/{job.id}"
    return Plan(
        job=job,
        cluster=cluster,
        files={f"{folder}/job.json": files.encode(job.to_dict()).decode()},
        command=tuple(keeper_command(f"{root}/node/{shipping.name()}", folder)),
        notes=tuple(f"secret {name}: its value goes to secrets.json" for name in job.secrets),
    )


# -- acting -------------------------------------------------------------------------------------


class LocalCluster:
    kind = "local"
    is_here = True
    may_have_got = True
    may_ask = True  # nobody has to log in here
    python = sys.executable
    array_size = 1000

    def __init__(self, name: str, settings: Mapping[str, Any], data: Path, _: Path) -> None:
        self.name = name
        self.settings = settings
        root = settings.get("root")
        self.root = expand(root) if root else data / name
        self.queue = Queue(str(self.root))
        self.images = LocalImages(str(self.root))

    def _dir(self, job_id: str) -> JobDir:
        self._require_own_root()
        return JobDir(str(self.root / "jobs" / job_id))

    def capabilities(self, *, gpus: bool = True) -> Capabilities:
        declared = self.settings.get("gpus")
        return Capabilities(
            cpus=self.settings.get("cpus") or os.cpu_count() or 1,
            memory=self.settings.get("memory")
            or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            gpus=declared if declared is not None else count_gpus() if gpus else 0,
            gpu_fractions=True,
        )

    def check(self, job: JobSpec) -> None:
        reason = spread_refusal(job)
        if reason:
            raise Refused(
                f"{self.name}: {reason}",
                hint="Leave out --nodes and --launch, or choose another cluster: --on CLUSTER. "
                "Several GPUs here: torchrun --standalone in front of the command.",
            )
        reason = refusal(job, self.capabilities(gpus=job.resources.gpus > 0))
        if reason:
            raise Refused(
                f"{self.name}: {reason}",
                hint=f"Ask for less, or declare what there is under [clusters.{self.name}] in "
                "dray.toml.",
            )
        if job.container is None:  # else it is the image's
            check_command(job)

    def plan(self, work: JobSpec | JobArray) -> Plan:
        if isinstance(work, JobArray):
            return Plan.one_by_one(work, self.name, map(self.plan, work.jobs()))
        return make_plan(work, self.name, str(self.root))

    def environment(self) -> Mapping[str, str]:
        return inherited_environment()

    def prepared(self) -> AbstractContextManager[None]:
        """A job here has the limits and the priority of the process that submits it."""
        background.require_foreground()
        return nullcontext()

    def submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        for one in plan.each or (plan,):
            self._submit(one, secrets, code, progress)

    def _submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        job = plan.job
        self._require_own_root()
        self.images.require(job)
        if code is not None:
            write_snapshot(str(self.root), code, progress)
        faults.reach("run:packs-written")
        job_dir = self._dir(job.id)
        if os.path.lexists(job_dir.job):
            return  # this very job was submitted before, and its answer was lost
        self._prepare(job)
        jobs = str(self.root / "jobs")
        staging.sweep(jobs, files.all_names_in(jobs))
        with staging.New(jobs, job.id, staging.ALIVE) as new:
            for folder in (job_dir.attempts, job_dir.outputs):
                files.make_folder(os.path.join(new.path, os.path.basename(folder)), durable=False)
            link_snapshot(new.path, self._snapshot_of(job))
            self._take_given(job, new.path)
            new.write(contents_of(plan), durable=True)
            with unbroken():
                ticket = self.queue.take_ticket(job.id)
                new.write(secrets.files(), durable=True)
                new.become(job_dir.path)
                files.sync_folder(jobs)
                faults.reach("run:job-committed")
                self._start(plan, job_dir, new.held, ticket)

    def _take_given(self, job: JobSpec, folder: str) -> None:
        """The checkpoint that it begins from goes into its directory."""
        if not job.origin:
            return
        from dray.node.checkpoints import (
            giving,  # which formats there are: not for every command
        )

        with refusing():
            giving.take(str(self.root), job.to_dict(), folder)

    def _prepare(self, job: JobSpec) -> None:
        """What every job here needs: folders, what the machine has, the node program."""
        files.make_folder(str(self.root / "jobs"))
        self.queue.make()
        have = self.capabilities(gpus=job.resources.gpus > 0)
        known = self.queue.read_capacity()
        gpus = have.gpus if job.resources.gpus > 0 else max(have.gpus, known.get("gpus") or 0)
        capacity = {"cpus": have.cpus, "memory": have.memory, "gpus": gpus}
        if capacity != known:
            files.write_json(self.queue.capacity, capacity)
        shipping.install(self.root)

    def _snapshot_of(self, job: JobSpec) -> str | None:
        """A link to it keeps it from being pruned as long as the job is there."""
        return str(self.root / "snapshots" / job.snapshot) if job.snapshot else None

    def _start(self, plan: Plan, job_dir: JobDir, alive: int, ticket: int) -> None:
        try:
            log = job_dir.dray_log
            extra = {**faults.requested(), **way_out()}
            start_keeper(plan.command, alive, ticket, log, extra)
            faults.reach("run:keeper-started")
        except ClusterError:  # killed, maybe, when the keeper was on its own already
            if not has_keeper(job_dir):
                raise
        finally:
            os.close(ticket)

    def glance(self, ids: Sequence[str]) -> tuple[dict[str, JobView], dict[str, str]]:
        """With one reason for all that wait, so that they can share a line."""
        return self._with_reasons(self._look(ids), lambda _, __, shortage: shortage), {}

    def status(self, ids: Sequence[str]) -> dict[str, JobView]:
        return self._with_reasons(self._look(ids), place_in)

    def _with_reasons(
        self, found: dict[str, JobView], tell: Callable[[Sequence[str], int, str], str]
    ) -> dict[str, JobView]:
        """Tell of the jobs that wait what they wait for."""
        if not any(waits(view) for view in found.values()):
            return found
        line = self.queue.in_line()
        shortage = self._shortage(line)
        for place, job_id in enumerate(line):
            if job_id in found and waits(found[job_id]):
                reason = tell(line, place, shortage)
                found[job_id] = replace(found[job_id], reason=reason)
        return found

    def _shortage(self, line: Sequence[str]) -> str:
        """What the next job waits for."""
        wanted = (self._dir(line[0]).description() or {}).get("resources") if line else None
        if not wanted:
            return ""
        return shortage(self.queue.read_capacity(), self.queue.holders(), wanted)

    def _look(self, ids: Sequence[str]) -> dict[str, JobView]:
        self._require_own_root()
        jobs = str(self.root / "jobs")
        staging.sweep(jobs, files.all_names_in(jobs), thoroughly=False)
        found, over = {}, []
        for job_id in ids:
            job_dir = self._dir(job_id)
            try:
                record = self._record(job_dir)
            except Exception as error:  # the files of one job must not hide all others
                record = unreadable(job_id, "lost", error)
            if record is not None:
                found[job_id] = JobView.from_dict(record, self.name, job_id)
                if record["state"] in ENDED and not record.get("unreadable"):
                    over.append(record)
        notices.look(str(self.root), over, notices.LAPTOP)
        return found

    def hang_up(self) -> None:
        """Nothing hangs here."""

    def unsent(self) -> Sequence[Unsent]:
        return ()  # this machine has tried it already

    def settle(self, message: Unsent) -> None:
        notices.settle(str(self.root), message.id, message.over)

    def _record(self, job_dir: JobDir) -> dict[str, Any] | None:
        record = status(job_dir)
        if record and record["state"] == "running":
            silence = hung(job_dir)
            record["reason"] = record["reason"] or (
                f"{silence} (its supervisor may be stopped)" if silence else ""
            )
        return record

    def _require_own_root(self) -> None:
        """What lies in a folder of somebody else's, or one that others can write to, may be
        theirs: it is not read, and no job is run there."""
        problem = foreign(self.root)
        if problem:
            raise Refused(
                f"{self.name}: {self.root} {problem}",
                hint=f"Set root under [clusters.{self.name}] to a folder of your own.",
            )

    def place(self, job_id: str) -> str:
        return self._dir(job_id).path

    def ids(self) -> Iterator[str]:
        self._require_own_root()
        jobs = str(self.root / "jobs")
        names = files.all_names_in(jobs)
        staging.sweep(jobs, names)
        for name in files.visible(names):
            if shapes.is_id(name) and os.path.lexists(os.path.join(jobs, name, "job.json")):
                yield name

    def log(self, job_id: str, attempt: int, offset: int = 0, rank: int = 0) -> bytes:
        path = self._dir(job_id).attempt(attempt).log_of(rank)
        return files.read_piece(path, offset, LOG_PIECE)[1]

    def log_size(self, job_id: str, attempt: int, rank: int = 0) -> int:
        return files.read_piece(self._dir(job_id).attempt(attempt).log_of(rank), 0, 0)[0]

    def log_times(self, job_id: str, attempt: int) -> Sequence[tuple[float, int]]:
        from dray.node.jobs import log_times  # only where times are asked for

        return log_times.read(self._dir(job_id).attempt(attempt).log_times)

    def metrics(self, job_id: str) -> Series:
        from dray.node.metrics.sources import series  # only where a curve is drawn

        job_dir = self._dir(job_id)
        return Series.from_dict(series(job_dir.description() or {}, job_dir))

    def stop(self, ids: Sequence[str], *, now: bool) -> None:
        for job_id in ids:
            self._stop_one(job_id, now)

    def _stop_one(self, job_id: str, now: bool) -> None:
        job_dir = self._dir(job_id)
        files.write_json(job_dir.stop, {"now": now, "time": time.time()})
        pid = job_dir.keeper_pid()
        if pid is None or not job_dir.is_cared_for():
            return
        # Wakes a keeper that waits; a supervisor looks for the request once a second anyway.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def resume(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        job = plan.job
        job_dir = self._dir(job.id)
        if not os.path.lexists(job_dir.job):
            raise NotFound(f"{job_dir.path} is gone: there is nothing to resume")
        self._require_checkpoint(job_dir, job)
        self.images.require(job)
        if code is not None:
            write_snapshot(str(self.root), code, progress)
        self._prepare(job)
        with unbroken():
            alive = self._take_over(job_dir)
            try:
                ticket = self.queue.take_ticket(job.id)
                contents = {**contents_of(plan), **secrets.files()}
                rewrite(job_dir, contents, self._snapshot_of(job))
                files.remove(job_dir.stop)
                files.remove(job_dir.end)
                self._start(plan, job_dir, alive, ticket)
            finally:
                os.close(alive)

    def _require_checkpoint(self, job_dir: JobDir, job: JobSpec) -> None:
        if not job.start_from:
            return
        from dray.node.checkpoints import (  # which formats there are: not for every command
            given,
            origin,
        )

        with refusing():
            rules = given.rules_of(job_dir, job.to_dict())
            origin.require(job_dir.outputs, rules, job.start_from)

    def _take_over(self, job_dir: JobDir) -> int:
        alive = files.open_lock(job_dir.alive)
        for _ in range(50):  # a keeper may be on its way out, or somebody may be looking
            if files.try_lock(alive):
                return alive
            time.sleep(0.02)
        os.close(alive)
        raise ClusterError(f"{job_dir.id} is being run or resumed by another process right now")

    def pull(
        self, job_id: str, landing: Landing, progress: Progress, wanted: Selection
    ) -> tuple[int, int]:
        from dray.node.checkpoints.selecting import (
            chooser,  # which formats there are: not for every command
        )

        job_dir = self._dir(job_id)
        description = job_dir.description()
        if description and not job_dir.is_cared_for():
            # Lost with its supervisor: what it saved last may still lie in the work tree.
            number = (job_dir.numbers() or [0])[-1]
            rescue_outputs(job_dir, number, description["outputs"], folders=True)
        return copy_tree(Path(job_dir.outputs), landing, progress, chooser(job_dir, *wanted[:2]))

    def checkpoint(self, job_id: str, name: str, rules: Mapping[str, Any]) -> Found:
        from dray.node.checkpoints import giving

        job_dir = self._dir(job_id)
        with refusing():
            found = giving.find(job_dir, name, dict(rules))
        top = Path(job_dir.outputs)
        paths = [str(top / path) for path in found.files]
        files_of = tuple(described(top, path, os.stat(path), None) for path in paths)
        return Found(found.path, files_of, tuple(found.remarks))

    def fetch(self, job_id: str, found: Found, landing: Landing, progress: Progress) -> None:
        copy_files(Path(self._dir(job_id).outputs), found.files, landing, progress)

    def bring(self, given: Snapshot, progress: Progress) -> None:
        self._require_own_root()
        write_snapshot(str(self.root), given, progress)

    def remove(self, ids: Sequence[str]) -> None:
        left = []
        for job_id in ids:
            process.send(process.marked_with(job_id), signal.SIGKILL)  # left by a lost supervisor
            left += staging.remove(self._dir(job_id).path)
        prune(str(self.root))
        if left:
            raise StorageError(
                f"{left[0]} could not be removed", hint="Is it another user's? Remove it by hand."
            )

    def last_answer(self) -> float:
        return time.time()

    def partitions(self) -> Sequence[str]:
        return ()

    def reach(self, seconds: float) -> str:  # noqa: ARG002
        return ""

    def doctor(self) -> list[Finding]:
        from dray.clusters import container_findings  # only here
        from dray.node.containers import runtimes

        containers = container_findings.findings(runtimes.facts())
        return [self._writable(), self._locks(), self._space(), *self._machine(), *containers]

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
        """The queue here is nothing but locks."""
        from dray.node.formats import leases

        try:
            ok = leases.try_out(str(self.root))
        except OSError as error:
            return Finding(ok=False, what="locks", detail=str(error))
        kind = leases.mount_of(str(self.root))["kind"]
        advice = f"Set root under [clusters.{self.name}] to a folder on a disk of this machine."
        detail = f"files can{'' if ok else 'not'} be locked ({kind})"
        return Finding(ok=ok, what="locks", detail=detail, advice="" if ok else advice)

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
        have = self.capabilities()
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


class LocalImages:
    """The images of this machine's jobs."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.store = Images(root)

    def require(self, job: JobSpec) -> None:
        image = job.container.image if job.container else ""
        if image.startswith("/") and not os.path.exists(image):
            raise Refused(f"there is no image {image}")
        if image and not image.startswith("/") and self.store.file(image) is None:
            raise ImageMissing(f"the image {image} is not there")

    def look(self, image: str, layers: Sequence[str]) -> ImageState:
        if self.store.file(image) is not None:
            return ImageState(ready=True)
        maker = self._maker(image)
        if maker:
            return ImageState(ready=False, job=maker)
        return ImageState(ready=False, **self.store.needs(list(layers)))

    def _maker(self, image: str) -> str:
        """The job that makes it ready, if one does."""
        job = str((self.store.record(image) or {}).get("job", ""))
        return job if job and self._is_active(job) else ""

    def _is_active(self, job: str) -> bool:
        record = status(JobDir(os.path.join(self.root, "jobs", job)))
        return record is not None and record["state"] in ("queued", "running")

    def announce(self, record: Mapping[str, Any]) -> None:
        if not self._maker(record["id"]):
            self.store.announce(dict(record))

    def take(self, part: ImagePart) -> None:
        files.make_folder(self.store.layer(part.layer))
        path = self.store.part_file(part.layer, part.offset, part.length, part.is_last)
        files.write_bytes(path, part.content, durable=False)

    def listing(self) -> list[dict[str, Any]]:
        records = self.store.records()
        for record in records:
            record["jobs"] = [job for job in record["jobs"] if self._is_active(job)]
        return records

    def remove(self, image: str) -> None:
        maker = self._maker(image)
        if maker or not self.store.remove(image):
            raise Refused(
                f"the image is being made ready by {maker or 'a job'}", hint="Wait for it."
            )


def contents_of(plan: Plan) -> dict[str, bytes]:
    """The plan's files, by their names in the job's directory."""
    return {os.path.basename(path): text.encode() for path, text in plan.files.items()}


def foreign(root: Path) -> str:
    """Why a root cannot be trusted, or nothing. One that is not there is made, and is ours."""
    try:
        about = os.stat(root)
    except OSError:
        return ""
    if about.st_uid != os.getuid():
        return "belongs to another user"
    return "can be written to by others (chmod go-w)" if about.st_mode & 0o022 else ""


def has_keeper(job_dir: JobDir) -> bool:
    """Whether a keeper has taken charge, or does so within a moment."""
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
    """A program that is not there is told before anything is queued."""
    program = job.command[0]
    if "/" in program:
        place = Path(job.project) / job.folder / program
        found = os.access(place, os.X_OK) and place.is_file()
        missing = f"There is no such file: {place}"
        advice = "Make it executable (chmod +x)." if place.is_file() else missing
    else:
        found = shutil.which(program, path=job.env.get("PATH")) is not None
        advice = "Is it installed, and is its environment active?"
    if not found:
        message = f"the command '{program}' cannot be run: not found or not a program"
        raise Refused(message, hint=advice)


@contextmanager
def refusing() -> Iterator[None]:
    """Tell why there is no such checkpoint as the error that a verb raises."""
    from dray.node.checkpoints.origin import NothingToGoOnFrom

    try:
        yield
    except NothingToGoOnFrom as error:
        raise Refused(str(error)) from error


@contextmanager
def unbroken() -> Iterator[None]:
    """Ctrl-C waits for the few milliseconds in which a job is neither here nor there."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
