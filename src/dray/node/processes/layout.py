"""How a job's command is spread: how many tasks there are, and what each is told of its place.

``none``: once, on the first node. ``srun``: a task for each GPU, or for each node where there are
none. ``torchrun``: a task for each node, in which torchrun starts a worker for each GPU.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    Record = Dict[str, Any]

NONE, SRUN, TORCHRUN = "none", "srun", "torchrun"
LAUNCHES = (NONE, SRUN, TORCHRUN)
FIRST_PORT, PORTS = 10000, 20000  # below those that the kernel gives out by itself


def is_spread(job: "Record") -> bool:
    return launch_of(job) != NONE


def launch_of(job: "Record") -> str:
    return str(job.get("launch") or NONE)


def nodes_of(job: "Record") -> int:
    return int(job["resources"].get("nodes") or 1)


def workers_per_node(job: "Record") -> int:
    """One for each GPU."""
    return max(int(job["resources"]["gpus"]), 1)


def tasks_per_node(job: "Record") -> int:
    return workers_per_node(job) if launch_of(job) == SRUN else 1


def tasks_of(job: "Record") -> int:
    """Each has a log of its own."""
    return nodes_of(job) * tasks_per_node(job) if is_spread(job) else 1


def cpus_per_task(job: "Record") -> int:
    """The CPUs are the node's: its tasks share them, and each has at least one."""
    tasks = tasks_per_node(job)
    return -(-int(job["resources"]["cpus"]) // tasks)


def port_for(number: int) -> int:
    """Where to look for a free port first: another one for each batch job."""
    return FIRST_PORT + number % PORTS


class TaskPosition:
    """One task's place among all."""

    def __init__(
        self, rank: int, local_rank: int, node_rank: int, host: str, launched_from: str = ""
    ) -> None:
        self.rank = rank
        self.local_rank = local_rank
        self.node_rank = node_rank
        self.host = host
        self.launched_from = launched_from  # the first node's address, as it is seen from here


def variables(job: "Record", position: TaskPosition, address: str, port: int) -> "Dict[str, str]":
    """What ``torch.distributed`` reads (env://), and most others too."""
    found = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "NODE_RANK": str(position.node_rank)}
    if launch_of(job) == SRUN:  # torchrun tells its workers the rest
        found.update(
            RANK=str(position.rank),
            LOCAL_RANK=str(position.local_rank),
            WORLD_SIZE=str(tasks_of(job)),
            LOCAL_WORLD_SIZE=str(tasks_per_node(job)),
        )
    return found


def argv_at(
    job: "Record", argv: "List[str]", position: TaskPosition, address: str, port: int
) -> "List[str]":
    """The command as a task starts it."""
    if launch_of(job) != TORCHRUN:
        return argv
    return (
        torchrun_of(argv)
        + [
            "--nnodes={}".format(nodes_of(job)),
            "--nproc-per-node={}".format(workers_per_node(job)),
            "--node-rank={}".format(position.node_rank),
            "--master-addr={}".format(address),
            "--master-port={}".format(port),
            "--no-python",  # each worker is exactly the command, whatever it begins with
        ]
        + argv
    )


def torchrun_of(argv: "List[str]") -> "List[str]":
    """That of the command's own Python, where it begins with one: torch is installed there."""
    if argv[1:2] == ["-p"] and argv[0].endswith(".sh"):  # a script that sets Python up and runs it
        return argv[:2] + ["-m", "torch.distributed.run"]
    if os.path.basename(argv[0]).startswith("python"):
        return [argv[0], "-m", "torch.distributed.run"]
    return ["torchrun"]


def describe_task(job: "Record", position: TaskPosition) -> str:
    """For people."""
    if launch_of(job) == TORCHRUN:
        return "torchrun on {}".format(position.host)
    return "rank {} on {}".format(position.rank, position.host)
