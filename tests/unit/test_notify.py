"""What is told of a job, how it is said, and that an unkind world changes nothing of that."""

from __future__ import annotations

import email
import json
import os
import threading
import time
from collections.abc import Iterator
from email import policy
from pathlib import Path
from typing import Any

import pytest

from dray.node.formats import files
from dray.node.jobs.jobdir import JobDir
from dray.node.notifications import notices, notify, sending
from dray.programs import desktop
from tests.rigs.inbox import Inbox

HOSTILE = "bad\r\nBcc: everybody@example.org\nX-Title: <b>\x1b[31m\u202e"


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    box = Inbox()
    yield box
    box.close()


def status(**more: Any) -> dict[str, Any]:
    attempts = [
        {"number": 1, "outcome": "interrupted"},
        {"number": 2, "exit_code": 3, "metric": {"name": "reward", "value": 1.5, "step": 40}},
    ]
    job = {"name": "walk", "created": 1000.0, "command": ["python", "--key", "s3cret"]}
    found = {"id": "walk-7f3k", "job": job, "state": "failed", "reason": "exit code 3"}
    return {**found, "attempts": attempts, "ended": 8200.0, **more}


def facts(**more: Any) -> dict[str, Any]:
    found = status(**more)
    return notify.facts_of(notify.end_event(found["state"]), found, "euler")


def test_what_is_told() -> None:
    told = facts()
    assert notify.title(told) == "walk-7f3k: failed"
    assert notify.text(told) == (
        "walk-7f3k has failed on euler after 2 h 0 min. exit code 3. 2 attempts. "
        "reward 1.5 at step 40."
    )
    assert "s3cret" not in json.dumps(told)
    assert told["version"] == 1


def test_no_text_becomes_a_header_or_a_line() -> None:
    told = facts(id=HOSTILE, reason=HOSTILE * 100)
    message = email.message_from_bytes(
        notify.mail_to("me@example.org", told), policy=policy.default
    )
    assert message["To"] == "me@example.org"
    assert message["Bcc"] is None
    headers = notify.request_to("ntfy", "https://ntfy.sh/topic", told).headers
    assert not any(set("\r\n\x1b") & set(value) for value in headers.values())
    assert all(value.isascii() for value in headers.values())
    assert len(notify.text(told)) < 1000
    said = json.loads(notify.request_to("slack", "https://hooks.example/x", told).body)["text"]
    assert "<" not in said
    assert "\n" not in said


def test_an_account_in_an_address_becomes_a_header() -> None:
    request = notify.request_to("ntfy", "https://:tk_secret@ntfy.example:8443/runs", facts())
    assert request.url == "https://ntfy.example:8443/runs"
    assert request.headers["Authorization"] == "Basic OnRrX3NlY3JldA=="


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ntfy.sh/topic",
        "file:///etc/passwd",
        "https://",
        "https://a b",
        "https://a/\nX: y",
        "https://a/b\n",
        "me@example.org\n",
        "x" * 9999,
    ],
)
def test_what_is_no_address(address: str) -> None:
    assert not notify.is_address("webhook", address)
    assert not notify.is_address("mail", address)


def test_a_start_is_told_after_a_long_wait_only() -> None:
    settings: dict[str, Any] = {"on": ["started"], "long_wait": 60.0}
    job: dict[str, Any] = {"created": 1000.0, "resumed_after": 0}
    assert notify.waited_long(settings, job, 1060.0)
    assert not notify.waited_long(settings, job, 1059.0)
    assert not notify.waited_long({**settings, "on": ["done"]}, job, 9999.0)
    assert not notify.waited_long(settings, {**job, "resumed_after": 2}, 9999.0)
    assert not notify.waited_long({**settings, "jobs": 10}, job, 9999.0)


def test_a_quick_end_is_not_told_where_only_long_jobs_are() -> None:
    settings = {"on": ["failed"], "after": 7300.0}
    assert notify.wanted_end(settings, facts()) is None
    assert notify.wanted_end({**settings, "after": 7200.0}, facts()) == "failed"
    assert notify.wanted_end({"on": ["done"]}, facts()) is None
    assert notify.wanted_end({"on": ["failed"]}, facts(state="lost")) == "failed"


