"""What the nodes of a job have in common that are brought together by dray itself, and not by a
scheduler's own launcher: pods of Kubernetes, and nodes of a Ray cluster. See attempt.gather."""

import os
import socket

from ..processes import layout
from .scheduler import Scheduler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict  # noqa: F401

# The exit codes of such a node's process. They are never the command's own, which is in
# outcome.json.
CODES = {"done": 0, "failed": 10, "stopped": 11}
OWN_FAULT = 12
INTERRUPTED = 75  # another one goes on

INDEX = "DRAY_ARRAY_INDEX"
ADDRESS = "DRAY_POD_ADDRESS"
TASK = "DRAY_TASK"  # rank, local rank, node, the first node's address, and the host
NODE = "DRAY_NODE"  # its name among the job's nodes: of a pod, the pod's
STAND_IN = "DRAY_STAND_IN"  # the folder that stands in for the root, where that is not seen
POD = "HOSTNAME"  # what a pod calls itself whose Job is from before dray said it in NODE


def own_host() -> str:
    """Return this node's name, as others know it."""
    return os.environ.get(NODE) or os.environ.get(POD, "")


class Gathered(Scheduler):
    def own_index(self) -> int:
        return int(os.environ[INDEX])

    def own_number(self) -> str:
        return own_host()

    def own_address(self) -> str:
        """Return this node's address, as others reach it."""
        return os.environ.get(ADDRESS) or socket.gethostbyname(socket.gethostname())

    def task_position(self) -> layout.TaskPosition:
        rank, local, node, address, host = os.environ[TASK].split()
        return layout.TaskPosition(int(rank), int(local), int(node), host, address)
