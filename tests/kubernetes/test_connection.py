"""Connections that break, hang or are not let in: jobs are not lost, and nobody waits for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.training import JOB, Admin, kill_first_process
from tests.rigs.link import Link

pytestmark = pytest.mark.kubernetes

ON = ("--on", "k8s")
SIZE = 8_000_000


@pytest.fixture
def admin(pods: Pods) -> Admin:
    return Admin(pods)


@contextmanager
def over_link(dray: Dray, pods: Pods) -> Iterator[Link]:
    """The way to the API server leads over a link that can be cut."""
    with pods.cluster.link() as link:
        config = pods.cluster.kubeconfig(pods.namespace, port=link.port)
        pods.offer(dray, kubeconfig=str(config))
        dray("doctor", "k8s")
        yield link
        wait_for(dray.nothing_runs)


def started(dray: Dray, *arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "dray", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        words, cwd=dray.project, env=dray.env, stdout=pipe, stderr=pipe, text=True
    )


def jobs_named(admin: Admin, job: str) -> int:
    return len(admin.listed("jobs", job))


# -- logging in -----------------------------------------------------------------------------------


def test_a_token_that_has_expired(dray: Dray, pods: Pods) -> None:
    local = dray.run("--on", "local", "--", "true")
    pods.offer(dray)
    job = dray.run(*ON, "--", "true")
    dray.wait(job)
    wait_for(dray.nothing_runs)
    late = pods.cluster.expired_token(pods.namespace)
    pods.offer(dray, kubeconfig=str(pods.cluster.kubeconfig(pods.namespace, token=late)))
    for words in (("run", *ON, "--", "true"), ("doctor", "k8s"), ("logs", job)):
        refused = dray(*words, check=False)
        said = refused.stdout + refused.stderr
        assert refused.returncode != 0
        assert "must be logged in" in said
        assert "Log in anew" in said
        assert "Traceback" not in said
    rows = json.loads(dray("ps", "--all", "--json").stdout)
    assert {row["id"] for row in rows} >= {local, job}


# -- breaking off ---------------------------------------------------------------------------------

LINES = (
    "import time\nfor n in range(200):\n    print('line', n, flush=True)\n    time.sleep(0.05)\n"
)


def test_a_log_is_followed_while_the_api_server_restarts(dray: Dray, pods: Pods) -> None:
    pods.offer(dray)
    job = dray.run(*ON, "--", "python3", "-c", LINES)
    with started(dray, "logs", "-f", job) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        first = follower.stdout.readline()
        pods.cluster.restart_apiserver()
        rest = follower.stdout.read()
        assert follower.wait(100) == 0, follower.stderr.read()
    assert first + rest == "".join(f"line {n}\n" for n in range(200))
    assert dray.wait(job)["state"] == "done"


def test_an_upload_and_an_answer_are_cut(dray: Dray, pods: Pods, admin: Admin) -> None:
    (dray.project / "big.bin").write_bytes(os.urandom(SIZE))
    copy = "import os, shutil; shutil.copy('big.bin', os.environ['DRAY_OUTPUTS'])"
    with over_link(dray, pods) as link:
        link.cut_after = link.sent_up + SIZE // 2
        job = dray.run(*ON, "--", "python3", "-c", copy)
        assert link.cut_after is None  # it did happen
        assert jobs_named(admin, job) == 1
        assert dray.wait(job)["state"] == "done"
        link.cut_answers_after = link.sent_down + SIZE // 2
        cut = dray("pull", job, "here", check=False)
        assert link.cut_answers_after is None
        assert "Pull again: only the rest is fetched." in cut.stderr
        dray("pull", job, "here")
    pulled = (dray.project / "here/big.bin").read_bytes()
    assert pulled == (dray.project / "big.bin").read_bytes()


def test_the_answer_to_the_creation_is_lost(dray: Dray, pods: Pods, admin: Admin) -> None:
    """The Job is there and the laptop does not know it: it is found again, and runs once."""
    with over_link(dray, pods) as link:
        before = names(admin)
        done = threading.Event()

        def cut_once_created() -> None:
            while not done.is_set():
                if names(admin) - before:
                    link.cut()
                    return

        watcher = threading.Thread(target=cut_once_created)
        watcher.start()
        link.delay = 0.3  # the cut comes before the answer
        try:
            job = dray.run(*ON, "--", "true")
        finally:
            done.set()
            watcher.join()
        link.delay = 0.0
        shown = dray.wait(job)
        assert (shown["state"], len(shown["attempts"])) == ("done", 1)
        assert len(names(admin) - before) == 1


def names(admin: Admin) -> set[str]:
    """All Jobs that are jobs of dray's."""
    return {one["metadata"]["name"] for one in admin.found("jobs", JOB)}


# -- hanging --------------------------------------------------------------------------------------


@pytest.mark.kubernetes_long
def test_an_api_server_that_hangs_keeps_nobody_from_the_rest(dray: Dray, pods: Pods) -> None:
    pods.offer(dray)
    job = dray.run(*ON, "--", "true")
    local = dray.run("--on", "local", "--", "true")
    dray.wait(job)
    pods.cluster.hang()
    try:
        rows = json.loads(dray("ps", "--all", "--json").stdout)
        refused = dray("doctor", "k8s", check=False)
    finally:
        pods.cluster.resume()
    assert {row["id"] for row in rows} >= {job, local}
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr


# -- killing --------------------------------------------------------------------------------------


def delete_helper(admin: Admin) -> None:
    pod = admin.helper()
    if pod is not None:
        admin.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")


def kill_helper(admin: Admin) -> None:
    pod = admin.helper()
    if pod is not None:
        kill_first_process(pod["metadata"]["name"])


@contextmanager
def interrupted(link: Link, after: int, interrupt: Callable[[], None]) -> Iterator[None]:
    """Do something once so many bytes more have been sent, while nothing more arrives."""
    end, over = link.sent_up + after, threading.Event()

    def watch() -> None:
        while link.sent_up < end:
            if over.wait(0.001):
                return
        link.frozen.set()
        interrupt()
        link.frozen.clear()

    with ThreadPoolExecutor() as pool:
        watching = pool.submit(watch)
        yield
        over.set()
        watching.result()
    assert link.sent_up >= end  # it did happen


@pytest.mark.parametrize(
    "end_helper",
    [delete_helper, pytest.param(kill_helper, marks=pytest.mark.kubernetes_long)],
)
def test_the_helper_ends_at_any_moment_of_a_submission(
    dray: Dray, pods: Pods, admin: Admin, end_helper: Callable[[Admin], None]
) -> None:
    words = ("run", *ON, "--", "python3", "-c", "print('once')")
    with over_link(dray, pods) as link:
        link.delay = 0.02
        before = link.sent_up
        dray.write("more.txt", "first")
        jobs = [dray(*words).stdout.strip()]
        whole = link.sent_up - before
        for share in (0.0, 0.4, 0.8):
            dray.write("more.txt", f"{share}")
            with interrupted(link, int(share * whole), lambda: end_helper(admin)):
                submitted = dray(*words)
            jobs.append(submitted.stdout.strip())
        for job in jobs:
            assert jobs_named(admin, job) == 1
            shown = dray.wait(job)
            assert (shown["state"], len(shown["attempts"])) == ("done", 1)
            assert dray.log(job) == "once\n"


def test_the_helper_is_killed_while_it_is_asked(dray: Dray, pods: Pods, admin: Admin) -> None:
    pods.offer(dray)
    write = f"import os; open(os.environ['DRAY_OUTPUTS'] + '/x', 'wb').write(bytes({SIZE}))"
    job = dray.run(*ON, "--", "python3", "-c", write)
    with started(dray, "wait", job) as waiting:
        delete_helper(admin)
        assert waiting.wait(100) == 0
    with started(dray, "pull", job, "there") as pulling:
        time.sleep(0.4)
        kill_helper(admin)
        _, complaints = pulling.communicate(timeout=100)
    if pulling.returncode:
        assert "Pull again: only the rest is fetched." in complaints
        dray("pull", job, "there")
    assert (dray.project / "there/x").stat().st_size == SIZE


def test_nothing_is_left_of_a_standing_connection_that_was_killed(dray: Dray, pods: Pods) -> None:
    pods.offer(dray)
    dray("doctor", "k8s")
    (standing,) = wait_for(lambda: running(dray, b"dray.transport.standing"))
    wait_for(lambda: running(dray, b"proxy"))
    os.kill(standing, signal.SIGKILL)
    wait_for(lambda: not running(dray, b"proxy") and not running(dray, b"exec"))
    assert dray.wait(dray.run(*ON, "--", "true"))["state"] == "done"


def running(dray: Dray, word: bytes) -> list[int]:
    found = []
    for pid in dray.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if word in words:
            found.append(pid)
    return found


# -- two of them ----------------------------------------------------------------------------------


def test_two_laptops_at_once(dray: Dray, pods: Pods, admin: Admin, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Dray(tmp_path / "other", dray.project)
    pods.offer(dray)
    pods.offer(other)
    delete_helper(admin)  # both find none
    try:
        with ThreadPoolExecutor() as pool:
            sleep = (*ON, "--", "sleep", "600")
            submitted = [pool.submit(one.run, *sleep) for one in (dray, other, dray, other)]
            ids = [one.result() for one in submitted]
            assert len(set(ids)) == 4
            assert [jobs_named(admin, one) for one in ids] == [1, 1, 1, 1]
            for one in (dray, other):
                rows = json.loads(one("ps", *ON, "--all", "--json").stdout)
                assert set(ids) <= {row["id"] for row in rows}
            list(pool.map(lambda one: one("stop", "--now", *ids), (dray, other)))
        shown = [(one.show(job)["state"]) for one in (dray, other) for job in ids]
        assert shown == ["stopped"] * 8
        # Both resume the same one: it goes on once.
        with ThreadPoolExecutor() as pool:
            resumed = list(pool.map(lambda one: one("resume", ids[0], check=False), (dray, other)))
        assert 0 in {one.returncode for one in resumed}
        wait_for(lambda: dray.show(ids[0])["state"] == "running", 60)
        assert len([one for one in admin.listed("pods", ids[0]) if is_live(one)]) == 1
        dray("stop", "--now", ids[0])
    finally:
        wait_for(other.nothing_runs)


def is_live(pod: dict[str, dict[str, str]]) -> bool:
    return pod["status"]["phase"] in ("Pending", "Running")
