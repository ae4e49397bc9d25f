"""Corners of the local cluster that once went wrong, or easily would."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dray.cli.output import launcher
from dray.cli.wait import tell_ends
from dray.node.formats import files
from dray.node.processes.process import parents
from tests.conftest import Dray, wait_for
from tests.contract.test_contract import RESUMABLE, attempt_pid, parent_of, python

LEAVES_WITH_ZERO = (
    "import signal, sys, time\n"
    "signal.signal(15, lambda *_: sys.exit(0))\nprint('up', flush=True)\ntime.sleep(60)"
)
LEAVES_WHEN_ASKED = """
import os, signal, sys, time
signal.signal(15, lambda *_: sys.exit({code}))
if os.environ["DRAY_ATTEMPT"] == "1":
    print("up", flush=True)
    time.sleep(60)
"""
SAVES_BY_RENAME = """
import json, os, sys, time
step = json.load(open("model.json"))["step"] if os.path.exists("model.json") else 0
while step < 30:
    time.sleep(0.1)
    step += 1
    json.dump({"step": step}, open("model.tmp", "w"))
    os.replace("model.tmp", "model.json")
"""


def test_the_demo_overwrites_nothing(dray: Dray) -> None:
    dray.write("mine/train.py", "print('my precious')")
    ended = dray("demo", "mine", check=False)
    assert ended.returncode == 2
    assert (dray.project / "mine/train.py").read_text() == "print('my precious')"
    assert not (dray.project / "mine/dray.toml").exists()


def test_a_command_that_leaves_politely_at_its_limit_is_not_done(dray: Dray) -> None:
    job = dray.run("--time", "3s", *python(LEAVES_WITH_ZERO))
    shown = dray.wait(job)
    assert (shown["state"], shown["exit_code"]) == ("failed", 0)
    assert "time limit reached" in shown["reason"]


def test_a_short_grace_is_a_grace(dray: Dray) -> None:
    """Half a second before the limit SIGTERM comes, not SIGKILL at the limit."""
    job = dray.run("--time", "3s", "--grace", "0.5s", *python(LEAVES_WITH_ZERO))
    assert dray.wait(job)["signal"] is None


@pytest.mark.parametrize("code", [0, 143])
def test_an_end_that_is_seen_together_with_the_signal_is_an_interruption(
    dray: Dray, code: int
) -> None:
    """A scheduler signals all of a job; we may be busy with a slow disk just then."""
    dray.write("train.py", LEAVES_WHEN_ASKED.format(code=code))
    job = dray.run("--", sys.executable, "train.py")
    wait_for(lambda: "up" in dray.log(job))
    command = wait_for(lambda: attempt_pid(dray, job))
    supervisor = parent_of(command)
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(command, signal.SIGTERM)
    wait_for(lambda: state_of(command) == "Z")
    os.kill(supervisor, signal.SIGTERM)
    os.kill(supervisor, signal.SIGCONT)
    shown = dray.wait(job)
    assert [one["outcome"] for one in shown["attempts"]] == ["interrupted", "done"]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_checkpoints_saved_by_rename_count_as_progress(dray: Dray) -> None:
    dray.write("train.py", SAVES_BY_RENAME)
    flags = ("--time", "2s", "--grace", "0.5s", "--output", "model.json")
    job = dray.run(*flags, "--checkpoint", "model.json", "--", sys.executable, "train.py")
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert len(shown["attempts"]) >= 2
    assert json.loads((dray.job_dir(job) / "outputs/model.json").read_text())["step"] == 30


def kill_those_who_care(dray: Dray, job: str) -> int:
    command = wait_for(lambda: attempt_pid(dray, job))
    supervisor = parent_of(command)
    for pid in (parent_of(supervisor), supervisor):
        os.kill(pid, signal.SIGKILL)
    return command


def test_what_a_lost_job_saved_by_rename_is_pulled(dray: Dray, tmp_path: Path) -> None:
    save = "echo 1 > t; mv t m.json; touch $DRAY_OUTPUTS/up; exec sleep 60"
    job = dray.run("--output", "m.json", "--", "/bin/sh", "-c", save)
    wait_for(lambda: (dray.job_dir(job) / "outputs/up").exists())
    kill_those_who_care(dray, job)
    wait_for(lambda: dray.show(job)["state"] == "lost")
    dray("pull", job, str(tmp_path / "home"))
    assert (tmp_path / "home/m.json").read_text() == "1\n"


def test_a_folder_made_read_only_does_not_stop_the_next_attempt(dray: Dray) -> None:
    """As an ordinary user; root may write anywhere."""
    dray.write("src/a", "code")
    code = (
        "import os\n"
        "os.chmod('src', 0o500)\n"
        "raise SystemExit(0 if os.environ['DRAY_ATTEMPT'] == '2' else 1)"
    )
    job = dray.run("--retries", "1", "--backoff", "0.1s", *python(code))
    assert dray.wait(job)["state"] == "done"
    dray("rm", job)
    assert not dray.job_dir(job).exists()


def test_damaged_state_files_hide_no_job(dray: Dray) -> None:
    good, bad = dray.run("--", "true"), dray.run("--", "true")
    for job in (good, bad):
        dray.wait(job)
    (dray.job_dir(bad) / "job.json").write_text("{")
    (dray.job_dir(good) / "attempts/001/heartbeat.json").write_text("")
    for name in ("counter", "capacity.json"):
        (dray.home / "dray/local/queue" / name).write_text("")
    for path in (dray.home / "dray").glob("store.db*"):
        path.unlink()
    rows = json.loads(dray("ps", "--all", "--json").stdout)
    reasons = {row["id"]: row["reason"] for row in rows}
    path = dray.job_dir(bad) / "job.json"
    assert reasons == {good: "", bad: f"its description is damaged: {path}"}
    assert dray.wait(dray.run("--", "true"))["state"] == "done"


def test_pipes_and_sockets_in_the_outputs_do_not_stop_a_pull(dray: Dray, tmp_path: Path) -> None:
    job = dray.run("--output", "o", "--", "/bin/sh", "-c", "mkfifo o/pipe; echo 1 > o/file")
    dray.wait(job)
    assert "1 of 1" in dray("pull", job, str(tmp_path / "home")).stderr
    assert (tmp_path / "home/.dray-outputs").read_text() == f"{job}\n"


def test_what_a_lost_job_left_running_is_ended_before_its_place_is_given_away(dray: Dray) -> None:
    dray.write("dray.toml", "[clusters.local]\ngpus = 1\n")
    script = "setsid sleep 300 & touch $DRAY_OUTPUTS/up; wait"
    job = dray.run("--gpus", "1", "--", "/bin/sh", "-c", script)
    wait_for(lambda: (dray.job_dir(job) / "outputs/up").exists())
    kill_those_who_care(dray, job)
    (stray,) = wait_for(lambda: len(dray.processes()) == 1 and dray.processes())
    assert dray.wait(dray.run("--gpus", "1", "--", "true"))["state"] == "done"
    assert stray not in parents()


def test_a_smaller_machine_does_not_fail_jobs_that_wait(dray: Dray) -> None:
    dray.write("dray.toml", "[clusters.local]\ncpus = 2\n")
    gate = dray.home / "gate"
    first = dray.run(
        "--cpus", "2", "--", "/bin/sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done"
    )
    second = dray.run("--cpus", "2", "--", "true")
    dray.write("dray.toml", "[clusters.local]\ncpus = 1\n")
    third = dray.run("--", "true")
    gate.touch()
    assert dray.wait(first)["state"] == "done"
    assert dray.show(second)["state"] == "queued"
    dray.write("dray.toml", "[clusters.local]\ncpus = 2\n")
    dray.run("--", "true")
    assert dray.wait(second)["state"] == "done"
    assert dray.wait(third)["state"] == "done"


def test_a_job_that_is_being_cleared_away_is_not_queued(dray: Dray) -> None:
    """A daemon that ignores SIGTERM holds up the clean-up for a while."""
    code = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n"
        "    signal.signal(15, signal.SIG_IGN)\n    time.sleep(60)\n"
    )
    job = dray.run("--grace", "3s", *python(code))
    wait_for(lambda: (dray.job_dir(job) / "attempts/001/outcome.json").exists())
    assert dray.show(job)["state"] in ("running", "done")
    assert dray.wait(job)["state"] == "done"


def test_a_burst_of_signals_stops_once(dray: Dray) -> None:
    dray.write("dray.toml", "[clusters.local]\ncpus = 1\n")
    blocker = dray.run("--", "sleep", "60")
    job = dray.run("--", "true")
    keeper = int((dray.job_dir(job) / "alive").read_text())
    (dray.job_dir(job) / "stop.json").write_text('{"now": false, "time": 0}')
    for _ in range(20):
        try:
            os.kill(keeper, signal.SIGTERM)
        except ProcessLookupError:
            break
        time.sleep(0.0005)
    wait_for(lambda: dray.show(job)["state"] == "stopped")
    dray("stop", "--now", blocker)


def test_a_variable_that_is_a_secret_too_is_refused(dray: Dray) -> None:
    ended = dray("run", "--env", "KEY", "--secret", "KEY", "--", "true", check=False, KEY="s3cret")
    assert ended.returncode == 2
    assert "s3cret" not in ended.stderr


def test_a_long_run_that_has_just_ended_is_listed(dray: Dray) -> None:
    job = dray.run("--", "true")
    dray.wait(job)
    with sqlite3.connect(dray.home / "dray/store.db") as store:
        store.execute("UPDATE jobs SET created = created - 300000")
    store.close()
    assert [row["id"] for row in json.loads(dray("ps", "--json").stdout)] == [job]


def test_jobs_that_are_removed_while_they_are_waited_for(
    dray: Dray, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """How the one ended was seen before, of the other nobody can tell any more."""
    monkeypatch.setenv("DRAY_HOME", dray.env["DRAY_HOME"])
    released = dray.project / "released"
    wait = f"import os, time\nwhile not os.path.exists({str(released)!r}): time.sleep(0.02)"
    bad = dray.run("--no-snapshot", "--", "false")
    dray.wait(bad)
    unseen, good = [dray.run("--no-snapshot", *python(wait)) for _ in range(2)]

    def another_terminal(_: float) -> None:
        if not released.exists():
            released.touch()
            dray("wait", "--timeout", "30s", unseen)
            dray("rm", bad, unseen)

    monkeypatch.setattr("dray.launcher.watching.time.sleep", another_terminal)  # between two looks
    views = launcher().wait_all([bad, unseen, good])
    assert [view.state for view in views] == ["failed", "lost", "done"]
    assert tell_ends(views) == 1
    assert f"{unseen} is lost: it was removed meanwhile" in capfd.readouterr().err


def test_a_job_that_is_removed_while_its_cluster_is_asked(
    dray: Dray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_HOME", dray.env["DRAY_HOME"])
    verbs = launcher()
    verbs.watching.refresh_those({"local": {"was-there": ("running", "", 1)}})
    assert verbs.open_store().view("was-there") is None


def test_a_job_that_a_job_submits_outlives_it(dray: Dray) -> None:
    script = f"{sys.executable} -m dray run -- /bin/sh -c 'sleep 2; echo inner'"
    flags = ("--env", f"DRAY_HOME={dray.env['DRAY_HOME']}", "--env", f"PYTHONPATH={src()}")
    outer = dray.run(*flags, "--", "/bin/sh", "-c", script)
    assert dray.wait(outer)["state"] == "done"
    inner = next(line for line in dray.log(outer).splitlines() if line.startswith("sh-"))
    shown = dray.wait(inner)
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)


def src() -> str:
    return str(Path(__file__).parent.parent.parent / "src")


def test_a_folder_with_a_dot_in_its_name_is_a_folder(dray: Dray) -> None:
    code = "import os; os.makedirs('logs.v2', exist_ok=True); open('logs.v2/x', 'w').write('1')"
    job = dray.run("--output", "logs.v2", *python(code))
    assert dray.wait(job)["state"] == "done"
    assert (dray.job_dir(job) / "outputs/logs.v2/x").exists()


def test_the_tail_of_a_long_line_is_found(dray: Dray) -> None:
    code = "import sys; sys.stdout.write('x' * 3_000_000 + '\\nlast')"
    job = dray.run(*python(code))
    dray.wait(job)
    assert dray("logs", "--tail", "1", job).stdout == "last"
    assert len(dray("logs", "--tail", "2", job).stdout) == 3_000_005


def test_resumable_runs_are_still_given_up_without_progress(dray: Dray) -> None:
    job = dray.run("--time", "1s", *RESUMABLE, *python(LEAVES_WITH_ZERO))
    assert dray.wait(job)["state"] == "failed"


PERIODIC = """
import os, sys, time
folder = os.environ["DRAY_OUTPUTS"]
steps = sorted(int(name[5:-5]) for name in os.listdir(folder) if name.startswith("ckpt_"))
step = steps[-1] if steps else 0
while step < 140:
    time.sleep(0.1)
    step += 1
    print(step, flush=True)
    if step % 10 == 0:
        open(os.path.join(folder, "tmp"), "w").write("{}")
        os.replace(os.path.join(folder, "tmp"), os.path.join(folder, f"ckpt_{step}.json"))
