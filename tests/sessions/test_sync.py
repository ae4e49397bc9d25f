"""dray shell --sync and dray lab --sync: edits here arrive in the session there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc, environment, wait_for
from tests.rigs.link import Link
from tests.sessions.conftest import Enter, Inside, Open, settled
from tests.sessions.test_lab import labs
from tests.sessions.test_lab import opened as lab_opened
from tests.sessions.test_shell import leave

pytestmark = pytest.mark.sessions


def arrives(inside: Inside, path: str, text: str | None) -> None:
    """Wait until a file of the session has this content; None: until there is none."""

    def seen() -> bool:
        ended = inside.exec("cat", path)
        return ended.returncode != 0 if text is None else ended.stdout.decode() == text

    wait_for(seen, 90)


def test_edits_arrive(dray: Dray, on: str, opened: Open) -> None:
    dray.write("train.py", "one")
    dray.write("old.py", "old")
    dray.write(".gitignore", "secret.txt\n")
    (dray.project / ".git").mkdir()
    shell = opened("--on", on, "--sync", "--cpus", "1")
    inside = Inside(dray, settled(shell))
    dray.write("secret.txt", "mine")
    dray.write("train.py", "two")
    dray.write("new/deep.py", "deep")
    (dray.project / "old.py").unlink()
    arrives(inside, "train.py", "two")
    arrives(inside, "new/deep.py", "deep")
    arrives(inside, "old.py", None)
    assert inside.exec("cat", "secret.txt").returncode != 0
    dray.write("train.py", "three")
    arrives(inside, "train.py", "three")
    shell.sendline("exit")
    assert leave(shell) == 0
    assert dray.wait(inside.job)["state"] == "done"


def test_what_the_session_did_itself_is_not_lost(dray: Dray, opened: Open) -> None:
    dray.write("train.py", "one")
    shell = opened("--on", "local", "--sync")
    inside = Inside(dray, settled(shell))
    inside.exec("sh", "-c", "echo mine > train.py; echo made > made.txt")
    dray.write("train.py", "two")
    shell.expect_exact("the session's is train.py.session there now")
    arrives(inside, "train.py", "two")
    assert inside.output("cat", "train.py.session") == "mine"
    dray.write("made.txt", "made here, too")
    shell.expect_exact("the session's is made.txt.session there now")
    shell.sendline("exit")
    assert leave(shell) == 0
    dray.wait(inside.job)
    left = dray.jobs / inside.job / "attempts/001/left"
    kept = {one.name: one.read_text().strip() for one in left.iterdir() if one.is_file()}
    assert kept == {"train.py.session": "mine", "made.txt.session": "made"}


def test_a_repository_of_somebody_else(dray: Dray, opened: Open, tmp_path: Path) -> None:
    """Links that lead out are not made, and nothing is written through those that are there."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (dray.project / "way").symlink_to(tmp_path)
    dray.write("train.py", "one")
    shell = opened("--on", "local", "--sync")
    inside = Inside(dray, settled(shell))
    (dray.project / "keys").symlink_to("/etc/passwd")
    shell.expect_exact("keys: not sent: it is a link that leads out")
    inside.exec("ln", "-sfn", str(precious), "way")
    (dray.project / "way").unlink()
    shell.expect_exact("way: it was changed in the session, and stays there")
    dray.write("way/gift", "for you")
    shell.expect_exact("way/gift: not sent: way is a link or a file in the session")
    assert list(precious.iterdir()) == []
    shell.sendline("exit")
    assert leave(shell) == 0


def test_never_into_a_job(dray: Dray, running: Enter, opened: Open) -> None:
    dray.write("train.py", "one")
    inside = running("local")
    shell = opened("--sync", inside.job)
    shell.expect_exact("is a job, not a session")
    assert leave(shell) == 4
    dray.write("train.py", "two")
    assert inside.output("cat", "train.py") == "one"


def test_edits_of_a_lost_link_arrive_later(dray: Dray, hpc: Hpc, link: Link, opened: Open) -> None:
    hpc.offer(dray)
    dray.write("train.py", "one")
    dray.write("old.py", "old")
    shell = opened("--on", "hpc", "--sync")
    inside = Inside(dray, settled(shell))
    dray.write("train.py", "two")
    arrives(inside, "train.py", "two")
    link.frozen.set()
    shell.expect_exact("connecting again")
    dray.write("train.py", "three")
    (dray.project / "old.py").unlink()
    link.frozen.clear()
    link.cut()
    arrives(inside, "train.py", "three")
    arrives(inside, "old.py", None)
    shell.sendline("")
    shell.sendline("exit")
    leave(shell)
    dray("stop", "--now", inside.job, check=False)


def test_into_a_notebook(dray: Dray) -> None:
    dray.use(environment("sessions"))
    dray.write("notes.txt", "one")
    with lab_opened(dray, "--sync") as lab:
        dray.write("notes.txt", "two")
        wait_for(lambda: lab.ask("GET", "/api/contents/notes.txt")[1]["content"] == "two", 60)
        (job,) = labs(dray)
    dray("stop", "--now", job["id"])
