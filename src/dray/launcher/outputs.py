"""Brings a job's outputs to this machine."""

from __future__ import annotations

from pathlib import Path

from dray.clusters.protocol import Selection
from dray.errors import NotFound
from dray.job.model import JobSpec
from dray.landing import OUTPUTS_MARK, Landing, raise_if_refused
from dray.launcher.context import Context
from dray.launcher.receipts import Pulled, Receipts, mark_outputs
from dray.launcher.watching import Watching

ALL_OUTPUTS = Selection()


class Outputs:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.watching = Watching(context)

    def pull(self, reference: str, target: Path | None, wanted: Selection | None) -> Pulled:
        """Copy the outputs to this machine. Can be repeated."""
        view = self.watching.require_files(reference)
        cluster, target = self.context.cluster(view.cluster), target or Path(view.id)
        wanted = wanted or ALL_OUTPUTS
        if wanted.latest_checkpoint:
            wanted = wanted._replace(checkpoint_globs=checkpoint_globs(view.spec))
        is_new = not target.exists()
        target.mkdir(parents=True, exist_ok=True)
        receipts = Receipts(self.context.config.home.data, target)
        progress = self.context.reporter.progress("pulling")
        with Landing(target, receipts.owns) as landing:
            marked = mark_outputs(landing, view.id)
            receipts.all_is_ours = marked
            try:
                copied, count = cluster.files.pull(view.id, landing, progress, wanted)
            finally:  # what came before the link broke may be replaced by the next pull, too
                if not marked:
                    receipts.add(landing.placed)
                if is_new and [one.name for one in target.iterdir()] == [OUTPUTS_MARK]:
                    (target / OUTPUTS_MARK).unlink()
                    target.rmdir()
        raise_if_refused(landing)
        if not count and wanted != ALL_OUTPUTS:
            raise NotFound(nothing_fits(view.id, wanted), hint=f"dray pull {view.id} brings all.")
        return Pulled(target.absolute(), copied, count, landing.size, tuple(landing.unwanted))


def checkpoint_globs(job: JobSpec) -> tuple[str, ...]:
    """Return globs that match the files of a job's checkpoints, and their partners."""
    partner = (job.resume.partner or "").replace("{number}", "*")
    return tuple(filter(None, (job.resume.checkpoint, partner)))


def nothing_fits(job_id: str, wanted: Selection) -> str:
    globs = " or ".join(wanted.globs)
    if not wanted.latest_checkpoint:
        return f"{job_id} has no output that fits {globs}"
    no_checkpoint = f"{job_id} has no whole checkpoint (yet)"
    return f"{no_checkpoint}, and no output that fits {globs}" if globs else no_checkpoint
