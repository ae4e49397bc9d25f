"""What PBS, Kubernetes, machines without a scheduler, and disks tell, read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.checks import Malformed
from dray.clusters.agent.answers import Told
from dray.clusters.kube import situation as kube
from dray.clusters.queues import disks, machine, pbs
from dray.job.situation import Disk, Limit, Pool, QueueEntry

# -- PBS ----------------------------------------------------------------------------------------

# Of slurm-wlm-torque, as it printed it.
TABLE = """
login:
                                                                               Req'd  Req'd   Elap
Job id               Username Queue    Name                 SessID NDS   TSK   Memory Time Use S Time
-------------------- -------- -------- -------------------- ------ ----- ----- ------ ----- - -----
1                    ada      gpu      sleep-7dw9           --         1     1     -- 04:00 R 00:02
2                    bob      gpu      theirs               --         1     1     -- 04:00 Q 00:00
3                    ada      gpu      sleep-kcxm           --         1     1     -- 04:00 C 00:00
"""  # noqa: E501
# By OpenPBS's manual, not seen here.
NODES = """\
node01
     Mom = node01
     state = free
     resources_available.ngpus = 4
     resources_assigned.ngpus = 3

node02
     state = down,offline
     resources_available.ngpus = 4
     resources_assigned.ngpus = 0
"""
QUEUES = """\
Queue: gpu
    queue_type = Execution
    resources_max.walltime = 48:00:00
    max_run = [u:PBS_GENERIC=10]
    max_run_res.ngpus = [u:PBS_GENERIC=4]
    enabled = True
    started = True
