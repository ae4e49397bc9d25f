"""What dray asks of a batch system, on one screen, and how its commands are called.

Slurm and PBS each have a module with a class of this shape; the agent and the attempts use it and
know nothing else of either.
"""

import os
import subprocess

from ..formats import locales

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    from ..formats.records import Answer, Description, End, Record, Request, Row, SiteFacts
    from ..jobs.jobdir import JobDir
    from ..processes.cgroup import Meter
    from ..processes.layout import TaskPosition

PATIENCE = 60.0  # seconds for a scheduler that does not answer at once

IN_UTC = {"TZ": "UTC0"}  # the laptop may be elsewhere

# What becomes of a batch job, as the attempt in it sees it.
RUNNING = "running"
REQUEUED = "requeued"  # the scheduler starts it again by itself
CANCELLED = "cancelled"
ENDED = "ended"  # time limit, preemption, a node's death: it will not be started again
UNKNOWN = ""  # no answer


class SchedulerError(Exception):
    """A command of the scheduler's failed; says what it said."""


class NoAnswer(SchedulerError):
    """The scheduler did not answer: what was asked for may have been done or not."""


class Scheduler:
    name = ""  # for people
    is_told = False  # whether the laptop tells it what is in the queue
    # Whether it starts no program beside a running job, so that who wants in has to call: see
    # sessions.calls.
    is_called = False
    # Why a job is gone that is in no queue: said only where the queue sees the jobs' own locks, so
    # that there is nothing to wait for, and nobody else to ask.
    why_gone = ""
    own_variables = ()  # type: Tuple[str, ...]  # that are of no use to a command

    def hear(self, request: "Request") -> None:
        """Take in what the laptop knows of the queue, where it is the one who asks for it."""

    def wishes(self) -> "Answer":
        """Say what the laptop is to do in the scheduler, where it is the one who can."""
        return {}

    def numbers_of(self, job_dir: "JobDir", index: "Optional[int]" = None) -> "List[str]":
        """List what the scheduler's books may have a job under, the one that tells most first.
        ``index``: its place in an array, of which ``job_dir`` is the directory."""
        number = job_dir.known_number()
        numbers = [number] if number else []
        if number and index is not None:
            numbers.insert(0, "{}_{}".format(number, index))
        return numbers

    def own_number(self) -> str:
        """Return the number of the batch job that this process is in."""
        raise NotImplementedError

    def own_index(self) -> int:
        """Return the index of this process's job in its array."""
        raise NotImplementedError

    def own_cpus(self) -> "Optional[int]":
        """Return how many CPUs of this node the batch job has; None where that is unknown."""
        return None

    def words_for_task(self, index: int) -> "List[str]":
        """Return what the submission of an array's script needs besides, for one of its batch jobs
        alone."""
        raise SchedulerError("{} submits no batch job {} alone".format(self.name, index))

    def read_queue(self) -> str:
        """Ask for all of this user's batch jobs that are not over, in one query; return the raw
        answer."""
        raise NotImplementedError

    def parse_queue(self, text: str) -> "Dict[str, Row]":
        """Parse the queue: job id → {"id", "state", "why", "start"}. These are the number that the
        scheduler gave to the job or its array; ``waiting``, ``running`` or ``ending``; and what the
        scheduler says of its waiting."""
        raise NotImplementedError

    def number_of(self, row: "Row", job_id: str) -> str:
        """Return the number of this very job, from its row in the queue."""
        raise NotImplementedError

    def queue(self) -> "Dict[str, Row]":
        return self.parse_queue(self.read_queue())

    def submit(
        self,
        script: str,
        after: "Optional[str]" = None,
        keep_open: "Tuple[int, ...]" = (),
        planned: "Sequence[str]" = (),
    ) -> str:
        """Submit the script and return the batch job's number. ``after`` is what ``awaiting`` made
        of those that have to be over first. The command inherits ``keep_open``. ``planned`` are the
        words in front of the script, by its plan."""
        raise NotImplementedError

    def awaiting(self, numbers: "Sequence[str]") -> str:
        """Return what ``submit`` is told of batch jobs that have to be over first."""
        return ":".join(dict.fromkeys(one for one in numbers if one))

    def cancel(self, numbers: "List[str]") -> None:
        """Cancel batch jobs, in one call as far as that is possible."""
        raise NotImplementedError

    def interrupt(self, number: str) -> None:
        """Wake the attempt, so that it looks for a stop request at once. A scheduler that cannot do
        this need not: the attempt looks by itself every second."""

    def overdue(self) -> "List[str]":
        """List the jobs that the scheduler takes to be ending for far too long."""
        return []

    def give_up(self, job_id: str) -> None:
        """Have the scheduler forget where a job of these was, and start it elsewhere."""

    def launcher(self, job: "Description") -> "List[str]":
        """Return the words that start the command behind them in every task of the job. What is
        written to its stdin reaches every task, and what a task writes comes back from it."""
        raise NotImplementedError

    def task_position(self) -> "TaskPosition":
        """Return which of those tasks this process is."""
        raise NotImplementedError

    def inspect_nodes(self, python: str) -> "List[Record]":
        """Return what a job would find on each node, with this Python; raise SchedulerError where
        that cannot be told."""
        raise SchedulerError("{} lets nobody look at its nodes".format(self.name or python))

    def own_place(self) -> "Dict[str, str]":
        """Say where this process is, for ``way_to``, or for who calls it."""
        return {}

    def way_to(self, place: "Dict[str, str]") -> "List[str]":
        """Return the words that start the program behind them where a job's process is, with its
        input and output here; none where that is on this machine. ``place`` is what the process
        said of it, and may be anything."""
        del place
        raise SchedulerError("{} offers no way into a running job".format(self.name))

    def secrets_of(self, job_dir: "JobDir") -> str:
        """Return the file with the job's secrets."""
        return job_dir.secrets

    def meter(self) -> "Optional[Meter]":
        """Return what measures the memory of the container that all of this is in, if one is."""
        return None

    def command_environment(self) -> "Dict[str, str]":
        """Return the variables that the command starts from, without those that are for dray."""
        env = locales.original_environment()
        return {name: value for name, value in env.items() if name not in self.own_variables}

    def time_left(self, number: str, patience: float = PATIENCE) -> "Optional[float]":
        """Return the seconds until the scheduler ends the batch job; None where there is no
        limit."""
        raise NotImplementedError

    def batch_state(self, number: str) -> str:
        """Return what becomes of the batch job: RUNNING, REQUEUED, CANCELLED, ENDED or UNKNOWN."""
        raise NotImplementedError

    def kill_delay(self, number: str) -> float:  # noqa: ARG002
        """Return how long it takes until a cancelled batch job is killed, where ``batch_state``
        does not show the cancellation."""
        return 0.0

    def ends(self, numbers: "List[str]") -> "Dict[str, End]":  # noqa: ARG002
        """Ask how batch jobs that left the queue ended, in one query: number → {"state", "reason"}
        as a job has them. Empty where no accounting is kept."""
        return {}

    def requeue(self, number: str) -> None:
        """Have the scheduler end the batch job, and start it again."""
        raise NotImplementedError

    def postpone(self, number: str, seconds: float) -> None:
        """Keep a waiting batch job from starting for so many seconds."""
        raise NotImplementedError

    def restore_time(self, number: str, seconds: float, whole: bool) -> None:
        """Give a batch job that waits again the time limit that it was submitted with. With
        ``whole``, it is not to be started with less any more. A scheduler that never cuts a limit
        need not."""

    def describe(self) -> "SiteFacts":
        """Describe this site, for ``doctor``."""
        raise NotImplementedError

    # What people ask of a queue. The answers are sent to the laptop as they are, and read there.

    def questions(self) -> "Dict[str, List[str]]":
        """Return the commands that tell of everybody's jobs, of nodes, and of the user's limits, by
        a name for each."""
        return {}

    def questions_about(self, number: str) -> "Dict[str, List[str]]":  # noqa: ARG002
        """Return the commands that tell of one batch job."""
        return {}

    def guess_words(self, script: str, change: "Sequence[str]") -> "List[str]":  # noqa: ARG002
        """Return the command that guesses when a script would start if it were submitted with
        these flags; nothing where there is none."""
        return []

    def answer(self, words: "List[str]") -> str:
        """Put one of these questions. All times in an answer are in UTC."""
        return call(*words, env=IN_UTC)


