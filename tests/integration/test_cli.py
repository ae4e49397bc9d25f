"""The command line as a person and a shell script meet it: words, exit codes, streams, files."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.conftest import Dray, Hpc, wait_for

ESCAPE = "\x1b["
UNTIL_GO = "while [ ! -e {go} ]; do sleep 0.05; done"


def python(code: str) -> list[str]:
    return ["--", sys.executable, "-c", code]


def refuse(dray: Dray, code: int, *arguments: str, **env: str) -> str:
    """Run what must fail with this exit code: what was said, and nothing on stdout."""
    ended = dray(*arguments, check=False, **env)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.stderr


def every_file(folder: Path) -> dict[str, Any]:
    """All there is: kind, mode, times and content."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_size, content)
    return found


def holding(folder: Path, needle: str) -> list[str]:
    """The files in which this text stands, in whatever way it may be written down."""
    spelled = {needle.encode(), json.dumps(needle).strip('"').encode(), needle.encode("utf-16-le")}
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(one in path.read_bytes() for one in spelled)
    ]


# -- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["shwo", "x"], 2, "there is no verb 'shwo'. Did you mean 'show'?"),
        (["runn"], 2, "Did you mean 'run'?"),
        (["status"], 2, "there is no verb 'status'. Did you mean dray ps, or dray show JOB?"),
        (["cancel", "x"], 2, "Did you mean dray stop JOB?"),
        (["run", "--gpu", "1", "--", "true"], 2, "'--gpus'"),
        (["run"], 2, "dray run -- python train.py"),
        (["run", "--time", "4 hours", "--", "true"], 2, "write 90s, 30m, 4h, 1d12h or 04:00:00"),
        (["run", "--memory", "lots", "--", "true"], 2, "write 512M, 32G or 1.5T"),
        (["run", "--gpus", "1.5", "--", "true"], 2, "'--gpus'"),
        (["run", "--retries", "-1", "--", "true"], 2, "whole number of at least 0"),
        (["run", "--output", "/tmp", "--", "true"], 2, "--output"),
        (["run", "--env", "A B=1", "--", "true"], 2, "'A B' is not the name of a variable"),
        (["run", "--env", "NOT_SET", "--", "true"], 2, "--env NOT_SET: the variable is not set"),
        (["run", "--secret", "NOT_SET", "--", "true"], 2, "secret NOT_SET was found nowhere"),
        (["run", "--from", "", "--", "true"], 2, "it is empty: is a variable not set?"),
        (["run", "--like", ""], 2, "it is empty: is a variable not set?"),
        (["pull", "--only", "", "x"], 2, "it is empty: is a variable not set?"),
        (["run", "--resume-arg", "x", "--", "true"], 2, "--checkpoint"),
        (["run", "--on", "locl", "--", "true"], 3, "no cluster 'locl'. Did you mean 'local'?"),
        (["plan", "--on", "locl", "--", "true"], 3, "no cluster 'locl'. Did you mean 'local'?"),
        (["doctor", "locl"], 3, "no cluster 'locl'. Did you mean 'local'?"),
        (["cluster", "show", "locl"], 3, "no cluster 'locl'. Did you mean 'local'?"),
        (["cluster", "lst"], 2, "Did you mean 'list'?"),
        (["run", "--", "no-such-program"], 4, "the command 'no-such-program' cannot be run"),
        (["run", "--", "./no-such-script"], 4, "the command './no-such-script' cannot be run"),
        (["run", "--cpus", "100000", "--", "true"], 4, "100000 CPUs asked for"),
        (["run", "--gpus", "3", "--", "true"], 4, "3 GPUs asked for, and this machine has 2"),
        (["show", "nothing"], 3, "there is no job 'nothing'."),
        (["show", ""], 3, "there is no job ''."),
        (["logs", "nothing"], 3, "there is no job 'nothing'."),
        (["wait", "nothing"], 3, "there is no job 'nothing'."),
        (["wait", "--timeout", "soon", "nothing"], 2, "--timeout"),
        (["stop", "nothing"], 3, "there is no job 'nothing'."),
        (["resume", "nothing"], 3, "there is no job 'nothing'."),
        (["rm", "nothing"], 3, "there is no job 'nothing'."),
        (["pull", "nothing"], 3, "there is no job 'nothing'."),
        (["completion", "tcsh"], 2, "'bash'"),
        (["exec", "job", "--", ""], 2, "the program has no name"),
        (["exec", "--", "ls"], 2, "JOB is missing"),
        (["exec", "--rank", "0", "--", "ls", "-l"], 2, "JOB is missing"),
        (["exec", "nothing", "--", "ls"], 3, "there is no job 'nothing'."),
        (["sweep", "start", "--space", "lr=1,2"], 2, "dray sweep start --space … -- python"),
        (["queue", "local"], 2, "dray queue --on local"),
        (["quota", "--json", "local"], 2, "dray quota --on local"),
    ],
)
def test_mistakes_are_told_with_the_way_out(
    dray: Dray, arguments: list[str], code: int, says: str
) -> None:
    dray.write("dray.toml", "[clusters.local]\ngpus = 2\n")
    assert says in " ".join(refuse(dray, code, *arguments).split())
    assert not (dray.home / "dray/local").exists()  # refused before anything was brought there


