"""A folder is not trusted because one stands in it: what lies there decides nothing on this
machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Dray, wait_for
from tests.unit.test_ignore import fill, git

pytestmark = pytest.mark.hostile

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user")
LOOKING = (
    ["ps", "--all"],
    ["doctor"],
    ["cluster", "list"],
    ["cluster", "show", "local"],
    ["image", "list"],
)
SUBMITTING = (
    ["run", "--", "true"],
    ["plan", "--", "true"],
    ["plan", "--no-snapshot", "--", "true"],
    ["resume", "x"],
    ["image", "push", "x"],
)
NOBODY = 65534
NOT_TRUSTED = (
    "dray: {} is not trusted, and sets what only your own config.toml or a file that you trust may "
    "set:"
)


@pytest.fixture
def trap(dray: Dray) -> Path:
    """A program that leaves a mark when it is run."""
    program = dray.home / "trap"
    program.write_text(f'#!/bin/sh\ntouch {dray.home}/sprung\nexec python3 "$@"\n')
    program.chmod(0o755)
    return program


def is_sprung(dray: Dray) -> bool:
    return (dray.home / "sprung").exists()


# -- dray.toml ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        "[clusters.local]\nkind = 'slurm'\npython = '{trap}'",
        "[clusters.mine]\npython = '{trap}'",
        "[clusters.mine]\nkind = 'slurm'\npython = '{trap}'",
        "[clusters.mine]\nkind = 'pbs'\npython = '{trap}'",
        "clusters = {{ mine = {{ kind = 'slurm', python = '{trap}' }} }}",
        "[clusters.new]\nkind = 'slurm'\npython = '{trap}'",
    ],
)
def test_a_cloned_file_runs_nothing_here(dray: Dray, trap: Path, settings: str) -> None:
    dray.configure("[clusters.mine]\nkind = 'slurm'\n")
    dray.write("dray.toml", settings.format(trap=trap))
    for name in ("local", "mine", "new"):
        for verb in (
            ["doctor"],
            ["ps", "--all", "--on"],
            ["cluster", "show"],
            ["image", "list", "--on"],
        ):
            dray(*verb, name, check=False)
        dray("plan", "--on", name, "--", "true", check=False)
        dray("run", "--on", name, "--", "true", check=False)
    dray("ps")
    assert not is_sprung(dray)


HOSTILE = """\
[job]
name = "x"
secrets = ["AWS_SECRET_ACCESS_KEY"]
[clusters.mine]
partition = "gpu"
host = "evil.example"
[clusters.new]
kind = "slurm"
[clusters.local]
root = "/somewhere"
cpus = 2
"""


def test_verbs_that_submit_name_each_setting_and_stop(dray: Dray) -> None:
    dray.configure("[clusters.mine]\nkind = 'slurm'\nhost = 'login'\n")
    path = dray.write("dray.toml", HOSTILE)
    for verb in SUBMITTING:
        ended = dray(*verb, check=False, AWS_SECRET_ACCESS_KEY="s3cret")
        assert ended.returncode == 2, verb
        assert [line.strip() for line in ended.stderr.splitlines()] == [
            NOT_TRUSTED.format(path),
            f"{path}:3: job.secrets",
            f"{path}:6: clusters.mine.host",
            f"{path}:7: clusters.new",
            f"{path}:10: clusters.local.root",
            f"Look at the file; if it may decide this: dray trust {path}",
        ]
    assert not (dray.home / "dray/local").exists()


def test_verbs_that_look_go_on_without_and_say_so_once(dray: Dray) -> None:
    dray.configure("[clusters.mine]\nkind = 'slurm'\nhost = 'login'\n")
    job = dray.run("--", "true")
    dray.wait(job)
    path = dray.write("dray.toml", HOSTILE)
    for verb in (*LOOKING, ["show", job], ["logs", job], ["wait", job], ["pull", job], ["rm", job]):
        said = dray(*verb).stderr.splitlines()
        assert said.count(
            f"dray: {path} is not trusted: job.secrets, clusters.mine.host, clusters.new and 1 more"
            " not used (see dray trust)"
        ) == 1, verb  # fmt: skip
    assert "login" in dray("cluster", "show", "mine", check=False).stderr  # still the user's host
    assert "new" not in dray("cluster", "list").stdout.split()
    assert "is not trusted" in dray("doctor", "new", check=False).stderr


def test_what_a_job_needs_is_heeded_without_trust(dray: Dray) -> None:
    dray.configure("[clusters.mine]\nkind = 'slurm'\nhost = 'login'\n[job]\nsecrets = ['A', 'B']\n")
    dray.write(
        "dray.toml",
        "[job]\nname = 'x'\nsecrets = ['B']\noutputs = ['logs']\n[job.env]\nX = '1'\n"
        "[clusters.mine]\nhost = 'login'\npartition = 'gpu'\n[clusters.local]\ncpus = 2\n",
    )
    ended = dray("plan", "--on", "mine", "--", "true")
    assert ended.stderr == ""
    assert "partition=gpu" in ended.stdout


def test_trusting_shows_what_it_changes_and_lasts_until_the_file_changes(dray: Dray) -> None:
    job = "[job]\nname = 'x'\nsecrets = ['S1', \"S2\"]\n"
    box = "[clusters.box]\nkind = 'local'\nroot = \"/a\\u001b[2Jb\\u202e\"\n"
    path = dray.write("dray.toml", job + box)
    shown = dray("trust")
    assert shown.stdout.splitlines() == [
        f'{path}:3: job.secrets = ["S1", "S2"]',
        f'{path}:5: clusters.box.kind = "local"',
        f'{path}:6: clusters.box.root = "/a\\u001b[2Jb\\u202e"',
    ]
    assert f"{path} is trusted as it is now" in shown.stderr
    assert "box" in dray("cluster", "list").stdout
    dray("plan", "--no-snapshot", "--", "true")
    before = path.read_text()
    path.write_text(f"{before} ")
    assert "is not trusted" in dray("plan", "--", "true", check=False).stderr
    path.write_text(before)
    dray("plan", "--no-snapshot", "--", "true")
    assert "is trusted no more" in dray("trust", "--revoke").stderr
    assert "is not trusted" in dray("plan", "--", "true", check=False).stderr
    assert "was not trusted" in dray("trust", "--revoke", "dray.toml").stderr


def test_content_that_was_replaced_is_not_trusted_again_when_it_comes_back(dray: Dray) -> None:
    for name in ("A", "B"):
        dray.write("dray.toml", f"[job]\nsecrets = ['{name}']\n")
        dray("trust")
    dray.write("dray.toml", "[job]\nsecrets = ['A']\n")
    assert dray("plan", "--", "true", check=False).returncode == 2


def test_the_same_content_elsewhere_is_not_trusted(dray: Dray) -> None:
    path = dray.write("dray.toml", "[job]\nsecrets = ['A']\n")
    dray("trust", str(path))
    shutil.move(dray.project, dray.home / "moved")
    dray.project = dray.home / "moved"
    assert dray("plan", "--", "true", check=False).returncode == 2


def test_trust_is_kept_privately(dray: Dray) -> None:
    dray.write("dray.toml", "[job]\nsecrets = ['A']\n")
    dray("trust")
    (record,) = (dray.home / "dray/trusted").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    assert record.parent.stat().st_mode & 0o777 == 0o700
    record.chmod(0o666)  # by now anybody may have written it
    assert dray("plan", "--", "true", check=False).returncode == 2


def test_nothing_to_trust(dray: Dray) -> None:
    assert dray("trust", check=False).returncode == 3
    dray.write("dray.toml", "[job]\nname = 'x'\n")
    assert "needs to be trusted" in dray("trust").stderr
    assert not (dray.home / "dray/trusted").exists()


def test_what_init_writes_needs_no_trust(dray: Dray) -> None:
    dray("init", "--recipe", "generic")
    assert dray("plan", "--", "true").stderr == ""


def test_a_secret_leaves_only_after_trust(dray: Dray) -> None:
    dray.write("dray.toml", "[job]\nsecrets = ['TOKEN']\n")
    assert dray("run", "--", "env", check=False, TOKEN="s3cret").returncode == 2
    dray("trust")
    job = dray.run("--", "sh", "-c", "echo $TOKEN", TOKEN="s3cret")
    dray.wait(job)
    assert dray.log(job) == "s3cret\n"


def test_from_python(dray: Dray) -> None:
    path = dray.write("dray.toml", "[job]\nsecrets = ['TOKEN']\n")
    script = "import dray\nprint(list(dray.jobs()))\ndray.run(['true'])"
    ended = subprocess.run([sys.executable, "-c", script], cwd=dray.project, capture_output=True,
                           env={**dray.env, "TOKEN": "s3cret"}, text=True, check=False)  # fmt: skip
    assert ended.stdout == "[]\n"
    assert f"ConfigError: {path} is not trusted" in ended.stderr


# -- whose file it is, and where it is looked for -----------------------------------------------


@pytest.mark.parametrize("whose", [pytest.param("another's", marks=needs_root), "everybody's"])
def test_a_file_that_others_can_change_is_not_used(dray: Dray, whose: str) -> None:
    path = dray.write("dray.toml", "[job]\nname = 'theirs'\n")
    if whose == "everybody's":
        path.chmod(0o666)
        why = "can be changed by everybody"
    else:
        os.chown(path, NOBODY, NOBODY)
        why = "belongs to nobody"
    assert f"dray: {path} {why}: it is not used (see dray trust)\n" in dray("ps").stderr
    assert f"dray: {path} {why}: it is not used\n" in dray("plan", "--", "true", check=False).stderr
    assert dray("trust").stdout == f'{path}:2: job.name = "theirs"\n'
    assert '"name": "theirs"' in dray("plan", "--json", "--", "true").stdout


@needs_root
def test_nothing_is_taken_from_an_open_folder_above(dray: Dray) -> None:
    """As /tmp is."""
    (dray.home / "open").mkdir()
    (dray.home / "open").chmod(0o1777)
    (dray.home / "open/dray.toml").write_text("[oops]\n")
    os.chown(dray.home / "open/dray.toml", NOBODY, NOBODY)
    dray.project = dray.home / "open/mine/deep"
    dray.project.mkdir(parents=True)
    (dray.project.parent / "dray.toml").write_text("[job]\nname = 'mine'\n")
    assert '"name": "mine"' in dray("plan", "--json", "--", "true").stdout
    (dray.project.parent / "dray.toml").unlink()
    assert dray("plan", "--", "true").stderr == ""
    dray.project = dray.home / "open"
    assert "belongs to nobody: it is not used" in dray("ps").stderr


# -- files that are no files, or too much -------------------------------------------------------


def test_a_pipe_and_a_device_are_not_opened(dray: Dray) -> None:
    path = dray.project / "dray.toml"
    for make, kind in (
        (lambda: os.mkfifo(path), "named pipe"),
        (lambda: path.symlink_to("/dev/zero"), "device"),
    ):
        make()
        for verb, code in ((["ps"], 0), (["plan", "--", "true"], 2), (["trust"], 2)):
            ended = dray(*verb, check=False)
            assert ended.returncode == code
            assert ended.stderr.startswith(f"dray: {path}: cannot be read: it is a {kind}\n")
        path.unlink()


MB = 1 << 20


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# long\n" * (MB // 7 + 1), ": cannot be read: it has more than 1 MB"),
        ("x = " + "[" * 100_000 + "]" * 100_000, ": lists or tables lie too deep"),
        ("a." * (MB // 2 - 4) + "a = 1", ":1: a key has more than 32 parts"),
        ("\n[" + "'a' . " * 10_000 + "a]\n", ":2: a key has more than 32 parts"),
        ("job.retries = " + "9" * 10_000, ":1: not valid TOML: Exceeds the limit"),
        ("clusters.x.kind = 0x" + "f" * 10_000, ": a value cannot be read: Exceeds the limit"),
        ("job.outputs = [\n" + "'a',\n" * (MB // 6) + "]\n[oops]", ": oops: unknown key."),
        ("job.env.A = [" + "\n" * (MB - 50) + "]", ":1: job.env: A: [] is not a text"),
        ("[clusters.x]\nkind = 'slurm'\nroot = '$" + "a" * (MB - 99) + "!'", ":3: clusters.x.root"),
        ("job.metrics.pattern = '" + "(" * 20_000 + ")" * 20_000 + "'", "not a regular expression"),
        ("job.metrics.pattern = 'a{99999999999999999999}(b)'", "not a regular expression"),
        ("job.outputs = ['" + "a/" * (MB // 2 - 20) + "']", "is longer than a path can be"),
    ],
    ids=range(12),
)
def test_what_is_too_much_is_told_with_its_file(dray: Dray, text: str, says: str) -> None:
    path = dray.write("dray.toml", text)
    for verb, code in ((["ps"], 0), (["plan", "--", "true"], 2)):
        ended = dray(*verb, check=False)
        assert ended.returncode == code
        assert ended.stderr.startswith(f"dray: {path}")
        assert says in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "text",
    [
        "job.outputs = [" + "".join(f"'{number:x}/a'," for number in range(100_000)) + "]",
        "".join(f"[clusters.c{number}]\nkind='local'\n" for number in range(30_000)),
    ],
    ids=["outputs", "clusters"],
)
def test_a_long_file_is_read_in_good_time(dray: Dray, text: str) -> None:
    dray.write("dray.toml", text)
    dray("ps")  # the fixture's patience ends it where each is compared with each


# -- git ----------------------------------------------------------------------------------------


def make_repository(folder: Path) -> Path:
    fill(folder, {".gitignore": "*.bin\n", "weights.bin": "", "other.bin": "", "code.py": ""})
    git(folder, "init", "-q")
    git(folder, "add", "-f", "weights.bin", "code.py")
    git(folder, "commit", "-q", "-m", "x")
    return folder


def taken(dray: Dray) -> str:
    return dray("plan", "--", "true").stdout


def test_git_is_not_started(dray: Dray, trap: Path) -> None:
    make_repository(dray.project)
    programs = dray.home / "programs"
    programs.mkdir()
    (programs / "git").symlink_to(trap)
    dray.use(programs)
    assert "(3 files," in taken(dray)  # with weights.bin, which is tracked
    assert not is_sprung(dray)


@pytest.mark.parametrize(
    "config",
    [
        "[core]\nfsmonitor = {trap}\n",
        "[include]\npath = {included}\n",
        "[core]\nhooksPath = {hooks}\n[core]\nfsmonitor = {trap}\n",
    ],
    ids=["fsmonitor", "include", "hooks"],
)
def test_a_repository_s_own_settings_run_nothing(dray: Dray, trap: Path, config: str) -> None:
    make_repository(dray.project)
    places = {"trap": trap, "included": dray.home / "included", "hooks": dray.home / "hooks"}
    places["included"].write_text(f"[core]\nfsmonitor = {trap}\n")
    places["hooks"].mkdir()
    shutil.copy(trap, places["hooks"] / "post-index-change")
    with (dray.project / ".git/config").open("a") as file:
        file.write(config.format(**places))
    assert "(3 files," in taken(dray)
    assert not is_sprung(dray)


def test_a_repository_that_is_part_of_the_tree_runs_nothing(dray: Dray, trap: Path) -> None:
    """A clone brings folders that look like a bare repository, and files named as one likes."""
    inner = make_repository(dray.project / "sub")
    with (inner / ".git/config").open("a") as file:
        file.write(f"[core]\nfsmonitor = {trap}\nworktree = {inner}\nbare = false\n")
    (inner / ".git").rename(dray.project / "bare.git")
    (inner / ".git").write_text("gitdir: ../bare.git\n")
    taken(dray)
    assert not is_sprung(dray)


def test_variables_of_git_do_not_lead_elsewhere(dray: Dray) -> None:
    make_repository(dray.project)
    other = dray.home / "other"
    other.mkdir()
    git(other, "init", "-q")
    plan = dray("plan", "--", "true", GIT_DIR=str(other / ".git"), GIT_INDEX_FILE="/nonexistent")
    assert "(3 files," in plan.stdout


def test_a_pipe_for_an_index_or_a_pointer(dray: Dray) -> None:
    dray.write("code.py", "")
    (dray.project / ".git").mkdir()
    os.mkfifo(dray.project / ".git/index")
    dray.write(".gitignore", ".gitignore\n*.bin\n")
    dray.write("x.bin", "")
    said = taken(dray)
    assert "(1 files," in said
    assert f"which files git tracks is not known: {dray.project}/.git/index: it is a named" in said
    shutil.rmtree(dray.project / ".git")
    os.mkfifo(dray.project / ".git")
    assert "(1 files," in taken(dray)
    (dray.project / ".git").unlink()
    dray.write(".git", "gitdir: a\0b\n")
    assert "(1 files," in taken(dray)


# -- ignore files -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".gitignore", ".drayignore"])
def test_an_ignore_file_that_is_too_big_is_refused(dray: Dray, name: str) -> None:
    path = dray.write(name, "#\n" * (MB // 2 + 1))
    ended = dray("plan", "--", "true", check=False)
    assert ended.returncode == 5
    assert ended.stderr == f"dray: {path} cannot be read: it has more than 1 MB\n"


def test_an_ignore_file_with_too_many_patterns_is_refused(dray: Dray) -> None:
    lines = [f"*{number}" for number in range(10_000)]
    dray.write(".gitignore", "\n".join(lines))
    assert "(1 files," in taken(dray)
    path = dray.write(".gitignore", "\n".join([*lines, "x"]))
    ended = dray("plan", "--", "true", check=False)
    assert ended.stderr == f"dray: {path} has more than 10,000 patterns\n"


def test_ignore_files_that_are_no_files_do_not_hang(dray: Dray) -> None:
    dray.write("code.py", "")
    os.mkfifo(dray.project / ".gitignore")
    assert "(1 files," in taken(dray)
    (dray.project / ".drayignore").symlink_to("/dev/zero")
    assert "(2 files," in taken(dray)  # the link itself is one


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 30 + "b", "a" * 200),
        ("*a*" + "?a*" * 30 + "b", "a" * 200),
        ("/" + "**/a/" * 30 + "b", "a/" * 100 + "c"),
        ("/" + "**/*a*a*a/" * 20 + "*b", "aaaaaaaa/" * 60 + "c"),
        ("x" + "/**/*a" * 30 + "/b", "x/" + "aaaa/" * 100 + "c"),
        (" " * (MB - 10), "c"),
    ],
    ids=["stars", "stars and more", "folders", "both", "between", "spaces"],
)
def test_no_pattern_takes_long(dray: Dray, pattern: str, name: str) -> None:
    """The fixture's patience ends what would take years."""
    dray.write(".gitignore", f"{pattern}\nkept-out\n")
    dray.write("kept-out", "")
    dray.write(name, "")
    assert "(2 files," in taken(dray)