def planned_words(job: "Description") -> "List[str]":
    """Return the words in front of the script, by the job's plan; none if an older dray planned the
    job, which did not record them."""
    words = (job.get("scheduler") or {}).get("command")
    if not isinstance(words, list) or not all(isinstance(one, str) for one in words):
        return []
    return words


def of_kind(kind: str, root: str = "") -> Scheduler:
    """Make the scheduler of this kind. ``root`` is where the jobs are: a queue of dray's own is a
    folder there. Behind an ``@``, a kind may have the address at which its scheduler answers."""
    if kind == "slurm":
        from .slurm import Slurm

        return Slurm()
    if kind == "pbs":
        from .pbs import Pbs

        return Pbs()
    if kind == "ssh":
        from .local import Local

        return Local(root)
    if kind == "kubernetes":
        from .kubernetes import Kubernetes

        return Kubernetes()
    if kind.partition("@")[0] == "ray":
        from .ray import Ray

        return Ray(root, kind.partition("@")[2])
    raise ValueError("there is no scheduler of kind {!r}".format(kind))


user_umask = None  # type: Optional[int]  # the agent's own is stricter, and no job's business


def umask_of_jobs() -> int:
    if user_umask is not None:
        return user_umask
    own = os.umask(0o077)
    os.umask(own)
    return own


