"""Messages about jobs through the real command line: one for each job, from wherever it can be
sent, and its address nowhere else."""

from __future__ import annotations

import email
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from email import policy
from pathlib import Path

import pytest

from dray.launcher.notifying import LOCK
from dray.node.formats import files
from dray.store import Store
from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import attempt_pid, parent_of, python
from tests.rigs.hostile import HostileCluster
from tests.rigs.inbox import Inbox
from tests.unit.test_notify import fake_sendmail

ON = ("--on", "hpc")
TOPIC = "/t0p-s3cret"
CRASHES_ONCE = "import os; raise SystemExit(os.environ['DRAY_ATTEMPT'] == '1')"


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    box = Inbox()
    yield box
    box.close()


def tell_to(dray: Dray, inbox: Inbox, *more: str) -> None:
    """All jobs of this dray are told of there."""
    config = Path(dray.env["DRAY_HOME"], "config.toml")
    before = config.read_text() if config.exists() else ""
    lines = ['webhook = "HOOK"', *more]
    dray.configure("\n".join([before, "[notify]", *lines, ""]))
    dray.env["HOOK"] = inbox.url + TOPIC


def events(inbox: Inbox) -> list[tuple[str, str]]:
    return [(one.json["id"], one.json["event"]) for one in inbox.received]


def is_nowhere(*tops: Path) -> bool:
    words = ["grep", "-rlaF", TOPIC[1:], *map(str, tops)]
    return subprocess.run(words, capture_output=True, check=False).stdout == b""


def settings_of(dray: Dray, job: str) -> Path:
    return dray.job_dir(job) / "notify.json"


def settled(dray: Dray, job: str) -> None:
    """Nothing of it is left on the cluster."""
    wait_for(lambda: not settings_of(dray, job).exists())
    wait_for(lambda: not list((dray.jobs.parent / "notify").glob("*")))


# -- on this machine ----------------------------------------------------------------------------


def test_one_message_for_a_job_with_two_attempts(dray: Dray, inbox: Inbox) -> None:
    tell_to(dray, inbox)
    job = dray.run("--retries", "1", *python(CRASHES_ONCE))
    [message] = inbox.wait(1)
    assert message.path == TOPIC
    assert message.headers["Content-Type"] == "application/json"
    told = message.json
    assert (told["version"], told["id"], told["event"], told["state"]) == (1, job, "done", "done")
    assert (told["attempts"], told["exit_code"], told["cluster"]) == (2, 0, "local")
    assert told["sent_by"] == "node"
    settled(dray, job)
    dray.wait(job)
    dray("ps")
    assert len(inbox.received) == 1
    assert is_nowhere(dray.home, dray.project)


def test_the_command_and_other_users_see_no_address(dray: Dray, inbox: Inbox) -> None:
    tell_to(dray, inbox)
    code = "import os, time; print('HOOK' in os.environ, flush=True); time.sleep(60)"
    job = dray.run(*python(code))
    wait_for(lambda: dray("logs", job, check=False).stdout == "False\n")
    assert settings_of(dray, job).stat().st_mode & 0o777 == 0o600
    for pid in dray.processes():
        assert TOPIC[1:].encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert TOPIC[1:].encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    shown = dray("show", "--json", job).stdout + dray("plan", *python("pass")).stdout
    assert "notify by webhook on done, failed, started" in shown
    assert TOPIC not in shown
    assert TOPIC not in (dray.job_dir(job) / "job.json").read_text()
    dray("stop", "--now", job)
    settled(dray, job)
    assert inbox.received == []  # whoever stops it knows
    assert is_nowhere(dray.home)


def test_a_failure_says_why_in_every_form(dray: Dray, inbox: Inbox) -> None:
    tell_to(dray, inbox, 'ntfy = "NTFY"', 'slack = "SLACK"')
    dray.env.update(NTFY=f"{inbox.url}/topic", SLACK=f"{inbox.url}/slack")
    job = dray.run("--name", "walk", *python("raise SystemExit(3)"))
    found = {one.path: one for one in inbox.wait(3)}
    assert set(found) == {TOPIC, "/topic", "/slack"}
    assert found["/topic"].headers["Title"] == f"{job}: failed"
    assert found["/topic"].headers["Priority"] == "4"
    text = found["/topic"].body.decode()
    assert text.startswith(f"{job} has failed on local after ")
    assert "exit code 3" in text
    assert found["/slack"].json["text"].startswith(f"{job} has failed")
    settled(dray, job)