@pytest.mark.parametrize(
    ("outputs", "checkpoint", "is_told"),
    [
        ("logs", "log/model_*.pt", True),
        ("logs/run", "logs/other/*.pt", True),
        ("logs", "logs/**/model_*.pt", False),
        ("logs/run", "logs/*/model.pt", False),
        ("logs/run", "*/model.pt", False),
        ("logs", "logs", False),
    ],
)
def test_a_checkpoint_that_no_output_holds_is_told(
    dray: Dray, outputs: str, checkpoint: str, is_told: bool
) -> None:
    planned = dray("plan", "--output", outputs, "--checkpoint", checkpoint, "--", "true")
    assert ("lies in no declared output" in planned.stdout) == is_told


def test_a_misspelled_placeholder_is_refused(dray: Dray) -> None:
    flags = ("--checkpoint", "x/*.pt", "--resume-arg")
    says = refuse(dray, 2, "run", *flags, "--load={chekpoint}", "--", "true")
    assert "{chekpoint} stands for nothing. Did you mean {checkpoint}?" in says
    dray("plan", *flags, '{"seed": {x}}', "--", "true")  # braces of the trainer's own


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ("[job.resources]\ngpu = 1\n", "job.resources.gpu: unknown key. Did you mean 'gpus'?"),
        ("[job]\ngpus = 1\n", "job.gpus: unknown key. It belongs to [job.resources]"),
        ("[job\n", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_projects_file_stops_only_what_submits(
    dray: Dray, mistake: str, says: str
) -> None:
    """Jobs that run are looked after all the same."""
    ended = dray.run("--output", "out", "--", "sh", "-c", "echo fine > out/x; echo fine")
    dray.wait(ended)
    running = dray.run("--", "sleep", "60")
    path = dray.write("dray.toml", f"\n{mistake}")
    for verb in (["run", "--", "true"], ["plan", "--", "true"], ["resume", ended]):
        assert f"{path}:" in (said := refuse(dray, 2, *verb))
        assert says in said
    for verb in (
        ["ps"],
        ["show", ended],
        ["logs", ended],
        ["wait", ended],
        ["pull", ended],
        ["doctor"],
        ["cluster", "list"],
        ["stop", running],
        ["rm", ended],
    ):
        done = dray(*verb, check=False)
        assert done.returncode == (7 if verb == ["doctor"] else 0), done.stderr  # it is a finding
        assert says in done.stderr, verb
        assert "nothing can be submitted with it" in done.stderr
    assert dray.show(running)["state"] == "stopped"


def test_a_name_that_is_not_text(dray: Dray) -> None:
    ended = dray("show", b"\xff", check=False)
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr


def test_an_id_of_several_jobs_where_one_is_meant(dray: Dray) -> None:
    words = ("--space", "x=1,2", "--trials", "2", "--metric", "x", "--", "true")
    sweep = dray("sweep", "start", *words).stdout.strip()
    for verb in ("show", "why", "ticket"):
        says = refuse(dray, 2, verb, sweep)
        assert f"'{sweep}' is 2 jobs: name one of them, such as {sweep}.0" in says
        assert f"'dray sweep status {sweep}' shows all of them." in says
    dray("wait", sweep, check=False)


def test_references_to_jobs(dray: Dray) -> None:
    one, two = (dray.run("--name", "train", "--", "true") for _ in range(2))
    assert dray.wait(one)["state"] == dray.wait(two)["state"] == "done"
    says = refuse(dray, 2, "show", "trai")
    assert "'trai' is not unique" in says
    for job in (one, two):
        assert re.search(rf"{job} \(done, \d+s ago\)", says)
    alike = next(at for at in range(len(one)) if one[at] != two[at])
    assert dray.show(one[: alike + 1])["id"] == one
    assert f"Did you mean '{one}'?" in refuse(dray, 3, "show", "x" + one)
    assert "another machine" not in refuse(dray, 3, "show", "other-7f3k")
    dray.configure("[clusters.far]\nkind = 'ssh'\nhost = 'far'\n")
    says = refuse(dray, 3, "show", "other-7f3k")
    assert "One that another machine submitted: dray ps --on far --all" in says


def test_without_a_job_the_latest_is_meant(dray: Dray) -> None:
    for verb in ("show", "logs", "wait", "pull"):
        assert "no job is known here" in refuse(dray, 3, verb)
    dray.wait(dray.run("--", "echo", "older"))
    latest = dray.run("--output", "out", "--", "sh", "-c", "echo 1 > out/x; echo newer")
    for verb in ("wait", "show", "logs", "pull"):
        assert f"the latest job: {latest}" in (told := dray(verb)).stderr
        assert verb != "logs" or told.stdout == "newer\n"
    assert (dray.project / latest / "out/x").exists()
    for verb in ("stop", "rm", "resume"):  # what changes a job names it
        assert "Missing argument" in refuse(dray, 2, verb)


def test_a_tree_that_is_too_large_is_refused(dray: Dray) -> None:
    dray.write("dray.toml", "[snapshot]\nmax_size = '10K'\n")
    dray.write("data/big.bin", "x" * 20_000)
    assert "data" in refuse(dray, 5, "run", "--", "true")
    assert dray("ps", "--all", "--json").stdout == "[]\n"


# -- for programs -------------------------------------------------------------------------------

JOB_KEYS = {
    "version",
    "id", "name", "cluster", "state", "reason", "exit_code", "signal", "created", "ended",
    "command", "folder", "project", "snapshot", "resources", "resume", "metrics", "container",
    "retries", "recipe", "launch", "outputs", "env", "secrets", "attempts", "directory", "curve",
    "last_lines", "limits", "retry_on", "fail_on", "hold", "stall",
    "sweep",
    "begins_from",
    "after",
    "inputs",
}  # fmt: skip
ATTEMPT_KEYS = {
    "number", "outcome", "exit_code", "signal", "reason", "started", "heartbeat", "ended",
    "host", "gpus", "from_checkpoint", "checkpoint", "metric", "deadline", "iteration", "total",
    "gpu_use", "gpu_idle", "left", "remarks", "held",
}  # fmt: skip
ROW_KEYS = {
    "version",
    "id", "cluster", "name", "state", "reason", "created", "ended", "attempts", "command",
    "metric", "last_attempt",
}  # fmt: skip


def test_json_is_valid_and_stable(dray: Dray) -> None:
    dray.write("dray.toml", "[clusters.local]\ngpus = 2\nmemory = '1G'\n")
    odd = "ü\n\"'\x1b[31m"
    job = dray.run("--output", "logs", "--", "sh", "-c", "exit 3", odd)
    dray.wait(job)

    def read(*arguments: str) -> Any:
        return json.loads(dray(*arguments).stdout)

    (row,) = read("ps", "--json")
    assert set(row) == ROW_KEYS
    assert row["command"] == ["sh", "-c", "exit 3", odd]
    assert (row["state"], row["reason"], row["attempts"]) == ("failed", "exit code 3", 1)

    shown = read("show", "--json", job)
    assert set(shown) == JOB_KEYS
    assert set(shown["attempts"][0]) == ATTEMPT_KEYS
    assert (shown["state"], shown["exit_code"], shown["outputs"]) == ("failed", 3, ["logs"])

    (here,) = read("cluster", "list", "--json")
    known = {"name": "local", "kind": "local", "host": None, "default": True, "answers": None}
    assert here == {**known, "queued": 0, "running": 0, "problem": "", "answered": here["answered"]}
    cluster = read("cluster", "show", "--json", "local")
    assert set(cluster) == {"name", "kind", "settings", "capabilities"}
    assert cluster["settings"] == {"gpus": "2", "memory": str(2**30)}
    assert cluster["capabilities"]["gpus"] == 2

    findings = read("doctor", "--json")
    assert {frozenset(one) for one in findings} == {frozenset({"ok", "what", "detail", "advice"})}

    plan = read("plan", "--json", "--", "true")
    assert set(plan) == {"cluster", "job", "files", "command", "notes"}


def test_run_prints_only_the_id_on_stdout(dray: Dray) -> None:
    ended = dray("run", "--", "true")
    assert re.fullmatch(r"true-[a-z0-9]{4}\n", ended.stdout)
    assert ended.stderr == f"queued; follow it with: dray logs -f {ended.stdout}"
    followed = dray("run", "--follow", *python("print('out'); raise SystemExit(3)"), check=False)
    assert followed.returncode == 1
    assert re.fullmatch(r"\S+\n", followed.stdout)
    assert "out\n" in followed.stderr
    assert followed.stderr.endswith(" is failed: exit code 3\n")


def test_wait(dray: Dray) -> None:
    go = dray.home / "go"
    good = dray.run("--", "sh", "-c", UNTIL_GO.format(go=go))
    bad = dray.run("--", "false")
    says = refuse(dray, 9, "wait", "--timeout", "0.2s", good)
    assert f"{good} is still" in says
    go.touch()
    assert dray("wait", good).stderr == f"{good} is done\n"
    says = refuse(dray, 1, "wait", good, bad)
    assert says == f"{good} is done\n{bad} is failed: exit code 1\n"
    assert refuse(dray, 1, "wait", "--timeout", "1h", bad, good).startswith(f"{bad} is failed")


# -- plan ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("used_before", [False, True])
def test_plan_touches_nothing(dray: Dray, used_before: bool) -> None:
    dray.write("train.py", "print(1)\n")
    dray.write("sub/data.txt", "x")
    dray.write("dray.toml", "[job]\noutputs = ['logs']\n")
    dray.configure("[job]\nsecrets = ['TOKEN']\n")
    if used_before:
        dray.wait(dray.run("--", "true", TOKEN="first"))
    before = every_file(dray.home)
    for form in ([], ["--json"]):
        ended = dray("plan", *form, "--", "python3", "train.py", TOKEN="s3cret-value")
        assert "s3cret-value" not in ended.stdout + ended.stderr
        assert "TOKEN" in ended.stdout
    assert every_file(dray.home) == before


def test_plan_is_what_run_submits(dray: Dray) -> None:
    arguments = ["--name", "x", "--env", "A=1", "--time", "1h", "--", "true", "a b", "ü"]
    plan = json.loads(dray("plan", "--json", *arguments).stdout)
    job = dray.run(*arguments)
    dray.wait(job)
    written = json.loads((dray.job_dir(job) / "job.json").read_text())
    ((path, content),) = plan["files"].items()
    assert path == str(dray.job_dir(plan["job"]["id"]) / "job.json")
    planned = json.loads(content)
    assert planned == plan["job"]
    for record in (planned, written):
        del record["id"], record["created"]
    assert planned == written


# -- secrets and privacy ------------------------------------------------------------------------


def test_a_secret_reaches_the_command_and_nothing_else(dray: Dray) -> None:
    value = 'pa"ss wörd $HOME'
    go = dray.home / "go"
    command = f'printf %s "$TOKEN"; {UNTIL_GO.format(go=go)}'
    job = dray.run("--secret", "TOKEN", "--", "sh", "-c", command, TOKEN=value)
    folder = dray.job_dir(job)
    log = folder / "attempts/001/log"
    wait_for(lambda: log.exists() and log.read_bytes() == value.encode())

    secrets = folder / "secrets.json"
    assert secrets.stat().st_mode & 0o777 == 0o600
    running = holding(dray.home / "dray", value)
    assert sorted(running) == sorted(
        str(path.relative_to(dray.home / "dray")) for path in (log, secrets)
    )
    for pid in dray.processes():
        assert value.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()

    go.touch()
    assert dray.wait(job)["state"] == "done"
    assert not secrets.exists()
    assert holding(dray.home / "dray", value) == [str(log.relative_to(dray.home / "dray"))]
    for verb in (["show", job], ["show", "--json", job], ["ps", "--json"]):
        assert value not in dray(*verb).stdout
    assert dray.show(job)["secrets"] == ["TOKEN"]


@pytest.mark.parametrize("end", ["failed", "stopped"])
def test_secrets_are_gone_however_the_job_ends(dray: Dray, end: str) -> None:
    what = "exit 1" if end == "failed" else "echo up; sleep 100"
    job = dray.run("--secret", "TOKEN", "--", "sh", "-c", what, TOKEN="s3cret-value")
    if end == "stopped":
        wait_for(lambda: dray.log(job))
        dray("stop", "--now", job)
    assert dray.wait(job)["state"] == end
    wait_for(lambda: not dray.processes())
    assert holding(dray.home / "dray", "s3cret-value") == []


def test_a_home_or_root_within_the_project_is_not_code(dray: Dray) -> None:
    """There lie other jobs' secrets, and the packs of all earlier snapshots."""
    other = f"[clusters.other]\nkind = 'local'\nroot = '{dray.project}/roots/other'\n"
    dray.write("dray.toml", "")
    dray.write("roots/code.py", "")
    dray.env["DRAY_HOME"] = str(dray.project / ".dray")
    dray.configure(other)
    for cluster in ("local", "other"):
        dray.wait(dray.run("--on", cluster, "--", "true"))
    assert (dray.project / "roots/other/jobs").is_dir()
    job = dray.run("--", "find", ".", "-type", "f", "-not", "-name", ".dray-unpacked")
    dray.wait(job)
    assert sorted(dray.log(job).split()) == ["./dray.toml", "./roots/code.py"]


def test_everything_is_private(dray: Dray) -> None:
    """Whatever the umask: others cannot enter, so what a command leaves there is closed too."""
    dray.write("train.py", "open('left', 'w').write('x')\nopen('logs/x', 'w').write('x')\n")
    arguments = ["run", "--output", "logs", "--", sys.executable, "train.py"]
    ended = subprocess.run(
        ["sh", "-c", 'umask 000 && exec "$@"', "sh", sys.executable, "-m", "dray", *arguments],
        cwd=dray.project, env=dray.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert dray.wait(ended.stdout.strip())["state"] == "done"
    top = dray.home / "dray"
    folders = [top, top / "local", top / "cache", *(top / "local").iterdir()]
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in folders} == {
        path.name: "0o700" for path in folders
    }


def test_files_are_private_also_in_a_home_that_was_there_before(dray: Dray) -> None:
    top = dray.never_used()
    top.mkdir(mode=0o755)
    job = dray.run("--", "true")
    dray.wait(job)
    reachable = [top]
    for path in reachable:  # grows while it is walked through
        if path.is_dir() and path.stat().st_mode & 0o055:
            reachable += path.iterdir()
    readable = [path for path in reachable if path.is_file() and path.stat().st_mode & 0o044]
    assert readable == []
    assert "chmod 700" in dray("doctor", check=False).stdout


# -- the store ----------------------------------------------------------------------------------


def test_a_damaged_store_is_reported_and_made_anew(dray: Dray) -> None:
    job = dray.run("--", "false")
    before = dray.wait(job)
    store = dray.home / "dray/store.db"
    store.write_bytes(b"rubbish" * 1000)
    for ending in ("-wal", "-shm"):
        store.with_name(f"store.db{ending}").unlink(missing_ok=True)
    ended = dray("ps", "--json")
    assert "is damaged" in ended.stderr
    assert "1 found" in ended.stderr
    assert [row["id"] for row in json.loads(ended.stdout)] == [job]
    assert dray.show(job) == before
    assert dray("ps").stderr == ""
    (aside,) = store.parent.glob("store.db.damaged-*")
    assert aside.read_bytes() == b"rubbish" * 1000


def test_a_store_that_is_damaged_deep_inside_is_made_anew_too(dray: Dray) -> None:
    jobs = [dray.run("--name", "x" * 30, "--", "true", "y" * 3000) for _ in range(2)]
    for job in jobs:
        dray.wait(job)
    store = dray.home / "dray/store.db"
    content = bytearray(store.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    store.write_bytes(content)
    dray("ps", check=False)
    assert {row["id"] for row in json.loads(dray("ps", "--json").stdout)} == set(jobs)


def test_jobs_are_found_again_without_the_store(dray: Dray) -> None:
    job = dray.run("--", "true")
    before = dray.wait(job)
    (dray.home / "dray/store.db").unlink()
    assert dray.show(job) == before


def test_a_store_of_a_newer_dray_is_refused(dray: Dray) -> None:
    dray.wait(dray.run("--", "true"))
    with closing(sqlite3.connect(dray.home / "dray/store.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    says = refuse(dray, 6, "ps")
    assert "written by a newer dray" in says
    assert "Update dray" in says


# -- disks --------------------------------------------------------------------------------------

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")


def on_small_disk(dray: Dray, place: Path, options: str, script: str) -> list[str]:
    """Run a script where ``place`` is a file system of its own: what it printed."""
    place.mkdir(exist_ok=True)
    mounted = (
        f"mount -t tmpfs -o {options},mode=700 none {shlex.quote(str(place))} && {{ {script}\n}}"
    )
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounted],
        cwd=dray.project, env=dray.env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    return (ended.stdout + ended.stderr).splitlines()


@needs_root
def test_a_full_disk_leaves_nothing_half_made(dray: Dray) -> None:
    root = dray.home / "root"
    dray.configure(f"[clusters.local]\nroot = '{root}'\n")
    (dray.project / "weights.bin").write_bytes(os.urandom(5 << 20))
    script = f"""
        dray run -- true; echo "exit code $?"
        find {root} -type f -path '*jobs*' -o -name '*.tmp' -o -name '.new-*' -o -name '*.part'
        echo listed; dray ps --all --json
        rm weights.bin; id=$(dray run -- true) && dray wait $id
    """
    said = on_small_disk(dray, root, "size=4m", script)
    assert said[:3] == ["exit code 8", "listed", "[]"]
    text = "\n".join(said)
    assert "No space left on device" in text
    assert "The disk is full: free some space" in text
    assert said[-1].endswith(" is done")


@needs_root
@pytest.mark.parametrize("place", ["root", "dray"])
def test_a_read_only_place_is_told(dray: Dray, place: str) -> None:
    folder = dray.home / place
    if place == "root":
        dray.configure(f"[clusters.local]\nroot = '{folder}'\n")
    said = on_small_disk(dray, folder, "ro", 'dray run -- true; echo "exit code $?"')
    assert said[0] == "exit code 8"
    assert "ead-only file system" in "\n".join(said)
    assert "DRAY_HOME" in "\n".join(said)


def test_doctor_tells_of_a_project_file_that_cannot_be_used(dray: Dray) -> None:
    dray.write("dray.toml", "[jb]\n")
    ended = dray("doctor", check=False)
    assert ended.returncode == 7
    assert re.search(r"^BAD  config +\S+/dray.toml:1: jb: unknown key", ended.stdout, re.M)


@needs_root
def test_doctor_tells_of_a_root_that_cannot_be_written_to(dray: Dray) -> None:
    root = dray.home / "root"
    dray.configure(f"[clusters.local]\nroot = '{root}'\n")
    said = on_small_disk(dray, root, "ro", 'dray doctor; echo "exit code $?"')
    assert "exit code 7" in said
    assert [line for line in said if line.startswith("BAD  root")]


# -- completion ---------------------------------------------------------------------------------


def complete(dray: Dray, words: str) -> set[str]:
    """What bash would offer for the last word."""
    count = len(words.split(" ")) - 1
    ended = dray(_DRAY_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(count))
    assert ended.stderr == ""
    return {line.partition(",")[2] for line in ended.stdout.splitlines() if line}


def test_completion(dray: Dray) -> None:
    home = dray.never_used()
    assert complete(dray, "dray show ") == set()
    assert not home.exists()  # asking for help makes nothing
    dray.configure("[clusters.box]\nkind = 'local'\n")
    job = dray.run("--", "true")
    dray.wait(job)
    assert {"run", "ps", "show", "logs", "wait", "doctor"} <= complete(dray, "dray ")
    assert complete(dray, "dray res") == {"resume"}
    assert complete(dray, "dray show ") == complete(dray, "dray logs true") == {job}
    assert complete(dray, f"dray rm {job} ") == {job}
    assert complete(dray, "dray show x") == set()
    assert complete(dray, "dray run --on ") == {"local", "box"}
    assert complete(dray, "dray doctor b") == {"box"}
    assert complete(dray, "dray cluster show l") == {"local"}
    assert {"--gpus", "--grace"} <= complete(dray, "dray run --g")


def test_completion_of_recipes_images_and_partitions(dray: Dray, hpc: Hpc) -> None:
    assert {"generic", "isaaclab/rsl_rl"} <= complete(dray, "dray run --recipe ")
    assert complete(dray, "dray recipe show li") == {"lightning"}
    assert complete(dray, "dray init --recipe to") == {"torchrun"}
    dray.write("dray.toml", "[job]\nimage = 'isaac-lab-base:1.2'\n")
    assert complete(dray, "dray run --image isaac") == {"isaac-lab-base:1.2"}
    hpc.offer(dray)
    dray("doctor", "hpc", check=False)
    dray.use(dray.home)
    (dray.home / "ssh").write_text(f"#!/bin/sh\necho called >> {dray.home}/calls\nexit 255\n")
    (dray.home / "ssh").chmod(0o755)
    partitions = {"gpu", "urgent", "scavenge", "cheap"}
    assert complete(dray, "dray cluster add hpc --partition ") == partitions
    assert complete(dray, "dray cluster add new --partition u") == {"urgent"}
    assert not (dray.home / "calls").exists(), "nobody is asked"


def test_completion_tells_how_a_job_is(dray: Dray) -> None:
    job = dray.run("--", "true")
    dray.wait(job)
    asked = {"_DRAY_COMPLETE": "fish_complete", "COMP_WORDS": "dray show ", "COMP_CWORD": ""}
    assert re.fullmatch(rf"plain,{job}\tdone; \d+s ago\n", dray(**asked).stdout)


def test_completion_is_installed_once_and_read_by_bash(dray: Dray) -> None:
    job = dray.run("--", "true")
    dray.wait(job)
    home = Path(dray.env["HOME"])
    said = dray("completion", "--install", SHELL="/bin/bash").stderr
    script = home / ".local/share/bash-completion/completions/dray"
    assert f"wrote {script}" in said
    assert f"{script} is as it should be" in dray("completion", "bash", "--install").stderr
    steps = f"""
        set -eu
        . {script}
        COMP_WORDS=(dray show {job[:6]}) COMP_CWORD=2
        _dray_completion dray
        echo "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(
        ["bash", "--norc", "-c", steps],
        cwd=dray.project, env=dray.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", f"{job}\n")
    assert (
        f"wrote {home}/.config/fish/completions/dray.fish"
        in dray("completion", "fish", "--install").stderr
    )


def test_what_of_a_startup_file_is_changed_is_said(dray: Dray) -> None:
    startup = Path(dray.env["HOME"], ".zshrc")
    startup.write_text("setopt x\n")
    said = dray("completion", "zsh", "--install").stderr
    assert f"changed {startup}" in said
    written = startup.read_text()
    assert written.startswith("setopt x\n")
    assert startup.stat().st_mode & 0o777 == 0o644
    assert f"{startup} is as it should be" in dray("completion", "zsh", "--install").stderr
    assert startup.read_text() == written


def test_completion_stays_silent_where_it_cannot_help(dray: Dray) -> None:
    dray.write("dray.toml", "[oops]\n")
    assert complete(dray, "dray run --on ") == {"local"}
    dray.configure("[oops]\n")
    assert complete(dray, "dray run --on ") == complete(dray, "dray show ") == set()


def test_bash_loads_the_completion_and_completes(dray: Dray) -> None:
    job = dray.run("--", "true")
    dray.wait(job)
    script = f"""
        set -eu
        eval "$(dray completion bash)"
        complete -p dray
        COMP_WORDS=(dray show {job[:6]}) COMP_CWORD=2
        _dray_completion dray
        echo "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=dray.project, env=dray.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == job


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(dray: Dray, shell: str) -> None:
    assert f"_DRAY_COMPLETE={shell}_complete" in dray("completion", shell).stdout


# -- terminals and pipes ------------------------------------------------------------------------


def on_terminal(dray: Dray, *arguments: str, **env: str) -> str:
    said = pexpect.run(
        shlex.join([sys.executable, "-m", "dray", *arguments]),
        cwd=str(dray.project),
        env={**dray.env, "TERM": "xterm", **env},
        timeout=60,
    )
    assert isinstance(said, bytes)
    return said.decode().replace("\r\n", "\n")


def test_colours_only_on_a_terminal_that_wants_them(dray: Dray) -> None:
    job = dray.run("--", "false", "\x1b[31mred\x07", "x" * 200)
    dray.wait(job)
    for verb in (["ps"], ["show", job], ["doctor"]):
        piped = dray(*verb).stdout
        assert "\x1b" not in piped
        assert "\x1b" not in on_terminal(dray, *verb, NO_COLOR="1")
        assert ESCAPE in on_terminal(dray, *verb)
    terminal = on_terminal(dray, "ps", NO_COLOR="1").splitlines()
    assert len(terminal) == 2
    assert max(map(len, terminal)) == 80
    assert terminal[1].endswith("…")
    assert r"\x1b[31mred\x07" in dray("ps").stdout
    assert len(dray("ps").stdout.splitlines()[1]) > 200


def test_a_reader_that_leaves_early_makes_no_noise(dray: Dray) -> None:
    job = dray.run(
        *python("print('first'); print('x' * 79 + '\\n', end='') ; print('y' * 5_000_000)")
    )
    dray.wait(job)
    pipe = f"{shlex.quote(sys.executable)} -m dray logs {job} | head -1"
    ended = subprocess.run(
        ["sh", "-c", pipe], cwd=dray.project, env=dray.env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (ended.stdout, ended.stderr) == ("first\n", "")


@pytest.mark.parametrize(
    ("words", "code"),
    [(["ps"], 0), (["ps", "--json"], 0), (["--help"], 0), (["ps", "--help"], 0),
     (["--version"], 0), (["show", "nothing"], 3), (["wait", "false"], 1)],
)  # fmt: skip
def test_nobody_reads_what_is_said(dray: Dray, words: list[str], code: int) -> None:
    dray.wait(dray.run("--no-snapshot", "--", "false"))
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "dray", *words], cwd=dray.project, env=dray.env,
        stdout=writing, stderr=writing if code else subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (ended.returncode, ended.stderr or b"") == (code, b"")


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_names_that_the_output_cannot_encode(dray: Dray, encoding: str) -> None:
    dray.env["PYTHONIOENCODING"] = encoding
    odd = os.fsdecode(b"caf\xe9")
    words = ["--no-snapshot", "--output", odd, *python("open('caf\\udce9/x', 'w')")]
    dray("plan", *words)
    job = dray.run(*words)
    dray.wait(job)
    shown, pulled = dray("show", job).stdout, dray("pull", job, f"home-{odd}").stdout
    assert (dray.project / f"home-{odd}" / odd / "x").exists()
    if encoding == "utf-8:strict":  # as it is, for whoever takes it for a path
        assert f"outputs    {odd}\n" in shown
        assert pulled == f"{dray.project}/home-{odd}\n"
    ellipsis = "…" if encoding == "utf-8:strict" else r"\u2026"
    assert f"VERB [OPTIONS] {ellipsis}" in dray("--help").stdout


# -- logs ---------------------------------------------------------------------------------------


def raw_log(dray: Dray, job: str, *arguments: str) -> bytes:
    ended = subprocess.run(
        [sys.executable, "-m", "dray", "logs", *arguments, job],
        cwd=dray.project, env=dray.env, capture_output=True, check=True,
    )  # fmt: skip
    return ended.stdout


def last_lines(data: bytes, count: int) -> bytes:
    """What tail -n prints."""
    lines = re.findall(rb"[^\n]*\n|[^\n]+", data)
    return b"".join(lines[max(len(lines) - count, 0) :])


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"one\ntwo\nthree\n",
        b"one\ntwo\nno newline at the end",
        b"gaps\n\n\nand more\n\n\n",
        b"\n" * 5,
        bytes(range(256)) * 300 + b"\xff\xfe\n\x00\r\n\x1b[0m",
        b"".join(b"line %d\n" % number for number in range(30_000)),
    ],
)
def test_logs_are_printed_byte_for_byte(dray: Dray, output: bytes) -> None:
    (dray.project / "output").write_bytes(output)
    job = dray.run("--", "cat", "output")
    dray.wait(job)
    assert raw_log(dray, job) == output
    for count in (0, 1, 2, 4, 1000):
        assert raw_log(dray, job, "-n", str(count)) == last_lines(output, count), count


def test_logs_of_several_attempts(dray: Dray) -> None:
    code = "import os, sys; print('attempt', os.environ['DRAY_ATTEMPT']); sys.exit(1)"
    job = dray.run("--retries", "2", "--backoff", "0.01s", *python(code))
    shown = dray.wait(job)
    assert [one["number"] for one in shown["attempts"]] == [1, 2, 3]
    assert shown["reason"] == "exit code 1; 2 retries used up"
    assert raw_log(dray, job) == b"attempt 1\nattempt 2\nattempt 3\n"
    assert raw_log(dray, job, "--attempt", "2") == b"attempt 2\n"
    assert raw_log(dray, job, "-n", "2") == b"attempt 2\nattempt 3\n"
    assert raw_log(dray, job, "-n", "1", "--attempt", "1") == b"attempt 1\n"
    assert raw_log(dray, job, "--tail", "1") == b"attempt 3\n"  # as it used to be called
    assert raw_log(dray, job, "-n", "99") == b"attempt 1\nattempt 2\nattempt 3\n"
    assert "attempt 2" in dray("logs", job).stderr
    says = refuse(dray, 3, "logs", "--attempt", "4", job)
    assert f"{job} has no attempt 4" in says


def test_following_ends_with_the_job_and_misses_nothing(dray: Dray) -> None:
    code = "import time\nfor n in range(5):\n    print(n, flush=True)\n    time.sleep(0.05)"
    job = dray.run(*python(code))
    assert raw_log(dray, job, "--follow") == b"0\n1\n2\n3\n4\n"


def test_ctrl_c_while_following_leaves_the_job_alone(dray: Dray) -> None:
    go = dray.home / "go"
    job = dray.run("--", "sh", "-c", f"echo up; {UNTIL_GO.format(go=go)}")
    with subprocess.Popen(
        [sys.executable, "-m", "dray", "logs", "-f", job],
        cwd=dray.project, env=dray.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as follower:  # fmt: skip
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == "up\n"
        follower.send_signal(signal.SIGINT)
        assert follower.stderr.read().strip() == "dray: interrupted"
    assert follower.returncode == 130
    go.touch()
    assert dray.wait(job)["state"] == "done"


# -- pull and rm --------------------------------------------------------------------------------


def test_pull(dray: Dray) -> None:
    dray.write(
        "make.py",
        "import os, pathlib\n"
        "pathlib.Path('logs/deep').mkdir(parents=True)\n"
        "pathlib.Path('logs/deep/a').write_text('one')\n"
        "pathlib.Path('logs/ü b').write_bytes(bytes(range(256)))\n"
        "os.symlink('deep/a', 'logs/link')\n"
        "pathlib.Path(os.environ['DRAY_OUTPUTS'], 'extra').write_text('x')\n",
    )
    job = dray.run("--output", "logs", "--", sys.executable, "make.py")
    assert dray.wait(job)["state"] == "done"

    ended = dray("pull", job)
    assert ended.stdout == f"{dray.project / job}\n"
    assert ended.stderr == "4 of 4 files copied, 260 B\n"
    target = dray.project / job
    assert (target / "logs/deep/a").read_text() == "one"
    assert (target / "logs/ü b").read_bytes() == bytes(range(256))
    assert (target / "logs/link").readlink() == Path("deep/a")
    assert (target / "extra").read_text() == "x"

    assert dray("pull", job).stderr == "0 of 4 files copied, 0 B\n"
    (target / "logs/deep/a").write_text("changed here")
    (dray.job_dir(job) / "outputs/extra").write_text("changed there")
    (target / "mine").write_text("kept")
    assert dray("pull", job).stderr == "2 of 4 files copied, 16 B\n"
    assert (target / "logs/deep/a").read_text() == "one"
    assert (target / "extra").read_text() == "changed there"
    assert (target / "mine").read_text() == "kept"

    before = json.loads(dray("plan", "--json", "--", "true").stdout)["job"]["snapshot"]
    (target / "more").write_text("not code")
    after = json.loads(dray("plan", "--json", "--", "true").stdout)["job"]["snapshot"]
    assert before == after


def test_pull_keeps_the_outputs_of_two_jobs_apart(dray: Dray) -> None:
    write = "echo $0 > $DRAY_OUTPUTS/who"
    one, two = (dray.run("--", "sh", "-c", write, name) for name in ("one", "two"))
    for job in (one, two):
        dray.wait(job)
    dray("pull", one, "results")
    says = refuse(dray, 2, "pull", two, "results")
    assert f"results holds the outputs of {one}" in says
    assert (dray.project / "results/who").read_text() == "one\n"
    dray("pull", two, "deep/below")
    assert (dray.project / "deep/below/who").read_text() == "two\n"
    dray.write("file", "x")
    assert "file" in refuse(dray, 2, "pull", two, "file")


def test_a_folder_with_code_stays_code_after_a_pull_into_it(dray: Dray) -> None:
    dray.write("sub/train.py", "print('trained')")
    (dray.project / "empty").mkdir()
    job = dray.run("--", "sh", "-c", "echo x > $DRAY_OUTPUTS/result")
    dray.wait(job)
    for folder in ("sub", "empty"):
        for _ in range(2):
            dray("pull", job, folder)
        assert (dray.project / folder / "result").read_text() == "x\n"
    again = dray.run("--", "find", ".", "-path", "./*/*", "-type", "f")
    dray.wait(again)
    assert sorted(dray.log(again).split()) == ["./sub/result", "./sub/train.py"]


def test_nested_outputs_are_one(dray: Dray) -> None:
    write = "mkdir -p logs/a && echo x > logs/a/b"
    job = dray.run("--output", "logs", "--output", "logs/a", "--", "sh", "-c", write)
    assert dray.wait(job)["state"] == "done"
    assert (dray.job_dir(job) / "outputs/logs/a/b").read_text() == "x\n"


def test_an_active_job_is_not_removed(dray: Dray) -> None:
    job = dray.run("--", "sleep", "100")
    says = refuse(dray, 4, "rm", job)
    assert f"Stop it first: dray stop {job}" in says
    assert "goes on by itself" in refuse(dray, 4, "resume", job)
    assert dray("stop", "--now", job).stderr == f"{job} is stopped: stopped on request\n"
    assert "there is nothing to stop" in refuse(dray, 4, "stop", job)
    assert dray("rm", job).stderr == f"removed {job}\n"
    assert not dray.job_dir(job).exists()
    assert f"there is no job '{job}'" in refuse(dray, 3, "show", job)


def test_a_job_that_is_done_is_not_resumed(dray: Dray) -> None:
    job = dray.run("--", "true")
    dray.wait(job)
    assert f"dray run --like {job}" in refuse(dray, 4, "resume", job)


# -- help ---------------------------------------------------------------------------------------


def test_every_verb_has_help(dray: Dray) -> None:
    overview = dray("--help").stdout
    assert dray().stdout == dray("-h").stdout == dray("help").stdout == overview
    verbs = re.findall(r"^  ([a-z]+) {2,}", overview, re.M)
    assert {"run", "plan", "ps", "show", "demo"} <= set(verbs)
    for verb in verbs:
        assert dray(verb, "--help").stdout.startswith(f"Usage: dray {verb}")
    assert re.fullmatch(r"dray \d+\.\d+\.\d+\S*\n", dray("--version").stdout)


def test_tracebacks_only_for_those_who_ask(dray: Dray) -> None:
    assert "Traceback" not in refuse(dray, 3, "show", "x")
    ended = dray("--debug", "show", "x", check=False)
    assert ended.returncode == 3
    assert "Traceback" in ended.stderr


def test_the_end_of_a_failed_job_is_told(dray: Dray) -> None:
    code = "print('step 1'); print('\\x1b[2J'); import torch_that_is_not_there"
    job = dray.run("--", sys.executable, "-c", code)
    waited = dray("wait", job, check=False)
    assert waited.returncode == 1
    told = dray("show", job).stdout
    for said in (waited.stderr, told):
        assert "  | step 1" in said
        assert "  | ModuleNotFoundError: No module named 'torch_that_is_not_there'" in said
        assert "likely cause: the job's Python has no module torch_that_is_not_there" in said
        assert "\x1b" not in said
    assert "step 1" in dray.show(job)["last_lines"]
    wide = dray.run("--", sys.executable, "-c", "print('x' * 8000); exit(1)")
    dray.wait(wide)
    assert max(map(len, dray("show", wide).stdout.splitlines())) < 500
    silent = dray.run("--", "false")
    assert dray("wait", silent, check=False).stderr == f"{silent} is failed: exit code 1\n"
    followed = dray("run", "--follow", "--", sys.executable, "-c", code, check=False)
    assert followed.stderr.count("likely cause: ") == 1
    assert "the end of its output" not in followed.stderr


def test_verbose_tells_programs_and_requests_and_no_secret(dray: Dray, tmp_path: Path) -> None:
    log = tmp_path / "dray.log"
    secret = {"TOKEN": "s3cret-value"}
    told = dray("--verbose", "run", "--secret", "TOKEN", "--", "true", **secret)
    assert re.search(r"^dray: +\d+\.\d{3} s  start .* keep .*/jobs/true-", told.stderr, re.M)
    job = dray("run", "--secret", "TOKEN", "--", "true", DRAY_LOG=str(log), **secret)
    assert " start " not in job.stderr
    assert f"/jobs/{job.stdout.strip()}" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
    assert "s3cret" not in told.stderr + log.read_text()
    nowhere = dray("run", "--", "true", check=False, DRAY_LOG="/nonexistent/log")
    assert nowhere.returncode == 2
    assert "DRAY_LOG: /nonexistent/log cannot be written" in nowhere.stderr
    assert len(json.loads(dray("ps", "--json").stdout)) == 2  # nothing was begun