def clean_environment() -> "Dict[str, str]":
    """Return the environment for a scheduler's commands: a batch job must not see what the
    submitting shell happened to hold."""
    # TZ, because times that are printed are read again.
    names = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER")
    own = ("SLURM_CONF", "PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT")
    return {name: os.environ[name] for name in names + own if name in os.environ}


def call(*words: str, **more: "Any") -> str:
    """Run a command of the scheduler's; return its output. ``fine`` are further exit codes of
    success; ``env`` is for this command alone."""
    patience = more.get("patience", PATIENCE)
    # Set around it, not by preexec_fn: that makes the start of a program slow.
    ours = os.umask(user_umask) if user_umask is not None else None
    try:
        ended = subprocess.run(
            words,
            env=dict(clean_environment(), **more.get("env", {})),
            pass_fds=more.get("keep_open", ()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if more.get("with_errors") else subprocess.PIPE,
            timeout=patience,
        )
    except FileNotFoundError:
        raise SchedulerError("{}: command not found".format(words[0]))
    except subprocess.TimeoutExpired:
        raise NoAnswer("{} did not answer within {:.0f} s".format(words[0], patience))
    finally:
        if ours is not None:
            os.umask(ours)
    if ended.returncode != 0 and ended.returncode not in more.get("fine", ()):
        said = (ended.stderr or b"") + ended.stdout  # not all complain to where one complains
        complaint = said.decode("utf-8", "replace").strip()
        raise SchedulerError(complaint or "{} ended with {}".format(words[0], ended.returncode))
    return ended.stdout.decode("utf-8", "replace")


def ask_each(questions: "Dict[str, Tuple[str, ...]]") -> "Dict[str, str]":
    """Run several commands for ``describe``: return what each printed, or as NAME_error why it
    failed."""
    found = {}  # type: Dict[str, str]
    for key, words in questions.items():
        try:
            found[key] = call(*words).strip()
        except SchedulerError as error:
            found[key + "_error"] = str(error)
    return found
