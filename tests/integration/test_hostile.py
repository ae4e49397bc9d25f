"""Clusters in other hands, and jobs that edit their own files: what comes back is data."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc
from tests.rigs.hostile import HostileCluster

pytestmark = pytest.mark.hostile

DONE = """
if request["verb"] == "status":
    return {"jobs": [job(request)], "waiting": []}
"""


@pytest.fixture
def evil(dray: Dray, tmp_path: Path) -> HostileCluster:
    return HostileCluster(tmp_path / "evil", dray)


def submitted(evil: HostileCluster) -> str:
    evil.answers(DONE)
    return evil.dray.run("--on", "evil", "--no-snapshot", "--", "true")


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


# -- outputs --------------------------------------------------------------------------------------


def offering(*offered: tuple[str, str | None, int]) -> str:
    """An agent that has these outputs: path, link (or None: a file), mode."""
    return (
        DONE
        + f"""
offered = [dict(path=p, link=l, mode=m, size=0 if l else 4, mtime=0) for p, l, m in {offered!r}]
if request["verb"] == "outputs":
    return {{"files": offered}}
if request["verb"] == "pull":
    sent = [one for one in offered if one["path"] in request["paths"]]
    return {{"files": sent}}, b"".join(b"evil\\1" for one in sent if not one["link"])
"""
    )


@pytest.mark.parametrize("path", ["", ".", "..", "../x", "/x", "a/../../x", "a//b", "a/./b", "./a"])
def test_a_path_cannot_lead_out_of_the_folder(
    evil: HostileCluster, path: str, tmp_path: Path
) -> None:
    job = submitted(evil)
    evil.answers(offering((path, None, 0o644), ("good", None, 0o644)))
    ended = evil.dray("pull", job, str(tmp_path / "home/deep"))
    assert "1 file was not copied (links out of the outputs, git files, unsafe" in ended.stderr
    found = {"deep/.dray-outputs": f"{job}\n", "deep/good": "evil"}
    assert tree(tmp_path / "home") == found


def test_the_folder_itself_cannot_become_a_link(evil: HostileCluster, tmp_path: Path) -> None:
    """As it did: '.' was a link first, and what came next went through it."""
    job = submitted(evil)
    victim = tmp_path / "victim"
    victim.mkdir()
    evil.answers(offering((".", str(victim), 0o777), ("authorized_keys", None, 0o644)))
    evil.dray("pull", job, str(tmp_path / "home"), check=False)
    assert tree(victim) == {}


def test_nothing_is_written_through_a_link(evil: HostileCluster, tmp_path: Path) -> None:
    job = submitted(evil)
    victim = tmp_path / "victim"
    victim.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    evil.dray("pull", job, str(home), check=False)
    links = [("out", str(victim), 0o777), ("up", "../victim", 0o777), ("in", "a", 0o777)]
    below = [(f"{name}/x", None, 0o644) for name, _, _ in links]
    evil.answers(offering(*links, *below))
    (home / "old").symlink_to(victim)
    ended = evil.dray("pull", job, str(home))
    assert tree(victim) == {}
    assert "links out of the outputs" in ended.stderr
    assert (home / "out/x").read_text() == "evil"
    assert not (home / "out").is_symlink()


def test_files_come_without_bits_that_matter(evil: HostileCluster, tmp_path: Path) -> None:
    job = submitted(evil)
    evil.answers(offering(("su", None, 0o6777), ("sticky", None, 0o1666), ("dark", None, 0)))
    evil.dray("pull", job, str(tmp_path / "home"))
    modes = {
        name: stat.S_IMODE((tmp_path / "home" / name).stat().st_mode)
        for name in ("su", "sticky", "dark")
    }
    mask = os.umask(0)
    os.umask(mask)
    assert modes == {"su": 0o755 & ~mask, "sticky": 0o644 & ~mask, "dark": 0o600}


def test_marks_and_repositories_are_not_brought(evil: HostileCluster, tmp_path: Path) -> None:
    """git would run what a repository's configuration says, also from a prompt."""
    job = submitted(evil)
    bad = (
        ".git/config",
        "a/.GIT/config",
        ".gi\u200ct/x",
        ".dray-outputs",
        "a/.dray-outputs/x",
        "HEAD",
    )
    evil.answers(offering(*((path, None, 0o644) for path in (*bad, "good"))))
    ended = evil.dray("pull", job, str(tmp_path / "home"))
    assert tree(tmp_path / "home") == {".dray-outputs": f"{job}\n", "good": "evil"}
    assert "6 files were not copied" in ended.stderr