def test_a_link_borrows_no_trust(dray: Dray) -> None:
    """A clone may guess where a file lies that was trusted."""
    mine = dray.write("mine/dray.toml", '[job]\nsecrets = ["TOKEN"]\n')
    dray("trust", str(mine))
    (dray.project / "cloned").mkdir()
    (dray.project / "cloned/dray.toml").symlink_to("../mine/dray.toml")
    for folder, code in (("mine", 0), ("cloned", 2)):
        ended = subprocess.run(
            [sys.executable, "-m", "dray", "plan", "--", "true"],
            cwd=dray.project / folder,
            env={**dray.env, "TOKEN": "x"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == code, ended.stderr


def test_a_job_elsewhere_is_not_told_as_gone(dray: Dray, tmp_path: Path) -> None:
    """Without the settings that it was submitted with, it would be looked for in another root."""
    dray.write("dray.toml", f"[clusters.local]\nroot = '{tmp_path}/other'\n")
    dray("trust")
    job = dray.run("--", "sleep", "100")
    wait_for(lambda: dray.show(job)["state"] == "running")
    dray.write("dray.toml", f"[clusters.local]\nroot = '{tmp_path}/other'\n# a comment\n")
    listed = dray("ps", "--json")
    assert json.loads(listed.stdout)[0]["state"] == "running"
    assert "with other settings" in listed.stderr
    for verb in ("show", "logs", "stop", "rm"):
        ended = dray(verb, job, check=False)
        assert (ended.returncode, "other settings" in ended.stderr) == (7, True), verb
    dray("trust")
    assert dray("stop", "--now", job).returncode == 0


@pytest.mark.parametrize("arguments", [["stop"], ["wait", "--timeout", "20s"]])
def test_nor_are_several_waited_for(dray: Dray, tmp_path: Path, arguments: list[str]) -> None:
    """Where they are looked for, they would never end."""
    config = dray.configure(f"[clusters.local]\nroot = '{tmp_path}/other'\n")
    jobs = [dray.run("--no-snapshot", "--", "sleep", "100") for _ in range(2)]
    config.write_text("")
    ended = dray(*arguments, *jobs, check=False)
    assert (ended.returncode, "other settings" in ended.stderr) == (7, True)
    config.write_text(f"[clusters.local]\nroot = '{tmp_path}/other'\n")
    dray("stop", "--now", *jobs)


def test_jobs_are_found_where_their_root_was_moved_to(dray: Dray, tmp_path: Path) -> None:
    config = dray.configure(f"[clusters.local]\nroot = '{tmp_path}/old'\n")
    job = dray.run("--no-snapshot", "--", "echo", "hello")
    dray.wait(job)
    (tmp_path / "old").rename(tmp_path / "new")
    config.write_text(f"[clusters.local]\nroot = '{tmp_path}/new'\n")
    refused = dray("logs", job, check=False)
    assert (refused.returncode, "dray ps --on local --all" in refused.stderr) == (7, True)
    dray("ps", "--on", "local", "--all")
    assert dray.log(job) == "hello\n"
    dray("rm", job)


def test_another_job_of_the_same_id_is_not_taken_for_it(dray: Dray, tmp_path: Path) -> None:
    config = dray.configure(f"[clusters.local]\nroot = '{tmp_path}/old'\n")
    job = dray.run("--no-snapshot", "--", "true")
    dray.wait(job)
    (tmp_path / "old").rename(tmp_path / "new")
    description = tmp_path / "new/jobs" / job / "job.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), "created": 1.0}))
    config.write_text(f"[clusters.local]\nroot = '{tmp_path}/new'\n")
    dray("ps", "--on", "local", "--all")
    assert dray("show", job, check=False).returncode == 7


def test_a_job_out_of_reach_is_forgotten_once_it_has_ended(dray: Dray, tmp_path: Path) -> None:
    config = dray.configure(f"[clusters.local]\nroot = '{tmp_path}/old'\n")
    ended, running = (dray.run("--no-snapshot", "--", "sleep", time) for time in ("0", "100"))
    dray.wait(ended)
    config.write_text(f"[clusters.local]\nroot = '{tmp_path}/new'\n")
    assert dray("rm", ended, running, check=False).returncode == 7
    said = dray("rm", ended).stderr
    assert f"{ended} is forgotten, its files stay in {tmp_path}/old/jobs" in said
    assert (tmp_path / "old/jobs" / ended / "job.json").exists()
    listed = json.loads(dray("ps", "--all", "--json").stdout)
    assert [row["id"] for row in listed] == [running]
    config.write_text(f"[clusters.local]\nroot = '{tmp_path}/old'\n")
    dray("stop", "--now", running)
