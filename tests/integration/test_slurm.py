"""Slurm through a real sshd: what is Slurm's own, and what can go wrong on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER, attempt_pid, parent_of, python
from tests.integration.test_faults import oldest_python
from tests.rigs.processes import end_by_pid_file

pytestmark = pytest.mark.slurm

ON = ("--on", "hpc")


@pytest.fixture
def far(dray: Dray, hpc: Hpc) -> Dray:
    """A dray that knows the cluster."""
    hpc.offer(dray)
    dray.write("train.py", TRAINER)
    return dray


def scheduler_id(dray: Dray, job: str) -> str:
    return str(json.loads((dray.job_dir(job) / "scheduler.json").read_text())["id"])


def queued_names(hpc: Hpc) -> list[str]:
    return hpc.slurm.call("squeue", "-h", "-o", "%j").split()


def field(hpc: Hpc, number: str, name: str) -> str:
    shown = hpc.slurm.call("scontrol", "-o", "show", "job", number)
    return dict(part.split("=", 1) for part in shown.split() if "=" in part).get(name, "")


# -- what is asked of Slurm ---------------------------------------------------------------------


def test_resources_reach_slurm(far: Dray, hpc: Hpc) -> None:
    flags = ("--gpus", "2", "--cpus", "3", "--memory", "600M", "--time", "90m")
    job = far.run(*ON, *flags, *python("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"))
    shown = far.wait(job)
    assert shown["state"] == "done"
    assert far.log(job) == "0,1\n"
    number = scheduler_id(far, job)
    assert field(hpc, number, "NumCPUs") == "3"
    assert field(hpc, number, "TimeLimit") == "01:30:00"
    assert field(hpc, number, "MinMemoryNode") == "600M"
    assert field(hpc, number, "JobName") == job
    assert field(hpc, number, "ExitCode") == "0:0"


def test_slurm_is_told_the_commands_exit_code(far: Dray, hpc: Hpc) -> None:
    job = far.run(*ON, *python("raise SystemExit(3)"))
    assert far.wait(job)["exit_code"] == 3
    number = scheduler_id(far, job)
    wait_for(lambda: field(hpc, number, "JobState") == "FAILED")
    assert field(hpc, number, "ExitCode") == "3:0"


def test_what_slurm_refuses_is_quoted_and_nothing_is_left(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, partition="nosuch")
    ended = far("run", *ON, *python("pass"), check=False)
    assert ended.returncode == 7
    assert "nosuch" in ended.stderr or "partition" in ended.stderr
    assert json.loads(far("ps", "--all", "--json").stdout) == []
    assert list(far.jobs.iterdir()) == []


def test_a_fraction_of_a_gpu_is_refused_before_anything_is_sent(far: Dray) -> None:
    ended = far("run", *ON, "--gpus", "0.5", *python("pass"), check=False)
    assert ended.returncode == 4
    assert "whole GPUs" in ended.stderr
    assert not far.jobs.exists()


def test_the_plan_shows_the_batch_script(far: Dray) -> None:
    shown = far("plan", *ON, "--gpus", "1", "--time", "4h", *python("print('x y')")).stdout
    assert "#SBATCH --gres=gpu:1" in shown
    assert "#SBATCH --time=240" in shown
    assert not far.jobs.exists()


def test_what_slurm_would_never_start_is_refused_before(far: Dray, hpc: Hpc) -> None:
    """By what a submission brought home of the cluster, and once that is old by a new look."""
    hpc.offer(far, partition="nosuch")
    ended = far("run", *ON, *python("pass"), check=False)
    assert ended.returncode == 7, "nothing is known yet: Slurm itself refuses"
    hpc.offer(far)
    far.wait(far.run(*ON, *python("pass")))
    far.wait(far.run(*ON, *python("pass")))
    for flags, message in (
        (("--gpus", "3"), "no node of partition gpu has more than 2"),
        (("--gpus", "h100:1"), "has no GPUs of type 'h100'"),
        (("--cpus", "9"), "9 CPUs asked for"),
    ):
        ended = far("run", *ON, *flags, *python("pass"), check=False)
        assert ended.returncode == 4
        assert message in ended.stderr
    assert len(json.loads(far("ps", "--json").stdout)) == 2


def test_doctor_finds_slurm(far: Dray, hpc: Hpc) -> None:
    findings = json.loads(far("doctor", "--json", "hpc").stdout)
    assert all(one["ok"] for one in findings)
    (version,) = (one["detail"] for one in findings if one["what"] == "slurm")
    assert version == hpc.slurm.call("sinfo", "--version").strip()
    partitions = hpc.slurm.call("sinfo", "-h", "-o", "%R").split()
    assert sum(one["what"] == "partition" for one in findings) == len(partitions)


def test_a_cluster_with_an_old_python(far: Dray, hpc: Hpc, tmp_path: Path) -> None:
    """Agent and supervisor under the oldest Python of this machine: 3.6 where there is one."""
    hpc.offer(far, python=oldest_python())
    far.write("ünï/a b", "x")
    limits = ("--time", "2s", "--grace", "1s", "--checkpoint-signal", "USR1", "--output", "lögs")
    command = ("--", "python3", "train.py", "15", "0.1", "ü")
    job = far.run(*ON, *limits, *RESUMABLE, *command)
    shown = far.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert len(shown["attempts"]) >= 2
    far("pull", job, str(tmp_path / "home"))
    assert (tmp_path / "home/steps").exists()
    far("rm", job)
    assert list(far.jobs.iterdir()) == []


# -- it runs until it is done -------------------------------------------------------------------


@pytest.mark.parametrize("partition", ["scavenge", "cheap"])
def test_preemption_resumes(far: Dray, hpc: Hpc, partition: str) -> None:
    """A more urgent job takes the nodes; Slurm requeues ours by itself, or only cancels it."""
    hpc.offer(far, partition=partition)
    flags = (*RESUMABLE, "--checkpoint-signal", "USR1", "--grace", "3s", "--cpus", "8")
    job = far.run(*ON, *flags, "--", "python3", "train.py", "150", "0.05")
    wait_for(lambda: "start" in far.log(job))
    both = ("--nodes=2", "--exclusive", "--partition=urgent")
    hpc.slurm.call("sbatch", "--parsable", *both, "--output=/dev/null", "--wrap=sleep 2")
    shown = far.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert shown["attempts"][0]["outcome"] == "interrupted"
    assert shown["attempts"][1]["from_checkpoint"] == shown["attempts"][0]["checkpoint"]


def test_where_requeue_is_not_wanted_a_chain_goes_on(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, resume_with="chain")
    limits = ("--time", "2s", "--grace", "1s", "--checkpoint-signal", "USR1")
    job = far.run(*ON, *limits, *RESUMABLE, "--", "python3", "train.py", "25", "0.1")
    first = scheduler_id(far, job)
    shown = far.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert len(shown["attempts"]) >= 3
    assert scheduler_id(far, job) != first
    wait_for(lambda: job not in queued_names(hpc))  # a finished job leaves nothing queued


def test_a_successor_that_is_refused_for_a_while(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, resume_with="chain", partition="gpu")
    limits = ("--time", "3s", "--grace", "1s", "--checkpoint-signal", "USR1")
    job = far.run(*ON, *limits, *RESUMABLE, "--", "python3", "train.py", "25", "0.1")
    wait_for(lambda: "start" in far.log(job))
    hpc.slurm.call("scontrol", "update", "PartitionName=gpu", "State=INACTIVE")
    try:
        batch_log = far.job_dir(job) / "batch.log"
        wait_for(lambda: "could not be queued, for now" in batch_log.read_text(), 60)
    finally:
        hpc.slurm.call("scontrol", "update", "PartitionName=gpu", "State=UP")
    shown = far.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert shown["attempts"][1]["from_checkpoint"] == shown["attempts"][0]["checkpoint"]


def test_a_killed_supervisor_on_the_node_is_told_truly(far: Dray, hpc: Hpc) -> None:
    job = far.run(*ON, *RESUMABLE, "--", "python3", "train.py", "200", "0.05", "--every")
    wait_for(lambda: list((far.job_dir(job) / "outputs").glob("ckpt_*")))
    command = wait_for(lambda: attempt_pid(far, job))
    supervisor = parent_of(command)
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: far.show(job)["state"] == "lost", 60)
    far("resume", job)
    shown = far.wait(job)
    assert shown["state"] == "done"
    assert [one["outcome"] for one in shown["attempts"]] == ["lost", "done"]
    assert shown["attempts"][1]["from_checkpoint"] is not None
    assert not list(hpc.slurm.scratch.glob(f"*{job}*"))  # the killed attempt's tree is gone too


# -- limits ---------------------------------------------------------------------------------------


@pytest.fixture
def maintenance(hpc: Hpc) -> Iterator[None]:
    """All nodes are taken in two hours."""
    hole = ("starttime=now+2hours", "duration=60", "flags=maint,ignore_jobs", "nodes=ALL")
    user = f"users={hpc.host.user}"
    hpc.slurm.call("scontrol", "create", "reservation", "reservation=service", *hole, user)
    yield
    hpc.slurm.call("scontrol", "delete", "reservation=service")


TIME_LEFT = """\
import os, sys, time
print(round(float(os.environ["DRAY_DEADLINE"]) - time.time()))
sys.exit(75)
"""


def test_a_job_that_resumes_starts_before_a_maintenance(
    far: Dray, hpc: Hpc, maintenance: None
) -> None:
    """In a slot of the shortest time that it takes. The same without that waits; and its next
    attempt may be given all of its time again, which Slurm does not see to."""
    flags = ("--time", "4h", "--backoff", "200s", "--retry-on", "75", *RESUMABLE)
    whole = far.run(*ON, *flags, "--time-min", "0", *python(TIME_LEFT))
    job = far.run(*ON, *flags, *python(TIME_LEFT))
    wait_for(lambda: (one := far.show(job))["attempts"] and one["state"] == "queued", 60)
    (attempt,) = far.show(job)["attempts"]
    assert (attempt["outcome"], attempt["exit_code"]) == ("failed", 75)
    assert 3500 < int(far.log(job)) <= 3600, "the command knows when its slot ends"
    number = scheduler_id(far, job)
    wait_for(lambda: field(hpc, number, "TimeLimit") == "04:00:00")
    assert field(hpc, number, "TimeMin") == "01:00:00"
    waiting = far.show(whole)
    assert (waiting["state"], waiting["attempts"]) == ("queued", [])
    far("stop", job, whole)


def test_a_total_time_holds_over_requeues(far: Dray, hpc: Hpc) -> None:
    limits = ("--time", "3s", "--total-time", "5s", "--grace", "1s", "--checkpoint-signal", "USR1")
    job = far.run(*ON, *limits, *RESUMABLE, "--", "python3", "train.py", "1000", "0.05")
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "its total time of 5 s is used up")
    assert [one["outcome"] for one in shown["attempts"]] == ["interrupted", "stopped"]
    assert shown["attempts"][1]["checkpoint"] != shown["attempts"][1]["from_checkpoint"]
    wait_for(lambda: job not in queued_names(hpc))


def test_a_job_that_starts_too_late_ends_at_once(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, extra=["--hold"])
    job = far.run(*ON, "--start-by", "1s", *python("print('too late')"))
    time.sleep(1.1)
    assert far.show(job)["state"] == "queued"
    hpc.slurm.call("scontrol", "release", scheduler_id(far, job))
    shown = far.wait(job)
    assert (shown["state"], shown["attempts"]) == ("stopped", [])
    assert "it had not begun by" in shown["reason"]


def test_a_crash_keeps_its_allocation_until_it_is_stopped(far: Dray, hpc: Hpc) -> None:
    job = far.run(*ON, "--hold", "30m", *python("raise SystemExit(3)"))
    wait_for(lambda: "held for a look" in far.show(job)["reason"])
    assert far.show(job)["state"] == "running"
    assert job in queued_names(hpc)
    far("stop", job)
    shown = far.wait(job)
    assert (shown["state"], shown["reason"], shown["exit_code"]) == ("failed", "exit code 3", 3)
    wait_for(lambda: job not in queued_names(hpc))


def test_requeued_by_hand_after_its_end_it_is_not_run_again(far: Dray, hpc: Hpc) -> None:
    job = far.run(*ON, *python("print('once')"))
    assert far.wait(job)["state"] == "done"
    number = scheduler_id(far, job)
    wait_for(lambda: field(hpc, number, "JobState") == "COMPLETED")
    hpc.slurm.call("scontrol", "requeue", number)
    wait_for(lambda: field(hpc, number, "Restarts") == "1" and job not in queued_names(hpc), 60)
    shown = far.show(job)
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)


def test_cancelled_by_somebody_else(far: Dray, hpc: Hpc) -> None:
    job = far.run(*ON, *RESUMABLE, "--", "python3", "train.py", "1000", "0.05")
    wait_for(lambda: "start" in far.log(job))
    hpc.slurm.call("scancel", scheduler_id(far, job))
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled in Slurm")
    assert job not in queued_names(hpc)


def test_a_waiting_job_tells_why_and_can_be_stopped(far: Dray, hpc: Hpc) -> None:
    blocker = far.run(*ON, "--cpus", "8", "--gpus", "2", *python("import time; time.sleep(60)"))
    second = far.run(*ON, "--cpus", "8", "--gpus", "2", *python("import time; time.sleep(60)"))
    waiting = far.run(*ON, "--cpus", "8", "--gpus", "2", *python("pass"))
    shown = wait_for(lambda: (view := far.show(waiting))["reason"] and view)
    assert shown["state"] == "queued"
    assert "waiting for enough free nodes" in shown["reason"] or "before it" in shown["reason"]
    far("stop", waiting)
    assert far.show(waiting)["state"] == "stopped"
    assert far.show(waiting)["attempts"] == []
    for job in (blocker, second):
        far("stop", "--now", job)
        assert far.show(job)["state"] == "stopped"


def test_slurmctld_restarted_in_the_middle(far: Dray, hpc: Hpc) -> None:
    job = far.run(*ON, "--", "python3", "train.py", "60", "0.05")
    wait_for(lambda: "start" in far.log(job))
    end_by_pid_file(hpc.slurm.folder / "run/slurmctld.pid")
    assert far("ps").returncode == 0  # shown as last seen, with a word about it
    hpc.slurm.start_controller()
    assert far.wait(job)["state"] == "done"


def test_a_node_that_dies_is_survived(far: Dray, hpc: Hpc) -> None:
    """slurmd and everything below it is gone at once; Slurm requeues, another node goes on."""
    flags = (*RESUMABLE, "--", "python3", "train.py", "400", "0.05", "--every")
    job = far.run(*ON, *flags)
    wait_for(lambda: list((far.job_dir(job) / "outputs").glob("ckpt_*")))
    node = hpc.slurm.call("squeue", "-h", "-n", job, "-o", "%N").strip()
    command = wait_for(lambda: attempt_pid(far, job))
    supervisor = parent_of(command)
    daemon = int((hpc.slurm.folder / f"run/slurmd.{node}.pid").read_text())
    for pid in (daemon, parent_of(supervisor), supervisor):
        os.kill(pid, signal.SIGKILL)
    try:
        wait_for(lambda: len(far.show(job)["attempts"]) == 2, 90)
        shown = far.wait(job)
    finally:
        hpc.slurm.start_node(node)
    assert shown["state"] == "done", shown["reason"]
    assert [one["outcome"] for one in shown["attempts"]] == ["lost", "done"]
    assert shown["attempts"][1]["from_checkpoint"] is not None


# -- exactly once, and over a link that fails ---------------------------------------------------


def test_an_answer_lost_after_sbatch_is_found_again(far: Dray, hpc: Hpc) -> None:
    """The agent is killed right after sbatch; the retry finds the job instead of a second one."""
    gate = far.home / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)"
    job = far.run(*ON, *python(code))
    (far.job_dir(job) / "scheduler.json").unlink()
    plan = json.loads((far.job_dir(job) / "job.json").read_text())
    request = {"verb": "submit", "job": {**plan, "snapshot": None}, "files": {}}
    answer = ask_agent(far, hpc, request)
    assert queued_names(hpc).count(job) == 1
    assert answer["scheduler_id"] == hpc.slurm.call("squeue", "-h", "-n", job, "-o", "%i").strip()
    gate.touch()
    assert far.wait(job)["state"] == "done"
    assert len(far.show(job)["attempts"]) == 1


def ask_agent(
    dray: Dray, hpc: Hpc, request: dict[str, object], kind: str = "slurm"
) -> dict[str, object]:
    (app,) = (dray.jobs.parent / "node").glob("*.pyz")
    text = json.dumps(request).encode()
    ended = subprocess.run(
        hpc.host.words("python3", "-I", "-S", str(app), "agent", str(dray.jobs.parent), kind),
        input=b"%d 0\n" % len(text) + text,
        env={**hpc.slurm.env, "PATH": f"{hpc.pbs.path}:/usr/sbin:/sbin"},
        capture_output=True,
        check=True,
    )
    answer: dict[str, object] = json.loads(ended.stdout.rpartition(b"\n")[2])
    return answer


def test_a_login_shell_that_chats_does_no_harm(far: Dray, hpc: Hpc) -> None:
    wrapper = hpc.sshd.bin / "ssh"
    kept = wrapper.read_text()
    wrapper.write_text(kept.replace("exec ", "printf 'Welcome!\\n\\n'; exec "))
    try:
        job = far.run(*ON, *python("print('fine')"))
        assert far.wait(job)["state"] == "done"
        assert far.log(job) == "fine\n"
    finally:
        wrapper.write_text(kept)


def test_no_way_in_is_told_with_what_to_do(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, host="nowhere.invalid")
    ended = far("run", *ON, *python("pass"), check=False)
    assert ended.returncode == 7
    assert "no connection to nowhere.invalid" in ended.stderr
    assert "network" in ended.stderr


def test_pull_brings_only_what_is_new(far: Dray, tmp_path: Path) -> None:
    code = (
        "import os; os.makedirs('logs/deep'); open('logs/a','w').write('a' * 100000);"
        "open('logs/deep/ü b', 'w').write('x'); os.symlink('a', 'logs/link')"
    )
    job = far.run(*ON, "--output", "logs", *python(code))
    assert far.wait(job)["state"] == "done", far.log(job)
    home = tmp_path / "home"
    assert "3 of 3" in far("pull", job, str(home)).stderr
    assert (home / "logs/a").read_text() == "a" * 100000
    assert (home / "logs/deep/ü b").read_text() == "x"
    assert os.readlink(home / "logs/link") == "a"
    assert "0 of 3" in far("pull", job, str(home)).stderr
    (far.job_dir(job) / "outputs/logs/a").write_text("changed")
    assert "1 of 3" in far("pull", job, str(home)).stderr
    assert (home / "logs/a").read_text() == "changed"


def test_a_second_submission_sends_only_what_changed(far: Dray) -> None:
    far.write("big.bin", "x" * 3_000_000)
    first = far.run(*ON, *python("pass"))
    far.write("small.txt", "new")
    second = far.run(*ON, *python("print(open('small.txt').read(), len(open('big.bin').read()))"))
    far.wait(first), far.wait(second)
    assert far.log(second) == "new 3000000\n"
    packs = sorted((far.jobs.parent / "packs").glob("*.pack"), key=lambda path: path.stat().st_size)
    assert len(packs) == 2
    assert packs[0].stat().st_size < 1000


def test_code_that_went_missing_on_the_cluster_is_sent_again(far: Dray) -> None:
    far.wait(far.run(*ON, *python("pass")))
    for path in (*far.jobs.parent.glob("packs/*.pack"), *far.jobs.parent.glob("snapshots/*")):
        path.unlink()
    job = far.run(*ON, *python("import os; print(sorted(os.listdir()))"))
    assert far.wait(job)["state"] == "done"
    assert "train.py" in far.log(job)


def test_another_laptop_finds_the_jobs(far: Dray, hpc: Hpc, tmp_path: Path) -> None:
    job = far.run(*ON, *python("print('hello')"))
    far.wait(job)
    (tmp_path / "other").mkdir()
    other = Dray(tmp_path / "other", far.project)
    hpc.offer(other, root=str(far.jobs.parent))
    rows = json.loads(other("ps", "--on", "hpc", "--all", "--json").stdout)
    assert [row["id"] for row in rows] == [job]
    assert other.log(job) == "hello\n"


def test_what_another_laptop_resumed_is_not_removed(far: Dray, hpc: Hpc, tmp_path: Path) -> None:
    job = far.run(*ON, *python("import sys, time; time.sleep(300)"))
    far("stop", "--now", job)
    (tmp_path / "other").mkdir()
    other = Dray(tmp_path / "other", far.project)
    hpc.offer(other, root=str(far.jobs.parent))
    other("ps", "--on", "hpc", "--all")
    other("resume", job)
    ended = far("rm", job, check=False)
    assert ended.returncode == 4
    assert "has not ended" in ended.stderr
    assert far.job_dir(job).exists()
    other("stop", "--now", job)


def test_secrets_reach_the_job_and_nothing_else(far: Dray) -> None:
    code = "import os; print(len(os.environ['KEY']))"
    job = far.run(*ON, "--secret", "KEY", *python(code), KEY="s3cret-value")
    far.wait(job)
    assert far.log(job) == "12\n"
    for top in (far.jobs.parent, far.home / "dray"):
        found = subprocess.run(["grep", "-rl", "s3cret-value", str(top)], capture_output=True)
        assert found.stdout == b""


def test_an_agent_killed_while_sbatch_runs_does_not_submit_twice(
    far: Dray, hpc: Hpc, tmp_path: Path
) -> None:
    """sbatch lives on without its agent; the retry waits for it and finds the job."""
    offer_with_sbatch(far, hpc, tmp_path, 'sleep 3; exec /usr/bin/sbatch "$@"')
    far("doctor", "hpc")
    with subprocess.Popen(
        [sys.executable, "-m", "dray", "run", *ON, "--", "/bin/sleep", "5"],
        cwd=far.project,
        env=far.env,
        stdout=subprocess.PIPE,
        text=True,
    ) as submission:
        wait_for(lambda: far.jobs.exists() and list(far.jobs.glob("*/batch.sh")))
        for agent in agents_of(far):
            os.kill(agent, signal.SIGKILL)
        job = submission.communicate(timeout=60)[0].strip()
    assert queued_names(hpc).count(job) == 1
    shown = far.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)


def offer_with_sbatch(dray: Dray, hpc: Hpc, folder: Path, script: str) -> None:
    """A cluster where the agent, and nobody else, finds this in sbatch's place."""
    place = folder / "bin"
    place.mkdir()
    for name, text in (("sbatch", script), ("python", f'PATH={place}:$PATH exec python3 "$@"')):
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
    hpc.offer(dray, python=str(place / "python"))