"""


def test_pbs_table() -> None:
    found = pbs.entries(TABLE, "ada")
    assert [(one.number, one.state, one.job) for one in found] == [
        ("2", "waiting", ""),
        ("1", "running", "sleep-7dw9"),
    ]
    assert (found[1].limit, found[1].left) == (14400, 14280)


def test_pbs_nodes_and_limits() -> None:
    assert pbs.pools_of(NODES) == [Pool("", 1, 4, 1, 4)]
    assert pbs.pools_of("node1\n    state = free\n    gpus = 2\n") == [], "Torque does not tell"
    assert pbs.limits(QUEUES, "gpu") == [
        Limit("running jobs", 10, None, "queue gpu, each user"),
        Limit("GPUs", 4, None, "queue gpu, each user"),
        Limit("time of one job", 172800, None, "queue gpu", "seconds"),
    ]
    assert pbs.limits(QUEUES, "other") == []


def test_pbs_plans_a_start_only_where_it_is_near() -> None:
    assert pbs.planned_start({"estimated.start_time": "1000"}, 500.0) == 1000
    assert pbs.planned_start({"estimated.start_time": "361630000000"}, 500.0) is None
    assert pbs.planned_start({}, 500.0) is None


@given(st.text())
def test_nothing_that_pbs_prints_can_break_it(text: str) -> None:
    told = Told(dict.fromkeys(("queue", "nodes", "queues"), text), {}, 0.0, "ada", 1000)
    pbs.queue_view(told)
    pbs.limits(f"Queue: x\n    max_run = {text}\n")
    pbs.planned_start({"estimated.start_time": text}, 0.0)


# -- Kubernetes ---------------------------------------------------------------------------------

GPU = "nvidia.com/gpu"


def pod(name: str, user: str, phase: str, gpus: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "lab",
            "labels": {"user": user, **labels},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "nodeName": "n1" if phase == "Running" else "",
            "containers": [{"resources": {"limits": {GPU: gpus}}}],
        },
        "status": {"phase": phase},
    }


PODS = [
    pod("a-1", "ada", "Running", "2", **{"dray/job": "train-aaaa"}),
    pod("b-1", "bob", "Pending", "1"),
    pod("b-2", "bob", "Pending", "1", priority="5"),
    pod("c-1", "eve", "Succeeded", "8"),
    pod("web", "eve", "Running", ""),
]
NODE = {
    "metadata": {"name": "n1", "labels": {f"{GPU}.product": "A100"}},
    "status": {"allocatable": {GPU: "8"}},
}


def seen(pods: list[dict[str, Any]]) -> list[QueueEntry]:
    return [one for pod in pods if (one := kube.entry_of(pod, GPU, "ada")) is not None]


def test_pods_by_priority_and_age() -> None:
    found = kube.in_order(seen(PODS))
    assert [(one.number, one.owner, one.gpus) for one in found] == [
        ("b-2", "bob", 1),
        ("b-1", "bob", 1),
        ("a-1", "ada", 2),
    ]
    assert found[2].job == "train-aaaa"


def test_gpus_of_nodes_less_what_pods_have() -> None:
    cordoned = {**NODE, "metadata": {"name": "n2", "labels": {}}, "spec": {"unschedulable": True}}
    nodes = [one for node in (NODE, cordoned) if (one := kube.node_of(node, GPU)) is not None]
    assert kube.pools(nodes, seen(PODS)) == [
        Pool("", 0, 0, 0, 8),
        Pool("A100", 6, 8, 1, 0),
    ]


def test_quotas() -> None:
    quota = {
        "metadata": {"name": "lab"},
        "status": {
            "hard": {f"requests.{GPU}": "28", "limits.memory": "2Gi", "pods": "9"},
            "used": {f"requests.{GPU}": "28"},
        },
    }
    found = kube.quota_limits([quota])
    assert found[0] == Limit("GPUs", 28, 28, "quota lab")
    assert found[0].is_reached
    assert (found[1].most, found[1].unit) == (2**31, "bytes")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


@settings(max_examples=50)
@given(ANY, ANY, ANY)
def test_nothing_that_an_api_server_says_can_break_it(one: Any, two: Any, three: Any) -> None:
    record = {"metadata": one, "spec": two, "status": three}
    nested = {
        "metadata": {"labels": one, "name": two},
        "spec": {"containers": three, "priority": one},
        "status": {"phase": two, "hard": three, "used": one, "allocatable": two},
    }
    for item in (record, nested):
        node = kube.node_of(item, GPU)
        kube.pools([node] if node else [], kube.in_order(seen([item])))
        kube.quota_limits([item])
        kube.queue_remark(item)


# -- a machine without a scheduler --------------------------------------------------------------


def test_a_machines_queue() -> None:
    jobs = [
        {"job": "one-aaaa", "owner": "ada", "state": "waiting", "gpus": 1, "cpus": 1},
        {"job": "two-aaaa", "owner": "bob", "state": "running", "gpus": 1.5, "cpus": 1},
    ]
    view = machine.queue_view({"capacity": {"gpus": 2}, "jobs": jobs}, "ada", 5.0)
    assert view.pools == (Pool("", 0.5, 2, 1),)
    assert [one.job for one in view.entries] == ["one-aaaa", ""]


@pytest.mark.parametrize(
    "jobs", [None, [{}], [{"job": "../x", "owner": "a", "state": "waiting", "gpus": 0}]]
)
def test_a_machine_that_lies(jobs: Any) -> None:
    with pytest.raises(Malformed):
        machine.queue_view({"capacity": {}, "jobs": jobs}, "ada", 0.0)


# -- disks: the formats of the manuals, as no such file system is here --------------------------


def test_quota_in_bytes_and_files() -> None:
    text = (
        "Disk quotas for user ada (uid 1000): \n"
        "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
        "server:/home 52428800* 50000000 60000000 1767225600 9000 0 100000 0\n"
    )
    assert disks.quota_disks(text) == [
        Disk("quota", "server:/home", 52428800 << 10, 50000000 << 10, 9000, 100000, "you")
    ]


def test_quota_of_lustre_and_beegfs() -> None:
    text = "/lustre 1024 0 2048 - 7 0 10 -\n"
    told = Told({"lustre /lustre": text, "beegfs": "x"}, {}, 0.0)
    assert disks.lustre_disks(told) == [Disk("quota", "/lustre", 1 << 20, 2 << 20, 7, 10, "you")]
    csv = "name,id,size,hard,files,hard\nada,1000,4096,8192,3,unlimited\n"
    assert disks.beegfs_disks(csv) == [Disk("quota", "beegfs", 4096, 8192, 3, None, "you")]


@given(st.text())
def test_nothing_that_a_quota_program_prints_can_break_it(text: str) -> None:
    disks.quota_disks(text)
    disks.beegfs_disks(text)
    disks.lustre_disks(Told({"lustre /x": text}, {}, 0.0))
