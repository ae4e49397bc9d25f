"""Jobs on several nodes, on a real Kubernetes of two: ranks, losses, stops, and a stranger."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.contract.test_contract import RESUMABLE
from tests.integration.test_nodes import TRAINER as ON_SLURM
from tests.integration.test_nodes import rank_logs
from tests.kubernetes.training import Admin, kill_first_process

pytestmark = pytest.mark.kubernetes

WIDE = ("--on", "k8s", "--nodes", "2", "--gpus", "2")
SAVING = ("--checkpoint-signal", "USR1", "--grace", "10s", *RESUMABLE)

# Slurm's own trainer, told by the variables that torch reads which rank it is.
TRAINER = ON_SLURM.replace("SLURM_PROCID", "RANK").replace("SLURM_NTASKS", "WORLD_SIZE")


@pytest.fixture
def far(dray: Dray, pods: Pods) -> Dray:
    pods.offer(dray)
    dray.write("train.py", TRAINER)
    return dray


def python(*words: str) -> tuple[str, ...]:
    return ("--", "python3", *words)


def begun(far: Dray, job: str, attempt: int = 1) -> None:
    """Wait until every rank of an attempt has said something."""
    folder = far.job_dir(job) / f"attempts/{attempt:03}"
    logs = [folder / "log", *(folder / f"ranks/{rank}.log" for rank in (1, 2, 3))]
    wait_for(lambda: all(one.exists() and one.stat().st_size for one in logs), 120)


def leader_of(far: Dray, job: str) -> str:
    attempts = sorted((far.job_dir(job) / "attempts").iterdir())
    host: str = json.loads((attempts[-1] / "attempt.json").read_text())["host"]
    return host


def names_of(pods: Pods, job: str) -> list[str]:
    return [f"pod/{one['metadata']['name']}" for one in Admin(pods).listed("pods", job)]


def delete(pods: Pods, name: str) -> None:
    where = f"--namespace={pods.namespace.name}"
    pods.cluster.kubectl("delete", name, "--wait=false", where)


def job_status(pods: Pods, job: str) -> dict[str, Any]:
    return Admin(pods).listed("jobs", job)[0]


def test_every_rank_knows_its_place_and_meets_the_others(far: Dray, pods: Pods) -> None:
    """A real rendezvous at MASTER_ADDR:MASTER_PORT, from pod to pod."""
    far.write(
        "meet.py",
        textwrap.dedent(
            """
            import json, os, socket, time
            env = os.environ
            rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
            place = env["MASTER_ADDR"], int(env["MASTER_PORT"])
            if rank == 0:
                server = socket.create_server(("", place[1]))
                met = sorted(server.accept()[0].makefile().readline() for _ in range(world - 1))
                print(json.dumps(met))
            else:
                for _ in range(300):
                    try:
                        socket.create_connection(place).sendall(b"%d\\n" % rank)
                        break
                    except OSError:
                        time.sleep(0.1)
                names = ["RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                         "DRAY_ATTEMPT", "KEY"]
                own = sorted(one for one in env if one.startswith(("DRAY_TASK", "DRAY_POD",
                                                                   "DRAY_NODE", "DRAY_SECRETS")))
                print(json.dumps([[env[name] for name in names], own]))
            """
        ),
    )
    job = far.run(*WIDE, "--secret", "KEY", *python("meet.py"), KEY="s3cret")
    shown = far.wait(job)
    assert (shown["state"], shown["launch"], shown["resources"]["nodes"]) == ("done", "srun", 2)
    first, *others = (json.loads(log) for log in rank_logs(far, job))
    assert first == ["1\n", "2\n", "3\n"]
    assert others == [
        [["1", "1", "0", "4", "2", "1", "s3cret"], []],
        [["2", "0", "1", "4", "2", "1", "s3cret"], []],
        [["3", "1", "1", "4", "2", "1", "s3cret"], []],
    ]
    wait_for(lambda: job_status(pods, job)["status"].get("succeeded"))
    left = far.job_dir(job)
    assert not [one.name for one in left.iterdir() if one.name in ("leader.json", "alive")]


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_pod_that_is_deleted_costs_nothing_but_its_replacement(
    far: Dray, pods: Pods, who: str
) -> None:
    """It has all ranks save before it goes, and the others stay where they are."""
    job = far.run(*WIDE, *SAVING, *python("train.py", "150"))
    begun(far, job)
    leader = leader_of(far, job)
    (name,) = (one for one in names_of(pods, job) if (f"/{leader}-" in one) == (who == "leader"))
    delete(pods, name)
    shown = far.wait(job)
    assert shown["state"] == "done", shown
    first, second = shown["attempts"]
    assert first["outcome"] == "interrupted"
    gone = name.removeprefix("pod/")
    told = {"leader": "interrupted by SIGTERM", "follower": f"{gone} is being taken away"}
    assert first["reason"] == told[who]
    assert second["from_checkpoint"] == first["checkpoint"] is not None
    outputs = far.job_dir(job) / "outputs"
    assert [(outputs / f"asked-{rank}").read_text() for rank in range(4)] == ["x"] * 4


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_pod_that_is_killed_is_replaced(far: Dray, pods: Pods, who: str) -> None:
    job = far.run(*WIDE, *RESUMABLE, *python("train.py", "150", "--every"))
    begun(far, job)
    wait_for(lambda: list((far.job_dir(job) / "outputs").glob("ckpt_*")))
    leader = leader_of(far, job)
    (name,) = (one for one in names_of(pods, job) if (f"/{leader}-" in one) == (who == "leader"))
    kill_first_process(name.removeprefix("pod/").rpartition("-")[0])
    shown = far.wait(job)
    assert shown["state"] == "done", shown
    first, last = shown["attempts"]
    assert first["outcome"] == {"leader": "lost", "follower": "interrupted"}[who]
    assert last["from_checkpoint"] is not None


def test_stop_reaches_every_rank_and_a_resume_goes_on(far: Dray, pods: Pods) -> None:
    job = far.run(*WIDE, *SAVING, *python("train.py", "10000"))
    begun(far, job)
    far("stop", job)
    shown = far.show(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "stopped on request")
    outputs = far.job_dir(job) / "outputs"
    assert [(outputs / f"asked-{rank}").read_text() for rank in range(4)] == ["x"] * 4
    assert shown["attempts"][0]["checkpoint"] is not None
    far("resume", job)
    begun(far, job, 2)
    far("stop", "--now", job)
    assert far.show(job)["attempts"][1]["from_checkpoint"] == shown["attempts"][0]["checkpoint"]


def test_a_crash_of_one_rank_is_told(far: Dray, pods: Pods) -> None:
    far.write(
        "die.py",
        "import os, sys, time\n"
        "if os.environ['RANK'] == '3':\n    time.sleep(1)\n    sys.exit(7)\n"
        "time.sleep(600)\n",
    )
    job = far.run(*WIDE, "--retries", "1", "--backoff", "0.1s", *python("die.py"))
    shown = far.wait(job)
    assert (shown["state"], shown["exit_code"], len(shown["attempts"])) == ("failed", 7, 2)
    assert shown["reason"].startswith("rank 3 on ")
    assert shown["reason"].endswith(": exit code 7; 1 retry used up")
    wait_for(lambda: job_status(pods, job)["status"].get("conditions"))
    kinds = [one["type"] for one in job_status(pods, job)["status"]["conditions"]]
    assert "Complete" not in kinds


def test_a_time_limit_is_reached_in_place(far: Dray, pods: Pods) -> None:
    """No pod is replaced for it: all wait for the next attempt where they are."""
    flags = ("--time", "20s", *SAVING)  # less its grace: a busy machine starts ranks for seconds
    job = far.run(*WIDE, *flags, *python("train.py", "300"))
    shown = far.wait(job)
    assert shown["state"] == "done", (shown["reason"], shown["attempts"])
    assert shown["attempts"][0]["reason"] == "time limit reached"
    assert len({one["host"] for one in shown["attempts"]}) == 1
    assert not job_status(pods, job)["status"].get("failedIndexes")


def test_a_stranger_at_the_leaders_port(far: Dray, pods: Pods) -> None:
    """It learns nothing, and the job goes on as if nobody had come."""
    job = far.run(*WIDE, *python("train.py", "10000"))
    begun(far, job)
    about = json.loads((far.job_dir(job) / "leader.json").read_text())
    code = (
        "import socket, sys\n"
        "one = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)\n"
        'one.sendall(b\'{"host": "me", "nonce": "\' + b\'0\' * 32 + b\'", "proof": ""}\\n\')\n'
        "one.settimeout(5)\n"
        "try:\n    print(one.recv(1000).decode())\nexcept socket.timeout:\n    print('silence')\n"
    )
    where = (f"--namespace={pods.namespace.name}", names_of(pods, job)[0])
    words = ("python3", "-c", code, about["address"], str(about["port"]))
    said = pods.cluster.kubectl("exec", *where, "--", *words)
    assert said.strip() in ("silence", "") or list(json.loads(said)) == ["nonce"]
    assert about["token"] not in said
    assert far.show(job)["state"] == "running"
    far("stop", "--now", job)
    assert far.show(job)["attempts"][0]["outcome"] == "stopped"


def test_what_has_no_way_to_its_other_pods_is_refused(far: Dray) -> None:
    ended = far("run", *WIDE, "--launch", "none", *python("-c", "pass"), check=False)
    assert ended.returncode == 4
    assert "has no way to its other pods" in ended.stderr


def test_pods_that_are_called_like_their_node(dray: Dray, pods: Pods) -> None:
    """Two on one node, in its network: they meet, and each can be entered."""
    patch = {
        "containers": [{"name": "job", "imagePullPolicy": "Never"}],
        "hostNetwork": True,
        "nodeSelector": {"kubernetes.io/hostname": "node1"},
    }
    pods.offer(dray, image="registry.local/python:1", patch=json.dumps(patch))
    dray.write("train.py", TRAINER)
    job = dray.run(*WIDE, *python("train.py", "10000"))
    begun(dray, job)
    own = "import os, socket; print(os.environ['RANK'], socket.gethostname(), os.getcwd())"
    entered = [
        dray("exec", "--rank", str(rank), job, "--", "python3", "-c", own).stdout.split()
        for rank in range(4)
    ]
    assert [rank for rank, _, _ in entered] == ["0", "1", "2", "3"]
    assert {host for _, host, _ in entered} == {leader_of(dray, job)} == {"node1"}
    dray("stop", "--now", job)
