"""Asks a program in the environment of a job's command, before that is started: a sampler that
only the command's own Python has.

The question and the answer are files of a folder that both sides see, also where the command runs
in a container. The job's code is not there."""

import os
import time

from ..formats import files
from ..jobs.jobdir import JobDir
from ..processes import process
from ..sweeps.optuna_child import ANSWER, QUESTION
from ..sweeps.optuna_question import NoAnswer
from .command import Command, kill_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from ..formats.records import Description, Record

FOLDER = "asking"  # in the job's directory, while it asks
PATIENCE = 300.0  # seconds: a first import over a network's file system takes long
LOOK = 0.05
LARGEST_ANSWER = 4 << 20
LONGEST_WORDS = 300  # of what the program printed last


class Inquiry:
    def __init__(
        self,
        job_dir: JobDir,
        job: "Description",
        base: "Dict[str, str]",
        patience: float = PATIENCE,
    ) -> None:
        self.job = job
        self.patience = patience
        self.place = JobDir(job_dir.path)
        self.place.work = os.path.join(job_dir.path, FOLDER)
        self.log = os.path.join(self.place.work, "log")
        self.command = Command(self.place, job, base, self.log)

    def __call__(self, argv: "List[str]", question: "Record") -> "Record":
        """Return what the program answers; raise NoAnswer where it does not."""
        self._make_folders()
        try:
            files.write_json(self._file(QUESTION), question, durable=False)
            process.adopt_orphans()
            self._run(argv)
            return self._answer(argv)
        except (process.CannotStart, process.CannotContain) as error:
            raise NoAnswer("its sampler could not be asked: {}".format(error))
        finally:
            kill_all(self.command, self._wait)
            self.command.clean_up()
            files.remove_tree(self.place.work)

    def _make_folders(self) -> None:
        """Make the folders, and remove what an inquiry that was killed has left."""
        files.remove_tree(self.place.work)
        files.make_folder(os.path.join(self.place.work, self.job["folder"]), durable=False)
        files.make_folder(self.place.outputs)

    def _file(self, name: str) -> str:
        return os.path.join(self.place.work, self.job["folder"], name)

    def _run(self, argv: "List[str]") -> None:
        self.command.prepare()
        variables = {
            "DRAY_JOB_ID": self.place.id,
            "DRAY_OUTPUTS": self.place.outputs,
            "CUDA_VISIBLE_DEVICES": "",  # the GPUs are the command's
            "OMP_NUM_THREADS": "1",  # many trials of a node may ask at the same moment
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.command.start(argv, variables)
        until = time.monotonic() + self.patience
        while not self.command.ended() and time.monotonic() < until:
            self._wait(LOOK)

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)
        self.command.reap()

    def _answer(self, argv: "List[str]") -> "Record":
        found = files.read_record(self._file(ANSWER), LARGEST_ANSWER)
        if found is not None:
            return found
        if not self.command.ended():
            message = "{} has not answered for {:.0f} seconds which values are to be tried"
            raise NoAnswer(message.format(argv[0], self.patience))
        why = self.command.end()["reason"] or "it printed no answer"
        said = files.last_line(self.log)[:LONGEST_WORDS]
        message = "{} was asked which values are to be tried, and failed: {}"
        raise NoAnswer(message.format(argv[0], said or why))