def test_a_keeper_that_is_killed_tells_nothing_and_the_next_look_does(
    dray: Dray, inbox: Inbox
) -> None:
    tell_to(dray, inbox)
    job = dray.run(*python("import time; print('up', flush=True); time.sleep(60)"))
    wait_for(lambda: dray("logs", job, check=False).stdout)
    supervisor = parent_of(attempt_pid(dray, job))
    keeper = parent_of(supervisor)
    for pid in (keeper, supervisor):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: dray.show(job)["state"] == "lost")
    assert events(inbox) == [(job, "failed")]
    assert inbox.received[0].json["state"] == "lost"
    dray("ps")
    settled(dray, job)
    assert len(inbox.received) == 1


def test_killed_while_it_sends(dray: Dray, inbox: Inbox) -> None:
    """The end is on disk by then, and whoever looks sends it."""
    tell_to(dray, inbox)
    inbox.manner = "hang"
    job = dray.run(*python("pass"))
    inbox.wait(1)
    shown = json.loads((dray.job_dir(job) / "end.json").read_text())
    assert shown["state"] == "done"
    assert dray.wait(job)["state"] == "done"  # it does not wait for that
    keepers = [pid for pid in dray.processes() if b"keep" in words_of(pid)]
    for pid in keepers:
        os.kill(pid, signal.SIGKILL)
    inbox.manner = "ok"
    wait_for(lambda: not dray.processes() or dray.nothing_runs())
    dray("show", job)
    assert len(inbox.received) == 2
    settled(dray, job)
    assert is_nowhere(dray.home)


def words_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def test_a_start_after_a_long_wait_and_an_end(dray: Dray, inbox: Inbox) -> None:
    tell_to(dray, inbox, 'long_wait = "0.001s"')
    job = dray.run(*python("import time; time.sleep(1)"))
    inbox.wait(2)
    assert events(inbox) == [(job, "started"), (job, "done")]
    settled(dray, job)


def test_jobs_that_were_submitted_together_have_one_message(dray: Dray, inbox: Inbox) -> None:
    tell_to(dray, inbox)
    dray.write(
        "many.py",
        "import dray\ndray.run_many([['true'], ['false'], ['true'], ['true']], snapshot=False)\n",
    )
    subprocess.run(["python3", "many.py"], cwd=dray.project, env=dray.env, check=True)
    [message] = inbox.wait(1)
    assert message.json["jobs"] == {"done": 3, "failed": 1}
    assert message.json["event"] == "failed"
    rows = json.loads(dray("ps", "--json").stdout)
    for row in rows:
        dray.wait(row["id"])
        settled(dray, row["id"])
    assert len(inbox.received) == 1


def test_what_is_asked_for_by_name(dray: Dray, inbox: Inbox) -> None:
    assert "there is no [notify]" in dray("run", "--notify", "--", "true", check=False).stderr
    tell_to(dray, inbox, 'after = "1h"')
    quiet = dray.run("--no-notify", *python("pass"))
    short = dray.run(*python("pass"))
    told = dray.run("--notify", *python("pass"))
    for job in (quiet, short, told):
        dray.wait(job)
        settled(dray, job)
    assert events(inbox) == [(told, "done")]


def test_settings_that_cannot_be_used(dray: Dray, inbox: Inbox) -> None:
    tell_to(dray, inbox)
    del dray.env["HOOK"]
    refused = dray("run", "--", "true", check=False)
    assert refused.returncode == 2
    assert "[notify] webhook: the secret HOOK was found nowhere" in refused.stderr
    assert "--no-notify" in refused.stderr
    refused = dray("run", "--", "true", check=False, HOOK="n0t-a-url")
    assert "the value of the secret HOOK is not a URL" in refused.stderr
    assert "n0t-a-url" not in refused.stderr
    dray.configure('[notify]\nmail = "me@example.org, you@example.org"\n')
    assert "is not a mail address" in dray("run", "--", "true", check=False).stderr


def test_a_cloned_project_cannot_say_where_messages_go(dray: Dray, inbox: Inbox) -> None:
    dray.write("dray.toml", '[notify]\nwebhook = "HOME"\n')
    refused = dray("run", "--", "true", check=False)
    assert refused.returncode != 0
    assert "notify.webhook" in refused.stderr
    assert "is not trusted" in refused.stderr