"""


def test_a_trainer_that_saves_now_and_then_is_ended_after_the_last_that_fits(dray: Dray) -> None:
    """Checkpoints every second, a limit of ten: without it a part of every attempt is lost."""
    dray.write("train.py", PERIODIC)
    flags = ("--checkpoint", "ckpt_*.json", "--time", "10s", "--saves", "periodically")
    job = dray.run(*flags, "--", sys.executable, "train.py")
    shown = dray.wait(job)
    assert shown["state"] == "done"
    first = shown["attempts"][0]
    assert first["reason"] == "time limit: ended after the last checkpoint that fits"
    steps = [int(line) for line in dray.log(job).split()]
    again = len(steps) - len(set(steps))
    assert set(steps) == set(range(1, 141))
    assert again <= 3 * (len(shown["attempts"]) - 1), "what was done after a checkpoint is lost"


IN_PARTS = """
import os, sys, time
folder = os.environ["DRAY_OUTPUTS"]
saved = sorted(int(name[3:]) for name in os.listdir(folder) if name.startswith("ck_"))
number = saved[-1] if saved else 0
for name in ("model.bin", "optimizer.bin"):
    assert not saved or os.path.getsize(f"{folder}/ck_{number}/{name}") == 20, name
while number < 5:
    time.sleep(1)
    number += 1
    os.mkdir(f"{folder}/ck_{number}")
    for name in ("model.bin", "optimizer.bin"):
        with open(f"{folder}/ck_{number}/{name}", "wb") as file:
            for _ in range(10):
                file.write(b"xx")
                file.flush()
                time.sleep(0.05)
        time.sleep(0.5)
