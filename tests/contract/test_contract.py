"""What holds on every kind of cluster. A new kind adds itself to KINDS and passes unchanged."""

from __future__ import annotations

import json
import os
import re
import signal
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Dray, wait_for

KINDS = [
    "local",
    pytest.param("hpc", marks=pytest.mark.slurm),
    pytest.param("pbs", marks=pytest.mark.slurm),
    pytest.param("box", marks=pytest.mark.machines),
    pytest.param("k8s", marks=pytest.mark.kubernetes),
    pytest.param("ray", marks=pytest.mark.ray),
]

SHOW_ARGV = "import json, sys; print(json.dumps(sys.argv[1:]))"

# A trainer that counts to N, saves on request or every step, and can be told to misbehave.
TRAINER = textwrap.dedent(
    """
    import json, os, signal, sys, time
    goal, pause = int(sys.argv[1]), float(sys.argv[2])
    folder = os.environ["DRAY_OUTPUTS"]
    step = 0
    if "--resume" in sys.argv:
        path = sys.argv[sys.argv.index("--resume") + 1]
        assert path == os.environ["DRAY_CHECKPOINT"]
        step = json.load(open(path))["step"]
    wanted = []
    signal.signal(signal.SIGUSR1, lambda *_: wanted.append(1))
    print("start at", step, flush=True)
    while step < goal:
        time.sleep(pause)
        step += 1
        open(os.path.join(folder, "steps"), "a").write(f"{step}\\n")
        if wanted or "--every" in sys.argv:
            wanted.clear()
            name = os.path.join(folder, f"ckpt_{step}.json")
            open(name + ".tmp", "w").write(json.dumps({"step": step}))
            os.replace(name + ".tmp", name)
        if f"--crash-at={step}" in sys.argv and os.environ["DRAY_ATTEMPT"] == "1":
            sys.exit(7)
    print("finished", flush=True)
    """
)
RESUMABLE = (
    "--checkpoint",
    "ckpt_*.json",
    "--resume-arg",
    "--resume",
    "--resume-arg",
    "{checkpoint}",
)


@pytest.fixture(params=KINDS)
def on(request: pytest.FixtureRequest, dray: Dray) -> tuple[str, str]:
    dray.write("train.py", TRAINER)
    if request.param == "hpc":
        request.getfixturevalue("hpc").offer(dray)
    if request.param == "pbs":
        request.getfixturevalue("hpc").offer_pbs(dray)
    if request.param == "box":
        request.getfixturevalue("hpc").offer_box(dray)
    if request.param == "k8s":
        request.getfixturevalue("pods").offer(dray)
    if request.param == "ray":
        request.getfixturevalue("ray_cluster").offer(dray)
    return ("--on", str(request.param))


def python(*code: str) -> list[str]:
    """By whatever Python the cluster has."""
    return ["--", "python3", "-c", *code]


# -- exactly your command -----------------------------------------------------------------------

AWKWARD = [
    "two words",
    'it\'s "quoted"',
    "a;b && c | d > e",
    "$(touch pwned) `id` $HOME ${x}",
    "*",
    "line\nbreak\ttab",
    "grüße 機器人 🤖",
    "",
    "-x",
    "--",
    "back\\slash",
    "!history %d #comment ~",
]


def test_the_command_receives_its_arguments_byte_for_byte(dray: Dray, on: tuple[str, str]) -> None:
    job = dray.run(*on, *python(SHOW_ARGV, *AWKWARD))
    assert dray.wait(job)["state"] == "done"
    assert json.loads(dray.log(job)) == AWKWARD
    assert dray.show(job)["command"][3:] == AWKWARD


def test_bytes_that_are_not_text_arrive_too(dray: Dray, on: tuple[str, str]) -> None:
    code = "import os, sys; print([os.fsencode(one) for one in sys.argv[1:]])"
    job = dray("run", *on, *python(code), b"\xff\xfe caf\xe9").stdout.strip()
    dray.wait(job)
    assert dray.log(job).strip() == str([b"\xff\xfe caf\xe9"])


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=40))
def test_any_arguments_arrive(dray: Dray, on: tuple[str, str], arguments: list[str]) -> None:
    job = dray.run(*on, *python(SHOW_ARGV, *arguments))
    dray.wait(job)
    assert json.loads(dray.log(job)) == arguments


