"""The cluster of the tests is a real one, breaks as one does, and ends whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_for
from tests.kubernetes.pods import GPU, PYTHON, job, named_pod, pod
from tests.rigs.kubernetes import cgroups
from tests.rigs.kubernetes.cluster import Kubernetes, Namespace
from tests.rigs.kubernetes.leftovers import PREFIX, first_processes, sweep

pytestmark = pytest.mark.kubernetes


class User:
    """Somebody who may use one namespace."""

    def __init__(self, cluster: Kubernetes, namespace: Namespace, **how: Any) -> None:
        self.cluster = cluster
        self.config = cluster.kubeconfig(namespace, **how)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*words, stdin=stdin, config=self.config)

    def refused(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl, which must fail, and give what it complains of."""
        done = self.cluster.try_kubectl(*words, stdin=stdin, config=self.config)
        assert done.returncode
        return done.stderr

    def create(self, *described: dict[str, Any]) -> None:
        self.cluster.create(*described, config=self.config)

    def run(self, name: str, spec: dict[str, Any]) -> str:
        """Run a Job to its end, and give what it printed."""
        self.create(job(name, spec))
        self.kubectl("wait", "--for=condition=complete", f"job/{name}", "--timeout=120s")
        return self.kubectl("logs", f"job/{name}")

    def start(self, name: str, spec: dict[str, Any], **labels: str) -> None:
        self.create(named_pod(name, spec, **labels))
        self.kubectl("wait", "--for=condition=ready", f"pod/{name}", "--timeout=120s")

    def get(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "--output=json"))
        return found


@pytest.fixture
def user(kubernetes: Kubernetes, namespace: Namespace) -> User:
    return User(kubernetes, namespace)