def test_mail_by_the_sendmail_of_whoever_looks(dray: Dray, tmp_path: Path) -> None:
    """The keeper's own PATH has none."""
    fake_sendmail(tmp_path)
    dray.configure('[notify]\nmail = "me@example.org"\n')
    dray.use(tmp_path)
    job = dray.run(*python("pass"))
    wait_for(lambda: (dray.job_dir(job) / "end.json").exists())
    dray.wait(job)
    wait_for(lambda: dray("ps").returncode == 0 and (tmp_path / "stdin").exists())
    assert (tmp_path / "argv").read_text() == "-i -t\n"
    message = email.message_from_bytes((tmp_path / "stdin").read_bytes(), policy=policy.default)
    assert (message["To"], message["Subject"]) == ("me@example.org", f"[dray] {job}: done")


def test_the_desktop_is_told_once_by_the_command_that_sees_the_end(
    dray: Dray, tmp_path: Path
) -> None:
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/shown\n')
    program.chmod(0o755)
    dray.use(tmp_path)
    dray.configure("[notify]\ndesktop = true\n")
    job, quiet = dray.run(*python("pass")), dray.run("--no-notify", *python("pass"))
    for one in (job, quiet):
        dray.wait(one)
    dray("ps")
    lines = (tmp_path / "shown").read_text().splitlines()
    assert len(lines) == 1
    assert f"-- {job}: done {job} is done on local" in lines[0]


def test_a_try_says_what_happened(dray: Dray, inbox: Inbox) -> None:
    assert dray("notify", check=False).returncode == 2
    tell_to(dray, inbox)
    shown = dray("notify")
    assert shown.stdout.split() == ["webhook", "HOOK"]
    assert dray("notify", "--test").stdout.split() == ["ok", "webhook", "sent"]
    assert inbox.received[0].json["reason"] == "this is only a test"
    inbox.manner = "error"
    bad = dray("notify", "--test", check=False)
    assert bad.returncode == 1
    assert "it answered 500" in bad.stdout


# -- on Slurm -----------------------------------------------------------------------------------