def test_a_job_that_has_ended_before_sbatch_fails_was_submitted(
    far: Dray, hpc: Hpc, tmp_path: Path
) -> None:
    """A controller that takes the job and is too slow to say so; the job is quicker."""
    over = tmp_path / "over"
    script = f"""
/usr/bin/sbatch "$@" >/dev/null
n=0
until [ -e {over} ] && [ -z "$(squeue --noheader)" ] || [ $n = 300 ]; do sleep 0.1; n=$((n+1)); done
echo 'sbatch: error: Socket timed out on send/recv operation' >&2
exit 1"""
    offer_with_sbatch(far, hpc, tmp_path, script)
    job = far.run(*ON, "--no-snapshot", "--", "sh", "-c", f"echo >> {over}; exit 3")
    shown = far.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("failed", 1)
    assert over.read_text() == "\n"


def agents_of(dray: Dray) -> list[int]:
    found = []
    for pid in dray.processes():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"agent" in words and b"-I" in words:
            found.append(pid)
    return found


def test_stopped_while_the_batch_script_prepares(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, setup=["for i in $(seq 300); do sleep 0.1; done"])
    job = far.run(*ON, "--secret", "KEY", *python("pass"), KEY="s3cret")
    number = scheduler_id(far, job)
    wait_for(lambda: field(hpc, number, "JobState") == "RUNNING")
    far("stop", job)
    shown = far.show(job)
    assert (shown["state"], shown["attempts"]) == ("stopped", [])
    assert not (far.job_dir(job) / "secrets.json").exists()