# -- the truth about the outcome ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "state", "exit_code", "signal_name"),
    [
        ("raise SystemExit(0)", "done", 0, None),
        ("raise SystemExit(3)", "failed", 3, None),
        ("raise SystemExit(137)", "failed", 137, None),
        ("import os; os.kill(os.getpid(), 9)", "failed", None, "SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)", "failed", None, "SIGSEGV"),
    ],
)
def test_ends_are_told_apart(
    dray: Dray,
    on: tuple[str, str],
    code: str,
    state: str,
    exit_code: int | None,
    signal_name: str | None,
) -> None:
    job = dray.run(*on, *python(code))
    assert dray("wait", job, check=False).returncode == (0 if state == "done" else 1)
    shown = dray.show(job)
    assert (shown["state"], shown["exit_code"], shown["signal"]) == (state, exit_code, signal_name)
    assert len(shown["attempts"]) == 1


def test_output_is_kept_byte_for_byte(dray: Dray, on: tuple[str, str]) -> None:
    code = "import os; os.write(1, bytes(range(256))); os.write(2, b'\\r\\x1b[0m no newline')"
    job = dray.run(*on, *python(code))
    dray.wait(job)
    raw = dray.job_dir(job) / "attempts/001/log"
    assert raw.read_bytes() == bytes(range(256)) + b"\r\x1b[0m no newline"


def test_outputs_survive_a_failure(dray: Dray, on: tuple[str, str], tmp_path: Path) -> None:
    code = "open('logs/a.txt', 'w').write('kept'); import os; os.kill(os.getpid(), 9)"
    job = dray.run(*on, "--output", "logs", *python(code))
    assert dray.wait(job)["state"] == "failed"
    dray("pull", job, str(tmp_path / "home"))
    assert (tmp_path / "home/logs/a.txt").read_text() == "kept"


def test_only_the_outputs_that_are_wanted_come(
    dray: Dray, on: tuple[str, str], tmp_path: Path
) -> None:
    job = dray.run(*on, *RESUMABLE, "--", "python3", "train.py", "12", "0", "--every")
    assert dray.wait(job)["state"] == "done"
    home = tmp_path / "home"

    def pulled(*flags: str) -> set[str]:
        dray("pull", *flags, job, str(home))
        return {one.name for one in home.iterdir()} - {".dray-outputs"}

    assert pulled("--latest-checkpoint") == {"ckpt_12.json"}
    assert pulled("--only", "ckpt_[34].json") == {"ckpt_3.json", "ckpt_4.json", "ckpt_12.json"}
    assert dray("pull", "--only", "*.pt", job, str(tmp_path / "none"), check=False).returncode == 3
    assert len(pulled()) == 13


def test_the_lines_that_are_wanted_are_printed(dray: Dray, on: tuple[str, str]) -> None:
    job = dray.run(*on, "--no-snapshot", *python("for n in range(30): print('line', n)"))
    followed = dray("logs", "-f", "--grep", "line 1[0-2]", job)
    assert followed.stdout == "line 10\nline 11\nline 12\n"
    assert f"── {job} is done: exit code 0, after " in followed.stderr
    assert dray("logs", "-n", "2", job).stdout == "line 28\nline 29\n"
    assert dray("logs", "-n", "2", "--grep", "1", job).stdout == "line 19\nline 21\n"
    assert dray("logs", "--since", "1h", "-n", "1", job).stdout == "line 29\n"
    (stamped,) = dray("logs", "--timestamps", "-n", "1", job).stdout.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  line 29", stamped)


def test_an_output_file_replaced_by_rename_is_kept(
    dray: Dray, on: tuple[str, str], tmp_path: Path
) -> None:
    code = "import os; open('t','w').write('new'); os.replace('t', 'model.bin')"
    job = dray.run(*on, "--output", "model.bin", *python(code))
    assert dray.wait(job)["attempts"][0]["left"] == []
    dray("pull", job, str(tmp_path / "home"))
    assert (tmp_path / "home/model.bin").read_text() == "new"


def test_what_is_written_elsewhere_is_kept_and_named(dray: Dray, on: tuple[str, str]) -> None:
    dray.write("data.txt", "from the snapshot")
    job = dray.run(*on, *python("open('result.txt', 'w').write('x')"))
    assert dray.wait(job)["attempts"][0]["left"] == ["result.txt"]
    assert (dray.job_dir(job) / "attempts/001/left/result.txt").read_text() == "x"
    assert not (dray.job_dir(job) / "attempts/001/left/data.txt").exists()


