"""The zipapp's entry, started with ``python -I -S``.

keep JOBDIR ALIVE_FD TICKET_FD    care for a job on this machine
attempt JOBDIR                    one attempt, in a batch job
pod JOBDIR                        all attempts that a pod has time for, as its first process
carried FOLDER JOBDIR             the same, of a job that brings its own submission along
rank JOBDIR                       one task of an attempt that is spread over several
gather PART COMMAND...            start the command in every task of a pod, and join other pods
convert IMAGE                     make an image ready to run, as a job's command
agent ROOT KIND                   answer the laptop's requests, for a scheduler of this kind
enter JOBDIR KIND RANK            lead the laptop into a running job
relay SOCKET                      the last piece of that way, on the job's node
session FD                        serve who comes in, beside a job's command
lab SECONDS|never                 JupyterLab as a job's command, until it is idle for so long
lab-notes                         print how it is reached, beside it
"""

import sys

from .formats import locales

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def main(arguments: "List[str]") -> int:
    if arguments and arguments[0] in ("enter", "relay", "session"):
        return sessions(*arguments)
    if arguments and arguments[0] in ("lab", "lab-notes"):
        return lab(*arguments)
    if len(arguments) == 4 and arguments[0] == "keep":
        from .attempt import keeper

        return keeper.main(arguments[1], int(arguments[2]), int(arguments[3]))
    if len(arguments) == 2 and arguments[0] == "convert":
        from .containers import converting

        return converting.main(arguments[1])
    locales.ensure_utf8(arguments)
    if len(arguments) == 2 and arguments[0] == "attempt":
        from .attempt import allocation

        return allocation.attempt(arguments[1])
    if len(arguments) == 2 and arguments[0] == "pod":
        from .attempt import pod

        return pod.run(arguments[1])
    if len(arguments) == 3 and arguments[0] == "carried":
        from .agent import carried

        return carried.main(arguments[1], arguments[2])
    if len(arguments) == 2 and arguments[0] == "rank":
        from .attempt import rank

        return rank.main(arguments[1])
    if len(arguments) > 2 and arguments[0] == "gather":
        from .attempt import gather

        return gather.main(arguments[1], arguments[2:])
    if len(arguments) == 3 and arguments[0] == "agent":
        from .agent import agent

        return agent.main(arguments[1], arguments[2])
    words = "keep|attempt|pod|carried|rank|gather|convert|agent|enter|relay|session|lab|lab-notes"
    sys.stderr.write("usage: dray-node {} ...\n".format(words))
    return 2


def sessions(what: str, *arguments: str) -> int:
    """Do what leads into a running job, quickly: somebody waits at a terminal."""
    if what == "session":
        from .sessions import server

        locales.ensure_utf8([what] + list(arguments))
        return server.main(int(arguments[0]))
    if what == "relay":
        from .sessions import relay

        return relay.relay(*arguments)
    from .sessions import entering

    return entering.enter(*arguments)


def lab(what: str, *arguments: str) -> int:
    """Be a notebook server, or say how that is reached. What a project adds to commands is
    ignored."""
    if what == "lab":
        from .lab import server

        return server.main(*arguments[:1])
    from .lab import notes

    return notes.show()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