def without_a_way_out(hpc: Hpc, tmp_path: Path) -> str:
    """A Python on the cluster that reaches nothing: a proxy is set which is not there."""
    python = tmp_path / "walled"
    python.write_text(
        '#!/bin/sh\nexport http_proxy=http://127.0.0.1:9 no_proxy=\nexec python3 "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


def test_a_compute_node_sends_while_the_laptop_is_away(dray: Dray, hpc: Hpc, inbox: Inbox) -> None:
    hpc.offer(dray)
    tell_to(dray, inbox)
    job = dray.run(*ON, *python("raise SystemExit(3)"))
    [message] = inbox.wait(1)
    assert (message.json["id"], message.json["event"]) == (job, "failed")
    assert (message.json["sent_by"], message.json["cluster"]) == ("node", "hpc")
    settled(dray, job)
    dray.wait(job)
    dray("ps")
    assert len(inbox.received) == 1
    assert is_nowhere(dray.home)


def test_the_login_node_sends_what_the_node_cannot(dray: Dray, hpc: Hpc, inbox: Inbox) -> None:
    hpc.offer(dray, setup=["export http_proxy=http://127.0.0.1:9"])
    tell_to(dray, inbox)
    job = dray.run(*ON, *python("pass"))
    wait_for(lambda: (dray.jobs.parent / "notify" / job).exists(), 60)
    wait_for(lambda: "was not sent" in (dray.job_dir(job) / "batch.log").read_text())
    assert inbox.received == []
    dray("ps")
    [message] = inbox.wait(1)
    assert message.json["sent_by"] == "login node"
    assert TOPIC not in (dray.job_dir(job) / "batch.log").read_text()
    settled(dray, job)
    assert is_nowhere(dray.home)


def test_the_laptop_sends_what_the_cluster_cannot(
    dray: Dray, hpc: Hpc, inbox: Inbox, tmp_path: Path
) -> None:
    hpc.offer(dray, python=without_a_way_out(hpc, tmp_path))
    tell_to(dray, inbox)
    job = dray.run(*ON, *python("pass"))
    assert dray.wait(job)["state"] == "done"
    wait_for(lambda: dray("ps").returncode == 0 and inbox.received)
    assert inbox.received[0].json["sent_by"] == "laptop"
    dray("show", job)
    settled(dray, job)
    assert events(inbox) == [(job, "done")]
    assert is_nowhere(dray.home)


def test_an_array_on_slurm_has_one_message(dray: Dray, hpc: Hpc, inbox: Inbox) -> None:
    hpc.offer(dray)
    tell_to(dray, inbox)
    dray.write(
        "many.py",
        "import dray\ndray.run_many([['true'], ['false'], ['true']], on='hpc', snapshot=False)\n",
    )
    subprocess.run(["python3", "many.py"], cwd=dray.project, env=dray.env, check=True)
    [message] = inbox.wait(1, 100)
    assert message.json["jobs"] == {"done": 2, "failed": 1}
    assert message.json["sent_by"] == "node"
    wait_for(lambda: not list(dray.jobs.parent.glob("*/*/notify.json")))
    assert is_nowhere(dray.home)


# -- on a cluster in other hands ----------------------------------------------------------------


@pytest.fixture
def evil(dray: Dray, tmp_path: Path) -> HostileCluster:
    return HostileCluster(tmp_path / "evil", dray)


def asking_for(job: str, state: str = "done", channels: Sequence[str] = ("webhook",)) -> str:
    """An agent whose jobs are in this state, and that asks to send a message about this one."""
    message = {"id": job, "over": True, "channels": list(channels)}
    return f"""
if request["verb"] == "status":
    jobs = [dict(job(request), state={state!r})] if request["ids"] else []
    return {{"jobs": jobs, "waiting": [], "unsent": [{message!r}]}}
"""


def submitted(evil: HostileCluster, *more: str) -> str:
    evil.answers("")
    return evil.dray.run("--on", "evil", "--no-snapshot", *more, "--", "true")


def notes_of(dray: Dray, job: str) -> list[str]:
    store = Store(dray.home / "dray/store.db")
    try:
        return [what for _, what in store.events(job) if what.startswith("told")]
    finally:
        store.close()


@pytest.mark.hostile
@pytest.mark.parametrize("channels", [["webhook"], ["slack"], ["pigeon"], []])
def test_a_cluster_neither_sends_nor_silences_messages_about_jobs_of_others(
    dray: Dray, evil: HostileCluster, inbox: Inbox, channels: list[str]
) -> None:
    victim = dray.run("--on", "local", *python("pass"))
    dray.wait(victim)
    tell_to(dray, inbox)
    job = submitted(evil)
    evil.answers(asking_for(victim, "done", channels))
    dray("show", job)
    assert evil.asked("status")
    assert inbox.received == []
    assert notes_of(dray, victim) == []
    assert evil.asked("settle") == []


@pytest.mark.hostile
def test_a_cluster_that_changes_its_mind_has_one_message_sent(
    dray: Dray, evil: HostileCluster, inbox: Inbox
) -> None:
    tell_to(dray, inbox)
    job = submitted(evil)
    for state in ("done", "failed", "running", "lost", "done"):
        evil.answers(asking_for(job, state))
        dray("show", job)
    assert events(inbox) == [(job, "done")]
    assert notes_of(dray, job) == ["told of its end"]


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("setting", "option", "over"),
    [
        ('on = ["failed"]', "--retries=0", True),
        ('after = "1h"', "--retries=0", True),
        ('long_wait = "1h"', "--retries=0", False),
        ('on = ["done"]', "--no-notify", True),
    ],
)
def test_the_settings_of_this_machine_hold_whatever_the_cluster_asks_for(
    dray: Dray, evil: HostileCluster, inbox: Inbox, setting: str, option: str, over: bool
) -> None:
    tell_to(dray, inbox, setting)
    job = submitted(evil, option)
    attempts = [{"number": 1, "started": 9e9, "ended": 9e9, "outcome": "done"}]
    told = f"dict(job(request), ended=9e9, attempts={attempts})"
    message = {"id": job, "over": over, "channels": ["webhook"]}
    evil.answers(f"""
if request["verb"] == "status":
    return {{"jobs": [{told}], "waiting": [], "unsent": [{message}]}}
""")
    dray("show", job)
    assert inbox.received == []
    assert notes_of(dray, job) == []
    assert len(evil.asked("settle")) == 1


@pytest.mark.hostile
def test_a_message_waits_for_a_shell_that_has_the_secret(
    dray: Dray, evil: HostileCluster, inbox: Inbox
) -> None:
    tell_to(dray, inbox)
    job = submitted(evil)
    evil.answers(asking_for(job))
    hook = dray.env.pop("HOOK")
    assert "is not sent yet: [notify] webhook" in dray("show", job).stderr
    assert evil.asked("settle") == []
    dray.env["HOOK"] = hook
    dray("show", job)
    assert events(inbox) == [(job, "done")]
    assert len(evil.asked("settle")) == 1


@pytest.mark.hostile
def test_nobody_waits_for_a_suspended_command(
    dray: Dray, evil: HostileCluster, inbox: Inbox
) -> None:
    tell_to(dray, inbox, "desktop = true")
    job = submitted(evil)
    evil.answers(asking_for(job))
    with files.Lock(str(dray.home / "dray" / LOCK)):
        dray("show", job)
    assert inbox.received == []
    dray("show", job)
    assert events(inbox) == [(job, "done")]