def ready(cluster: Kubernetes) -> dict[str, str]:
    """What each node is said to be: True, False or Unknown."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output=json"))["items"]
    return {
        node["metadata"]["name"]: condition["status"]
        for node in nodes
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready"
    }


def test_two_nodes_are_ready(kubernetes: Kubernetes) -> None:
    version = json.loads(kubernetes.kubectl("version", "--output=json"))
    assert int(version["serverVersion"]["minor"]) >= 34
    assert version["clientVersion"]["gitVersion"] == version["serverVersion"]["gitVersion"]
    assert ready(kubernetes) == {"node1": "True", "node2": "True"}


def test_a_job_completes_and_its_output_is_kept(user: User) -> None:
    assert user.run("hello", pod("sh", "-c", "echo hello; true")) == "hello\n"


def test_exec_passes_input_and_exit_code(user: User) -> None:
    user.start("shell", pod("sleep", "600"))
    sent = "x" * 300_000
    counted = user.kubectl("exec", "-i", "shell", "--", "wc", "-c", stdin=sent)
    assert counted.strip() == "300000"
    done = user.cluster.try_kubectl("exec", "shell", "--", "sh", "-c", "exit 7", config=user.config)
    assert done.returncode == 7


def test_a_user_sees_only_the_own_namespace(user: User) -> None:
    assert "forbidden" in user.refused("get", "nodes")
    assert "forbidden" in user.refused("get", "pods", "--namespace=default")
    assert user.get("pods")["items"] == []


def test_the_volume_is_the_same_on_both_nodes(user: User, namespace: Namespace) -> None:
    def on(node: str, command: str) -> str:
        return user.run(f"on-{node}", pod("sh", "-c", command, node=node, claim=namespace.claim))

    assert on("node1", "hostname > /home/where; echo written") == "written\n"
    assert on("node2", "cat /home/where") == (namespace.volume / "where").read_text() != ""


def test_a_quota_refuses(kubernetes: Kubernetes, user: User, namespace: Namespace) -> None:
    kubernetes.add_quota(namespace, gpu="2")
    wanted = json.dumps(named_pod("greedy", pod("true", gpus=3)))
    assert "exceeded quota" in user.refused("create", "--filename=-", stdin=wanted)
    assert user.run("modest", pod("echo", "in", gpus=2)) == "in\n"


def test_a_job_is_given_gpus(user: User) -> None:
    script = (
        "import json, os;"
        "print(json.dumps([os.environ['NVIDIA_VISIBLE_DEVICES'].split(','),"
        "os.environ['CUDA_VISIBLE_DEVICES'], sorted(os.listdir('/dev'))]))"
    )
    said = user.run("training", pod("python3", "-c", script, image=PYTHON, gpus=2))
    given, numbers, devices = json.loads(said)
    assert len(given) == 2
    assert numbers == "0,1"
    assert {f"nvidia{one.removeprefix('GPU-')}" for one in given} <= set(devices)


def test_pods_find_each_other_by_name(user: User) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ring"},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"part": "ring"},
        },
    }
    user.create(service)
    first = pod(
        "python3", "-m", "http.server", "8000",
        image=PYTHON, node="node1", hostname="first", subdomain="ring",
    )  # fmt: skip
    user.start("first", first, part="ring")
    script = (
        "import socket, time\n"
        "for _ in range(100):\n"
        "    try:\n"
        "        socket.create_connection(('first.ring', 8000), 5).close()\n"
        "        break\n"
        "    except OSError:\n"
        "        time.sleep(0.1)\n"
        "else:\n"
        "    raise SystemExit('nobody there')\n"
        "print('met')\n"
    )
    assert user.run("second", pod("python3", "-c", script, image=PYTHON, node="node2")) == "met\n"


def test_a_higher_priority_takes_the_gpus(kubernetes: Kubernetes, user: User) -> None:
    kubernetes.priority_classes(low=100, high=1000)
    user.start("low", pod("sleep", "600", gpus=4, node="node1", priorityClassName="low"))
    user.start("high", pod("sleep", "600", gpus=4, node="node1", priorityClassName="high"))
    assert "NotFound" in user.refused("get", "pod", "low")


def test_a_token_that_has_expired_is_refused(kubernetes: Kubernetes, namespace: Namespace) -> None:
    late = User(kubernetes, namespace, token=kubernetes.expired_token(namespace))
    assert "must be logged in" in late.refused("get", "pods")


def test_the_api_server_comes_back(kubernetes: Kubernetes, user: User) -> None:
    user.start("talker", pod("sh", "-c", "while true; do echo talk; sleep 1; done"))
    words = [str(kubernetes.bin / "kubectl"), f"--kubeconfig={user.config}", "logs", "-f", "talker"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as follower:
        assert follower.stdout
        assert follower.stdout.readline() == b"talk\n"
        kubernetes.restart_apiserver()
        assert follower.wait(60) != 0
    phase = user.get("pod", "talker")["status"]["phase"]
    assert phase == "Running"
    assert user.run("after", pod("echo", "back")) == "back\n"


def test_a_connection_hangs_and_goes_on(kubernetes: Kubernetes, user: User) -> None:
    kubernetes.hang()
    try:
        assert "exceeded" in user.refused("get", "pods", "--request-timeout=1s")
    finally:
        kubernetes.resume()
    assert user.get("pods")["items"] == []


def test_a_way_leads_over_a_link(kubernetes: Kubernetes, namespace: Namespace) -> None:
    with kubernetes.link(delay=0.2) as link:
        away = User(kubernetes, namespace, port=link.port)
        assert away.get("pods")["items"] == []
        assert link.sent_up


@pytest.mark.kubernetes_long
def test_a_node_is_lost_and_comes_back(kubernetes: Kubernetes, user: User) -> None:
    user.create(job("patient", pod("sleep", "600"), backoffLimit=6))
    node = wait_for(lambda: node_of_running(user, "patient"), 60)
    kubernetes.power_off(node)
    try:
        wait_for(lambda: ready(kubernetes)[node] == "Unknown", 60)
        other = wait_for(lambda: node_of_running(user, "patient", but=node), 120)
        assert other != node
    finally:
        kubernetes.start_node(node)
    assert ready(kubernetes)[node] == "True"
    assert user.run("again", pod("echo", "back", node=node, gpus=1)) == "back\n"


def node_of_running(user: User, name: str, but: str = "") -> str:
    for one in user.get("pods", f"--selector=job-name={name}")["items"]:
        running = one["status"]["phase"] == "Running"
        node: str = one["spec"].get("nodeName", "")
        if running and node != but and "deletionTimestamp" not in one["metadata"]:
            return node
    return ""


def test_containers_outlive_their_kubelet(
    kubernetes: Kubernetes, user: User, namespace: Namespace
) -> None:
    script = (
        "while true; do i=$((i+1)); echo $i > /home/new; mv /home/new /home/beat; sleep 1; done"
    )
    user.start("beat", pod("sh", "-c", script, node="node1", claim=namespace.claim))
    beat = namespace.volume / "beat"
    kubernetes.kill_kubelet("node1")
    try:
        last = wait_for(lambda: beat.exists() and beat.read_text())
        wait_for(lambda: beat.read_text() != last)
    finally:
        kubernetes.start_node("node1")
    status = user.get("pod", "beat")["status"]
    assert status["containerStatuses"][0]["restartCount"] == 0
    said = json.loads(kubernetes.kubectl("get", "node", "node1", "--output=json"))["status"]
    assert said["allocatable"][GPU] == "4"


class Another:
    """A cluster of another process, as somebody starts it by hand."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.kubernetes"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        said = self.process.stdout.readline()
        self.folder = Path(said.split("KUBECONFIG=")[1].split()[0]).parent
        self.namespaces = {
            os.readlink(f"/proc/{pid}/ns/{kind}")
            for pid in first_processes(self.folder)
            for kind in ("net", "pid", "mnt")
        }
        assert len(self.namespaces) == 9

    def left(self) -> list[str]:
        """Tell of every process and mount that is still there."""
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        found = [mount for mount in mounts if self.folder.name in mount]
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                seen = {os.readlink(entry / "ns" / kind) for kind in ("net", "pid", "mnt")}
                words = (entry / "cmdline").read_text(errors="replace")
                if seen & self.namespaces or str(self.folder) in words:
                    found.append(words)
        return found

    def left_on_disk(self) -> list[Path]:
        tops = [*cgroups.hierarchies(), cgroups.ROOT / "unified"]
        places = [self.folder, *(top / self.folder.name for top in tops)]
        return [place for place in places if place.exists()]


@pytest.mark.kubernetes_long
def test_nothing_is_left_of_a_cluster_that_was_stopped() -> None:
    links = sorted(os.listdir("/sys/class/net"))
    another = Another()
    assert another.left()
    assert another.left_on_disk()
    another.process.communicate("")
    assert another.process.returncode == 0
    assert another.left() == []
    assert another.left_on_disk() == []
    assert sorted(os.listdir("/sys/class/net")) == links


@pytest.mark.kubernetes_long
def test_nothing_is_left_of_a_cluster_whose_owner_was_killed(kubernetes: Kubernetes) -> None:
    another = Another()
    sweep()  # it is somebody's
    assert len(first_processes(another.folder)) == 3
    another.process.kill()
    another.process.communicate()
    wait_for(lambda: not another.left(), 30)  # by itself
    sweep()
    assert another.left_on_disk() == []
    assert kubernetes.folder.name.startswith(PREFIX)
    assert len(first_processes(kubernetes.folder)) == 3
    assert ready(kubernetes) == {"node1": "True", "node2": "True"}