def test_files_that_were_not_asked_for_are_not_taken(evil: HostileCluster, tmp_path: Path) -> None:
    job = submitted(evil)
    evil.answers(
        DONE
        + """
one = dict(path="a", link=None, mode=0o644, size=4, mtime=0)
if request["verb"] == "outputs":
    return {"files": [one]}
if request["verb"] == "pull":
    return {"files": [dict(one, path="b")]}, b"evil\\1"
"""
    )
    ended = evil.dray("pull", job, str(tmp_path / "home"), check=False)
    assert (ended.returncode, "not asked for" in ended.stderr) == (7, True)
    assert "b" not in tree(tmp_path / "home")


def test_the_cluster_is_not_told_what_lies_in_the_folder(
    evil: HostileCluster, tmp_path: Path
) -> None:
    job = submitted(evil)
    home = tmp_path / "home"
    home.mkdir()
    (home / "diary-of-mine.txt").write_text("dear diary")
    evil.answers(offering(("result", None, 0o644)))
    evil.dray("pull", job, str(home))
    assert (home / "result").read_text() == "evil"
    assert "diary" not in (evil.folder / "asked").read_text()


def test_files_of_ones_own_are_not_replaced(evil: HostileCluster) -> None:
    """In a folder that holds other things, too, such as the project."""
    job = submitted(evil)
    evil.dray.write("train.py", "print('mine')")
    evil.answers(offering(("train.py", None, 0o644), ("result", None, 0o644)))
    for _ in range(2):
        ended = evil.dray("pull", job, ".", check=False)
        assert (ended.returncode, "train.py" in ended.stderr) == (4, True)
    assert tree(evil.dray.project) == {"train.py": "print('mine')", "result": "evil"}
    # What an earlier pull has brought is brought anew when it changes; unless it was edited here.
    evil.answers(offering(("result", None, 0o644)).replace("mtime=0", "mtime=10**18"))
    assert "1 of 1" in evil.dray("pull", job, ".").stderr
    (evil.dray.project / "result").write_text("edited here")
    assert evil.dray("pull", job, ".", check=False).returncode == 4
    assert (evil.dray.project / "result").read_text() == "edited here"


def test_nothing_of_ones_own_is_in_the_way(evil: HostileCluster) -> None:
    """A file or link where a folder would have to be, a folder where a file would."""
    job, project = submitted(evil), evil.dray.project
    evil.dray.write("thesis.tex", "mine")
    evil.dray.write("src/code.py", "mine")
    (project / "lnk").symlink_to("src")
    evil.answers(
        offering(*((path, None, 0o644) for path in ("thesis.tex/x", "src", "lnk/y", "ok")))
    )
    ended = evil.dray("pull", job, ".", check=False)
    assert (ended.returncode, "3 files" in ended.stderr) == (4, True)
    assert tree(project) == {"thesis.tex": "mine", "src/code.py": "mine", "ok": "evil"}
    assert (project / "lnk").readlink() == Path("src")


def test_what_is_made_meanwhile_is_not_replaced(evil: HostileCluster) -> None:
    job, mine = submitted(evil), evil.dray.project / "results.csv"
    (evil.dray.project / "other").touch()
    offer = offering(("results.csv", None, 0o644))
    write = f'if request["verb"] == "pull": open({str(mine)!r}, "w").write("mine")\n'
    evil.answers(write + offer)
    assert evil.dray("pull", job, ".", check=False).returncode == 4
    assert mine.read_text() == "mine"


