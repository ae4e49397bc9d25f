"""Looking at jobs with the real program: the listing, the queue, an output, and what is pulled."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Dray, wait_for
from tests.integration.test_cli import UNTIL_GO, python, raw_log, refuse
from tests.integration.test_terminal import on_terminal, spawn

TRAINER = """
import os, dray.training as t
for n in range(1, 41):
    t.report(step=n, mean_reward=n / 4)
    if n % 20 == 0:
        open(os.path.join(os.environ["DRAY_OUTPUTS"], "model_%d.pt" % n), "w").write("x" * n)
    print("iteration", n)
"""
COUNTED = (
    "--checkpoint",
    "model_*.pt",
    "--checkpoint-number",
    r"model_(\d+)",
    "--iterations-flag",
    "--n",
)
LONG = "a-long-argument-" * 8


def until_go(dray: Dray, say: str = "up") -> list[str]:
    return ["--", "sh", "-c", f"echo {say}; {UNTIL_GO.format(go=dray.home / 'go')}"]


# -- ps -----------------------------------------------------------------------------------------


def test_a_listing_at_80_columns(dray: Dray) -> None:
    dray.write("train.py", TRAINER)
    code = "import os, sys; os.kill(os.getpid(), 11)"
    failed = dray.run("--no-snapshot", *python(code), LONG)
    trained = dray.run(*COUNTED, "--", sys.executable, "train.py", "--n", "60")
    assert dray.wait(trained)["attempts"][0]["total"] == 60
    dray.wait(failed)
    active = dray.run("--no-snapshot", "--time", "1h", *until_go(dray), LONG)
    wait_for(lambda: dray.show(active)["attempts"])
    lines = on_terminal(dray, "ps", NO_COLOR="1").splitlines()
    assert max(map(len, lines)) <= 80
    about = {line.split()[0]: line for line in lines}
    assert lines[0].split()[:2] == ["ID", "STATE"]
    assert re.search(r"running +\d+s +59m\d\ds ", about[active])
    assert re.search(r"40/60 +mean_reward 10 ▁▂.*█ ", about[trained])
    assert "killed by SIGSEGV" in lines[-1]  # the oldest, in a line of its own
    (dray.home / "go").touch()
    dray.wait(active)


def test_findings_are_wrapped_on_a_terminal_and_whole_in_a_pipe(dray: Dray) -> None:
    dray.write("dray.toml", "")
    piped = dray("doctor", "local").stdout
    told = on_terminal(dray, "doctor", "local", columns=60, NO_COLOR="1")
    assert max(map(len, piped.splitlines())) > 60
    assert told.split() == piped.split()
    for line in told.splitlines():
        assert len(line) <= 60 or len(line[16:].split()) == 1, line  # a path is kept whole


def test_a_listing_says_what_it_hides_and_can_be_narrowed(dray: Dray) -> None:
    dray.write("dray.toml", "")
    one = dray.run("--", "echo", "apple")
    other = dray.run("--no-snapshot", "--", "false", "pear")
    dray.wait(one), dray.wait(other)

    def listed(*flags: str) -> list[str]:
        return [row["id"] for row in json.loads(dray("ps", "--json", *flags).stdout)]

    ended = dray("ps", "-n", "1")
    assert ended.stderr == "1 older job not shown: dray ps --all\n"
    assert one not in ended.stdout
    assert dray("ps").stderr == ""
    assert listed("--state", "done") == [one]
    assert listed("--state", "done", "--state", "failed") == [other, one]
    assert listed("--grep", "APPLE") == [one]
    assert listed("--grep", "exit code") == [other]
    assert listed("--here") == [other, one]
    assert dray("ps", "--grep", "apple", "--state", "failed").stderr == "no such jobs\n"
    elsewhere = dray.home / "elsewhere"
    elsewhere.mkdir()
    dray.project = elsewhere
    assert listed("--here") == []
    assert listed() == [other, one]
    assert "is not one of" in refuse(dray, 2, "ps", "--state", "dead")


def test_watching_redraws_until_ctrl_c(dray: Dray) -> None:
    job = dray.run("--no-snapshot", *until_go(dray))
    wait_for(lambda: dray.show(job)["state"] == "running")
    talk = spawn(dray, "ps", "--watch", NO_COLOR="1")
    talk.expect_exact("running")
    (dray.home / "go").touch()
    talk.expect_exact("\x1b[H")
    talk.expect_exact("done")
    talk.sendintr()
    rest = talk.read().decode()
    talk.close()
    assert (talk.exitstatus, "Traceback" in rest, "interrupted" in rest) == (0, False, False)


def test_watching_into_a_pipe_prints_again_and_again(dray: Dray) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "dray", "ps", "-w"],
        cwd=dray.project, env=dray.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as watch:  # fmt: skip
        assert watch.stdout is not None
        assert [watch.stdout.readline() for _ in range(3)] == ["no jobs\n", "\n", "no jobs\n"]
        watch.send_signal(signal.SIGINT)
        assert watch.communicate()[1] == ""
    assert watch.returncode == 0


# -- the queue of this machine --------------------------------------------------------------------


def test_a_queued_job_says_what_it_waits_for(dray: Dray) -> None:
    dray.write("dray.toml", "[clusters.local]\ncpus = 2\n")
    holder = dray.run("--no-snapshot", *until_go(dray))
    wait_for(lambda: dray.show(holder)["state"] == "running")
    first = dray.run("--no-snapshot", "--cpus", "2", "--", "true")
    second = dray.run("--no-snapshot", "--", "true")
    shortage = f"waiting for 2 CPUs: 1 of 2 taken by {holder}"
    assert dray.show(first)["reason"] == f"next in the queue, {shortage}"
    assert dray.show(second)["reason"] == (
        f"place 2 in the queue, behind {first}; {first} is next, {shortage}"
    )
    rows = json.loads(dray("ps", "--json").stdout)
    assert [row["reason"] for row in rows] == [f"behind {first} in the queue", shortage, ""]
    (dray.home / "go").touch()
    assert [dray.wait(job)["reason"] for job in (holder, first, second)] == ["", "", ""]


# -- logs -----------------------------------------------------------------------------------------


def test_lines_that_are_looked_for(dray: Dray) -> None:
    code = (
        "import os, sys\n"
        "for n in range(20): print('\\x1b[32mstep\\x1b[0m', n, 'loss' if n % 5 == 0 else '')\n"
        "sys.stdout.write('last loss')\nsys.stdout.flush()\n"
        "sys.exit(os.environ['DRAY_ATTEMPT'] == '1')"
    )
    job = dray.run("--no-snapshot", "--retries", "1", "--backoff", "0.01s", *python(code))
    dray.wait(job)

    def found(*flags: str) -> list[bytes]:
        text = re.sub(rb"\x1b\[\d+m", b"", raw_log(dray, job, *flags))
        return [line.rstrip() for line in text.splitlines()]

    of_one = [b"step 0 loss", b"step 5 loss", b"step 10 loss", b"step 15 loss", b"last loss"]
    assert found("--grep", "loss") == [*of_one, *of_one]
    assert found("--grep", "^step 1[0-5] loss$", "--attempt", "2") == of_one[2:4]
    assert found("-n", "2", "--grep", "loss") == of_one[-2:]
    assert found("-n", "3", "--grep", "loss", "-f") == of_one[-3:]
    assert found("-n", "0", "--grep", "loss") == []
    assert "not a regular expression" in refuse(dray, 2, "logs", "--grep", "(", job)


def test_following_tells_the_end(dray: Dray) -> None:
    job = dray.run("--no-snapshot", "--", "sh", "-c", "echo loss 1; echo other; exit 3")
    ended = dray("logs", "-f", "--grep", "loss", job)
    assert ended.stdout == "loss 1\n"
    assert re.fullmatch(rf"── {job} is failed: exit code 3, after \d+s\n", ended.stderr)
    assert dray("logs", job).stderr == ""
    good = dray.run("--no-snapshot", "--", "true")
    ended = dray("logs", "-f", good)
    assert re.fullmatch(rf"── {good} is done: exit code 0, after \d+s\n", ended.stderr)


def test_ctrl_c_ends_a_pattern_that_takes_for_ever(dray: Dray) -> None:
    job = dray.run("--no-snapshot", "--", "printf", "%s", "a" * 60)
    dray.wait(job)
    with subprocess.Popen(
        [sys.executable, "-m", "dray", "logs", "--grep", "(a|a)*b", job],
        cwd=dray.project, env=dray.env, stderr=subprocess.PIPE, text=True,
    ) as looking:  # fmt: skip
        used = Path(f"/proc/{looking.pid}/stat")
        wait_for(lambda: int(used.read_text().split()[13]) > 100, 60)  # far behind its imports
        looking.send_signal(signal.SIGINT)
        assert "interrupted" in looking.communicate(timeout=60)[1]
    assert looking.returncode == 130


def test_when_lines_were_written(dray: Dray) -> None:
    job = dray.run("--no-snapshot", "--", "sh", "-c", "echo one; echo two")
    ended = dray.wait(job)["attempts"][0]["ended"]
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(int(ended)))
    lines = dray("logs", "--timestamps", job).stdout.splitlines()
    assert [line[-5:] for line in lines] == ["  one", "  two"]
    assert all(stamp[:16] <= line[:16] for line in lines)
    assert dray("logs", "--since", "1h", job).stdout == "one\ntwo\n"

    # As if it had run for long, and the second line had come an hour after the first.
    attempt = dray.job_dir(job) / "attempts/001"
    (attempt / "log-times").write_text(f"{ended - 7200:.3f} 4\n{ended - 3600:.3f} 8\n")
    for name in ("attempt.json", "outcome.json"):
        about = json.loads((attempt / name).read_text())
        (attempt / name).write_text(json.dumps({**about, "started": ended - 9000}))
    assert dray("logs", "--since", "90m", job).stdout == "two\n"
    assert dray("logs", "--since", "3h", job).stdout == "one\ntwo\n"
    assert dray("logs", "--since", "3h", "-n", "1", job).stdout == "two\n"
    hours = [line[11:13] for line in dray("logs", "--timestamps", job).stdout.splitlines()]
    expected = [time.strftime("%H", time.localtime(ended - 3600 * n)) for n in (2, 1)]
    assert hours == expected

    (attempt / "log-times").unlink()  # as an older dray leaves it
    ended_now = dray("logs", "--timestamps", job)
    assert ended_now.stdout == "-------------------  one\n-------------------  two\n"
    assert "is not known" in ended_now.stderr
    assert "cannot read the time" in refuse(dray, 2, "logs", "--since", "soon", job)


# -- pull -----------------------------------------------------------------------------------------


@pytest.fixture
def trained(dray: Dray) -> str:
    dray.write("train.py", TRAINER)
    job = dray.run(*COUNTED, "--", sys.executable, "train.py", "--n", "40")
    assert dray.wait(job)["state"] == "done"
    return job


def test_only_what_is_wanted_is_pulled(dray: Dray, trained: str) -> None:
    target = dray.project / trained
    ended = dray("pull", "--latest-checkpoint", trained)
    assert ended.stdout == f"{target}\n"
    assert ended.stderr == "1 of 1 files copied, 40 B\n"
    assert {one.name for one in target.iterdir()} == {".dray-outputs", "model_40.pt"}
    dray("pull", "--only", "model_2?.pt", "--only", "nothing", trained)
    assert {one.name for one in target.iterdir()} == {
        ".dray-outputs", "model_20.pt", "model_40.pt",
    }  # fmt: skip
    says = refuse(dray, 3, "pull", "--only", "*.zip", trained, "elsewhere")
    assert "has no output that fits *.zip" in says
    assert not (dray.project / "elsewhere").exists()
    bare = dray.run("--no-snapshot", "--", "true")
    dray.wait(bare)
    assert "no whole checkpoint" in refuse(dray, 3, "pull", "--latest-checkpoint", bare)


def test_what_a_killed_pull_left_is_cleared(dray: Dray, trained: str) -> None:
    """Not what another one writes right now, nor what is somebody else's."""
    dray("pull", "--only", "model_20.pt", trained)
    target = dray.project / trained
    left, young, other = (target / name for name in (
        ".0123456789ab.part", ".ba9876543210.part", ".mine.part"
    ))  # fmt: skip
    for path in (left, young, other):
        path.write_text("half")
    code = (
        "import os, sys\n"
        "import dray.landing as landing\n"
        "landing.ABANDONED = float(sys.argv.pop(1))\n"
        "from dray.cli.running import run\n"
        "sys.exit(run(sys.argv[1:]))"
    )

    def pull(age: str) -> None:
        words = [sys.executable, "-c", code, age, "pull", trained]
        subprocess.run(words, cwd=dray.project, env=dray.env, check=True, capture_output=True)

    pull("60")
    assert left.exists()
    with young.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        pull("0")
    assert (left.exists(), young.exists(), other.exists()) == (False, True, True)