def test_a_module_that_cannot_be_loaded_ends_the_job(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, modules=["gcc/12", "no such"])
    shown = far.wait(far.run(*ON, *python("pass")))
    assert (shown["state"], shown["attempts"]) == ("failed", [])
    complaint = "module load gcc/12 'no such' failed: see the setting modules"
    assert shown["reason"] == f"its batch script ended before it ran: {complaint}"


def test_a_setup_line_that_fails_ends_the_job(far: Dray, hpc: Hpc) -> None:
    """Else the command would run without the environment that the line was to activate."""
    hpc.offer(far, setup=["false || true", "source /no/such/env/bin/activate", "echo after"])
    shown = far.wait(far.run(*ON, *python("pass")))
    assert (shown["state"], shown["attempts"]) == ("failed", [])
    assert "setup failed: source /no/such/env/bin/activate" in shown["reason"]


def test_cancelled_while_its_batch_script_prepares(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, setup=["echo preparing", "sleep 60"])
    job = far.run(*ON, *python("pass"))
    batch_log = far.job_dir(job) / "batch.log"
    wait_for(lambda: batch_log.exists() and "preparing" in batch_log.read_text())
    hpc.slurm.call("scancel", scheduler_id(far, job))
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled in Slurm before it ran")


def test_cancelled_before_it_ran(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, extra=["--hold"])
    job = far.run(*ON, "--secret", "KEY", *python("pass"), KEY="s3cret")
    hpc.slurm.call("scancel", scheduler_id(far, job))
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled in Slurm before it ran")
    assert not (far.job_dir(job) / "secrets.json").exists()


