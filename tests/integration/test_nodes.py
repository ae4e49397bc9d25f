"""A command that is spread over GPUs and nodes, on a real Slurm of two nodes with two GPUs each."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import AWKWARD, RESUMABLE
from tests.integration.test_faults import oldest_python
from tests.integration.test_slurm import field, scheduler_id

pytestmark = pytest.mark.slurm

ON = ("--on", "hpc")
WIDE = (*ON, "--nodes", "2", "--gpus", "2")

# Every rank writes down that it was asked for a checkpoint; rank 0 saves it, once all have been.
TRAINER = textwrap.dedent(
    """
    import json, os, signal, sys, time
    rank, folder = os.environ["SLURM_PROCID"], os.environ["DRAY_OUTPUTS"]
    world, goal, step, asked = int(os.environ["SLURM_NTASKS"]), int(sys.argv[1]), 0, []
    marks = [os.path.join(folder, f"asked-{one}") for one in range(world)]
    def times(mark):
        return os.path.getsize(mark) if os.path.exists(mark) else 0
    if "--resume" in sys.argv:
        step = json.load(open(sys.argv[sys.argv.index("--resume") + 1]))["step"]
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
    print("rank", rank, "starts at", step, flush=True)
    while step < goal:
        time.sleep(0.05)
        step += 1
        if asked:
            open(marks[int(rank)], "a").write("x")
            while rank == "0" and min(map(times, marks)) < times(marks[0]):
                time.sleep(0.01)
        if asked or "--every" in sys.argv:
            asked.clear()
            if rank == "0":
                name = os.path.join(folder, f"ckpt_{step}.json")
                open(name + ".tmp", "w").write(json.dumps({"step": step}))
                os.replace(name + ".tmp", name)
    """
)


@pytest.fixture
def far(dray: Dray, hpc: Hpc) -> Dray:
    hpc.offer(dray)
    dray.write("train.py", TRAINER)
    return dray


def python(*words: str) -> tuple[str, ...]:
    return ("--", sys.executable, *words)


def rank_logs(dray: Dray, job: str, count: int = 4) -> list[str]:
    return [dray("logs", "--rank", str(rank), job).stdout for rank in range(count)]


def commands_of(dray: Dray, job: str, word: str = "train.py") -> list[int]:
    """The job's own processes, on either node."""
    mark = f"DRAY_JOB_ID={job}".encode()
    found = []
    for pid in dray.processes():
        about = read(pid, "environ"), read(pid, "cmdline")
        if mark in about[0].split(b"\0") and word.encode() in about[1].split(b"\0"):
            found.append(pid)
    return found


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def trees(hpc: Hpc) -> list[str]:
    return sorted(path.name for path in hpc.slurm.scratch.glob("dray-work-*"))


def started(dray: Dray, job: str) -> list[int]:
    return list(wait_for(lambda: len(found := commands_of(dray, job)) == 4 and found))


# -- where each one is --------------------------------------------------------------------------