def test_a_file_that_only_looks_the_same_does_not_become_the_jobs(evil: HostileCluster) -> None:
    job, mine = submitted(evil), evil.dray.write("Makefile", "mine")
    os.utime(mine, ns=(0, 0))
    evil.answers(offering(("Makefile", None, 0o644)))
    assert "0 of 1" in evil.dray("pull", job, ".").stderr
    evil.answers(offering(("Makefile", None, 0o644)).replace("mtime=0", "mtime=7"))
    assert evil.dray("pull", job, ".", check=False).returncode == 4
    assert mine.read_text() == "mine"
    evil.answers(offering(*[("Makefile", None, 0o644)] * 2))
    assert evil.dray("pull", job, ".", check=False).returncode == 7


@pytest.mark.parametrize("link", ["b\0c", "\ud800", "x" * 5000])
def test_links_that_no_system_has(evil: HostileCluster, link: str) -> None:
    job = submitted(evil)
    evil.answers(offering(("a", link, 0o777), ("ok", None, 0o644)))
    assert "1 file was not copied" in evil.dray("pull", job).stderr
    assert (evil.dray.project / job / "ok").exists()


# -- jobs that edit their own description ---------------------------------------------------------

EDIT = """
import json, os, sys
path = os.path.join(os.environ["DRAY_OUTPUTS"], "..", "job.json")
record = json.load(open(path))
record.update(json.loads(sys.argv[1]))
json.dump(record, open(path, "w"))
open(os.path.join(os.environ["DRAY_OUTPUTS"], "result"), "w").write("x")
sys.exit(3)
"""


@pytest.fixture(params=["local", "hpc"])
def on(request: pytest.FixtureRequest, dray: Dray) -> tuple[str, str]:
    if request.param == "hpc":
        cluster: Hpc = request.getfixturevalue("hpc")
        cluster.offer(dray)
    return "--on", request.param


def edited(dray: Dray, on: tuple[str, str], *flags: str, **fields: object) -> str:
    dray.write("edit.py", EDIT)
    values = {name: "given" for name in flags if name.isupper()}
    command = ["--", sys.executable, "edit.py", json.dumps(fields)]
    job = dray.run(*on, *flags, *command, **values)
    assert dray.wait(job)["state"] == "failed"
    return job


def test_its_id_does_not_decide_where_outputs_go(dray: Dray, on: tuple[str, str]) -> None:
    job = edited(dray, on, id="../user/.ssh")
    (dray.home / "user/.ssh").mkdir()
    assert dray("pull", job).stdout == f"{dray.project / job}\n"
    assert (dray.project / job / "result").read_text() == "x"
    assert list((dray.home / "user/.ssh").iterdir()) == []
    assert dray.show(job)["id"] == job


def test_it_cannot_ask_for_secrets(dray: Dray, on: tuple[str, str]) -> None:
    job = edited(dray, on, "--secret", "HARMLESS", secrets=["AWS_SECRET_ACCESS_KEY"])
    dray.write(
        "edit.py",
        "import os; print('keys', os.environ.get('AWS_SECRET_ACCESS_KEY'), "
        "os.environ.get('HARMLESS'))",
    )
    dray("resume", "--update-code", job, HARMLESS="yes", AWS_SECRET_ACCESS_KEY="stolen")
    assert dray.wait(job)["state"] == "done"
    assert "keys None yes" in dray.log(job)


def test_it_cannot_have_another_folder_sent(
    dray: Dray, on: tuple[str, str], tmp_path: Path
) -> None:
    secret = tmp_path / "diary"
    secret.mkdir()
    (secret / "diary.txt").write_text("dear diary")
    job = edited(dray, on, project=str(secret), folder="")
    dray.write("edit.py", "import os; print('files', sorted(os.listdir()))")
    dray("resume", "--update-code", job)
    assert dray.wait(job)["state"] == "done"
    assert "diary.txt" not in dray.log(job)
    assert dray.show(job)["project"] == str(dray.project)


