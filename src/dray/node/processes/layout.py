"""How a job's command is spread: how many tasks there are, and what each one knows about its
position.

``none``: once, on the first node. ``srun``: a task for each GPU, or for each node if there are no
GPUs. ``torchrun``: a task for each node, in which torchrun starts a worker for each GPU.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from ..formats.records import Description

NONE, SRUN, TORCHRUN = "none", "srun", "torchrun"
LAUNCHES = (NONE, SRUN, TORCHRUN)
FIRST_PORT, PORTS = 10000, 20000  # below those that the kernel assigns by itself


def is_spread(job: "Description") -> bool:
    return launch_of(job) != NONE


def launch_of(job: "Description") -> str:
    return str(job.get("launch") or NONE)


def nodes_of(job: "Description") -> int:
    return int(job["resources"].get("nodes") or 1)


def workers_per_node(job: "Description") -> int:
    """Return the number of workers on each node: one for each GPU."""
    return max(int(job["resources"]["gpus"]), 1)


def tasks_per_node(job: "Description") -> int:
    return workers_per_node(job) if launch_of(job) == SRUN else 1


def tasks_of(job: "Description") -> int:
    """Return the number of tasks. Each has its own log."""
    return nodes_of(job) * tasks_per_node(job) if is_spread(job) else 1


def cpus_per_task(job: "Description") -> int:
    """Return the CPUs of one task. A node's tasks share its CPUs, and each has at least one."""
    tasks = tasks_per_node(job)
    return -(-int(job["resources"]["cpus"]) // tasks)


def port_for(number: int) -> int:
    """Return the port at which to start looking for a free one: different for each batch job."""
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


def variables(
    job: "Description", position: TaskPosition, address: str, port: int
) -> "Dict[str, str]":
    """Return the variables that ``torch.distributed`` reads (env://), and most others too."""
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
    job: "Description", argv: "List[str]", position: TaskPosition, address: str, port: int
) -> "List[str]":
    """Return the command as a task starts it."""
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
    """Return how to start torchrun: with the command's own Python if it begins with one, since
    torch is installed there."""
    if argv[1:2] == ["-p"] and argv[0].endswith(".sh"):  # a script that sets Python up and runs it
        return argv[:2] + ["-m", "torch.distributed.run"]
    if os.path.basename(argv[0]).startswith("python"):
        return [argv[0], "-m", "torch.distributed.run"]
    return ["torchrun"]


def describe_task(job: "Description", position: TaskPosition) -> str:
    """For people."""
    if launch_of(job) == TORCHRUN:
        return "torchrun on {}".format(position.host)
    return "rank {} on {}".format(position.rank, position.host)