"""


def test_a_checkpoint_of_several_files_is_written_to_its_end(dray: Dray) -> None:
    """Two seconds in writing, half of one between its files, and no format that tells its end."""
    dray.write("train.py", IN_PARTS)
    flags = ("--checkpoint", "ck_*", "--time", "9s", "--grace", "2s", "--saves", "periodically")
    job = dray.run(*flags, "--keep", "1", "--", sys.executable, "train.py")
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    first = shown["attempts"][0]
    assert first["reason"] == "time limit: ended after the last checkpoint that fits"


def test_a_root_that_others_can_write_to_is_refused(dray: Dray) -> None:
    job = dray.run("--", "true")
    dray.wait(job)
    root = dray.jobs.parent
    root.chmod(0o777)
    for words in (("run", "--", "true"), ("show", job), ("logs", job), ("rm", job)):
        ended = dray(*words, check=False)
        assert ended.returncode == 4
        assert "can be written to by others" in ended.stderr
    root.chmod(0o700)
    assert dray.show(job)["state"] == "done"


def test_a_root_of_somebody_elses_is_refused(dray: Dray, tmp_path: Path) -> None:
    """Everybody's folders belong to root; to root, this one belongs to somebody else."""
    root = Path("/")
    if os.getuid() == 0:
        root = tmp_path / "others"
        root.mkdir()
        os.chown(root, 12345, 12345)
    config = dray.home / "dray/config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(f'[clusters.local]\nroot = "{root}"\n')
    ended = dray("run", "--", "true", check=False)
    assert ended.returncode == 4
    assert "belongs to another user" in ended.stderr
    assert not (root / "jobs").exists()