def test_a_job_of_another_machine_gets_secrets_by_name_only(
    dray: Dray, on: tuple[str, str], tmp_path: Path
) -> None:
    job = edited(dray, on, "--secret", "TOKEN", command=["sh", "-c", "echo t=$TOKEN"])
    (dray.home / "dray/store.db").unlink()  # as on another laptop
    if on[1] != "local":
        dray("ps", *on, "--all")
    ended = dray("resume", job, check=False, TOKEN="t")
    assert ended.returncode == 4
    assert f"dray resume {job} --secret TOKEN" in ended.stderr
    dray("resume", job, "--secret", "TOKEN", TOKEN="named")
    assert dray.wait(job)["state"] == "done"
    assert "t=named" in dray.log(job)


def test_a_damaged_description_hides_no_other_job(dray: Dray, on: tuple[str, str]) -> None:
    bad = edited(dray, on, command={"a": 1}, resources=[1], attempts="x", created="yesterday")
    good = dray.run(*on, "--", "true")
    dray.wait(good)
    (dray.home / "dray/store.db").unlink()
    listed = {row["id"]: row for row in json.loads(dray("ps", *on, "--all", "--json").stdout)}
    assert listed[good]["state"] == "done"
    assert listed[bad]["state"] == "failed"  # that is known all the same
    assert "damaged" in listed[bad]["reason"]


def test_a_deep_folder_stops_nothing(dray: Dray, on: tuple[str, str]) -> None:
    deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    code = f"import os; os.chdir(os.environ['DRAY_OUTPUTS']); open('ok', 'w')\n{deep}"
    job = dray.run(*on, "--no-snapshot", "--", sys.executable, "-c", code)
    assert dray.wait(job)["state"] == "done"
    assert "1 of 1" in dray("pull", job).stderr
    assert dray("rm", job).stderr == f"removed {job}\n"
    assert dray.wait(dray.run(*on, "--no-snapshot", "--", "true"))["state"] == "done"
    assert [path.name for path in dray.jobs.glob(".gone-*")] == []


def test_an_output_below_a_link_stays_in_the_work_tree(
    dray: Dray, on: tuple[str, str], tmp_path: Path
) -> None:
    """A link in the project, or one that the command makes, may lead anywhere."""
    victim = tmp_path / "victim"
    (victim / "docs").mkdir(parents=True)
    (victim / "docs/a.txt").write_text("precious")
    (victim / "keys.txt").write_text("precious")
    (dray.project / "a").symlink_to(os.path.relpath(victim, dray.project))
    flags = [f"--output={path}" for path in ("a/docs", "a/keys.txt", "a/new/x", "b/keys.txt")]
    code = f"import os; os.rename('b', 'c'); os.symlink({str(victim)!r}, 'b')"
    dray.write("swap.py", code)
    job = dray.run(*on, *flags, "--", sys.executable, "swap.py")
    assert dray.wait(job)["state"] == "done"
    assert tree(victim) == {"docs/a.txt": "precious", "keys.txt": "precious"}
    assert sorted(path.name for path in victim.iterdir()) == ["docs", "keys.txt"]


def test_values_that_cannot_be_drawn(dray: Dray) -> None:
    values = "".join(
        f"step {n}: r = {value}\\n" for n, value in enumerate(("1", "1e308", "-1e308"))
    )
    pattern = r"step (?P<step>\d+): r = ([-0-9.e]+)"
    job = dray.run("--metric-pattern", pattern, "--", "printf", values)
    dray.wait(job)
    assert dray("show", job).returncode == 0


# -- one cluster and another ----------------------------------------------------------------------


def test_a_cluster_does_not_speak_for_another(evil: HostileCluster) -> None:
    dray = evil.dray
    local = dray.run("--", "sleep", "100")
    evil.answers(
        f"""
if request["verb"] == "ids":
    return {{"ids": [{local!r}]}}
if request["verb"] == "status":
    return {{"jobs": [dict(job(request), id={local!r}, state="done")], "waiting": []}}
"""
    )
    far = dray.run("--on", "evil", "--no-snapshot", "--", "true")
    dray("ps", "--on", "evil", "--all")
    rows = {row["id"]: row for row in json.loads(dray("ps", "--json").stdout)}
    assert (rows[local]["cluster"], rows[local]["state"]) == ("local", "running")
    assert far not in rows or rows[far]["state"] != "done"
    dray("stop", "--now", local)


