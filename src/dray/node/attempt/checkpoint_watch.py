"""Watches the checkpoints of one attempt: where it begins, which one is the newest, and how far
that is."""

import os
import time

from ..checkpoints import newest as checkpoints
from ..checkpoints import origin, restoring, resuming
from ..code import worktree
from ..formats.messages import print_message
from ..formats.pace import Pace
from .outcomes import write_to_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..formats.records import AttemptRecord, Beginning, Description, Runs  # noqa: F401
    from ..jobs.jobdir import AttemptDir, JobDir

TICK = 1.0
CHECKPOINT_LOOK = 30.0
NEAR_LOOK = 0.05  # at most so often for a checkpoint that matters at once


class CheckpointWatch:
    def __init__(
        self,
        job_dir: "JobDir",
        attempt: "AttemptDir",
        job: "Description",
        earlier_attempts: "List[AttemptRecord]",
    ) -> None:
        self.job_dir = job_dir
        self.outputs = job_dir.outputs
        self.attempt = attempt
        self.job = job
        self.earlier_attempts = earlier_attempts
        self.known_runs = list(earlier_attempts)  # type: List[Runs]  # of this attempt, too
        self.rules = job["resume"]
        self.pattern = self.rules["checkpoint"]
        self.pace = Pace()
        self.next_look = 0.0
        self.first = None  # type: Optional[checkpoints.Checkpoint]
        self.is_given = False  # whether that is a checkpoint of another run
        self.runs = {}  # type: Runs  # those there were when the attempt began
        self.latest = None  # type: Optional[checkpoints.Checkpoint]
        self.changes = 0  # how often there was another one
        self.reached = resuming.Progress()  # at the latest one
        self.finished = None  # type: Optional[float]  # since when all is done, and it is silent
        self.remarks = []  # type: List[str]  # on checkpoints that were not taken

    # -- where the attempt begins -----------------------------------------------------------------

    def find_beginning(self) -> None:
        """Find the checkpoint that this attempt begins from."""
        begin = origin.find(self.outputs, self.job, self.earlier_attempts, self.attempt.number)
        self.first, self.is_given = begin.checkpoint, begin.is_given
        self.latest = None if self.is_given else self.first
        self._remark(begin.remarks)
        found = checkpoints.candidates(self.outputs, self.rules)
        runs = resuming.runs_of([one.path for one in found], self.outputs)
        self.runs = {"runs": runs, "done_before": self.progress(self.first).done}
        self.known_runs.append(self.runs)
        self.reached = self.progress(self.first)

    def has_nothing_left(self) -> bool:
        """Return whether all was done before this attempt."""
        return self.progress(self.first).finished

    def argv(self) -> "List[str]":
        """Return the command, with the arguments that make it resume from its checkpoint."""
        if self.first is None:
            return list(self.job["command"])
        at = self.progress(self.first)
        return resuming.resumed(self.job["command"], self.rules, self.first.path, at, self.is_given)

    def variables(self) -> "Dict[str, str]":
        """Return the environment variables that describe the checkpoint to the command."""
        if self.first is None:
            return {}
        found = {"DRAY_CHECKPOINT": self.first.path}
        if self.is_given:
            found["DRAY_CHECKPOINT_GIVEN"] = "1"
        partner = resuming.partner_of(self.first.path, self.rules)
        if partner and os.path.exists(partner):
            found["DRAY_CHECKPOINT_PARTNER"] = partner
        return found

    def about(self) -> "Beginning":
        """Return what the attempt's record says of its beginning."""
        begun_from = self.relative(self.first)
        if self.is_given:  # what people call it
            begun_from = str(self.job["origin"].get("told", "a checkpoint of another run"))
        from_time = self.first.mtime if self.first else None
        return {
            "runs": self.runs["runs"],
            "done_before": self.runs["done_before"],
            "from_checkpoint": begun_from,
            "from_time": from_time,
        }

    # -- while the command runs -------------------------------------------------------------------

    def until_look(self) -> float:
        """Return the seconds until the next look for checkpoints."""
        return max(self.next_look - time.monotonic(), 0.0) if self.pattern else TICK

    def is_due(self, now: float) -> bool:
        return bool(self.pattern) and now >= self.next_look

    def look(self) -> "Optional[checkpoints.Checkpoint]":
        """Return the newest checkpoint, if it is new and further than where this attempt began."""
        with self.pace:
            self.rescue_outputs()
            found = self.find_newest()
        if found is None or found.same(self.latest):
            return None
        self.latest = found
        self.changes += 1
        self._tend(found)
        self.reached = self.progress(found)
        if self.finished is None and self.reached.finished:
            self.finished = time.monotonic()
        return found if self.is_ahead(found) else None

    def look_next(self, now: float, at_once_within: "Optional[float]", most: float) -> None:
        """Set when to look again. A huge outputs folder is searched less often; but where what
        comes after the next checkpoint would be lost, that one has to be noticed within
        ``at_once_within`` seconds."""
        if at_once_within is not None:
            self.next_look = now + max(self.pace.took() * 20, NEAR_LOOK, at_once_within)
        else:
            self.next_look = now + max(self.pace.rest(), min(CHECKPOINT_LOOK, most))

    def find_newest(self) -> "Optional[checkpoints.Checkpoint]":
        return checkpoints.newest(self.outputs, self.rules)

    def progress(self, checkpoint: "Optional[checkpoints.Checkpoint]") -> resuming.Progress:
        if checkpoint is None:
            return resuming.Progress()
        command, path = self.job["command"], checkpoint.path
        return resuming.progress(self.rules, command, path, self.outputs, self.known_runs)

    def is_ahead(self, found: "checkpoints.Checkpoint") -> bool:
        """Return whether the checkpoint is further than where this attempt began."""
        if self.first is None or found.same(self.first):
            return self.first is None
        at, first_at = self.progress(found), self.progress(self.first)
        return resuming.is_ahead(self.rules, found.path, at, self.first.path, first_at)

    def tells_its_end(self, found: "checkpoints.Checkpoint") -> bool:
        """Return whether the file itself shows that it is complete."""
        return checkpoints.tells_its_end(found.path) and not self.rules.get("partner")

    def rescue_outputs(self, folders: bool = False) -> None:
        """Move outputs that the command has written over their links."""
        outputs = self.job["outputs"]
        try:
            worktree.rescue_outputs(self.job_dir, self.attempt.number, outputs, folders)
        except OSError as error:
            print_message("an output could not be moved: {}".format(error))

    # -- at its end -------------------------------------------------------------------------------

    def find_last(self) -> "Optional[checkpoints.Checkpoint]":
        """Find the newest checkpoint, now that nothing is being written any more."""
        try:
            self._remark(restoring.put_back(self.outputs, self.rules))
            newest = self.find_newest()
            self._tend(newest)
            return newest
        except OSError as error:  # what became of the command is told all the same
            print_message("checkpoints could not be looked at: {}".format(error))
            return self.latest

    def _tend(self, newest: "Optional[checkpoints.Checkpoint]") -> None:
        """Keep a copy of a checkpoint that the trainer overwrites; remove older ones."""
        if newest is None:
            return
        try:
            restoring.keep(newest, self.rules)
            checkpoints.prune(self.outputs, self.rules)
        except OSError as error:
            print_message("checkpoints could not be tended: {}".format(error))

    def _remark(self, remarks: "List[str]") -> None:
        """Add remarks on checkpoints to the attempt's record and to its log."""
        self.remarks += remarks
        write_to_log(self.attempt, remarks)

    def relative(self, checkpoint: "Optional[checkpoints.Checkpoint]") -> "Optional[str]":
        return os.path.relpath(checkpoint.path, self.outputs) if checkpoint else None
