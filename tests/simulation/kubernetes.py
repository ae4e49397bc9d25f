"""A Kubernetes: an API server, a Job controller, and kubelets on nodes that may be lost.

As far as dray's Jobs use it: see docs/explanation/kubernetes.md. The API server is asked where the
real one is, at ``Api.ask``; so all that dray reads from its answers is part of the simulation.
"""

from __future__ import annotations

import base64
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dray.transport.kube_api import Reply
from tests.simulation.batch import ENDING, GONE, OUT_OF_MEMORY, PENDING, RUNNING
from tests.simulation.kernel import FOREVER, Kernel, Process
from tests.simulation.kube_objects import Asked, Job, Object, Pod, is_meant, read_path, table
from tests.simulation.luck import Calm
from tests.simulation.system import REAL

NODE_LOSS = 60  # seconds until a pod of a node that does not answer is marked for deletion
KILLED = 137
CONFLICT, MISSING = Reply(409, {"message": "AlreadyExists"}), Reply(404, {"message": "NotFound"})


class KubeSystem:
    """``start`` starts the first process of a pod of one of dray's jobs."""

    def __init__(self, kernel: Kernel, luck: Calm, start: Callable[[Any], Process]) -> None:
        self.kernel = kernel
        self.luck = luck
        self.start = start
        self.folder = Path()  # for what pods mount
        # Of two Jobs of one job, pods wait for each other: the job's lock sees to that.
        self.submitted: Callable[[Any, Any], None] = lambda job, beside: None
        self.jobs: list[Job] = []  # all there ever were
        self.by_name: dict[str, Job] = {}
        self.pods: list[Pod] = []
        self.secrets: dict[str, Object] = {}

    # -- what the world looks at, and does --------------------------------------------------------

    def live(self) -> list[Job]:
        """What somebody could delete behind dray's back."""
        return [one for one in self.by_name.values() if one.job and one.ended_at == FOREVER]

    def is_idle(self) -> bool:
        return not self.live() and not any(
            not pod.is_over or pod.deleted_at is not None for pod in self._pods_of_jobs()
        )

    def _pods_of_jobs(self) -> Iterator[Pod]:
        """Without what nobody will ever take away: the pod of a node that does not come back, once
        its Job is gone."""
        for pod in self.pods:
            has_job = self.by_name.get(pod.job.name) is pod.job
            is_stuck = pod.is_cut_off and pod.returns_at == FOREVER and pod.state == GONE
            if pod.job.job and (has_job or not is_stuck):
                yield pod

    def running(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.state == RUNNING]

    def cancel(self, job: Job) -> None:
        self._delete_job(job)

    def end(self, pod: Pod, fate: str, *, at_once: bool = False) -> None:
        """Take a pod away: with a grace, or its node is lost, or its container killed."""
        if pod.state != RUNNING:
            return
        if not at_once:
            self._delete_pod(pod)
        elif fate == OUT_OF_MEMORY:
            pod.reason = "OOMKilled" if pod.job.job else ""
            self._kill(pod)
        else:
            self._lose_node(pod)

    def left(self) -> Iterator[str]:
        """What is left of dray's jobs."""
        yield from (f"Job {one.name}" for one in self.by_name.values() if one.job)
        yield from (f"Secret {name}" for name in self.secrets)
        yield from (f"pod {one.name}" for one in self._pods_of_jobs())

    def helper(self) -> Pod | None:
        """The pod in which agents can be started; it may be on a node that does not answer."""
        jobs = [one for one in self.by_name.values() if not one.job]
        pods = [pod for pod in self.pods if pod.job in jobs and pod.is_there]
        return next((pod for pod in pods if pod.phase == "Running"), None)

    # -- nodes ------------------------------------------------------------------------------------

    def _lose_node(self, pod: Pod) -> None:
        now, loss = self.kernel.now, self.luck.node_loss()
        self.kernel.say(f"the node of {pod.name} is lost: {loss}")
        pod.is_cut_off = True
        pod.lost_at, pod.dies_at = now, now + loss.dies_after
        pod.returns_at = now + loss.returns_after
        self._look_at_node(pod)

    def _look_at_node(self, pod: Pod) -> None:
        now = self.kernel.now
        if now >= pod.dies_at:
            pod.dies_at = FOREVER
            self._kill(pod)
        if pod.deleted_at is None and now >= pod.lost_at + NODE_LOSS:
            self._delete_pod(pod)
        if now >= pod.returns_at:
            self.kernel.say(f"the node of {pod.name} is back")
            pod.is_cut_off = False
            pod.lost_at = pod.dies_at = pod.returns_at = FOREVER

    def _kill(self, pod: Pod) -> None:
        """All of the container, at once."""
        if pod.state in (RUNNING, ENDING):
            pod.state = ENDING
            if pod.process is not None:
                self.kernel.kill(pod.process)
            else:
                self._ended(pod, None)

    # -- the kubelet ------------------------------------------------------------------------------

    def tick(self) -> None:
        for pod in list(self.pods):
            if pod.is_cut_off:
                self._look_at_node(pod)
            if not pod.is_cut_off:
                self._look_at_container(pod)
            elif pod.state == ENDING and self.kernel.now >= pod.kill_at:
                self._kill(pod)
        for job in list(self.by_name.values()):
            self._look_at_job(job)
        for pod in list(self.pods):
            if self.by_name.get(pod.job.name) is not pod.job and self.luck.starts():
                self._collect(pod)
        if self.luck.starts():
            self.collect_garbage()

    def _look_at_container(self, pod: Pod) -> None:
        now = self.kernel.now
        if pod.state == GONE and not pod.is_over:
            pod.phase = "Succeeded" if pod.code == 0 else "Failed"
        elif pod.state == PENDING and pod.deleted_at is None:
            secret = pod.job.secret
            if (not secret or secret in self.secrets) and self.luck.starts():
                self._run(pod)
        elif pod.state == RUNNING and (pod.deleted_at is not None or not pod.is_there):
            pod.state = ENDING
            pod.kill_at = now + pod.grace
            if pod.process is None:
                self._ended(pod, None)
            else:
                self.kernel.signal(pod.process, signal.SIGTERM)  # its first process only
        elif pod.state == ENDING and now >= pod.kill_at:
            self._kill(pod)
        elif pod.state == PENDING and not pod.is_over:  # nothing of it ever ran
            pod.state, pod.phase, pod.code = GONE, "Failed", KILLED

    def _run(self, pod: Pod) -> None:
        self.kernel.say(f"pod {pod.name} starts")
        pod.state, pod.phase = RUNNING, "Running"
        if not pod.job.job:
            return
        self._mount(pod)
        pod.process = self.start(pod)
        pod.process.place = pod
        pod.process.at_end.append(lambda process: self._ended(pod, process))

    def _mount(self, pod: Pod) -> None:
        if not pod.job.secret:
            return
        folder = self.folder / pod.name
        folder.mkdir(parents=True)
        pod.mount = str(folder)
        for name, value in self.secrets[pod.job.secret]["data"].items():
            with REAL.open_file(folder / name, "wb") as file:
                file.write(base64.b64decode(value))

    def _ended(self, pod: Pod, process: Process | None) -> None:
        pod.state, pod.process = GONE, None
        pod.code = KILLED
        if process is not None and not process.dead:
            pod.code = process.result if isinstance(process.result, int) else 1
        if not pod.is_cut_off:
            pod.phase = "Succeeded" if pod.code == 0 else "Failed"
        for guest in pod.guests:
            self.kernel.kill(guest)
        if pod.mount:
            shutil.rmtree(pod.mount)
        self.kernel.say(f"pod {pod.name} has ended with {pod.code}")

    # -- the controllers --------------------------------------------------------------------------

    def _look_at_job(self, job: Job) -> None:
        own = [pod for pod in self.pods if pod.job is job and pod.is_there]
        for pod in own:
            # Without a policy, one that is being deleted has failed.
            is_over = pod.is_over or (not job.has_policy and pod.deleted_at is not None)
            if is_over and not pod.is_counted and self.luck.starts():
                pod.is_counted = True
                code = KILLED if pod.code is None else pod.code
                job.verdict = job.verdict or job.verdict_on(code)
            if pod.is_over and pod.is_counted and pod.deleted_at is not None:
                self._forget(pod)
        active = [pod for pod in own if pod.is_there and not (pod.is_counted and pod.is_over)]
        if job.verdict:
            for pod in active:
                self._delete_pod(pod)
            if not active and job.ended_at == FOREVER:
                self.kernel.say(f"Job {job.name} is {job.verdict}")
                job.ended_at = self.kernel.now
            if self.kernel.now >= job.ended_at + job.given["spec"]["ttlSecondsAfterFinished"]:
                self._delete_job(job)
        elif len(active) < job.given["spec"].get("parallelism", 1) and self.luck.starts():
            self._create_pod(job)

    def _create_pod(self, job: Job) -> None:
        pod = Pod(f"{job.name}-{job.pods}-{self.kernel.pids:05d}", job, self.kernel.now)
        self.kernel.pids += 1
        job.pods += 1
        self.pods.append(pod)
        self.kernel.say(f"pod {pod.name} is created")

    def collect_garbage(self) -> None:
        """Take away the Secrets of Jobs that are gone."""
        owners = {job.uid for job in self.by_name.values()}
        for name, secret in list(self.secrets.items()):
            if secret["metadata"]["ownerReferences"][0]["uid"] not in owners:
                del self.secrets[name]

    def _collect(self, pod: Pod) -> None:
        """Take away what belonged to a Job that is gone."""
        pod.is_counted = True
        self._delete_pod(pod)
        if pod.is_over and pod.is_there:
            self._forget(pod)
        elif not pod.is_there and pod.state == GONE:
            self.pods.remove(pod)

    def _delete_pod(self, pod: Pod) -> None:
        if pod.deleted_at is None:
            self.kernel.say(f"pod {pod.name} is being deleted")
            pod.deleted_at = self.kernel.now + (pod.grace if pod.phase == "Running" else 0)

    def _forget(self, pod: Pod) -> None:
        """Take it out of the API server; the kubelet ends what is left of it once it hears that."""
        if pod.is_there:
            self.kernel.say(f"pod {pod.name} is gone")
        pod.is_there = False
        if pod.state == GONE:
            self.pods.remove(pod)

    def _delete_job(self, job: Job) -> None:
        self.kernel.say(f"Job {job.name} is deleted")
        if self.by_name.get(job.name) is job:
            del self.by_name[job.name]

    # -- the API server ---------------------------------------------------------------------------

    def answer(self, method: str, path: str, thing: Mapping[str, Any] | None) -> Reply:
        asked = read_path(path)
        if asked.kind == "events":
            return Reply(200, {"items": list(self._events())})
        if method == "POST":
            assert thing is not None
            return self._create(asked.kind, thing)
        if asked.kind == "secrets":
            return Reply(200, self.secrets[asked.name]) if asked.name in self.secrets else MISSING
        found: list[Any] = (
            [one for one in self.by_name.values() if is_meant(one.described(), asked)]
            if asked.kind == "jobs"
            else [one for one in self.pods if one.is_there and is_meant(one.described(), asked)]
        )
        if asked.name and not found:
            return MISSING
        if method == "DELETE":
            return self._delete(asked, found)
        if method == "PATCH":
            assert thing == {"metadata": {"finalizers": []}}
            found[0].is_counted = True
            if found[0].is_forced:
                self._forget(found[0])
            return Reply(200, {})
        if asked.name:
            return Reply(200, found[0].described())
        if asked.parameters.get("includeObject") == "None":
            return Reply(200, table(found))
        return Reply(200, {"items": [one.described() for one in found]})

    def _events(self) -> Iterator[Object]:
        """What the kubelets say of pods that they cannot start."""
        for pod in self.pods:
            secret = pod.job.secret
            if pod.phase == "Pending" and secret and secret not in self.secrets:
                said = (
                    f'MountVolume.SetUp failed for volume "secrets" : secret "{secret}" not found'
                )
                about = {"name": pod.name}
                yield {"reason": "FailedMount", "message": said, "involvedObject": about}

    def _create(self, kind: str, thing: Mapping[str, Any]) -> Reply:
        name = thing["metadata"]["name"]
        if kind == "secrets":
            if name in self.secrets:
                return CONFLICT
            self.secrets[name] = dict(thing)
            return Reply(201, thing)
        if name in self.by_name:
            return CONFLICT
        self.kernel.pids += 1
        job = Job(thing, f"uid-{self.kernel.pids}", self.kernel.now)
        if job.job:
            self.jobs.append(job)
        self.kernel.say(f"Job {name} is created")
        self.by_name[name] = job
        return Reply(201, job.described())

    def _delete(self, asked: Asked, found: list[Any]) -> Reply:
        for one in found:
            if isinstance(one, Job):
                self._delete_job(one)
                continue
            self._delete_pod(one)
            if asked.parameters.get("gracePeriodSeconds") == "0":
                one.is_forced = True
                if one.is_counted:
                    self._forget(one)
        return Reply(200, {})