# -- exactly your code --------------------------------------------------------------------------


def test_two_jobs_around_an_edit_run_their_own_code(dray: Dray, on: tuple[str, str]) -> None:
    gate = dray.home / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
    dray.write("main.py", wait + "print('old')")
    first = dray.run(*on, "--", "python3", "main.py")
    dray.write("main.py", wait + "print('new')")
    second = dray.run(*on, "--", "python3", "main.py")
    dray.write("main.py", "print('neither')")
    gate.touch()
    dray.wait(first), dray.wait(second)
    assert (dray.log(first), dray.log(second)) == ("old\n", "new\n")


def test_the_command_starts_where_the_user_stood(dray: Dray, on: tuple[str, str]) -> None:
    dray.write("dray.toml", "")
    (dray.project / "sub/dir").mkdir(parents=True)
    inner = Dray.__new__(Dray)
    inner.__dict__.update(dray.__dict__, project=dray.project / "sub/dir")
    code = "import os; open('logs/x', 'w').write('1'); print(os.getcwd()[-8:], os.listdir('../..'))"
    job = inner.run(*on, "--output", "logs", *python(code))
    assert inner.wait(job)["outputs"] == ["sub/dir/logs"]
    assert (inner.job_dir(job) / "outputs/sub/dir/logs/x").exists()
    assert inner.log(job).startswith("/sub/dir ['")
    assert "dray.toml" in inner.log(job)


def test_the_environment_is_the_described_one(dray: Dray, on: tuple[str, str]) -> None:
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    flags = ("--env", "GIVEN=a b", "--env", "TAKEN", "--time", "1h")
    job = dray.run(*on, *flags, *python(code), TAKEN="now", LEAK="x")
    dray.wait(job)
    seen = json.loads(dray.log(job))
    assert (seen["GIVEN"], seen["TAKEN"]) == ("a b", "now")
    assert "LEAK" not in seen
    assert "DRAY_HOME" not in seen
    assert (seen["DRAY_JOB_ID"], seen["DRAY_ATTEMPT"]) == (job, "1")
    assert float(seen["DRAY_DEADLINE"]) > dray.show(job)["created"] + 3500
    assert "DRAY_CHECKPOINT" not in seen


@pytest.mark.parametrize("term", ["", "dumb"])
def test_a_script_that_is_written_for_a_terminal_runs(
    dray: Dray, on: tuple[str, str], term: str
) -> None:
    """As isaaclab.sh begins: ``tabs`` fails where TERM says nothing."""
    words = ("--", "bash", "-c", "set -e; tabs 4 > /dev/null; echo $TERM")
    job = dray.run(*on, *words, TERM=term)
    assert dray.wait(job)["state"] == "done"
    assert dray.log(job) == "xterm\n"
    job = dray.run(*on, "--env", "TERM=dumb", "--", "sh", "-c", "echo $TERM")
    dray.wait(job)
    assert dray.log(job) == "dumb\n"


# -- it runs until it is done -------------------------------------------------------------------


def test_time_limits_are_survived(dray: Dray, on: tuple[str, str]) -> None:
    limits = ("--time", "2s", "--grace", "1s", "--checkpoint-signal", "USR1")
    command = ("--", "python3", "train.py", "30", "0.1")
    job = dray.run(*on, *limits, *RESUMABLE, *command)
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    outcomes = [one["outcome"] for one in shown["attempts"]]
    assert outcomes[-1] == "done"
    assert set(outcomes[:-1]) == {"interrupted"}
    assert len(outcomes) >= 3
    for before, after in zip(shown["attempts"], shown["attempts"][1:], strict=False):
        assert after["from_checkpoint"] == before["checkpoint"]
    # On request, right before the end: next to nothing is done twice.
    steps = (dray.job_dir(job) / "outputs/steps").read_text().split()
    assert set(map(int, steps)) == set(range(1, 31))


def test_one_can_say_which_checkpoint_to_go_on_from(dray: Dray, on: tuple[str, str]) -> None:
    command = ("--", "python3", "train.py", "5", "0.01", "--every", "--crash-at=4")
    job = dray.run(*on, *RESUMABLE, *command)
    assert dray.wait(job)["attempts"][0]["checkpoint"] == "ckpt_4.json"
    refused = dray("resume", job, "--from", "ckpt_9.json", check=False)
    assert refused.returncode != 0
    assert "no checkpoint is named ckpt_9.json; there are: ckpt_4.json, ckpt_3" in refused.stderr
    dray("resume", job, "--from", "ckpt_2.json")
    shown = dray.wait(job)
    assert (shown["state"], shown["attempts"][1]["from_checkpoint"]) == ("done", "ckpt_2.json")
    assert shown["attempts"][1]["remarks"] == ["2 checkpoints were set aside in .set-aside-002"]