def test_jobs_that_were_not_asked_for_are_dropped(evil: HostileCluster) -> None:
    dray = evil.dray
    job = submitted(evil)
    evil.answers(
        """
if request["verb"] == "status":
    return {"jobs": [job(request), dict(job(request), id="other-2345")], "waiting": []}
"""
    )
    dray("ps")
    assert {row["id"] for row in json.loads(dray("ps", "--all", "--json").stdout)} == {job}


# -- answers that are no answers ------------------------------------------------------------------

WRONG = [
    "[]",
    "7",
    "{}",
    '{"jobs": 7, "waiting": []}',
    '{"jobs": [7], "waiting": []}',
    '{"jobs": [{"id": 7}], "waiting": []}',
    '{"error": "no", "family": "OSError", "errno": "x"}',
    '{"error": 7, "family": ["x"]}',
    'b"99999999999999999999 0\\n{}"',
    'b"x y\\n{}"',
    'b"7\\n{}     "',
    '(lambda t: b"%d 0\\n" % len(t) + t)(b"[" * 200000 + b"]" * 200000)',
    '(lambda t: b"%d 0\\n" % len(t) + t)(b"9" * 100000)',
]


@pytest.mark.parametrize("answer", WRONG)
def test_a_malformed_answer_is_a_sentence(evil: HostileCluster, answer: str) -> None:
    job = submitted(evil)
    evil.answers(f"return {answer}")
    assert limited(evil.dray, "show", job) == 7


@pytest.mark.parametrize(
    "group", ['{"ids": ["a-2345.0-999999999"], "why": "", "start": ""}', '{"ids": [], "why": 7}']
)
def test_malformed_groups_of_waiting_jobs(evil: HostileCluster, group: str) -> None:
    submitted(evil)
    evil.answers(f'return {{"jobs": [], "waiting": [{group}]}}')
    assert limited(evil.dray, "ps") == 0  # shown as last seen


def test_a_cluster_whose_disk_fails_hides_no_other(evil: HostileCluster) -> None:
    jobs = {submitted(evil), evil.dray.run("--no-snapshot", "--", "true")}
    evil.answers('return {"error": "told", "family": "OSError", "errno": 30}')
    listed = evil.dray("ps", "--json")
    assert {row["id"] for row in json.loads(listed.stdout)} == jobs
    assert "told; jobs on evil are shown as last seen" in listed.stderr
    (evil.dray.home / "dray/store.db").unlink()
    assert "jobs on evil are not listed" in evil.dray("ps").stderr


def test_an_error_of_the_disk_does_not_hide_why_a_submission_failed(evil: HostileCluster) -> None:
    evil.answers(
        """
if request["verb"] == "submit":
    return {"error": "why", "family": "ClusterError"}
return {"error": "told", "family": "OSError", "errno": 30}
"""
    )
    ended = evil.dray("run", "--on", "evil", "--no-snapshot", "--", "true", check=False)
    assert (ended.returncode, "why" in ended.stderr) == (7, True)
    assert "may have been submitted" in ended.stderr


def open_to_others(root: Path) -> None:
    root.chmod(0o770)


def without_folder_of_jobs(root: Path) -> None:
    (root / "jobs").rename(root / "aside")
    (root / "jobs").touch()


@pytest.mark.parametrize("spoil", [open_to_others, without_folder_of_jobs])
def test_a_root_that_cannot_be_used_hides_no_other_cluster(
    dray: Dray, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    dray.configure(f"[clusters.other]\nkind = 'local'\nroot = '{tmp_path}/other'\n")
    waiting = dray.run("--on", "other", "--", "sleep", "1")
    done = dray.run("--", "true")
    spoil(tmp_path / "other")
    listed = dray("ps", "--json")
    assert {row["id"] for row in json.loads(listed.stdout)} == {waiting, done}
    assert "jobs on other are shown as last seen" in listed.stderr


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("command", "7"),
        ("resources", '{"gpus": "x"}'),
        ("resources", '{"nodes": 10**40}'),
        ("env", "[1]"),
        ("created", "-1e300"),
        ("container", '{"image": 7}'),
        ("snapshot", '"../../x"'),
    ],
)
def test_a_malformed_job_is_told_as_damaged(evil: HostileCluster, field: str, value: str) -> None:
    job = submitted(evil)
    evil.answers(
        f"""
if request["verb"] == "status":
    return {{"jobs": [job(request, {field}={value})], "waiting": []}}
"""
    )
    shown = evil.dray.show(job)
    assert (shown["state"], "damaged" in shown["reason"]) == ("lost", True)
    assert shown["command"] == ["true"]  # ours


