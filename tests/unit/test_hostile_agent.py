"""What a hostile cluster answers is an error with a sentence: no traceback, no endless memory."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from dray.errors import ClusterError, DrayError, StorageError
from dray.node.formats.bootstrap import PRESENT
from dray.node.formats.wire import GOODBYE, MARK
from dray.transport import frames, session
from dray.transport.channel import Here
from dray.transport.link import AgentLink, CutShort
from tests.conftest import Dray, wait_for

pytestmark = pytest.mark.hostile

DEEP = b"[" * 100_000 + b"]" * 100_000
LONG = b'{"time": ' + b"9" * 1_000_000 + b"}"


def framed(text: bytes) -> bytes:
    return MARK + b"%d 0\n" % len(text) + text


def answering(folder: Path, answer: bytes, then: str = "") -> str:
    """In the place of the cluster's Python: a program that answers so, whatever it is asked."""
    (folder / "answer").write_bytes(answer)
    program = folder / "python"
    program.write_text(f"#!/bin/sh\ncat {folder}/answer\n{then}\n")
    program.chmod(0o755)
    return str(program)


def ask(folder: Path, answer: bytes) -> None:
    AgentLink(Here(), str(folder / "root"), answering(folder, answer), "slurm").ask("ids")


MALFORMED = {
    "no lengths": MARK + b"\n",
    "words": MARK + b"one two\n",
    "one length": MARK + b"12\n",
    "a negative length": MARK + b"-5 0\n{}",
    "digits of another script": MARK + "٣ 0\n".encode() + b"{ }",
    "nothing": MARK + b"0 0\n",
    "a petabyte": MARK + b"1000000000000000 0\n{}",
    "a gigabyte": MARK + b"1000000000 0\n{}",
    "a head without end": MARK + b"1" * 1000,
    "no JSON": framed(b"{'a': 1}"),
    "not UTF-8": framed(b'{"a": "\xff"}'),
    "not an object": framed(b'["ids"]'),
    "a number": framed(b"12"),
    "deep": framed(DEEP),
    "a long number": framed(LONG),
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_answer(tmp_path: Path, answer: bytes) -> None:
    with pytest.raises(ClusterError, match="does not answer as dray's agent does") as caught:
        ask(tmp_path, answer)
    assert len(str(caught.value)) < 1000


REFUSALS = [
    ({"error": "told"}, ClusterError, "told"),
    ({"error": "told", "family": ["Refused"]}, ClusterError, "told"),
    ({"error": "told", "family": "OSError"}, ClusterError, "told"),
    ({"error": "told", "family": "OSError", "errno": "28"}, ClusterError, "told"),
    ({"error": "told", "family": "OSError", "errno": True}, ClusterError, "told"),
    ({"error": "told", "family": "OSError", "errno": 10**30}, ClusterError, "told"),
    ({"error": "told", "family": "OSError", "errno": -1}, ClusterError, "told"),
    ({"error": "told", "family": "OSError", "errno": 28}, StorageError, "told.*disk is full"),
    ({"error": {"a": 1}, "family": "StorageError"}, StorageError, "{'a': 1}"),
    ({"error": None, "family": None}, ClusterError, "None"),
]


@pytest.mark.parametrize(("record", "kind", "said"), REFUSALS)
def test_a_refusal_of_any_types(
    tmp_path: Path, record: dict[str, object], kind: type[DrayError], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        ask(tmp_path, framed(json.dumps(record).encode()))
    assert type(caught.value) is kind


def test_a_long_refusal_is_cut(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as caught:
        ask(tmp_path, framed(json.dumps({"error": "x" * 1_000_000}).encode()))
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize("endless", ["yes", "yes | tr -d '\\n'"])
def test_an_endless_banner(tmp_path: Path, endless: str) -> None:
    program = answering(tmp_path, b"", f"{endless} | head -c 3000000; exec sleep 1000")
    with pytest.raises(ClusterError, match="without end"):
        AgentLink(Here(), str(tmp_path / "root"), program, "slurm").ask("ids")


def test_complaints_without_end_behind_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the files of a pull are awaited, say."""
    monkeypatch.setattr(session, "FLOOD", 1 << 20)
    program = answering(tmp_path, MARK + b"2 100\n{}", "exec yes >&2")
    agent = AgentLink(Here(), str(tmp_path / "root"), program, "slurm")
    with agent.call("pull", {}) as answer:
        assert answer.stream.read(100) == b""


def test_a_session_that_ends_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """What watches over it must not end with a traceback on the terminal."""
    with session.Session(["true"]) as ended:
        closed = os.dup(0)
        monkeypatch.setattr(ended, "_errors", io.FileIO(closed, closefd=False))
        os.close(closed)
        assert not ended.is_flooded()
        monkeypatch.undo()


def test_memory_is_taken_only_for_what_comes() -> None:
    """Whatever length is promised."""
    tracemalloc.start()
    try:
        with pytest.raises(frames.Truncated):
            frames.read_record(io.BufferedReader(io.BytesIO(b"200000000 0\n{")))  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_log_of_any_promised_length(tmp_path: Path) -> None:
    answer = MARK + b"16 999999999999999\n" + b'{"payload": 1e9}' + b"what there is"
    agent = AgentLink(Here(), str(tmp_path / "root"), answering(tmp_path, answer), "slurm")
    with agent.call("log", {}) as found:
        assert found.payload() == b"what there is"


def test_an_answer_that_is_cut_is_another_matter(tmp_path: Path) -> None:
    with pytest.raises(CutShort):
        ask(tmp_path, framed(b'{"ids": []}')[:-1])


def offer(dray: Dray, python: str) -> None:
    config = dray.home / "dray/config.toml"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    lines = ["[clusters.evil]", 'kind = "slurm"', f'root = "{dray.home}/root"']
    config.write_text("\n".join([*lines, f'python = "{python}"', ""]))


def test_the_command_line_tells_it(dray: Dray, tmp_path: Path) -> None:
    offer(dray, answering(tmp_path, framed(DEEP)))
    ended = dray("doctor", "evil", check=False)
    assert ended.returncode == 7
    assert "does not answer as dray's agent does" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("answer", [PRESENT, b""], ids=["it reads nothing", "it says nothing"])
def test_ctrl_c_ends_what_hangs(dray: Dray, tmp_path: Path, answer: bytes) -> None:
    """Also while megabytes are on their way to somebody who does not take them."""
    (dray.project / "big.bin").write_bytes(bytes(range(256)) * 40_000)
    offer(dray, answering(tmp_path, answer, f"touch {tmp_path}/asked; exec sleep 1000"))
    process = subprocess.Popen(
        [sys.executable, "-m", "dray", "run", "--on", "evil", "--", "/bin/true"],
        cwd=dray.project,
        env=dray.env,
        stderr=subprocess.DEVNULL,
    )
    wait_for((tmp_path / "asked").exists)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)

    def has_ended() -> bool:  # the first one ends the submission, the next the question about it
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
        return process.returncode is not None

    wait_for(has_ended)
    assert process.returncode == 130


def test_what_is_no_request_ends_the_agent_quietly(tmp_path: Path) -> None:
    agent = AgentLink(Here(), str(tmp_path / "root"), sys.executable, "slurm")
    assert agent.ask("ids") == {"ids": []}
    for said in (b"GET / HTTP/1.1\n", b"5 0\n[[[[[", b"2 0\n[]", b"-1 0\n", b"9" * 1000, b"7 0\n{"):
        words = agent._argv()
        ended = subprocess.run(words, input=said, capture_output=True)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b""), said


def test_a_goodbye_ends_the_agent_where_no_end_of_the_stream_comes(tmp_path: Path) -> None:
    link = AgentLink(Here(), str(tmp_path / "root"), sys.executable, "slurm")
    link.ask("ids")
    text = b'{"verb": "ids"}'
    with link.open_session() as agent:
        assert agent.stdin is not None
        agent.stdin.write(b"%d 0\n" % len(text) + text + GOODBYE)
        assert agent.wait(30) == 0