def test_a_job_begins_from_a_checkpoint_of_another(
    dray: Dray, on: tuple[str, str], tmp_path: Path
) -> None:
    """Of a job of the same root, of one of another cluster, and of the laptop. A job that is
    interrupted before its first checkpoint begins from the given one again, though the job that
    it was of is gone."""
    job = ("--backoff", "0.1s", *RESUMABLE, "--", "python3", "train.py")
    first = dray.run(*on, *job, "3", "0.01", "--every")
    assert dray.wait(first)["state"] == "done"
    begin = ("--from", f"{first}:ckpt_2.json", "--retries", "1")
    second = dray.run(*on, *begin, *job, "5", "0.01", "--every", "--crash-at=4")
    third = dray.run(*on, *begin, *job, "3", "0.01", "--crash-at=3")
    dray("rm", first)
    shown = dray.wait(second)
    assert shown["state"] == "done", shown["reason"]
    assert shown["begins_from"] == f"{first}:ckpt_2.json"
    origins = [one["from_checkpoint"] for one in shown["attempts"]]
    assert origins == [f"{first}:ckpt_2.json", "ckpt_4.json"]
    assert (dray.job_dir(second) / "outputs/steps").read_text() == "3\n4\n5\n"
    shown = dray.wait(third)
    origins = [one["from_checkpoint"] for one in shown["attempts"]]
    assert (shown["state"], origins) == ("done", [f"{first}:ckpt_2.json"] * 2)
    (tmp_path / "mine.json").write_text('{"step": 7}')
    mine = dray.run(*on, "--from", str(tmp_path / "mine.json"), *job, "8", "0.01")
    brought = dray.run("--on", "local", "--from", second, *job, "6", "0.01")
    assert [dray.wait(one)["state"] for one in (mine, brought)] == ["done", "done"]
    assert dray.log(mine) == "start at 7\nfinished\n"
    assert dray.log(brought) == "start at 5\nfinished\n"


def test_a_half_written_checkpoint_is_passed_over(dray: Dray, on: tuple[str, str]) -> None:
    code = textwrap.dedent(
        """
        import os, sys
        folder = os.environ["DRAY_OUTPUTS"]
        if os.environ["DRAY_ATTEMPT"] == "1":
            open(folder + "/ckpt_1.json", "w").write('{"step": 1}')
            os.utime(folder + "/ckpt_1.json", (1000, 1000))
            open(folder + "/ckpt_2.json", "w").write('{"step": ')
            sys.exit(1)
        print(os.path.basename(sys.argv[-1]))
        """
    )
    job = dray.run(*on, "--retries", "1", "--backoff", "0.1s", *RESUMABLE, *python(code))
    assert dray.wait(job)["state"] == "done"
    assert dray.log(job) == "[dray] passed over ckpt_2.json: it is not whole\nckpt_1.json\n"


def test_a_time_limit_without_checkpoints_is_a_failure(dray: Dray, on: tuple[str, str]) -> None:
    job = dray.run(*on, "--time", "1s", *python("import time; time.sleep(60)"))
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("failed", 1)
    assert "time limit" in shown["reason"]


def test_time_limits_without_progress_are_given_up(dray: Dray, on: tuple[str, str]) -> None:
    job = dray.run(*on, "--time", "1s", *RESUMABLE, *python("import time; time.sleep(60)"))
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("failed", 2)
    assert "without a new checkpoint" in shown["reason"]


def test_a_crash_is_retried_and_then_given_up(dray: Dray, on: tuple[str, str]) -> None:
    job = dray.run(*on, "--retries", "2", "--backoff", "0.1s", *python("raise SystemExit(5)"))
    shown = dray.wait(job)
    assert (shown["state"], shown["exit_code"], len(shown["attempts"])) == ("failed", 5, 3)


def test_crashes_without_progress_are_given_up_early(dray: Dray, on: tuple[str, str]) -> None:
    retries = ("--retries", "9", "--backoff", "0.1s")
    job = dray.run(*on, *retries, *RESUMABLE, *python("raise SystemExit(5)"))
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("failed", 2)


