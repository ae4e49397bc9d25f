"""A root directory: what can be asked of it, and done to it, with nothing but its files.

A cluster on this machine calls it in process, the agent calls it for all others. What it refuses
is a ``Refusal`` (of ids and numbers that would lead elsewhere, too) or ``NothingToGoOnFrom``.
"""

import os

from ..formats import files, shapes
from ..formats.wire import Refusal
from ..jobs import arrays, following, jobdir, staging, states
from ..jobs.arrays import ArrayDir
from ..jobs.jobdir import JobDir
from ..notifications import notices
from . import sweeps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple  # noqa: F401

    from ..checkpoints.giving import Found
    from ..formats.records import (
        AppendedPart,
        Curve,
        Description,
        OutputFile,
        PartRecord,
        Row,
        Rules,
        Status,
        StudyFiles,
        StudyRecord,
        UnsentNotice,
    )

KINDS = ("jobs", "arrays")
PROBES = (files.CLOCK, staging.LOCK, staging.LINK)  # that look what the root's file system does
LOG_PIECE = 1 << 20  # bytes of a log that are read at once


class Root:
    def __init__(self, path: str) -> None:
        self.path = path

    # -- jobs -----------------------------------------------------------------------------------

    def job(self, job_id: "Any") -> JobDir:
        return JobDir(os.path.join(self.path, "jobs", checked_id(job_id)))

    def array(self, name: "Any") -> ArrayDir:
        return ArrayDir(self.path, checked_id(name))

    def own_directory(self, job_id: str) -> JobDir:
        """For what is to be written; a job of an array may not have had one so far."""
        place = arrays.split(job_id)
        if place is None:
            return self.job(job_id)
        return self.array(place[0]).make_job(place[1])

    def snapshot(self, snapshot: "Optional[str]") -> "Optional[str]":
        """Where a snapshot lies. A link to it keeps it from being pruned as long as the job is
        there."""
        return os.path.join(self.path, "snapshots", snapshot) if snapshot else None

    def sweep(self, kind: str, thoroughly: bool = True) -> "List[str]":
        """Remove what killed processes have left among the jobs, or the arrays; return the names
        of the others."""
        folder = os.path.join(self.path, kind)
        names = files.all_names_in(folder)
        staging.sweep(folder, names, thoroughly)
        return files.visible(names)

    def tidy(self) -> None:
        """Remove whatever killed processes have left. Nobody waits for it."""
        for kind in KINDS:
            try:
                self.sweep(kind)
            except OSError:
                pass
        try:
            sweeps.prune_abandoned(self.path)
            names = files.all_names_in(self.path)
            staging.sweep(self.path, [one for one in names if one.startswith(PROBES)])
        except OSError:
            pass

    def ids(self) -> "List[str]":
        """List every job that has a directory."""
        found = [name for name in self.sweep("jobs") if shapes.is_id(name)]
        return [name for name in found if os.path.lexists(self.job(name).job)]

    def ids_in_arrays(self) -> "List[str]":
        """List the jobs of arrays that have no directory yet."""
        found = []  # type: List[str]
        for name in filter(shapes.is_id, self.sweep("arrays")):
            array = ArrayDir(self.path, name)
            found += [arrays.job_id(name, index) for index in sorted(array.without_directory())]
        return found

    def remove(self, ids: "Sequence[str]") -> "List[str]":
        """Remove jobs, and code that no other one needs; return what could not be removed."""
        from ..code import pack_store  # only here

        left = [path for job_id in ids for path in staging.remove(self.job(job_id).path)]
        by_array = arrays.by_array(ids)
        for array, indices in by_array.items():
            self.array(array).remove_jobs(indices)
        if by_array:
            sweeps.prune(self.path, list(by_array))
        sweeps.prune_abandoned(self.path)
        for kind in KINDS:
            self.sweep(kind)
        pack_store.prune(self.path)
        return left

    # -- where keepers have the jobs, without a scheduler ---------------------------------------

    def status(self, job_id: str) -> "Optional[Status]":
        """Tell what the files say of a job that somebody cares for as long as its lock is held.
        Secrets that a killed keeper has left go."""
        job_dir = self.job(job_id)
        cared_for = job_dir.is_supervised()
        if not cared_for:
            job_dir.drop_secrets()
        facts = states.read(job_dir, is_running=cared_for)
        if facts is None:
            return None
        record = states.from_files(facts, cared_for)
        if record["state"] == "running" and not record["reason"] and states.hung(facts):
            record["reason"] = states.hung(facts) + " (its supervisor may be stopped)"
        if record["state"] == "queued" and not record["attempts"]:
            record["reason"] = record["reason"] or following.in_words(self.path, facts.description)
        return record

    def active(self) -> "Dict[str, Row]":
        """List the jobs that wait or run, as a scheduler's queue would tell them; one whose files
        cannot be read may be running."""
        found = {}  # type: Dict[str, Row]
        for name in filter(shapes.is_id, files.names_in(os.path.join(self.path, "jobs"))):
            if files.exists(self.job(name).end):
                continue
            try:
                status = self.status(name)
                state = status["state"] if status else None
            except Exception:
                state = "running"
            if state in ("queued", "running"):
                found[name] = {"id": name, "state": "waiting" if state == "queued" else "running"}
        return found

    # -- logs and curves ------------------------------------------------------------------------

    def read_log(
        self, job_id: str, attempt: int, offset: int = 0, rank: int = 0
    ) -> "Tuple[int, bytes]":
        """Return how long a rank's output is by now, and a piece of it from ``offset``."""
        path = self.job(job_id).attempt(small(attempt)).log_of(small(rank))
        return files.read_piece(path, offset, LOG_PIECE)

    def log_times(self, job_id: str, attempt: int) -> "List[Tuple[float, int]]":
        from ..jobs import log_times  # only where times are asked for

        return log_times.read(self.job(job_id).attempt(small(attempt)).log_times)

    def curve(self, job_id: str, name: str = "") -> "Curve":
        """Return the metric of this name over all attempts; the job's main one where it has none,
        or none is named."""
        from ..metrics import sources  # only where a curve is drawn

        job_dir = self.job(job_id)
        return sources.series(job_dir.description(), job_dir, name)

    # -- outputs and checkpoints: which formats there are is not read for every request ----------

    def outputs(self, job_id: str) -> str:
        top = self.job(job_id).outputs
        if os.path.islink(top):
            raise Refusal("Refused", "{} is a link, which is not followed".format(top))
        return top

    def list_outputs(
        self, job_id: str, globs: "Sequence[str]" = (), latest_checkpoint: bool = False
    ) -> "List[OutputFile]":
        """Describe the files and links among a job's outputs that are wanted."""
        from ..checkpoints import selecting
        from . import outputs

        top = self.outputs(job_id)
        return outputs.listing(top, selecting.chooser(self.job(job_id), globs, latest_checkpoint))

    def describe_outputs(self, job_id: str, paths: "Iterable[str]") -> "List[OutputFile]":
        """Describe these outputs as they are now; without those that are gone."""
        from . import outputs

        top = self.outputs(job_id)
        return [one for path in paths for one in outputs.described(top, os.path.join(top, path))]

    def appended_outputs(
        self, job_id: str, globs: "Sequence[str]", known: "Dict[str, int]"
    ) -> "Tuple[List[AppendedPart], List[bytes]]":
        """Read what was written to outputs since they had these lengths."""
        from ..checkpoints import selecting
        from . import outputs

        return outputs.appended(self.outputs(job_id), selecting.matcher(globs), known)

    def rescue_outputs(self, job_id: str) -> None:
        """Save what a job that nobody cares for any more has left in its work tree."""
        from ..code.worktree import rescue_outputs

        job_dir = self.job(job_id)
        description = job_dir.description()
        if description and not job_dir.is_supervised():
            number = (job_dir.numbers() or [0])[-1]
            rescue_outputs(job_dir, number, description["outputs"], folders=True)

    def checkpoint(self, job_id: str, name: str, rules: "Rules") -> "Found":
        """Find the checkpoint of a job that another one may begin from."""
        from ..checkpoints import giving

        self.outputs(job_id)
        return giving.find(self.job(job_id), name, rules)

    def require_checkpoint(
        self, job_id: str, start_from: str, description: "Optional[Description]" = None
    ) -> None:
        """Refuse to go on from a checkpoint that is not there. ``description``: what the job is
        from now on, where that is not what is written down."""
        if not start_from:
            return
        from ..checkpoints import given, origin

        job_dir = self.job(job_id)
        description = description or job_dir.description()
        rules = {}  # type: Rules
        if description:
            rules = given.rules_of(job_dir, description)
        origin.require(job_dir.outputs, rules, start_from)

    def give(self, job: "Description", folder: str) -> None:
        """Put what a job begins from, and what was sent of its inputs, into ``folder``, which
        becomes its own."""
        if job.get("origin"):
            from ..checkpoints import giving

            giving.take(self.path, job, folder)
        if job.get("inputs"):
            from ..code import inputs

            try:
                inputs.take(self.path, job, folder)
            except inputs.Missing as error:
                raise Refusal("Refused", str(error))

    # -- sweeps ---------------------------------------------------------------------------------

    def begin_sweep(self, study: "StudyRecord", part: "PartRecord") -> None:
        """Write a sweep down, and which of its trials are about to be submitted."""
        sweeps.begin(self.path, study, part)

    def withdraw_sweep(self, sweep_id: "Any", part: "PartRecord") -> None:
        """Forget trials that were not submitted after all."""
        sweeps.withdraw(self.path, sweep_id, part)

    def sweep_files(self, sweep_id: "Any") -> "StudyFiles":
        """Return all that is known of a sweep here."""
        return sweeps.look(self.path, sweep_id)

    def hear_of_others(self, sweep_id: "Any", others: "Any") -> None:
        """Take what is told of a sweep's trials on other clusters."""
        sweeps.hear(self.path, sweep_id, others)

    def close_sweep(self, sweep_id: "Any") -> None:
        """Let no further trial of a sweep start."""
        sweeps.close(self.path, sweep_id)

    # -- messages -------------------------------------------------------------------------------

    def unsent(self, over: "Iterable[Status]", sent_by: str) -> "List[UnsentNotice]":
        """Send what the nodes could not; return what is still unsent. ``over``: jobs that have
        ended."""
        return notices.look(self.path, over, sent_by)

    def settle(self, ids: "Iterable[str]", over: bool) -> None:
        """Nobody need send these messages any more."""
        for job_id in ids:
            notices.settle(self.path, checked_id(job_id), over)


def checked_id(job_id: "Any") -> str:
    """Return the id; refuse one that could lead to another directory."""
    if not shapes.is_id(job_id):
        raise Refusal("Refused", "this is no job's id: {!r}".format(job_id)[:300])
    return str(job_id)


def small(number: "Any") -> int:
    """Check an attempt's or a rank's number: it becomes part of a path."""
    if not shapes.is_count(number) or not 0 <= number <= jobdir.MOST_ATTEMPTS:
        raise Refusal("Refused", "there is no attempt or rank {!r}".format(number)[:300])
    return int(number)