def test_every_rank_knows_its_place_and_meets_the_others(far: Dray, hpc: Hpc) -> None:
    """A real rendezvous at MASTER_ADDR:MASTER_PORT."""
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
                for _ in range(200):
                    try:
                        socket.create_connection(place).sendall(b"%d\\n" % rank)
                        break
                    except OSError:
                        time.sleep(0.1)
                names = ["RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                         "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS",
                         "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES", "DRAY_ATTEMPT"]
                print(json.dumps([env[name] for name in names]))
            """
        ),
    )
    job = far.run(*WIDE, "--cpus", "5", *python("meet.py"))
    shown = far.wait(job)
    assert (shown["state"], shown["launch"], shown["resources"]["nodes"]) == ("done", "srun", 2)
    first, *others = (json.loads(log) for log in rank_logs(far, job))
    assert first == ["1\n", "2\n", "3\n"]
    assert others == [
        ["1", "1", "0", "4", "2", "1", "1", "0", "4", "node1", "0,1", "1"],
        ["2", "0", "1", "4", "2", "2", "0", "1", "4", "node2", "0,1", "1"],
        ["3", "1", "1", "4", "2", "3", "1", "1", "4", "node2", "0,1", "1"],
    ]
    assert field(hpc, scheduler_id(far, job), "NumCPUs") == "12"
    assert trees(hpc) == []


def test_every_rank_receives_its_arguments_byte_for_byte(far: Dray) -> None:
    far.write("show.py", "import json, sys; print(json.dumps(sys.argv[1:]))")
    job = far.run(*WIDE, *python("show.py", *AWKWARD))
    assert far.wait(job)["state"] == "done"
    assert [json.loads(log) for log in rank_logs(far, job)] == [AWKWARD] * 4


def test_without_gpus_there_is_one_rank_on_each_node(far: Dray) -> None:
    far.write("show.py", "import os; print(os.environ['RANK'], os.environ['SLURMD_NODENAME'])")
    job = far.run(*ON, "--nodes", "2", *python("show.py"))
    assert far.wait(job)["state"] == "done"
    assert rank_logs(far, job, 2) == ["0 node1\n", "1 node2\n"]
    ended = far("logs", "--rank", "2", job, check=False)
    assert ended.returncode != 0
    assert "its last one is 1" in ended.stderr


def test_one_node_is_spread_over_its_gpus_where_that_is_asked_for(far: Dray) -> None:
    far.write("show.py", "import os; print(os.environ.get('RANK'))")
    plain = far.run(*ON, "--gpus", "2", *python("show.py"))
    spread = far.run(*ON, "--gpus", "2", "--launch", "srun", *python("show.py"))
    assert [far.wait(job)["state"] for job in (plain, spread)] == ["done", "done"]
    assert far.log(plain) == "None\n"
    assert rank_logs(far, spread, 2) == ["0\n", "1\n"]


def test_a_command_that_spreads_itself_is_started_once(far: Dray) -> None:
    code = "import os; print(os.environ.get('RANK'), os.environ['SLURM_NNODES'])"
    job = far.run(*ON, "--nodes", "2", "--launch", "none", *python("-c", code))
    own = far.run(*ON, "--nodes", "2", "--launch", "none", "--", "srun", "hostname")
    assert [far.wait(one)["state"] for one in (job, own)] == ["done", "done"]
    assert far.log(job) == "None 2\n"
    assert len(far.log(own).splitlines()) == 2


def test_torchrun_is_started_on_each_node(far: Dray) -> None:
    """A stand-in that reads its arguments as the real one does, and starts the workers."""
    far.write("torch/__init__.py", "")
    far.write("torch/distributed/__init__.py", "")
    stand_in = textwrap.dedent(
        """
        import argparse, os, subprocess, sys
        parser = argparse.ArgumentParser()
        for name in ("nnodes", "nproc-per-node", "node-rank", "master-port"):
            parser.add_argument("--" + name, type=int)
        parser.add_argument("--master-addr")
        parser.add_argument("--no-python", action="store_true")
        parser.add_argument("training_script")
        parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
        args = parser.parse_args()
        assert args.no_python and args.master_addr and args.master_port, args
        print("torchrun", args.nnodes, args.nproc_per_node, args.node_rank, flush=True)
        for local in range(args.nproc_per_node):
            rank = args.node_rank * args.nproc_per_node + local
            subprocess.run([args.training_script, *args.training_script_args],
                           env={**os.environ, "RANK": str(rank)}, check=True)
        """
    )
    far.write("torch/distributed/run.py", stand_in)
    program = far.write("bin/torchrun", f"#!{sys.executable}\n{stand_in}")
    program.chmod(0o755)
    far.write(
        "show.py", "import json, os, sys; print(os.environ['RANK'], json.dumps(sys.argv[1:]))"
    )
    wrapper = far.write("run.sh", f'#!/bin/sh\nshift; exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    flags = (*WIDE, "--launch", "torchrun", "--env", f"PATH={program.parent}:/usr/bin:/bin")
    for words in ((sys.executable, "show.py"), ("./run.sh", "-p", "show.py")):
        job = far.run(*flags, "--", *words, "--", "a b", "--x=1")
        assert far.wait(job)["state"] == "done", far.log(job)
        for node, log in enumerate(rank_logs(far, job, 2)):
            arguments = json.dumps(["--", "a b", "--x=1"])
            ranks = [f"{2 * node} {arguments}", f"{2 * node + 1} {arguments}"]
            assert log.splitlines() == [f"torchrun 2 2 {node}", *ranks]


# -- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "exit_code", "signal_name", "reason"),
    [
        ("sys.exit(7)", 7, None, "rank 3 on node2: exit code 7"),
        ("os.kill(os.getpid(), 9)", None, "SIGKILL", "rank 3 on node2: killed by SIGKILL"),
    ],
)
def test_one_dead_rank_ends_the_others(
    far: Dray, hpc: Hpc, code: str, exit_code: int | None, signal_name: str | None, reason: str
) -> None:
    far.write(
        "die.py",
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"if os.environ['RANK'] == '3':\n    time.sleep(1)\n    {code}\n"
        "time.sleep(600)\n",
    )
    job = far.run(*WIDE, *python("die.py"))
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("failed", reason)
    assert (shown["exit_code"], shown["signal"]) == (exit_code, signal_name)
    wait_for(lambda: not commands_of(far, job, "die.py"))
    assert trees(hpc) == []


def test_a_command_that_is_not_there_is_told(far: Dray) -> None:
    shown = far.wait(far.run(*WIDE, "--retries", "3", "--", "no-such-program"))
    assert (shown["state"], shown["exit_code"], len(shown["attempts"])) == ("failed", 127, 1)
    assert "no-such-program: command not found" in shown["reason"]


def test_without_a_disk_of_their_own_nodes_share_a_tree(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, setup=["export SLURM_TMPDIR= TMPDIR="])
    far.write("show.py", "import os; print(os.path.basename(os.getcwd()))")
    job = far.run(*WIDE, *python("show.py"))
    assert far.wait(job)["state"] == "done"
    assert rank_logs(far, job) == ["work\n"] * 4
    assert list(far.job_dir(job).glob("*work*")) == []


def test_a_cluster_without_srun_says_so(far: Dray, hpc: Hpc, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("squeue", "scontrol", "sbatch"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    hpc.offer(far, setup=[f"export PATH={programs}"], python=sys.executable)
    far.write("show.py", "")
    shown = far.wait(far.run(*WIDE, *python("show.py")))
    assert (shown["state"], shown["reason"]) == ("failed", "srun: command not found")


def test_a_task_that_is_killed_from_outside_ends_the_rest(far: Dray) -> None:
    job = far.run(*WIDE, *python("train.py", "10000"))
    started(far, job)
    tasks = [pid for pid in far.processes() if b"rank" in read(pid, "cmdline").split(b"\0")]
    victims = [pid for pid in tasks if b"SLURM_PROCID=3" in read(pid, "environ").split(b"\0")]
    os.kill(victims[0], signal.SIGKILL)
    shown = far.wait(job)
    assert shown["state"] == "failed"
    assert shown["reason"] == "srun: error: node2: task 3: Killed"
    wait_for(lambda: not commands_of(far, job))


def test_a_checkpoint_is_asked_of_every_rank_and_resumed_from(far: Dray, hpc: Hpc) -> None:
    flags = ("--time", "8s", "--grace", "4s", "--checkpoint-signal", "USR1", *RESUMABLE)
    job = far.run(*WIDE, *flags, *python("train.py", "120"))
    shown = far.wait(job)
    assert shown["state"] == "done", shown
    first, *_, last = shown["attempts"]
    assert (first["outcome"], first["reason"]) == ("interrupted", "time limit reached")
    assert first["checkpoint"] is not None
    assert last["from_checkpoint"] is not None
    outputs = far.job_dir(job) / "outputs"
    times = len(shown["attempts"]) - 1
    assert [len((outputs / f"asked-{rank}").read_text()) for rank in range(4)] == [times] * 4
    for log in rank_logs(far, job):
        assert log.count("starts at 0\n") == 1
        assert log.count("starts at") == len(shown["attempts"])
    assert trees(hpc) == []


def test_preemption_resumes(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, partition="scavenge")
    job = far.run(*WIDE, *RESUMABLE, *python("train.py", "150", "--every"))
    started(far, job)
    wait_for(lambda: list((far.job_dir(job) / "outputs").glob("ckpt_*")))
    both = ("--nodes=2", "--exclusive", "--partition=urgent")
    hpc.slurm.call("sbatch", "--parsable", *both, "--output=/dev/null", "--wrap=sleep 2")
    shown = far.wait(job)
    assert shown["state"] == "done", shown
    assert shown["attempts"][0]["outcome"] == "interrupted"
    assert shown["attempts"][1]["from_checkpoint"] is not None
    assert trees(hpc) == []


# As torchrun does: asked to end, it waits for its worker to close, and leaves with an exit code.
CLOSES_SLOWLY = textwrap.dedent(
    """
    import signal, subprocess, sys, time
    class Asked(Exception): pass
    def ask(*_): raise Asked
    worker = subprocess.Popen([sys.executable, *sys.argv[1:]])
    try:
        signal.signal(signal.SIGTERM, ask)
        sys.exit(worker.wait())
    except Asked:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        worker.terminate()
        worker.wait()
        time.sleep(0.5)
        sys.exit(1)
    """
)


@pytest.mark.parametrize("launcher", [(), ("closes_slowly.py",)], ids=["ranks", "launchers"])
def test_preemption_that_reaches_another_node_first(
    far: Dray, hpc: Hpc, launcher: tuple[str, ...]
) -> None:
    """Each node's daemon passes the signal on: the first node's is late, and a rank dies before
    the supervisor hears why."""
    hpc.offer(far, partition="scavenge")
    far.write("closes_slowly.py", CLOSES_SLOWLY)
    job = far.run(*WIDE, *RESUMABLE, *python(*launcher, "train.py", "300", "--every"))
    started(far, job)
    wait_for(lambda: list((far.job_dir(job) / "outputs").glob("ckpt_*")))
    first = field(hpc, scheduler_id(far, job), "BatchHost")
    daemon = int((hpc.slurm.folder / f"run/slurmd.{first}.pid").read_text())
    os.kill(daemon, signal.SIGSTOP)
    try:
        both = ("--nodes=2", "--exclusive", "--partition=urgent")
        hpc.slurm.call("sbatch", "--parsable", *both, "--output=/dev/null", "--wrap=sleep 2")
        wait_for(lambda: not commands_of(far, job))
        time.sleep(1)
    finally:
        os.kill(daemon, signal.SIGCONT)
    shown = far.wait(job)
    assert shown["state"] == "done", shown
    assert shown["attempts"][0]["reason"] == "interrupted by SIGTERM", shown["attempts"]


def test_one_that_leaves_at_once_does_not_cut_short_another_that_saves(far: Dray) -> None:
    """Asked to end, all have the grace, though the first of them leaves with an exit code."""
    code = """
        import os, signal, sys, time
        rank, folder = os.environ["SLURM_PROCID"], os.environ["DRAY_OUTPUTS"]
        def save(*_):
            if rank != "0":
                sys.exit(1)
            time.sleep(6)  # longer than dray waits for the others of a rank that has crashed
            open(folder + "/ckpt_1.json", "w").write("{}")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        open(folder + "/started-" + rank, "w").close()
        while True:
            time.sleep(0.05)
        """
    far.write("train.py", textwrap.dedent(code))
    job = far.run(*WIDE, "--checkpoint", "ckpt_*.json", *python("train.py"))
    wait_for(lambda: len(list((far.job_dir(job) / "outputs").glob("started-*"))) == 4)
    far("stop", job)
    shown = far.wait(job)
    assert (shown["state"], shown["attempts"][0]["checkpoint"]) == ("stopped", "ckpt_1.json")


def test_a_cluster_with_an_old_python(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, python=oldest_python())
    flags = ("--time", "8s", "--grace", "4s", "--checkpoint-signal", "USR1", *RESUMABLE)
    job = far.run(*WIDE, *flags, *python("train.py", "80", "ü"))
    shown = far.wait(job)
    assert (shown["state"], shown["attempts"][0]["outcome"]) == ("done", "interrupted"), shown
    assert [log.count("starts at 0\n") for log in rank_logs(far, job)] == [1] * 4


def test_a_commands_own_srun_passes_the_signal_on(far: Dray) -> None:
    flags = ("--nodes", "2", "--launch", "none", "--checkpoint-signal", "USR1", *RESUMABLE)
    job = far.run(*ON, *flags, "--", "srun", sys.executable, "train.py", "10000")
    wait_for(lambda: far.log(job).count("starts at") == 2)
    far("stop", job)
    outputs = far.job_dir(job) / "outputs"
    assert sorted(path.name for path in outputs.glob("asked-*")) == ["asked-0", "asked-1"]
    wait_for(lambda: not commands_of(far, job))


@pytest.mark.parametrize("now", [(), ("--now",)])
def test_stop_reaches_every_node(far: Dray, hpc: Hpc, now: tuple[str, ...]) -> None:
    flags = ("--checkpoint-signal", "USR1", *RESUMABLE)
    job = far.run(*WIDE, *flags, *python("train.py", "10000"))
    started(far, job)
    far("stop", *now, job)
    shown = far.show(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "stopped on request")
    outputs = far.job_dir(job) / "outputs"
    asked = [rank for rank in range(4) if (outputs / f"asked-{rank}").exists()]
    assert asked == ([] if now else [0, 1, 2, 3])
    assert commands_of(far, job) == []
    assert trees(hpc) == []


def test_cancelled_in_slurm(far: Dray, hpc: Hpc) -> None:
    job = far.run(*WIDE, *python("train.py", "10000"))
    started(far, job)
    hpc.slurm.call("scancel", scheduler_id(far, job))
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled in Slurm")
    wait_for(lambda: not commands_of(far, job))


def test_a_supervisor_that_is_killed_leaves_nothing_behind(far: Dray, hpc: Hpc) -> None:
    job = far.run(*WIDE, *python("train.py", "10000"))
    started(far, job)
    (batch,) = (pid for pid in far.processes() if b"attempt" in read(pid, "cmdline").split(b"\0"))
    os.kill(batch, signal.SIGKILL)
    wait_for(lambda: not commands_of(far, job))
    assert far.wait(job)["state"] in ("lost", "failed", "stopped")
    again = far.run(*WIDE, *python("-c", "pass"))
    assert far.wait(again)["state"] == "done"
    assert trees(hpc) == []  # what was left was swept


# -- what is kept -------------------------------------------------------------------------------


def test_outputs_of_every_node_and_what_was_written_beside_them(far: Dray, hpc: Hpc) -> None:
    far.write(
        "write.py",
        "import os\n"
        "rank = os.environ['RANK']\n"
        "open('logs/' + rank, 'w').write(rank)\n"
        "open('beside-' + rank, 'w').write(rank)\n"
        "if rank != '2': print(open('logs/' + rank).read())\n",
    )
    job = far.run(*WIDE, "--output", "logs", *python("write.py"))
    shown = far.wait(job)
    assert shown["state"] == "done"
    outputs = far.job_dir(job) / "outputs/logs"
    assert sorted(path.name for path in outputs.iterdir()) == ["0", "1", "2", "3"]
    wait_for(lambda: far.show(job)["attempts"][0]["left"])
    left = far.show(job)["attempts"][0]["left"]
    assert left == ["beside-0", "beside-1", "node2/beside-2", "node2/beside-3"]
    attempt = far.job_dir(job) / "attempts/001"
    assert all((attempt / "left" / path).exists() for path in left)
    assert sorted(path.name for path in (attempt / "ranks").iterdir()) == ["1.log", "3.log"]
    assert rank_logs(far, job) == ["0\n", "1\n", "", "3\n"]
    assert trees(hpc) == []


def test_secrets_are_in_no_argument_and_not_in_sruns_environment(far: Dray) -> None:
    far.write(
        "wait.py", "import os, time; print(len(os.environ['KEY']), flush=True); time.sleep(600)"
    )
    job = far.run(*WIDE, "--secret", "KEY", *python("wait.py"), KEY="s3cret-value")
    wait_for(lambda: rank_logs(far, job) == ["12\n"] * 4)
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    sruns = [pid for pid in pids if read(pid, "cmdline").startswith(b"srun\0")]
    mine = [pid for pid in sruns if os.fsencode(far.home) in read(pid, "cmdline")]
    assert mine
    assert not [pid for pid in pids if b"s3cret-value" in read(pid, "cmdline")]
    assert not [pid for pid in mine if b"s3cret-value" in read(pid, "environ")]
    far("stop", "--now", job)


# -- before and while ---------------------------------------------------------------------------


def test_a_time_limit_that_is_extended_is_noticed(far: Dray, hpc: Hpc) -> None:
    flags = ("--time", "20s", "--grace", "2s")
    code = "import time; print('begun', flush=True); time.sleep(25)"
    job = far.run(*ON, *flags, *python("-c", code))
    wait_for(lambda: far.log(job) == "begun\n")
    hpc.slurm.call("scontrol", "update", f"JobId={scheduler_id(far, job)}", "TimeLimit=2")
    shown = far.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--nodes", "2"), "this machine is one"),
        (("--launch", "torchrun"), "not by torchrun"),
    ],
)
def test_this_machine_refuses_what_it_cannot_do(
    dray: Dray, flags: tuple[str, ...], told: str
) -> None:
    ended = dray("run", *flags, *python("-c", "pass"), check=False)
    assert ended.returncode == 4
    assert told in ended.stderr
    assert "Leave out --nodes and --launch" in ended.stderr
    shown: list[Any] = json.loads(dray("ps", "--all", "--json").stdout)
    assert shown == []