def test_a_supervisor_that_is_stopped_is_told(dray: Dray) -> None:
    job = dray.run("--", "sleep", "1000")
    beat = dray.job_dir(job) / "attempts/001/heartbeat.json"
    wait_for(beat.exists)
    keeper = int((dray.job_dir(job) / "alive").read_text())
    (supervisor,) = [pid for pid, parent in parents().items() if parent == keeper]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        at = beat.stat().st_mtime - 400
        os.utime(beat, (at, at))
        shown = dray.show(job)
        reason = "no sign of life for 6 min (its supervisor may be stopped)"
        assert (shown["state"], shown["reason"]) == ("running", reason)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    dray("stop", "--now", job)
    assert dray.wait(job)["state"] == "stopped"


def test_secrets_do_not_outlive_a_submission_that_is_killed(dray: Dray) -> None:
    """It waits for the queue's lock, a moment before the job is there."""
    dray.wait(dray.run("--", "true"))
    with files.Lock(str(dray.jobs.parent / "queue/lock")):
        words = [sys.executable, "-m", "dray", "run", "--secret", "KEY", "--", "true"]
        process = subprocess.Popen(words, cwd=dray.project, env={**dray.env, "KEY": "s3cret"})
        wait_for(lambda: list(dray.jobs.glob(".new-true-*/job.json")))
        dray("ps", "--all")
        assert list(dray.jobs.glob(".new-*"))  # it lives
        process.kill()
        process.wait()
    dray("ps", "--all")
    assert not list(dray.jobs.glob(".new-*"))


