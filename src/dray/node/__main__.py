"""The zipapp's entry, started with ``python -I -S``.

keep JOBDIR ALIVE_FD TICKET_FD    care for a job on this machine
attempt JOBDIR                    one attempt, in a batch job
task ARRAYDIR                     those of the jobs that share a batch job
member JOBDIR CPUS                all attempts of one of these that the batch job has time for
pod JOBDIR                        all attempts that a pod has time for, as its first process
carried FOLDER JOBDIR             the same, of a job that brings its own submission along
drive JOBDIR                      place a job, or an array, on the nodes of a Ray cluster
inspect ROOT PYTHON               look at the nodes of a Ray cluster, for doctor
node JOBDIR                       all attempts that a node of a Ray cluster has time for
rank JOBDIR                       one task of an attempt that is spread over several
gather PART COMMAND...            start the command in every task of a pod, and join other pods
convert IMAGE                     make an image ready to run, as a job's command
agent ROOT KIND                   answer the laptop's requests, for a scheduler of this kind
enter JOBDIR KIND RANK            lead the laptop into a running job
relay SOCKET                      the last piece of that way, on the job's node
session FD                        serve who comes in, beside a job's command
lab SECONDS|never                 JupyterLab as a job's command, until it is idle for so long
lab-notes                         print how it is reached, beside it
side-by-side DESCRIBED            several commands as a job's command
ask-optuna                        answer the question in this folder with Optuna's choice
"""

import sys

from .formats import locales

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Tuple  # noqa: F401


def main(arguments: "List[str]") -> int:
    what, rest = "".join(arguments[:1]), arguments[1:]
    act, least, most = ENTRIES.get(what, (usage, 0, MANY))
    if not least <= len(rest) <= most:
        act, rest = usage, []
    if what in SPEAK_OF_FILES:
        locales.ensure_utf8(arguments)
    return act(*rest)


def usage(*_: str) -> int:
    sys.stderr.write("usage: dray-node {} ...\n".format("|".join(ENTRIES)))
    return 2


# -- each imports only what it needs: somebody waits for some of them at a terminal --------------


def keep(job_dir: str, alive: str, ticket: str) -> int:
    from .attempt import keeper

    return keeper.main(job_dir, int(alive), int(ticket))


def attempt(job_dir: str) -> int:
    from .attempt import allocation

    return allocation.attempt(job_dir)


def task(array_dir: str) -> int:
    from .attempt import task

    return task.run(array_dir)


def member(job_dir: str, cpus: str, task: str) -> int:
    from .attempt import member

    return member.run(job_dir, [int(one) for one in cpus.split(",") if one], int(task))


def pod(job_dir: str) -> int:
    from .attempt import pod

    return pod.run(job_dir)


def carried(folder: str, job_dir: str) -> int:
    from .agent import carried

    return carried.main(folder, job_dir)


def drive(job_dir: str) -> int:
    from .ray import driver

    return driver.main(job_dir)


def inspect(root: str, python: str) -> int:
    from .ray import inspection

    return inspection.main(root, python)


def node(job_dir: str) -> int:
    from .ray import node

    return node.run(job_dir)


def rank(job_dir: str) -> int:
    from .attempt import rank

    return rank.main(job_dir)


def gather(part: str, *command: str) -> int:
    from .attempt import gather

    return gather.main(part, list(command))


def convert(image: str) -> int:
    from .containers import converting

    return converting.main(image)


def agent(root: str, kind: str) -> int:
    from .agent import agent

    return agent.main(root, kind)


def enter(job_dir: str, kind: str, rank: str) -> int:
    from .sessions import entering

    return entering.enter(job_dir, kind, rank)


def relay(path: str) -> int:
    from .formats.wire import MARK
    from .sessions import relay

    return relay.relay(path, MARK)


def session(described: str) -> int:
    from .sessions import server

    return server.main(int(described))


def lab(seconds: str, *_: str) -> int:
    """Be a notebook server. What a project adds to commands is ignored."""
    from .lab import server

    return server.main(seconds)


def lab_notes() -> int:
    from .lab import notes

    return notes.show()


def side_by_side(described: str, *_: str) -> int:
    """Run several commands as one. What a project adds to commands is ignored."""
    from .side_by_side import runner

    return runner.main(described)


def ask_optuna() -> int:
    from .sweeps import optuna_child

    return optuna_child.main()


MANY = 10**6
# What is started by which word, and how many words may follow.
ENTRIES = {
    "keep": (keep, 3, 3),
    "attempt": (attempt, 1, 1),
    "task": (task, 1, 1),
    "member": (member, 3, 3),
    "pod": (pod, 1, 1),
    "carried": (carried, 2, 2),
    "drive": (drive, 1, 1),
    "inspect": (inspect, 2, 2),
    "node": (node, 1, 1),
    "rank": (rank, 1, 1),
    "gather": (gather, 2, MANY),
    "convert": (convert, 1, 1),
    "agent": (agent, 2, 2),
    "enter": (enter, 3, 3),
    "relay": (relay, 1, 1),
    "session": (session, 1, 1),
    "lab": (lab, 1, MANY),
    "lab-notes": (lab_notes, 0, 0),
    "side-by-side": (side_by_side, 1, MANY),
    "ask-optuna": (ask_optuna, 0, 0),
}  # type: Dict[str, Tuple[Callable[..., int], int, int]]
IN_JOBS = ("attempt", "task", "member", "pod", "carried", "node", "rank", "gather")
SPEAK_OF_FILES = (*IN_JOBS, "agent", "session")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