def test_a_queue_asked_before_the_submission_ends_no_job(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, extra=["--hold"])
    job = far.run(*ON, "--secret", "KEY", *python("pass"), KEY="s3cret")
    asked = (far.job_dir(job) / "scheduler.json").stat().st_mtime - 1
    old = {"time": time.time(), "asked": asked, "under_way": [], "text": ""}
    (far.jobs.parent / "queue.json").write_text(json.dumps(old))
    assert far.show(job)["state"] == "queued"
    assert (far.job_dir(job) / "secrets.json").exists()
    far("stop", job)


def test_resumed_while_the_batch_job_that_ended_it_still_runs(
    far: Dray, hpc: Hpc, tmp_path: Path
) -> None:
    """It is no sign of an earlier resume."""
    slow = tmp_path / "slow-to-leave"
    slow.write_text('#!/bin/sh\npython3 "$@"\ncase "$*" in *attempt*) sleep 5 ;; esac\n')
    slow.chmod(0o755)
    hpc.offer(far, python=str(slow))
    job = far.run(*ON, *python("raise SystemExit(3)"))
    wait_for(lambda: (far.job_dir(job) / "end.json").exists(), 60)
    first = scheduler_id(far, job)
    assert field(hpc, first, "JobState") == "RUNNING"
    assert far.wait(job)["state"] == "failed"
    far("resume", job)
    assert scheduler_id(far, job) != first
    assert len(far.wait(job)["attempts"]) == 2


