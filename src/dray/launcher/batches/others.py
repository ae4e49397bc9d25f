"""The jobs that a batch file names and that are not of it.

The file may be somebody else's, and what a job reads goes to wherever that job runs. So a file
names jobs of its own project alone, by their whole ids; for any other the user has to speak up."""

from __future__ import annotations

from collections.abc import Sequence

from dray.config.batch_file import BatchJob, unknown_job
from dray.launcher.context import Context
from dray.launcher.jobs import Jobs


class Others:
    def __init__(self, context: Context, allowed: Sequence[str]) -> None:
        """Take the jobs that the user allows on the command line, as they are written there."""
        self.context = context
        self.allowed = {*Jobs(context).find_all(allowed)} if allowed else set[str]()

    def require_allowed(self, entry: BatchJob, reference: str, names: Sequence[str]) -> None:
        """Refuse a job that is not known, or that this file may not choose by itself."""
        ids = self._ids(reference)
        if not ids:
            raise self._unknown(entry, reference, names)
        project = str(self.context.config.project)
        for job_id in ids:
            if job_id not in self.allowed and self._project_of(job_id) != project:
                raise entry.mistake(
                    f"{job_id} is a job of another project, and counts only where you say so "
                    "yourself",
                    hint=f"Name it on the command line: dray batch --allow-job {reference} …",
                )

    def _ids(self, reference: str) -> list[str]:
        """Return the jobs that a whole id means: of a job, an array, a batch or a sweep."""
        store = self.context.open_store()
        if any(job_id == reference for job_id, _ in store.matching(reference)):
            return [reference]
        return store.in_sweep(reference) or store.in_array(reference)

    def _project_of(self, job_id: str) -> str | None:
        view = self.context.open_store().view(job_id)
        return view.spec.project if view else None

    def _unknown(self, entry: BatchJob, reference: str, names: Sequence[str]) -> Exception:
        if reference and self.context.open_store().matching(reference):
            return entry.mistake(
                f"'{reference}' is the beginning of an id: a batch file names whole ones",
                hint="dray ps --all lists the jobs.",
            )
        return unknown_job(entry, reference, names)
