"""A training on Kubernetes, which an administrator interrupts and its user looks at."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.conftest import Dray, Pods, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER

JOB = "dray/job"  # the label of what belongs to a job
APIS = {"jobs": "/apis/batch/v1", "pods": "/api/v1", "secrets": "/api/v1"}
SAVING = (*RESUMABLE, "--checkpoint-signal", "USR1", "--grace", "5s")


def kill_first_process(pod: str) -> None:
    """Kill a pod's first process, and with it all that is in the pod, from outside."""
    sign = f"HOSTNAME={pod}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            inside = (folder / "status").read_text().partition("NSpid:")[2].splitlines()[0].split()
            if inside[-1] == "1" and sign in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
                return
    raise AssertionError(f"{pod} has no process")


class Admin:
    """Somebody who may do anything in the namespace."""

    def __init__(self, pods: Pods) -> None:
        self.pods = pods
        self.cluster = pods.cluster
        self.where = f"--namespace={pods.namespace.name}"

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*words, self.where, stdin=stdin)

    def found(self, kind: str, labels: str = "") -> list[dict[str, Any]]:
        """The objects with these labels. Tests ask again and again, so no kubectl is started."""
        path = f"{APIS[kind]}/namespaces/{self.pods.namespace.name}/{kind}"
        answer = self.cluster.control.get(f"{path}?labelSelector={quote(labels)}")
        found: list[dict[str, Any]] = answer["items"]
        return found

    def listed(self, kinds: str, job: str) -> list[dict[str, Any]]:
        """The objects of a job, of one kind or of several: jobs,secrets."""
        return [one for kind in kinds.split(",") for one in self.found(kind, f"{JOB}={job}")]

    def running(self, job: str, but: str = "") -> dict[str, Any] | None:
        """The job's pod that runs and may go on."""
        for pod in self.listed("pods", job):
            own, is_over = pod["metadata"]["name"], "deletionTimestamp" in pod["metadata"]
            if pod["status"]["phase"] == "Running" and not is_over and own != but:
                return pod
        return None

    def helper(self) -> dict[str, Any] | None:
        """The helper's pod, if it runs."""
        for pod in self.found("pods", f"job-name,!{JOB}"):
            is_over = "deletionTimestamp" in pod["metadata"]
            if pod["status"]["phase"] == "Running" and not is_over:
                return pod
        return None

    def move_helper(self, dray: Dray, node: str) -> None:
        """See to it that the helper is on this node."""
        self.kubectl("delete", "jobs", f"--selector=!{JOB}", "--wait=true")
        others = [one for one in self.cluster.nodes if one != node]
        for other in others:
            self.cluster.kubectl("cordon", other)
        dray("doctor", "k8s")
        for other in others:
            self.cluster.kubectl("uncordon", other)
        there = self.helper()
        assert there
        assert there["spec"]["nodeName"] == node

    def job_name(self, job: str) -> str:
        names: list[str] = [one["metadata"]["name"] for one in self.listed("jobs", job)]
        return max(names)


class Training:
    """A job that counts to a goal, and saves at every step or on request."""

    def __init__(
        self, dray: Dray, pods: Pods, *flags: str, goal: int = 60, saves: str = "--every"
    ) -> None:
        self.dray = dray
        self.goal = goal
        self.admin = Admin(pods)
        dray.write("train.py", TRAINER)
        command = ("--", "python3", "train.py", str(goal), "0.1", *filter(None, [saves]))
        self.id = dray.run("--on", "k8s", *SAVING, *flags, *command)

    def has_saved(self, attempt: int = 1) -> dict[str, Any]:
        """Wait until it has saved in this attempt; give its pod."""
        folder = self.dray.job_dir(self.id)
        wait_for(lambda: len(list((folder / "attempts").glob("*"))) >= attempt, 90)
        began = (folder / f"attempts/{attempt:03d}").stat().st_ctime
        saved = folder / "outputs"
        wait_for(lambda: any(one.stat().st_mtime > began for one in saved.glob("ckpt_*.json")), 60)
        pod: dict[str, Any] = wait_for(lambda: self.admin.running(self.id))
        return pod

    def starts(self, attempt: int = 1) -> dict[str, Any]:
        """Wait until the command has made a step in this attempt; give its pod."""
        log = self.dray.job_dir(self.id) / f"attempts/{attempt:03d}/log"
        wait_for(lambda: log.exists() and "start at" in log.read_text(), 90)
        pod: dict[str, Any] = wait_for(lambda: self.admin.running(self.id))
        return pod

    def steps(self) -> list[int]:
        text = (self.dray.job_dir(self.id) / "outputs/steps").read_text()
        return [int(line) for line in text.split()]

    def ends_whole(self, *, most_lost: int = 1) -> dict[str, Any]:
        """Wait for the end: it is done, each attempt went on from the newest checkpoint, and no
        more than so many steps were made twice for each interruption."""
        shown = self.dray.wait(self.id)
        assert shown["state"] == "done", (shown["state"], shown["reason"], self.dray.log(self.id))
        attempts = shown["attempts"]
        assert attempts[-1]["outcome"] == "done"
        for before, after in pairwise(attempts):
            assert after["from_checkpoint"] == before["checkpoint"]
        steps = self.steps()
        assert sorted(set(steps)) == list(range(1, self.goal + 1))
        assert len(steps) - self.goal <= most_lost * (len(attempts) - 1)
        return shown