def test_a_crash_goes_on_from_the_last_checkpoint(dray: Dray, on: tuple[str, str]) -> None:
    command = ("--", "python3", "train.py", "6", "0.01", "--every", "--crash-at=4")
    job = dray.run(*on, "--retries", "1", "--backoff", "0.1s", *RESUMABLE, *command)
    shown = dray.wait(job)
    assert shown["state"] == "done"
    assert shown["attempts"][0]["exit_code"] == 7
    assert shown["attempts"][1]["from_checkpoint"] == "ckpt_4.json"
    steps = (dray.job_dir(job) / "outputs/steps").read_text().split()
    assert steps == ["1", "2", "3", "4", "5", "6"]


# -- stop and resume ----------------------------------------------------------------------------


def test_stop_asks_for_a_checkpoint_and_resume_goes_on(dray: Dray, on: tuple[str, str]) -> None:
    flags = (*RESUMABLE, "--checkpoint-signal", "USR1", "--grace", "10s")
    job = dray.run(*on, *flags, "--", "python3", "train.py", "120", "0.05")
    wait_for(lambda: "start" in dray.log(job))
    dray("stop", job)
    shown = dray.show(job)
    assert shown["state"] == "stopped"
    saved = shown["attempts"][0]["checkpoint"]
    assert saved is not None
    dray("resume", job)
    shown = dray.wait(job)
    assert shown["state"] == "done"
    assert shown["attempts"][1]["from_checkpoint"] == saved
    assert dray("resume", job, check=False).returncode == 4  # a finished run is not started again


def test_resume_with_todays_code(dray: Dray, on: tuple[str, str]) -> None:
    dray.write("main.py", "raise SystemExit('a bug')")
    job = dray.run(*on, "--", "python3", "main.py")
    assert dray.wait(job)["state"] == "failed"
    dray.write("main.py", "print('mended')")
    dray("resume", job)
    assert dray.wait(job)["state"] == "failed"  # its own code, as it was
    dray("resume", "--update-code", job)
    assert dray.wait(job)["state"] == "done"
    assert dray("logs", "--attempt", "3", job).stdout == "mended\n"


def test_stop_now_kills_what_ignores_signals(dray: Dray, on: tuple[str, str]) -> None:
    code = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\n"
    job = dray.run(*on, "--grace", "100s", *python(code + "time.sleep(100)"))
    wait_for(lambda: "up" in dray.log(job))
    dray("stop", "--now", job)
    shown = dray.show(job)
    assert (shown["state"], shown["signal"]) == ("stopped", "SIGKILL")


def test_stop_gives_the_command_its_grace(dray: Dray, on: tuple[str, str]) -> None:
    code = (
        "import signal, sys, time\n"
        "def leave(*_):\n    print('saved'); sys.exit(0)\n"
        "signal.signal(15, leave)\nprint('up', flush=True)\ntime.sleep(100)"
    )
    job = dray.run(*on, *python(code))
    wait_for(lambda: "up" in dray.log(job))
    dray("stop", job)
    assert dray.show(job)["state"] == "stopped"
    assert dray.log(job) == "up\nsaved\n"


# -- nothing is left behind ---------------------------------------------------------------------


def test_daemons_of_the_command_end_with_it(dray: Dray, on: tuple[str, str]) -> None:
    """A grandchild in a session of its own, whose parents are gone, that ignores SIGTERM."""
    code = textwrap.dedent(
        """
        import os, signal, sys, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                open(os.environ["DRAY_OUTPUTS"] + "/pid", "w").write(str(os.getpid()))
                time.sleep(100)
            os._exit(0)
        os.wait()
        while not os.path.exists(os.environ["DRAY_OUTPUTS"] + "/pid"): time.sleep(0.01)
        """
    )
    job = dray.run(*on, "--grace", "0.5s", *python(code))
    assert dray.wait(job)["state"] == "done"
    pid = int((dray.job_dir(job) / "outputs/pid").read_text())
    assert process_here(job, pid) is None