def test_a_desktop_reads_no_text_as_an_option_or_a_script() -> None:
    linux, mac = desktop.commands("--help", '" & (do shell script "id")')
    assert linux[2:] == ["--", "--help", '" &amp; (do shell script "id")']
    assert mac[-2:] == ["dray: --help", '" & (do shell script "id")']
    assert all("shell" not in word for word in mac[:-2])


# -- sending ------------------------------------------------------------------------------------


def test_an_unkind_server_is_told_of_without_its_address(inbox: Inbox) -> None:
    to = {"webhook": f"{inbox.url}/s3cret"}
    elsewhere = Inbox()
    try:
        for manner, expected in (
            ("error", "it answered 500"),
            (f"{elsewhere.url}/stolen", "it answered 302"),
            ("cut", ""),  # it had said 200 by then
        ):
            inbox.manner = manner
            assert sending.send_all(to, facts()) == {"webhook": expected}
        assert elsewhere.received == []
    finally:
        elsewhere.close()
    inbox.manner = "hang"
    assert sending.send_all(to, facts(), 0.5) == {"webhook": "no answer within 0.5 s"}
    inbox.close()
    why = sending.send_all(to, facts())["webhook"]
    assert "s3cret" not in why
    assert "refused" in why


def test_a_proxy_of_the_environment_is_used(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", inbox.url)
    monkeypatch.delenv("no_proxy", raising=False)
    assert sending.send_all({"webhook": "http://far.invalid/hook"}, facts()) == {"webhook": ""}
    assert inbox.received[0].path == "http://far.invalid/hook"


def test_mail_goes_to_sendmail_without_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_sendmail(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert sending.send_all({"mail": "me@example.org"}, facts(id="a;$(id)")) == {"mail": ""}
    assert (tmp_path / "argv").read_text() == "-i -t\n"
    message = email.message_from_bytes((tmp_path / "stdin").read_bytes(), policy=policy.default)
    assert message["To"] == "me@example.org"
    assert message["Subject"] == "[dray] a;$(id) (walk): failed"


def fake_sendmail(folder: Path) -> None:
    program = folder / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$*" > {folder}/argv\ncat > {folder}/stdin\n')
    program.chmod(0o755)


# -- once for each job --------------------------------------------------------------------------


def make_job(root: Path, inbox: Inbox, name: str = "walk-7f3k", **more: Any) -> JobDir:
    job_dir = JobDir(str(root / "jobs" / name))
    files.make_folder(job_dir.attempts)
    rules = {"grace": 1.0, "backoff": 1.0}
    job = {"id": name, "name": "walk", "command": ["true"], "resources": {}, "resume": rules}
    job.update(outputs=[], retries=0, resumed_after=0, created=1000.0)
    files.write_json(job_dir.job, job)
    settings = {"to": {"webhook": f"{inbox.url}/hook"}, "on": ["done", "failed"], "cluster": "hpc"}
    files.write_json(job_dir.notify, {**settings, **more})
    return job_dir


def end(job_dir: JobDir, state: str = "done") -> None:
    files.write_json(job_dir.end, {"state": state, "reason": "", "time": time.time()})


def leftovers(root: Path) -> list[str]:
    return sorted(files.names_in(str(root / "notify")))


def test_many_who_try_at_once_send_one_message(tmp_path: Path, inbox: Inbox) -> None:
    job_dir = make_job(tmp_path, inbox)
    end(job_dir)
    threads = [threading.Thread(target=notices.at_end, args=(job_dir,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.json["event"] for one in inbox.received] == ["done"]
    assert not os.path.exists(job_dir.notify)
    assert leftovers(tmp_path) == []


def test_what_the_node_cannot_send_the_next_look_does(
    tmp_path: Path, inbox: Inbox, capfd: pytest.CaptureFixture[str]
) -> None:
    job_dir = make_job(tmp_path, inbox)
    end(job_dir)
    inbox.manner = "error"
    notices.at_end(job_dir)
    assert capfd.readouterr().out == "the notice by webhook (done) was not sent: it answered 500\n"
    assert notices.look(str(tmp_path), [], notices.LOGIN) == [
        {"id": "walk-7f3k", "over": True, "channels": ["webhook"]}
    ]
    assert capfd.readouterr().out == ""  # it is the agent's answer that goes there
    inbox.manner = "ok"
    before = len(inbox.received)
    notices.look(str(tmp_path), [], notices.LOGIN)
    assert len(inbox.received) == before  # it rests for a while
    settings = files.read_record(job_dir.notify) or {}
    files.write_json(job_dir.notify, {**settings, "looked": 1.0})
    assert notices.look(str(tmp_path), [], notices.LOGIN) == []
    assert inbox.received[-1].json["sent_by"] == "login node"
    assert not os.path.exists(job_dir.notify)
    assert leftovers(tmp_path) == []


def test_it_is_given_up_and_its_address_forgotten(tmp_path: Path, inbox: Inbox) -> None:
    job_dir = make_job(tmp_path, inbox, tries=notices.MOST_TRIES - 1)
    end(job_dir)
    inbox.manner = "error"
    notices.at_end(job_dir)
    assert not os.path.exists(job_dir.notify)
    assert leftovers(tmp_path) == []


def test_only_channels_that_failed_are_tried_again(tmp_path: Path, inbox: Inbox) -> None:
    other = Inbox()
    other.manner = "error"
    job_dir = make_job(
        tmp_path, inbox, to={"webhook": f"{inbox.url}/hook", "slack": f"{other.url}/hook"}
    )
    end(job_dir)
    notices.at_end(job_dir)
    assert list((files.read_record(job_dir.notify) or {})["to"]) == ["slack"]
    other.manner = "ok"
    notices.look(str(tmp_path), [], notices.LOGIN)
    assert (len(inbox.received), len(other.received)) == (1, 2)
    other.close()


def test_a_job_that_was_lost_is_told_of_by_who_looks(tmp_path: Path, inbox: Inbox) -> None:
    make_job(tmp_path, inbox)
    over = {"id": "walk-7f3k", "state": "lost", "reason": "its node died", "ended": 1500.0}
    notices.look(str(tmp_path), [over], notices.LOGIN)
    notices.look(str(tmp_path), [over], notices.LOGIN)
    assert [(one.json["state"], one.json["reason"]) for one in inbox.received] == [
        ("lost", "its node died")
    ]


def test_a_killed_sender_leaves_it_to_the_next_look(tmp_path: Path, inbox: Inbox) -> None:
    job_dir = make_job(tmp_path, inbox)
    end(job_dir)
    pid = os.fork()
    if pid == 0:
        inbox_is_never_asked = notices.Claim(job_dir, job_dir.id)
        inbox_is_never_asked.take()
        os._exit(9)
    os.waitpid(pid, 0)
    notices.look(str(tmp_path), [], notices.LOGIN)
    assert len(inbox.received) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"to": {"webhook": 3}, "on": []}'])
def test_damaged_settings_send_nothing(tmp_path: Path, inbox: Inbox, content: bytes) -> None:
    job_dir = make_job(tmp_path, inbox)
    end(job_dir)
    Path(job_dir.notify).write_bytes(content)
    notices.at_end(job_dir)
    (tmp_path / "notify").mkdir(exist_ok=True)
    (tmp_path / "notify/walk-7f3k").write_text("jobs/../../etc")
    over = {"id": "walk-7f3k", "state": "done", "reason": "", "ended": 1500.0}
    assert notices.look(str(tmp_path), [over], notices.LOGIN) == []
    assert inbox.received == []
    assert leftovers(tmp_path) == []
    assert not os.path.exists(job_dir.notify)


def test_an_array_has_one_message(tmp_path: Path, inbox: Inbox) -> None:
    jobs = [make_job(tmp_path, inbox, f"sweep-7f3k.{one}", jobs=5) for one in range(5)]
    for index in (4, 0, 2):
        end(jobs[index])
        notices.at_end(jobs[index])
    lost = {"id": jobs[1].id, "state": "lost", "reason": "", "ended": 1500.0}
    assert notices.look(str(tmp_path), [lost], notices.LOGIN) == []
    assert inbox.received == []
    end(jobs[3], "failed")
    notices.at_end(jobs[3])
    notices.look(str(tmp_path), [lost], notices.LOGIN)
    assert [one.json["jobs"] for one in inbox.received] == [{"done": 3, "failed": 1, "lost": 1}]
    assert inbox.received[0].json["id"] == "sweep-7f3k"
    assert not list(tmp_path.glob("jobs/*/notify.json"))
    assert leftovers(tmp_path) == []