def test_why_a_local_job_waits(dray: Dray) -> None:
    dray.configure("[clusters.local]\ngpus = 2\n")
    holder = dray.run("--gpus", "2", "--", "sleep", "60")
    wait_for(lambda: dray.show(holder)["state"] == "running")
    dray.run("--gpus", "1", "--", "true")
    job = dray.run("--gpus", "1", "--", "true")
    found = json.loads(dray("why", "--json", job).stdout)["explanation"]
    assert (found["place"], found["waiting"], found["gpus_before"]) == (2, 2, 1)
    assert found["holders"] == [holder]
    assert found["pool"]["free"] == 0
    assert "number 2 of 2 that wait" in dray("why", job).stdout
    dray("stop", "--now", holder)
    dray.wait(job)


def test_the_queue_and_the_quota_of_machines(dray: Dray, tmp_path: Path) -> None:
    """This machine, and one that is reached through an agent: here without a host."""
    root = json.dumps(str(tmp_path / "box"))
    box = f'[clusters.box]\nkind = "ssh"\nroot = {root}\ngpus = 1\n'
    dray.configure(f"[clusters.local]\ngpus = 1\n{box}")
    for name in ("local", "box"):
        on = ("--on", name)
        holder = dray.run(*on, "--gpus", "1", "--", "sleep", "60")
        wait_for(lambda job=holder: dray.show(job)["state"] == "running")
        job = dray.run(*on, "--gpus", "1", "--", "true")
        (found,) = json.loads(dray("queue", "--json", *on).stdout)
        assert [(one["job"], one["state"]) for one in found["entries"]] == [
            (job, "waiting"),
            (holder, "running"),
        ]
        assert (found["pools"][0]["free"], found["pools"][0]["total"]) == (0, 1)
        assert json.loads(dray("why", "--json", job).stdout)["explanation"]["holders"] == [holder]
        (allowed,) = json.loads(dray("quota", "--json", *on).stdout)
        assert (allowed["limits"][0]["used"], allowed["limits"][0]["most"]) == (1, 1)
        assert {"root", "home"} <= {one["name"] for one in allowed["disks"]}
        assert [one["what"] for one in allowed["own"]][:1] == ["jobs"]
        dray("stop", "--now", holder)
        dray.wait(job)