def test_a_trainer_below_a_shell_is_asked_not_killed(dray: Dray, on: tuple[str, str]) -> None:
    """USR1 would kill the shell, which has no handler for it; the trainer below it has one."""
    flags = (*RESUMABLE, "--checkpoint-signal", "USR1", "--time", "2s", "--grace", "1s")
    dray.write("go.sh", 'python3 train.py 25 0.1 "$@"\necho shell saw $?\n')
    job = dray.run(*on, *flags, "--", "/bin/sh", "go.sh")
    shown = dray.wait(job)
    assert shown["state"] == "done", (shown["reason"], dray.log(job))
    assert dray.log(job).endswith("finished\nshell saw 0\n")
    assert all(one["checkpoint"] for one in shown["attempts"][:-1])


def test_signals_from_outside_interrupt_and_the_job_goes_on(
    dray: Dray, on: tuple[str, str]
) -> None:
    """SIGTERM to the supervisor is what a preemption looks like."""
    flags = (*RESUMABLE, "--checkpoint-signal", "USR1")
    job = dray.run(*on, *flags, "--", "python3", "train.py", "200", "0.05")
    wait_for(lambda: "start" in dray.log(job))
    command = wait_for(lambda: attempt_pid(dray, job))
    os.kill(parent_of(command), signal.SIGTERM)
    shown = dray.wait(job)
    assert shown["state"] == "done"
    assert shown["attempts"][0]["outcome"] == "interrupted"
    assert shown["attempts"][1]["from_checkpoint"] == shown["attempts"][0]["checkpoint"]


def attempt_pid(dray: Dray, job: str, number: int = 1) -> int | None:
    path = dray.job_dir(job) / f"attempts/{number:03d}/attempt.json"
    return process_here(job, json.loads(path.read_text())["pid"]) if path.exists() else None


def process_here(job: str, pid: int) -> int | None:
    """The job's process of this number, as this machine counts: a pod counts from one."""
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            inside = re.search(r"^NSpid:.*?(\d+)$", (process / "status").read_text(), re.M)
            if inside and int(inside[1]) == pid:
                variables = (process / "environ").read_bytes().split(b"\0")
                if f"DRAY_JOB_ID={job}".encode() in variables:
                    return int(process.name)
    return None


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# -- one after another --------------------------------------------------------------------------


def test_a_job_starts_once_those_before_it_are_done(dray: Dray, on: tuple[str, str]) -> None:
    """Also where one of them crashes on the way, and goes on as another attempt."""
    crashing = ("--", "python3", "train.py", "3", "0.2", "--every", "--crash-at=2")
    first = dray.run(*on, "--retries", "1", *RESUMABLE, *crashing)
    code = "import os; print(open(os.environ['DRAY_INPUT_STEPS']).read().split()[-1])"
    second = dray.run(*on, "--input", f"steps={first}:steps", *python(code))
    third = dray.run(*on, "--after", first, "--after", f"{second}:ok", *python("print('third')"))
    shown = dray.wait(third)
    assert shown["state"] == "done", shown["reason"]
    assert dray.show(first)["state"] == dray.show(second)["state"] == "done"
    assert len(dray.show(first)["attempts"]) == 2
    assert dray.log(second) == "3\n"
    begun, ended = dray.show(second)["attempts"][0]["started"], dray.show(first)["ended"]
    assert begun >= ended - 1  # clocks of two nodes may differ


def test_a_job_never_starts_after_one_that_failed(dray: Dray, on: tuple[str, str]) -> None:
    first = dray.run(*on, *python("import time; time.sleep(2); raise SystemExit(3)"))
    second = dray.run(*on, "--after", first, *python("print('second')"))
    third = dray.run(*on, "--after", second, *python("print('third')"))
    whatever = dray.run(*on, "--after", f"{first}:any", *python("print('whatever')"))
    assert dray.wait(whatever)["state"] == "done"
    assert dray.show(first)["state"] == "failed"
    shown = dray.wait(second)
    assert (shown["state"], shown["attempts"]) == ("stopped", [])
    assert shown["reason"] == f"never started: it comes after {first}, which failed"
    assert dray.wait(third)["reason"].endswith(f"it comes after {second}, which was stopped")


def test_a_job_that_waits_for_another_can_be_stopped(dray: Dray, on: tuple[str, str]) -> None:
    first = dray.run(*on, *python("import time; time.sleep(600)"))
    second = dray.run(*on, "--after", first, *python("print('second')"))
    dray("stop", second, check=False)
    shown = dray.show(second)
    assert (shown["state"], shown["attempts"]) == ("stopped", [])
    assert dray.show(first)["state"] in ("queued", "running")
    dray("stop", "--now", first, check=False)