def test_stopped_when_it_has_just_finished_it_stays_done(far: Dray, hpc: Hpc) -> None:
    """The outcome is written down; the background process keeps the attempt from its end."""
    hpc.offer(far)
    code = "import subprocess; subprocess.Popen('trap \"\" TERM; sleep 60', shell=True)"
    job = far.run(*ON, *python(code))
    outcome = far.job_dir(job) / "attempts/001/outcome.json"
    wait_for(outcome.exists, 60)
    far("stop", job)
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("done", "")


def test_a_resume_that_slurm_refuses_changes_nothing(far: Dray, hpc: Hpc) -> None:
    job = far.run(*ON, *python("raise SystemExit(3)"))
    before = far.wait(job)
    hpc.offer(far, partition="nosuch")
    assert far("resume", job, check=False).returncode == 7
    assert (far.show(job)["state"], far.show(job)["reason"]) == ("failed", before["reason"])


def test_the_umask_is_the_users_own(far: Dray) -> None:
    job = far.run(*ON, "--", "/bin/sh", "-c", "umask")
    far.wait(job)
    assert far.log(job) == "0022\n"


def test_a_limit_that_slurm_enforces_itself_is_survived(far: Dray, hpc: Hpc) -> None:
    """The limit is lowered behind our back: Slurm ends the batch job, a successor goes on."""
    flags = ("--time", "10m", *RESUMABLE)
    job = far.run(*ON, *flags, "--", "python3", "train.py", "4000", "0.05", "--every")
    wait_for(lambda: "start" in far.log(job))
    hpc.slurm.call("scontrol", "update", f"JobId={scheduler_id(far, job)}", "TimeLimit=1")
    try:
        wait_for(lambda: len(far.show(job)["attempts"]) == 2, 150)
        wait_for(lambda: far.show(job)["state"] == "running")
    finally:
        far("stop", "--now", job)
    assert far.show(job)["attempts"][0]["outcome"] in ("interrupted", "lost")


