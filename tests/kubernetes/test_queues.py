"""Jobs in Kueue's queues: it lets them in, takes them out again, and says why."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER
from tests.integration.test_arrays import run_many, states
from tests.kubernetes.training import Admin
from tests.rigs.kubernetes.kueue_manager import VERSION, Kueue

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kueue")]
PATIENCE = 100.0
PYTHON = "python3"
Queue = Callable[..., str]


@pytest.fixture(scope="session")
def queue(kueue: Kueue, pods: Pods) -> Queue:
    """Makes a queue of the user's namespace."""
    kueue.admit(pods.namespace)
    numbers = itertools.count(1)

    def make(**quota: str) -> str:
        name = f"queue-{next(numbers)}"
        kueue.add_queue(pods.namespace, name, **{"memory": "64Gi", **quota})
        return name

    return make


def offer(pods: Pods, dray: Dray, queue: str, **settings: object) -> None:
    dray.write("train.py", TRAINER)
    pods.offer(dray, queue=queue, **settings)


def state_of(dray: Dray, job: str) -> tuple[str, str]:
    shown = dray.show(job)
    return shown["state"], shown["reason"] or ""


def is_in(dray: Dray, job: str, state: str) -> str | None:
    """The reason, once the job is in this state: it may be none."""
    found, reason = state_of(dray, job)
    assert found not in ("failed", "done", "stopped") or found == state, (found, reason)
    return reason or "none" if found == state else None


def explained(dray: Dray, *jobs: str) -> list[str] | None:
    """Why these jobs wait, once they have places and Kueue has said why one of them does."""
    reasons = [is_in(dray, one, "queued") or "" for one in jobs]
    is_told = "insufficient" in " ".join(reasons) and all("at place" in one for one in reasons)
    return reasons if is_told else None


def steps_of(dray: Dray, job: str) -> list[int]:
    path = dray.job_dir(job) / "outputs/steps"
    return [int(one) for one in path.read_text().split()] if path.exists() else []


def test_a_job_waits_for_its_share_says_why_and_gives_it_back(
    dray: Dray, pods: Pods, kueue: Kueue, queue: Queue
) -> None:
    lab = queue(cpu="1")
    offer(pods, dray, lab)
    first = dray.run("--on", "k8s", "--cpus", "1", "--", PYTHON, "train.py", "1000", "0.2")
    wait_for(lambda: is_in(dray, first, "running"), PATIENCE)
    # A Job that may use up many pods, one after another, counts as one.
    assert kueue.usage(pods.namespace, lab)["cpu"] == "1"

    second = dray.run("--on", "k8s", "--cpus", "1", "--", PYTHON, "train.py", "1", "0.1")
    third = dray.run("--on", "k8s", "--cpus", "1", "--", PYTHON, "train.py", "1", "0.1")
    # Of two that came within one second, either may be the first. Kueue looks at one of them only:
    # the other asks for the same.
    places = {"waiting in its queue, at place 1", "waiting in its queue, at place 2"}
    reasons = wait_for(lambda: explained(dray, second, third), PATIENCE)
    assert {one.partition(" (")[0] for one in reasons} == places
    assert all(one in places or "insufficient unused quota for cpu" in one for one in reasons)

    dray("stop", first)
    assert dray.wait(first)["state"] == "stopped"
    assert dray.wait(second)["state"] == "done"
    assert dray.wait(third)["state"] == "done"
    wait_for(lambda: kueue.usage(pods.namespace, lab)["cpu"] == "0", PATIENCE)


def test_a_preempted_job_goes_on_by_itself(dray: Dray, pods: Pods, queue: Queue) -> None:
    lab = queue(cpu="1")
    offer(pods, dray, lab, priority_class="low")
    run = ("--on", "k8s", "--cpus", "1", "--")
    low = dray.run(*RESUMABLE, *run, PYTHON, "train.py", "60", "0.2", "--every")
    wait_for(
        lambda: len(steps_of(dray, low)) > 3 if is_in(dray, low, "running") else None, PATIENCE
    )

    offer(pods, dray, lab, priority_class="high")
    high = dray.run(*run, PYTHON, "train.py", "1000", "0.2")
    wait_for(lambda: is_in(dray, high, "running"), PATIENCE)
    reason = wait_for(lambda: is_in(dray, low, "queued"), PATIENCE)
    assert reason.startswith(f"preempted by {high}; waiting in its queue")
    assert dray.show(low)["attempts"][0]["outcome"] == "interrupted"

    dray("stop", high)
    assert dray.wait(low)["state"] == "done"
    begins = [line for line in dray.log(low).splitlines() if line.startswith("start at")]
    assert len(begins) == 2
    assert int(begins[1].split()[-1]) > 0
    # No step is lost.
    assert set(steps_of(dray, low)) == set(range(1, 61))
    assert len(dray.show(low)["attempts"]) == 2