@pytest.mark.parametrize(
    "told", ['state="great"', "ended=1e300", 'ended=float("nan")', 'reason={"a": 1}', "attempts=7"]
)
def test_so_is_one_whose_end_is_malformed(evil: HostileCluster, told: str) -> None:
    """All others are shown."""
    jobs = [submitted(evil), submitted(evil)]
    good = "dict(job(request), id=request['ids'][1])"
    evil.answers(f'return {{"jobs": [dict(job(request), {told}), {good}], "waiting": []}}')
    rows = {row["id"]: row for row in json.loads(evil.dray("ps", "--json").stdout)}
    assert sorted(rows[job]["state"] for job in jobs) == ["done", "lost"]


@pytest.mark.parametrize(
    ("verb", "answer", "arguments"),
    [
        ("ids", '{"ids": ["a-2345.0-999999999"]}', ["ps", "--on", "evil", "--all"]),
        ("ids", '{"ids": ["../../x"]}', ["ps", "--on", "evil", "--all"]),
        ("ids", '{"ids": [7]}', ["ps", "--on", "evil", "--all"]),
        ("log", '{"size": 10**30, "payload": 0}', ["logs", "JOB"]),
        ("log", '{"size": 1, "payload": 10**15}', ["logs", "JOB"]),
        ("hello", '{"free": []}', ["cluster", "check", "evil"]),
        ("hello", '{"free": 1, "root": 7}', ["doctor", "evil"]),
        ("images", '{"images": [7]}', ["image", "list", "--on", "evil"]),
        ("images", '{"images": [{"id": 7}]}', ["image", "list", "--on", "evil"]),
        ("outputs", '{"files": [{"path": 7}]}', ["pull", "JOB"]),
        ("outputs", '{"files": 7}', ["pull", "JOB"]),
        ("remove", "{}", ["rm", "JOB"]),
    ],
)
def test_every_verb_reads_with_suspicion(
    evil: HostileCluster, verb: str, answer: str, arguments: list[str]
) -> None:
    job = submitted(evil)
    running = "attempts=[dict(number=1)]"
    evil.answers(
        f"""
if request["verb"] == {verb!r}:
    return {answer}
if request["verb"] == "status":
    return {{"jobs": [dict(job(request), {running})], "waiting": []}}
"""
    )
    words = [job if one == "JOB" else one for one in arguments]
    code = limited(evil.dray, *words)
    assert code in ((1, 7) if verb == "hello" else (7,))


def limited(dray: Dray, *arguments: str) -> int:
    """The exit code; it may not take much memory, nor show a traceback."""
    import resource
    import subprocess

    gigabyte = 1 << 30
    ended = subprocess.run(
        [sys.executable, "-m", "dray", *arguments],
        cwd=dray.project,
        env=dray.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (gigabyte, gigabyte)),
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    assert re.search("evil|this machine", ended.stderr + ended.stdout)
    return ended.returncode


@pytest.mark.parametrize("flags", [["--only", "*.pt"], ["--latest-checkpoint"]], ids=str)
def test_only_what_was_asked_for_is_taken(
    evil: HostileCluster, tmp_path: Path, flags: list[str]
) -> None:
    """The cluster chooses the files, and could offer any."""
    evil.answers(DONE)
    job = evil.dray.run("--on", "evil", "--no-snapshot", "--checkpoint", "*.pt", "--", "true")
    evil.answers(offering(*((path, None, 0o644) for path in ("a.pt", "setup.py", "x/run.sh"))))
    evil.dray("pull", *flags, job, str(tmp_path / "dest"))
    assert tree(tmp_path / "dest") == {".dray-outputs": f"{job}\n", "a.pt": "evil"}