def test_a_pull_does_not_write_through_an_old_link(far: Dray, tmp_path: Path) -> None:
    code = (
        "import os\n"
        "os.makedirs('o/run1'); open('o/run1/m', 'w').write('ONE'); os.symlink('run1', 'o/latest')"
    )
    job = far.run(*ON, "--output", "o", *python(code))
    far.wait(job)
    home = tmp_path / "home"
    far("pull", job, str(home))
    outputs = far.job_dir(job) / "outputs/o"
    (outputs / "latest").unlink()
    (outputs / "latest").mkdir()
    (outputs / "latest/m").write_text("TWO")
    far("pull", job, str(home))
    assert (home / "o/run1/m").read_text() == "ONE"
    assert (home / "o/latest/m").read_text() == "TWO"


# -- a cluster whose clock is wrong -------------------------------------------------------------

WRONG_CLOCK = """
import runpy, sys, time
right = time.time
time.time = lambda: right() + {seconds}
sys.argv = [word for word in sys.argv[1:] if word not in ("-I", "-S")]
if sys.argv[0] == "-c":
    exec(sys.argv.pop(1))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(params=[3600, -3600])
def off(request: pytest.FixtureRequest, far: Dray, hpc: Hpc, tmp_path: Path) -> int:
    """By so many seconds the clocks of login node and compute nodes are off those of the laptop
    and of the file system."""
    (tmp_path / "clock.py").write_text(WRONG_CLOCK.format(seconds=request.param))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec python3 {tmp_path}/clock.py "$@"\n')
    python.chmod(0o755)
    hpc.offer(far, python=str(python))
    return int(request.param)


def test_limits_hold_by_any_clock(far: Dray, off: int) -> None:
    deadline = "import os, time; print(float(os.environ['DRAY_DEADLINE']) - time.time())"
    far.write("train.py", f"{deadline}\n{TRAINER}")
    limits = ("--time", "4s", "--grace", "1s", "--checkpoint-signal", "USR1")
    job = far.run(*ON, *limits, *RESUMABLE, "--", "python3", "train.py", "50", "0.1")
    shown = far.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert {one["outcome"] for one in shown["attempts"][:-1]} == {"interrupted"}
    for number in range(len(shown["attempts"])):
        log = far("logs", "--attempt", str(number + 1), job).stdout
        assert 0 < float(log.split()[0]) - off < 5  # the command's own clock is that of the node


def test_what_runs_and_what_is_lost_is_told_by_any_clock(far: Dray, off: int) -> None:
    job = far.run(*ON, *RESUMABLE, "--", "python3", "train.py", "2000", "0.05", "--every")
    wait_for(lambda: "start" in far.log(job))
    assert far.show(job)["state"] == "running"
    (row,) = (line for line in far("ps").stdout.splitlines() if job in line)
    assert re.search(r" \d+s ", row), row
    (attempt,) = (line for line in far("show", job).stdout.splitlines() if "  1  run" in line)
    assert re.search(r" \d+(\.\d)?s", attempt), attempt
    os.kill(parent_of(wait_for(lambda: attempt_pid(far, job))), signal.SIGKILL)
    wait_for(lambda: far.show(job)["state"] == "lost", 60)
    far("resume", job)
    wait_for(lambda: far.show(job)["state"] == "running")
    far("stop", "--now", job)
    assert far.show(job)["state"] == "stopped"
