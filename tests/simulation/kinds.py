"""All kinds of clusters that are simulated, by their names.

A new batch system joins with a table of its commands (``batch_kinds.py``); a cluster that is asked
in another way, with a ``Kind`` of its own.
"""

from __future__ import annotations

from tests.simulation.batch_kinds import PbsKind, SlurmKind
from tests.simulation.kind import Kind
from tests.simulation.kube_kind import KubernetesKind
from tests.simulation.machines import SharedKind, SshKind
from tests.simulation.members import PerNodeKind

KINDS: dict[str, type[Kind]] = {
    "slurm": SlurmKind,
    "per-node": PerNodeKind,
    "pbs": PbsKind,
    "kubernetes": KubernetesKind,
    "ssh": SshKind,
    "shared": SharedKind,
}
