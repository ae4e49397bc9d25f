"""What ten interruptions cost on Kubernetes, on Slurm and in a plain Job, all at the same time."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from tests.rigs.kubernetes.cluster import Kubernetes, Namespace, Unavailable
from tests.rigs.processes import until
from tests.rigs.slurm import Slurm

from bench.goodput import SAVE, TRAINER
from bench.measure import Figure
from dray import api

INTERRUPTIONS = 10
INTERVAL = 60.0  # seconds of training between two of them
PREEMPTIONS = 5
EVERY = 10.0  # seconds between the checkpoints of the trainer that is preempted
IMAGE = "registry.local/python:1"

# What dray does for a trainer, as a plain Job has to do it: find its checkpoint, and count.
PLAIN = """
import glob, os
folder = os.environ["DRAY_OUTPUTS"]
os.environ["DRAY_ATTEMPT"] = str(len(glob.glob(folder + "/start_*")) + 1)
saved = sorted(glob.glob(folder + "/ckpt_*.json"), key=os.path.getmtime)
if saved:
    os.environ["DRAY_CHECKPOINT"] = saved[-1]
"""


class Run(NamedTuple):
    """A training, by what it has written down."""

    outputs: Path

    def starts(self) -> list[float]:
        """When each attempt began to train."""
        found = sorted(self.outputs.glob("start_*"), key=lambda one: int(one.name.split("_")[1]))
        return [float(one.read_text()) for one in found if one.read_text()]

    def useful(self, before: float) -> float:
        """Return how many seconds of training were saved before this moment."""
        saved = [one for one in self.outputs.glob("ckpt_*.json") if one.stat().st_mtime < before]
        return max((json.loads(one.read_text())["useful"] for one in saved), default=0.0)

    def goodput(self) -> float:
        """Of all the time from the first start to the last, the training that was kept."""
        starts = self.starts()
        return self.useful(starts[-1]) / (starts[-1] - starts[0])

    def gaps(self) -> list[float]:
        """Return how long it did not train after each interruption, and what it had to repeat."""
        starts = self.starts()
        return [later - sooner - INTERVAL for sooner, later in pairwise(starts)]

    def lost(self) -> list[float]:
        """Return how many seconds of training each interruption has undone."""
        ended = range(1, len(self.starts()))
        return [self._noted(f"reached_{n}") - self._noted(f"begun_{n + 1}") for n in ended]

    def _noted(self, name: str) -> float:
        return float((self.outputs / name).read_text())


def run(folder: Path) -> list[Figure]:
    try:
        cluster = Kubernetes()
    except Unavailable as error:
        print(f"no figures of interruptions on Kubernetes: {error}", flush=True)
        return []
    short = Path(tempfile.mkdtemp(prefix="db", dir="/tmp"))  # sockets need a short path
    short.chmod(0o755)
    slurm = Slurm(short / "slurm")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, short, ignore_errors=True)
        stack.callback(cluster.stop)
        cluster.start()
        stack.callback(slurm.stop)
        slurm.start()
        return measure(cluster, slurm, folder, short)


def measure(cluster: Kubernetes, slurm: Slurm, folder: Path, short: Path) -> list[Figure]:
    space = cluster.namespace()
    cluster.priority_classes(low=100, high=1000)
    configure(cluster, slurm, space, folder, short)
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAINER)
    saving: dict[str, Any] = {"checkpoint_signal": "USR1", "grace": "10s"}
    pods = submit(project, "k8s", 0, INTERRUPTIONS, **saving)
    batch = submit(project, "here", 0, INTERRUPTIONS, **saving)
    rare = submit(project, "k8s", EVERY, PREEMPTIONS, saves="periodically", gpus=4)
    root = space.volume / "dray/jobs"
    on_pods, preempted = Run(root / pods.id / "outputs"), Run(root / rare.id / "outputs")
    on_slurm = Run(folder / "root/jobs" / batch.id / "outputs")
    plain = plain_job(cluster, space)
    taken = {
        on_pods: lambda: delete(cluster, space, pods.id),
        on_slurm: lambda: requeue(slurm, batch.id),
    }
    late = Thread(target=interrupt, args=(plain, lambda: delete(cluster, space, "plain")))
    late.daemon = True  # it would take an hour
    late.start()
    with ThreadPoolExecutor() as pool:
        under_way = [pool.submit(interrupt, one, act) for one, act in taken.items()]
        under_way.append(pool.submit(preempt, cluster, space, rare.id, preempted))
        for one in under_way:
            one.result()
    return figures(on_pods, on_slurm, plain, preempted)


def configure(
    cluster: Kubernetes, slurm: Slurm, space: Namespace, folder: Path, short: Path
) -> None:
    os.environ["DRAY_HOME"] = str(folder / "dray")
    os.environ["SLURM_CONF"] = str(slurm.conf)
    os.environ["XDG_RUNTIME_DIR"] = str(short / "s")
    os.environ["PATH"] = f"{cluster.bin}:{os.environ['PATH']}"
    for place in (folder / "dray", short / "s"):
        place.mkdir(mode=0o700)
    pods = {
        "kind": "kubernetes",
        "kubeconfig": str(cluster.kubeconfig(space)),
        "namespace": space.name,
        "volumes": [f"pvc:{space.claim}:/home/me"],
        "image": IMAGE,
        "agent_image": IMAGE,
        "priority_class": "low",
    }
    here = {"kind": "slurm", "root": f"{folder}/root", "python": sys.executable}
    lines = []
    for name, settings in (("k8s", pods), ("here", here)):
        lines += [f"[clusters.{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    (folder / "dray/config.toml").write_text("\n".join([*lines, ""]))


def submit(project: Path, on: str, every: float, attempts: int, **more: Any) -> api.Job:
    """Start a training that ends after so many interruptions."""
    words = ["python3", "train.py", str(every), str(attempts), str(SAVE)]
    return api.run(words, on=on, project=project, checkpoint="ckpt_*.json", **more)


def plain_job(cluster: Kubernetes, space: Namespace) -> Run:
    """Start the same training in a Job as people write it, which may fail as often as it likes."""
    outputs = space.volume / "plain"
    outputs.mkdir(mode=0o777)
    (outputs / "train.py").write_text(PLAIN + TRAINER)
    container = {
        "name": "train",
        "image": IMAGE,
        "command": ["python3", "/v/plain/train.py", "0", "1000", str(SAVE)],
        "env": [{"name": "DRAY_OUTPUTS", "value": "/v/plain"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": space.claim}}],
    }
    template = {"metadata": {"labels": {"dray/job": "plain"}}, "spec": pod}
    described = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "plain", "namespace": space.name},
        # As with a pod failure policy, so that there are never two at once.
        "spec": {"backoffLimit": 1000, "podReplacementPolicy": "Failed", "template": template},
    }
    cluster.create(described)
    return Run(outputs)


def interrupt(training: Run, take_away: Callable[[], object]) -> None:
    for number in range(1, INTERRUPTIONS + 1):
        until(lambda n=number: len(training.starts()) >= n, 900)  # type: ignore[misc]
        time.sleep(max(training.starts()[-1] + INTERVAL - time.time(), 0.0))
        take_away()
    until(lambda: len(training.starts()) > INTERRUPTIONS, 900)


def pods_of(cluster: Kubernetes, space: Namespace, job: str) -> list[dict[str, Any]]:
    listed = cluster.control.get(
        f"/api/v1/namespaces/{space.name}/pods?labelSelector=dray%2Fjob%3D{job}"
    )
    found: list[dict[str, Any]] = [
        one
        for one in listed["items"]
        if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
    ]
    return found


def delete(cluster: Kubernetes, space: Namespace, job: str) -> None:
    for one in pods_of(cluster, space, job):
        where = f"--namespace={space.name}"
        cluster.kubectl("delete", "pod", one["metadata"]["name"], where, "--wait=false")


def requeue(slurm: Slurm, job: str) -> None:
    number = slurm.call("squeue", "--noheader", "--format=%A", f"--name={job}").strip()
    slurm.call("scontrol", "requeue", number)


def preempt(cluster: Kubernetes, space: Namespace, job: str, training: Run) -> None:
    """Take the GPUs away for somebody more important, at another moment after the last checkpoint
    each time."""
    where = f"--namespace={space.name}"
    for number in range(1, PREEMPTIONS + 1):
        until(lambda n=number: len(training.starts()) >= n, 900)  # type: ignore[misc]
        time.sleep(max(training.starts()[-1] + 2.3 * EVERY + 2 * number - time.time(), 0.0))
        (pod,) = pods_of(cluster, space, job)
        cluster.create(rival(space, pod["spec"]["nodeName"]))
        until(lambda n=number: len(training.starts()) > n, 900)  # type: ignore[misc]
        cluster.kubectl("delete", "pod", "rival", where, "--force", "--grace-period=0")


def rival(space: Namespace, node: str) -> dict[str, Any]:
    container = {
        "name": "rival",
        "image": IMAGE,
        "command": ["sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": 4}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "rival", "namespace": space.name},
        "spec": {
            "restartPolicy": "Never",
            "priorityClassName": "high",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
        },
    }


def figures(on_pods: Run, on_slurm: Run, plain: Run, preempted: Run) -> list[Figure]:
    share, beside = on_pods.goodput(), on_slurm.goodput()
    for name, one in (("pods", on_pods), ("Slurm", on_slurm), ("a plain Job", plain)):
        print(f"{name}: idle after each:", *(f"{gap:.1f}" for gap in one.gaps()), flush=True)
    lost = preempted.lost()
    print("undone by each preemption:", *(f"{one:.1f} s" for one in lost), flush=True)
    waits = ", ".join(f"{gap:.0f}" for gap in plain.gaps())
    return [
        Figure(
            f"goodput over {INTERRUPTIONS} deleted pods, one a minute, a trainer that saves on "
            "request",
            share * 100,
            "%",
            f"as many requeues on Slurm ({beside:.1%})",
            share / beside,
            "≥ 0.98×",
            share / beside >= 0.98,
        ),
        Figure(
            f"the same in a plain Job, as far as it got ({len(plain.gaps())} deleted pods)",
            plain.goodput() * 100,
            "%",
            f"as above; it did not train for {waits} s",
            plain.goodput() / beside,
            "none",
            True,
        ),
        Figure(
            f"training undone by a preemption, a trainer that saves every {EVERY:.0f} s, the "
            f"worst of {len(lost)}",
            max(lost),
            "s",
            f"one interval ({EVERY:.0f} s)",
            max(lost) / EVERY,
            "≤ 1×",
            max(lost) <= EVERY,
        ),
    ]