def test_outputs_and_logs_of_a_job_that_is_gone(dray: Dray, trained: str) -> None:
    shutil.rmtree(dray.job_dir(trained))
    for verb in ("pull", "logs"):
        assert f"{trained}: its directory on local is gone" in refuse(dray, 3, verb, trained)
    assert not (dray.project / trained).exists()
    assert dray.show(trained)["state"] == "done"


# -- submitting -----------------------------------------------------------------------------------


@pytest.fixture
def unreachable(dray: Dray, tmp_path: Path) -> Dray:
    """A cluster whose login node does not answer."""
    ssh = tmp_path / "programs/ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nsleep 0.7\necho "ssh: connect to host x: timed out" >&2\nexit 255\n')
    ssh.chmod(0o755)
    dray.use(ssh.parent)
    dray.env["XDG_RUNTIME_DIR"] = str(tmp_path)
    dray.configure("[clusters.far]\nkind = 'slurm'\nhost = 'x'\n")
    return dray


def test_without_a_connection_nothing_was_submitted(unreachable: Dray) -> None:
    (unreachable.project / "data.bin").write_bytes(os.urandom(6 << 20))
    talk = spawn(unreachable, "run", "--on", "far", "--", "true")
    said = talk.read().decode()
    talk.close()
    assert talk.exitstatus == 7
    assert "no connection to x" in said
    assert "may have been submitted" not in said
    assert "█" not in said
    assert "sending" not in said
    assert unreachable("ps", "--all", "--json").stdout == "[]\n"


# -- plan -----------------------------------------------------------------------------------------


def test_a_plan_begins_with_the_script(unreachable: Dray) -> None:
    flags = ("--on", "far", "--no-snapshot", "--", "echo", "hello")
    lines = unreachable("plan", *flags).stdout.splitlines()
    assert lines[0].endswith("batch.sh")
    assert lines[1] == "#!/bin/bash -l"
    assert "files     job.json  (dray plan --all shows them)" in lines
    assert not [line for line in lines if line.startswith("{")]
    everything = unreachable("plan", "--all", *flags).stdout
    described = everything.partition("job.json\n")[2]
    assert json.loads(described)["command"] == ["echo", "hello"]
