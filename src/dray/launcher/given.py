"""The checkpoint of another run that a new job begins from, on the laptop's side: finds the one
that is meant, and freezes it to be sent. dray.node.checkpoints.given puts it into the job's
directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from dray.clusters.protocol import Cluster, Found
from dray.errors import NotFound, Refused
from dray.job.model import JobSpec, Resume, Snapshot
from dray.landing import Landing
from dray.node.checkpoints import giving, newest, resuming
from dray.node.checkpoints.given import place_for
from dray.node.checkpoints.resuming import flag_value
from dray.node.code.packs import CHUNK, hash_of, new_hash
from dray.records import NamedTuple, asdict, replace
from dray.reporter import Progress, Reporter

if TYPE_CHECKING:
    from dray.node.formats.records import Rules


class OfJob(NamedTuple):
    """A checkpoint of a job; "" is its newest whole one."""

    job: str
    name: str


def read(reference: str, find_job: Callable[[str], str]) -> OfJob | Path:
    """Read what --from means: JOB, JOB:CHECKPOINT or a path. A job takes precedence over a path of
    the same name, as the folder of a pulled job has it."""
    path = Path(reference).expanduser()
    job, _, name = reference.partition(":")
    if "/" in job or job.startswith(("~", ".")):
        return require_path(path)
    try:
        return OfJob(find_job(job), name)
    except NotFound as error:
        if os.path.lexists(path):
            return require_path(path)
        raise NotFound(
            f"--from {reference}: {error.message} Nor is there such a file here.",
            hint="Name a job, JOB:CHECKPOINT, or the path of a checkpoint on this machine.",
        ) from error


def require_path(path: Path) -> Path:
    if not path.exists():
        raise NotFound(f"--from {path}: there is no such file or folder")
    return path.absolute()


def require_a_way(job: JobSpec) -> None:
    """Refuse where the recipe cannot start its trainer from a checkpoint."""
    if job.recipe and not job.resume.checkpoint:
        why = f" ({'; '.join(job.notes)})" if job.notes else ""
        raise Refused(f"the recipe '{job.recipe}' cannot begin from a checkpoint here{why}")


def notes_for(job: JobSpec) -> tuple[str, ...]:
    """Return notes for a command that has to look for the checkpoint by itself, or that may do less
    than it seems."""
    resume, found = job.resume, []
    if not resume.args and not resume.begin_args:
        found.append(
            "the checkpoint to begin from is only in $DRAY_CHECKPOINT: the command has to read it"
        )
    rule = resume.total or {}
    counts_on = resume.number and not resume.anew and not rule.get("rest")
    if counts_on and rule.get("flag") and flag_value(job.command, rule["flag"]) is None:
        found.append(
            f"without {rule['flag']}, the iterations of the run that it begins from may count among"
            " its own"
        )
    return tuple(found)


def place_of(path: str, resume: Resume, otherwise: str) -> str:
    """Return where the checkpoint belongs among a run's outputs: the end of its path that the job's
    own pattern matches, else ``otherwise``, which is '' where its place is not known."""
    found = place_for(path, resume.checkpoint)
    if not found and not otherwise and resuming.needs_place(rules_of(resume)):
        raise Refused(
            f"--from {path}: the trainer finds a checkpoint only by its place among its outputs, "
            f"and {resume.checkpoint} does not find this one",
            hint="Name it with its folders, as in a folder that dray pull has made.",
        )
    return found or otherwise or path.rpartition("/")[2]


def rules_of(resume: Resume) -> Rules:
    """Return the rules as the node side reads them."""
    return cast("Rules", asdict(resume))


class Frozen(NamedTuple):
    """Files to send, and the checkpoint's path among them; ``told`` is its name for people."""

    path: str
    files: Snapshot
    told: str
    remarks: tuple[str, ...] = ()


def freeze_path(path: Path, resume: Resume, progress: Progress) -> Frozen:
    """Freeze a checkpoint of this machine; in a folder with a run's outputs, the newest whole
    one."""
    remarks: tuple[str, ...] = ()
    rules, given = rules_of(resume), path
    if path.is_dir() and (found := newest.candidates(str(path), rules)):
        whole = [one for one in found if newest.is_valid(one, found, rules)]
        if not whole:
            raise Refused(f"--from {path}: no checkpoint in it is whole")
        newer = found[: found.index(whole[0])]
        remarks = tuple(f"passed over {one.path}: it is not whole" for one in newer)
        path = Path(whole[0].path)
    if not newest.is_whole(str(path)):
        raise Refused(f"--from {path}: it is not whole")
    place = place_of(path.as_posix(), resume, "")
    files = giving.parts(str(path), rules)
    require_inside(given, files)
    return Frozen(place, freeze(files, path, place, progress), str(path), remarks)


