"""Clusters are added, imported and checked by the real program, on a real login node."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pexpect
import pytest

from dray.transport.login import has_variable, is_known
from tests.conftest import Dray, Hpc

ENV_CLUSTER = """\
CLUSTER_JOB_SCHEDULER=SLURM
CLUSTER_LOGIN=hpc
CLUSTER_ISAACLAB_DIR={top}/isaaclab
CLUSTER_SIF_PATH={top}
"""
SUBMIT = "#SBATCH --cpus-per-task=2\n#SBATCH --gpus=a100:1\n#SBATCH --partition=urgent\n"


@pytest.fixture
def far(dray: Dray, hpc: Hpc) -> Dray:
    """A dray that could reach the cluster, and does not know it yet."""
    hpc.offer(dray)
    config_of(dray).unlink()
    return dray


def config_of(dray: Dray) -> Path:
    return dray.home / "dray/config.toml"


def clusters_of(dray: Dray) -> dict[str, Any]:
    clusters: dict[str, Any] = tomllib.loads(config_of(dray).read_text())["clusters"]
    return clusters


def refuse(dray: Dray, code: int, *arguments: str) -> str:
    ended = dray(*arguments, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.stderr


# -- add ----------------------------------------------------------------------------------------


def test_added_shown_and_used(far: Dray) -> None:
    root = str(far.jobs.parent)
    flags = ("--root", root, "--python", sys.executable, "--partition", "gpu")
    ended = far("cluster", "add", "hpc", *flags)  # ssh knows hpc: no --host needed
    assert "ok   slurm" in ended.stdout
    assert "gpu:a100:2" in ended.stdout
    assert "dray doctor hpc" in ended.stderr
    wanted = {"kind": "slurm", "host": "hpc", "root": root, "python": sys.executable}
    assert clusters_of(far) == {"hpc": {**wanted, "partition": "gpu"}}
    assert config_of(far).stat().st_mode & 0o777 == 0o600
    job = far.run("--on", "hpc", "--gpus", "1", "--", sys.executable, "-c", "print('there')")
    assert far.wait(job)["state"] == "done"
    assert far.log(job) == "there\n"
    for verb in (("doctor",), ("cluster", "check")):
        findings = json.loads(far(*verb, "--json", "hpc").stdout)
        assert {one["what"] for one in findings} >= {"login", "slurm", "partition"}


def test_asked_on_a_terminal_for_the_host_only(far: Dray) -> None:
    root = str(far.jobs.parent)
    words = ["-m", "dray", "cluster", "add", "big", "--root", root, "--python", sys.executable]
    talk = pexpect.spawn(
        sys.executable,
        words,
        cwd=str(far.project),
        env={**far.env, "TERM": "xterm"},  # type: ignore[arg-type]
        encoding="utf-8",
        timeout=60,
    )
    talk.expect("Login node.*: ")
    talk.sendline("-oProxyCommand=x")
    talk.expect("is not a host")
    talk.expect("Login node.*: ")
    talk.sendline("hpc")
    talk.expect("partition")
    talk.expect("dray doctor big")
    talk.expect(pexpect.EOF)
    talk.close()
    assert talk.exitstatus == 0
    assert clusters_of(far)["big"]["host"] == "hpc"


def press_until_it_ends(talk: pexpect.spawn[str]) -> None:
    """Ctrl-C between Python's writing of a question and its reading of the answer is only heeded
    with the next key: somebody who sees nothing happen presses again, and so do we."""
    talk.timeout = 5
    for _ in range(10):
        talk.sendintr()
        if talk.expect([pexpect.EOF, pexpect.TIMEOUT]) == 0:
            return
    pytest.fail("Ctrl-C did not end it")


def test_leaving_the_question_adds_nothing(far: Dray) -> None:
    talk = pexpect.spawn(
        sys.executable,
        ["-m", "dray", "cluster", "add", "big"],
        cwd=str(far.project),
        env=far.env,  # type: ignore[arg-type]
        encoding="utf-8",
        timeout=60,
    )
    talk.expect("Login node.*: ")
    press_until_it_ends(talk)
    assert "interrupted" in talk.before
    talk.close()
    assert talk.exitstatus == 130
    assert not config_of(far).exists()


def test_slurm_on_this_machine_below_its_scratch(far: Dray, hpc: Hpc, tmp_path: Path) -> None:
    far.env |= {"SLURM_CONF": str(hpc.slurm.conf), "SCRATCH": str(tmp_path / "scratch")}
    far("cluster", "add", "here", "--host", "-", "--python", sys.executable)
    assert clusters_of(far)["here"] == {
        "kind": "slurm",
        "root": "$SCRATCH/dray",
        "python": sys.executable,
    }
    assert (tmp_path / "scratch/dray").is_dir()


def test_nothing_is_added_for_a_host_that_does_not_answer(far: Dray) -> None:
    said = refuse(far, 7, "cluster", "add", "x", "--host", "nowhere.invalid", "--root", "/tmp/x")
    assert "no connection to nowhere.invalid" in said
    assert not config_of(far).exists()
    far("cluster", "add", "x", "--host", "nowhere.invalid", "--no-check")
    assert clusters_of(far) == {"x": {"kind": "slurm", "host": "nowhere.invalid"}}


def test_without_a_terminal_nothing_is_asked(dray: Dray) -> None:
    said = refuse(dray, 2, "cluster", "add", "no-such-host")
    assert "ssh knows no host 'no-such-host'" in said
    assert "--host" in said


def test_flags_become_settings_of_the_right_type(dray: Dray) -> None:
    dray("cluster", "add", "box", "--kind", "local", "--cpus", "2", "--memory", "64G")
    flags = ("--modules", "gcc", "--modules", "cuda", "--account", "123", "--gpu-type", "a100")
    dray("cluster", "add", "far", "--host", "me@far", "--no-check", *flags)
    assert clusters_of(dray) == {
        "box": {"kind": "local", "cpus": 2, "memory": "64G"},
        "far": {
            "kind": "slurm",
            "host": "me@far",
            "account": "123",
            "gpu_type": "a100",
            "modules": ["gcc", "cuda"],
        },
    }
    listed = json.loads(dray("cluster", "list", "--json").stdout)
    assert [one["name"] for one in listed] == ["local", "box", "far"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a/b",), "a cluster's name is of letters"),
        (("local",), "'local' is this machine"),
        (("x", "--host", "-oX=y"), "--host: '-oX=y' is not a host"),
        (("x", "--host", "a`b`"), "--host: 'a`b`' is not a host"),
        (("x", "--host", "h", "--root", "a b"), "--root: "),
        (("x", "--host", "h", "--partition", "a b"), "--partition: 'a b' must be one word"),
        (("x", "--host", "h", "--cpus", "2"), "a cluster of kind slurm has no --cpus"),
        (("x", "--kind", "local", "--host", "h"), "a cluster of kind local has no --host"),
        (("x", "--kind", "slrm"), "--kind"),
    ],
)
def test_what_cannot_be_added(dray: Dray, arguments: tuple[str, ...], says: str) -> None:
    assert says in refuse(dray, 2, "cluster", "add", *arguments)
    assert not config_of(dray).exists()


def test_a_name_that_is_taken(dray: Dray) -> None:
    before = (
        "# mine\n[clusters.x]\nkind = 'slurm'\nhost = 'old'\n\n# my defaults\n[job]\nretries=1\n"
    )
    config_of(dray).parent.mkdir(mode=0o700, exist_ok=True)
    config_of(dray).write_text(before)
    add = ("cluster", "add", "x", "--host", "new", "--no-check")
    said = refuse(dray, 2, *add)
    assert f"{config_of(dray)}:2: there is a cluster 'x' already" in said
    assert "--replace" in said
    assert config_of(dray).read_text() == before
    dray(*add, "--replace")
    assert config_of(dray).read_text() == before.replace(
        "kind = 'slurm'\nhost = 'old'\n", 'kind = "slurm"\nhost = "new"\n'
    )


def test_a_broken_config_is_told_and_left_alone(dray: Dray) -> None:
    config_of(dray).parent.mkdir(mode=0o700, exist_ok=True)
    config_of(dray).write_text("[job\n")
    said = refuse(dray, 2, "cluster", "add", "x", "--host", "h", "--no-check")
    assert f"{config_of(dray)}:1: not valid TOML" in said
    assert config_of(dray).read_text() == "[job\n"


def test_a_partition_that_is_not_there_is_not_written(far: Dray) -> None:
    root = ("--root", str(far.jobs.parent), "--python", sys.executable)
    said = far("cluster", "add", "hpc", *root, "--partition", "gpuu", check=False)
    assert said.returncode == 4
    assert "there is no partition 'gpuu'" in said.stderr
    assert "gpu, scavenge, urgent" in said.stderr
    assert not config_of(far).exists()


# -- a test job ---------------------------------------------------------------------------------


def test_added_with_a_test_job(far: Dray) -> None:
    """A name may hold a _, and nothing of the project is in the test job."""
    far.write("dray.toml", "[job]\nrecipe = 'nosuch'\nname = 'mine'\n[job.resources]\ngpus = 99\n")
    root = ("--root", str(far.jobs.parent), "--python", sys.executable)
    ended = far("cluster", "add", "my_hpc", "--host", "hpc", *root, "--test")
    assert re.search(r"^it queued \w+ and ran \w+ on \S+$", ended.stderr, re.M)
    assert "my_hpc" in clusters_of(far)
    assert json.loads(far("ps", "--all", "--json").stdout) == []
    assert list(far.jobs.iterdir()) == []


def test_a_test_job_that_fails_is_kept_and_says_why(far: Dray) -> None:
    root = ("--root", str(far.jobs.parent), "--python", sys.executable)
    setup = ("--setup", "echo no such license; false")
    ended = far("cluster", "add", "hpc", *root, *setup, "--test", check=False)
    assert ended.returncode == 1
    assert "setup failed: echo no such license" in ended.stderr
    (job,) = (one["id"] for one in json.loads(far("ps", "--json").stdout))
    assert f"It is kept: dray show {job}" in ended.stderr
    assert "no such license" in ended.stderr + far("logs", job).stdout + far("show", job).stdout


def test_a_test_job_needs_the_cluster(dray: Dray) -> None:
    assert "--no-check" in refuse(dray, 2, "cluster", "add", "x", "--test", "--no-check")


# -- list ---------------------------------------------------------------------------------------


def listed(dray: Dray, *flags: str) -> dict[str, dict[str, Any]]:
    found = json.loads(dray("cluster", "list", "--json", *flags).stdout)
    return {one["name"]: one for one in found}


def test_a_ray_cluster_is_listed_by_its_address_or_name_and_is_not_this_machine(dray: Dray) -> None:
    ways = {"lab": 'address = "http://127.0.0.1:9"', "isaac": 'kuberay = "lab2"'}
    dray.configure("".join(f"[clusters.{one}]\nkind = 'ray'\n{ways[one]}\n" for one in ways))
    shown = dray("cluster", "list").stdout
    assert re.search(r"^lab +ray +http://127.0.0.1:9 +- +not yet$", shown, re.M)
    assert re.search(r"^isaac +ray +lab2 +- +not yet$", shown, re.M)


def test_the_listing_tells_what_is_known_and_asks_on_request(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far)
    far("cluster", "add", "gone", "--host", "nowhere.invalid", "--no-check")
    known = listed(far)
    assert known["hpc"]["host"] == "hpc"
    assert known["hpc"]["answered"] is None, "nobody was asked"
    assert known["hpc"]["answers"] is None
    far("cluster", "default", "hpc")
    job = far.run("--", "sleep", "60")
    known = listed(far)
    assert known["hpc"]["answered"] > known["local"]["answered"] - 100
    assert known["hpc"]["queued"] + known["hpc"]["running"] == 1
    assert [one["default"] for one in known.values()] == [False, True, False]
    shown = far("cluster", "list").stdout
    assert re.search(r"^hpc \(default\) +slurm +hpc +1 (queued|running) +\w+ ago$", shown, re.M)
    assert re.search(r"^gone +slurm +nowhere.invalid +- +not yet$", shown, re.M)
    asked = listed(far, "--check")
    assert [one["answers"] for one in asked.values()] == [True, True, False]
    assert "nowhere.invalid" in asked["gone"]["problem"]
    ended = far("cluster", "list", "--check")
    assert re.search(r"^gone .* not now, not yet$", ended.stdout, re.M)
    assert re.search("^gone does not answer: .*nowhere.invalid", ended.stderr, re.M)
    said = refuse(far, 4, "cluster", "rm", "hpc")
    assert "hpc has 1 of your jobs" in said
    far("stop", "--now", job)
    far("cluster", "rm", "hpc")
    assert list(clusters_of(far)) == ["gone"]


# -- rm, default --------------------------------------------------------------------------------


def test_removed_and_nothing_else(dray: Dray) -> None:
    before = "# mine\n[clusters.box]  # here\nkind = 'local'\n\n# of all\n[job]\nretries=1\n"
    dray.configure(before)
    dray("cluster", "add", "far", "--host", "h", "--root", "/scratch/me", "--no-check")
    dray("cluster", "default", "far")
    ended = dray("cluster", "rm", "far")
    assert config_of(dray).read_text() == before
    assert "h:/scratch/me stays as it is" in ended.stderr
    assert "jobs go to local now" in ended.stderr


def test_with_jobs_only_by_force_and_then_they_are_forgotten(dray: Dray) -> None:
    dray.configure("[clusters.box]\nkind = 'local'\n")
    job = dray.run("--on", "box", "--", "sleep", "60")
    assert "dray ps --on box" in refuse(dray, 4, "cluster", "rm", "box")
    ended = dray("cluster", "rm", "--force", "box")
    assert f"{dray.home}/dray/box stays" in ended.stderr
    assert json.loads(dray("ps", "--all", "--json").stdout) == []
    dray("cluster", "add", "box", "--kind", "local")
    assert job in dray("ps", "--on", "box", "--all").stdout
    dray("stop", "--now", job)


def test_what_cannot_be_removed(dray: Dray) -> None:
    assert "always there" in refuse(dray, 2, "cluster", "rm", "local")
    assert "there is no cluster 'x'" in refuse(dray, 3, "cluster", "rm", "x")
    path = dray.write("dray.toml", "[job]\n[clusters.theirs]\nkind = 'local'\n")
    for _ in range(2):
        said = refuse(dray, 2, "cluster", "rm", "theirs")
        assert f"{path}:2: 'theirs' is the project's" in said
        dray("trust")


def test_where_jobs_go(dray: Dray) -> None:
    dray.configure("[clusters.a]\nkind = 'local'\n[clusters.b]\nkind = 'local'\n")

    def goes(*flags: str, **env: str) -> str:
        plan = json.loads(dray("plan", "--json", *flags, "--", "true", **env).stdout)
        assert dray("cluster", "default", **env).stdout.strip() == plan["cluster"] or flags
        return str(plan["cluster"])

    assert goes() == "local"
    dray("cluster", "default", "a")
    assert goes() == "a"
    assert goes("--on", "b", DRAY_ON="local") == "b"
    assert goes(DRAY_ON="b") == "b"
    assert "no cluster 'c'" in refuse(dray, 3, "cluster", "default", "c")
    dray.write("dray.toml", "[job]\non = 'b'\n")
    assert goes() == "b"
    assert goes(DRAY_ON="local") == "local"
    assert "Here they go to b, by" in dray("cluster", "default", "a").stderr
    assert json.loads(dray("image", "list", "--json").stdout) == []
    assert str(dray.home / "dray/b") in dray("doctor").stdout


# -- what ssh tells -----------------------------------------------------------------------------


def test_which_hosts_ssh_knows(far: Dray, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, far.env[name])
    assert is_known("hpc")
    assert not is_known("no-such-host")
    assert has_variable("hpc", "SLURM_CONF")
    assert not has_variable("hpc", "SCRATCH")
    assert not has_variable("nowhere.invalid", "HOME")


def test_without_ssh_no_host_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not is_known("hpc")


# -- import -------------------------------------------------------------------------------------


def isaac_lab(top: Path) -> Path:
    folder = top / "IsaacLab/docker/cluster"
    folder.mkdir(parents=True)
    (folder / ".env.cluster").write_text(ENV_CLUSTER.format(top=top))
    (folder / "submit_job_slurm.sh").write_text(SUBMIT)
    return folder / ".env.cluster"


def test_imported_written_and_used(far: Dray, tmp_path: Path) -> None:
    path = isaac_lab(tmp_path)
    shown = far("cluster", "import", str(path))
    settings = tomllib.loads(shown.stdout)
    root = str(tmp_path / "dray")
    wanted = {"kind": "slurm", "host": "hpc", "root": root}
    wanted |= {"partition": "urgent", "gpu_type": "a100", "gpu_flag": "gpus"}
    assert settings["clusters"] == {"hpc": wanted}
    resources = {"gpus": 1, "cpus": 2}
    image = "isaac-lab-base"
    assert settings["job"] == {"image": image, "outputs": ["logs"], "resources": resources}
    assert f"# CLUSTER_SIF_PATH = {tmp_path}: " in shown.stdout
    assert not config_of(far).exists()
    written = far("cluster", "import", str(path), "--name", "lab", "--write")
    assert tomllib.loads(written.stdout)["job"] == settings["job"]
    assert "dray.toml" in written.stderr
    assert clusters_of(far) == {"lab": settings["clusters"]["hpc"]}
    assert "# CLUSTER_SIF_PATH" in config_of(far).read_text()
    far.jobs = tmp_path / "dray/jobs"
    job = far.run("--on", "lab", "--gpus", "1", "--", "python3", "-c", "print('there')")
    assert far.wait(job)["state"] == "done"
    taken = refuse(far, 2, "cluster", "import", str(path), "--name", "lab", "--write")
    assert "there is a cluster 'lab' already" in taken
    far("cluster", "import", str(path), "--name", "lab", "--write", "--replace")


def test_a_secret_is_not_imported(dray: Dray, tmp_path: Path) -> None:
    path = isaac_lab(tmp_path)
    script = path.with_name("submit_job_slurm.sh")
    script.write_text(f"{SUBMIT}export WANDB_API_KEY=0123456789abcdef\n")
    shown = dray("cluster", "import", str(path), "--write")
    assert "--secret WANDB_API_KEY" in shown.stdout + shown.stderr
    everything = shown.stdout + shown.stderr + config_of(dray).read_text()
    assert "0123456789abcdef" not in everything


def test_what_cannot_be_imported(dray: Dray, tmp_path: Path) -> None:
    said = refuse(dray, 2, "cluster", "import", str(tmp_path / "none"))
    assert "none: cannot be read: No such file" in said
    other = dray.write("notes.txt", "hello\n")
    said = refuse(dray, 2, "cluster", "import", str(other))
    assert "none of the formats" in said
    assert ".env.cluster" in said
    assert "train_slurm.py" in said
    malformed = dray.write("bad.env", "CLUSTER_ISAACLAB_DIR=/x/isaaclab\nCLUSTER_LOGIN='me@h\n")
    said = refuse(dray, 2, "cluster", "import", str(malformed))
    assert f"{malformed}:2: the quote is not closed" in said
    pbs = dray.write("job.pbs", "#PBS -q gpu\n")
    assert "PBS is not read yet" in refuse(dray, 4, "cluster", "import", str(pbs))
    empty = dray.write("new.env", "CLUSTER_ISAACLAB_DIR=/x/isaaclab\n")
    assert "names no host" in refuse(dray, 2, "cluster", "import", "--write", str(empty))
    assert not config_of(dray).exists()