def test_a_job_that_waits_or_was_preempted_is_stopped(dray: Dray, pods: Pods, queue: Queue) -> None:
    lab = queue(cpu="1")
    offer(pods, dray, lab, priority_class="low")
    run = ("--on", "k8s", "--cpus", "1", "--", PYTHON, "train.py", "1000", "0.2")
    low = dray.run(*RESUMABLE, *run)
    wait_for(lambda: is_in(dray, low, "running"), PATIENCE)
    waiting = dray.run(*run)
    wait_for(lambda: is_in(dray, waiting, "queued"), PATIENCE)
    offer(pods, dray, lab, priority_class="high")
    high = dray.run(*run)
    wait_for(lambda: (is_in(dray, low, "queued") or "").startswith("preempted"), PATIENCE)

    dray("stop", waiting, low)
    assert dray.wait(waiting)["state"] == "stopped"
    assert dray.wait(low)["state"] == "stopped"
    assert not Admin(pods).listed("jobs", waiting)
    assert not Admin(pods).listed("jobs", low)
    dray("stop", high)
    assert dray.wait(high)["state"] == "stopped"


def test_what_a_queue_never_lets_in_says_so(dray: Dray, pods: Pods, queue: Queue) -> None:
    lab = queue(cpu="1")
    offer(pods, dray, lab)
    large = dray.run("--on", "k8s", "--cpus", "2", "--", PYTHON, "train.py", "1", "0.1")
    ever = "it asks for more than its queue can ever give"
    wait_for(lambda: (is_in(dray, large, "queued") or "").startswith(ever), PATIENCE)
    offer(pods, dray, "nowhere")
    lost = dray.run("--on", "k8s", "--cpus", "1", "--", PYTHON, "train.py", "1", "0.1")
    missing = "its queue is not there, or not set up (Kubernetes says: LocalQueue nowhere"
    wait_for(lambda: (is_in(dray, lost, "queued") or "").startswith(missing), PATIENCE)
    dray("stop", large, lost)


@pytest.mark.kubernetes_long
def test_thirty_trials_run_two_at_a_time(
    dray: Dray, pods: Pods, kueue: Kueue, queue: Queue
) -> None:
    lab = queue(cpu="2")
    offer(pods, dray, lab)
    count = "import os, time; time.sleep(0.5); print(os.environ['DRAY_JOB'])"
    ids = run_many(dray, [[PYTHON, "-c", count]] * 30, on="k8s", cpus=1)
    used = set()

    def is_over() -> bool:
        used.add(kueue.usage(pods.namespace, lab)["cpu"])
        return set(states(dray).values()) == {"done"}

    wait_for(is_over, 900.0)
    assert used == {"0", "1", "2"} or used == {"1", "2"}
    assert sorted(states(dray)) == sorted(ids)
    assert dray.log(ids[29]) == f"{ids[29]}\n"


def test_a_queue_that_nobody_keeps_is_refused(dray: Dray, pods: Pods) -> None:
    dray.write("train.py", TRAINER)
    pods.offer(dray, scheduler="volcano", queue="lab")
    refused = dray("run", "--on", "k8s", "--", PYTHON, "train.py", "1", "0.1", check=False)
    assert refused.returncode
    assert "it has no Volcano, which the settings name" in refused.stderr


def test_a_share_of_a_gpu_is_refused_where_nothing_shares_them(dray: Dray, pods: Pods) -> None:
    pods.offer(dray)
    refused = dray("run", "--on", "k8s", "--gpus", "0.5", "--", "true", check=False)
    assert refused.returncode
    assert "it gives whole GPUs only" in refused.stderr


def test_whoever_may_not_look_at_workloads_still_sees_that_a_job_waits(
    dray: Dray, pods: Pods, queue: Queue
) -> None:
    lab = queue(cpu="1")
    where = f"--namespace={pods.namespace.name}"
    kubectl = pods.cluster.kubectl
    kubectl("create", "serviceaccount", "guest", where)
    guest = f"{pods.namespace.name}:guest"
    kubectl("create", "rolebinding", "guest", "--role=user", f"--serviceaccount={guest}", where)
    token = kubectl("create", "token", "guest", where, "--duration=1h")
    config = pods.cluster.kubeconfig(pods.namespace, token=token)
    offer(pods, dray, lab, kubeconfig=str(config), scheduler="kueue")
    job = dray.run("--on", "k8s", "--cpus", "2", "--", PYTHON, "train.py", "1", "0.1")
    assert wait_for(lambda: is_in(dray, job, "queued"), PATIENCE) == "suspended"
    workloads = f"/apis/{VERSION}/namespaces/{pods.namespace.name}/workloads"
    seen = pods.cluster.try_kubectl("get", "--raw", workloads, config=config)
    assert "forbidden" in seen.stderr.lower()
    dray("stop", job)