def require_inside(given: Path, files: Sequence[str]) -> None:
    """Refuse a checkpoint whose files are links that lead elsewhere: somebody else may have made
    them, and the files they lead to would leave this machine. Only the file that the user named may
    be a link."""
    top = os.path.realpath(given if given.is_dir() else given.parent)
    for file in files:
        if file != str(given) and not newest.is_inside(top, file):
            raise Refused(
                f"--from {given}: {file} leads out of it, to {os.path.realpath(file)}",
                hint="Put the file itself there, or name another checkpoint.",
            )


def freeze(files: Sequence[str], path: Path, place: str, progress: Progress) -> Snapshot:
    """Make a snapshot of a checkpoint's files, in which it lies at ``place``, the end of its
    path."""
    return freeze_files(files, path.as_posix()[: -len(place)], progress)


def freeze_files(files: Sequence[str], top: str, progress: Progress) -> Snapshot:
    """Make a snapshot of files below ``top``."""
    total = sum(os.path.getsize(file) for file in files)
    lines, done = [], 0
    for file in sorted(files):
        size = os.path.getsize(file)
        inside = os.fsencode(os.path.relpath(file, top))
        lines.append(f"f {digest_of(file)} {size} ".encode() + inside + b"\0")
        done += size
        progress(done, total)
    manifest = b"".join(lines)
    return Snapshot(
        id=hash_of(manifest), project=top, manifest=manifest, size=total, files=len(lines)
    )


def digest_of(path: str) -> str:
    hasher = new_hash()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


class GivenCheckpoints:
    """Finds the checkpoint that a job is to begin from, and plans how it gets there. ``find``
    returns the id and the cluster of a job by what the user calls it."""

    def __init__(
        self, find: Callable[[str], tuple[str, Cluster]], reporter: Reporter, cache: Path
    ) -> None:
        self.find = find
        self.reporter = reporter
        self.cache = cache

    def planned(self, job: JobSpec, reference: str) -> JobSpec:
        """Return the job as ``plan`` shows it; no cluster is asked."""
        require_a_way(job)
        read(reference, lambda name: self.find(name)[0])
        return replace(job, origin={"told": reference}, notes=job.notes + notes_for(job))

    @contextmanager
    def given(
        self, job: JobSpec, reference: str, target: Cluster
    ) -> Iterator[tuple[JobSpec, Sequence[Snapshot]]]:
        """Yield the job with its origin, and what has to be sent to its cluster first."""
        job = self.planned(job, reference)
        meant = read(reference, lambda name: self.find(name)[0])
        if isinstance(meant, Path):
            frozen = freeze_path(meant, job.resume, self.reporter.progress("reading checkpoint"))
            self._tell(frozen.told, frozen.remarks)
            yield replace(job, origin=from_files(frozen)), [frozen.files]
            return
        source = self.find(meant.job)[1]
        found = source.files.checkpoint(meant.job, meant.name, rules_of(job.resume))
        told = f"{meant.job}:{found.path}"
        self._tell(told, found.remarks)
        place = place_of(found.path, job.resume, found.path)
        if source.files.path() == target.files.path():
            yield replace(job, origin=from_job(meant.job, found.path, place)), ()
            return
        with self._fetched(source, meant.job, found) as folder:
            files = [str(folder / file.path) for file in found.files]
            path = folder / found.path
            if not newest.is_whole(str(path)):
                raise Refused(f"{told} did not arrive whole", hint="Try again.")
            progress = self.reporter.progress("reading checkpoint")
            frozen = Frozen(place, freeze(files, path, place, progress), told)
            yield replace(job, origin=from_files(frozen)), [frozen.files]

    def _tell(self, told: str, remarks: Sequence[str]) -> None:
        for remark in remarks:
            self.reporter.say(remark)
        self.reporter.say(f"begins from {told}")

    @contextmanager
    def _fetched(self, source: Cluster, job: str, found: Found) -> Iterator[Path]:
        """Yield a temporary folder with the files of a checkpoint of another cluster's job."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="given-", dir=self.cache) as folder:
            with Landing(Path(folder)) as landing:
                progress = self.reporter.progress("fetching checkpoint")
                source.files.fetch(job, found, landing, progress)
            yield Path(folder)


def from_job(job: str, checkpoint: str, place: str) -> Mapping[str, str]:
    """Return the origin of a job that begins from a checkpoint of the same root."""
    told = f"{job}:{checkpoint}"
    return {"job": job, "checkpoint": checkpoint, "path": place, "told": told}


def from_files(frozen: Frozen) -> Mapping[str, str]:
    """Return the origin of a job that begins from files that are sent with it."""
    return {"snapshot": frozen.files.id, "path": frozen.path, "told": frozen.told}
