"""What people look at: the listing at any width, lines of an output, and which outputs to pull."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.cli import output, quota
from dray.cli.output import columns, hanging, sparkline
from dray.cli.ps import Line, arranged, lines_of, metric_of
from dray.cli.watching import fitted
from dray.clusters.protocol import END, Piece
from dray.description import side_by_side
from dray.job.quantities import parse_since
from dray.job.situation import Own
from dray.launcher import JobFilter, log_lines, tail
from dray.launcher.labs import lab_command
from dray.node.checkpoints import selecting
from dray.node.jobs import log_times
from dray.node.jobs.jobdir import JobDir
from dray.node.sessions.commands import command_of_session
from dray.store import Row

# -- sentences ----------------------------------------------------------------------------------


@given(
    words=st.lists(st.text("abcdefg-", min_size=1, max_size=20), max_size=30),
    width=st.integers(20, 100),
    indent=st.integers(0, 12),
    taken=st.integers(0, 25),
)
def test_a_sentence_wraps_below_where_it_begins(
    words: list[str], width: int, indent: int, taken: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "terminal_width", lambda: width)
        lead = "#" * (taken or indent)
        first, *others = hanging(lead, " ".join(words), indent, taken)
    assert first.startswith(lead)
    assert [*first.removeprefix(lead).split(), *" ".join(others).split()] == words
    room = max(width, indent + output.NARROWEST)
    for line in others:
        assert line.startswith(" " * indent)
        assert not line.startswith(" " * (indent + 1))
        assert columns(line) <= room
    assert columns(first) <= max(room, len(lead) + 20)


# -- the listing --------------------------------------------------------------------------------

REASON = "out of memory: 31.9 GB used of 30.0 GB asked for; 2 retries used up, and so on"
LONG = "python train.py --task Isaac-Velocity-Rough-Anymal-C-v0 --headless --num_envs 4096"


def row(job_id: str = "anymal-7f3k", **changes: Any) -> Row:
    now = time.time()
    made = Row(
        id=job_id, cluster="euler", name="anymal", state="running", reason="", created=now - 7900,
        ended=None, attempts=2, command=json.dumps(LONG.split()), metric="null",
        last_attempt="null",
    )  # fmt: skip
    texts = {
        key: json.dumps(changes.pop(key)) for key in ("metric", "last_attempt") & changes.keys()
    }
    return made._replace(**texts, **changes)


TOGETHER = side_by_side.shared([["python", "a b.py"], ["sh", "-c", "true"]], ["python3"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["echo", "a b"], ["echo 'a b'"]),
        (command_of_session(60.0), ["session (shell)"]),
        (lab_command(["uv", "run", "python"], None), ["JupyterLab"]),
        (TOGETHER, ["python 'a b.py'", "sh -c true"]),
        (["p", *side_by_side.MODULE, "side-by-side", "[1"], ["p -m dray_node side-by-side '[1'"]),
        (["p", *side_by_side.MODULE, "side-by-side", '{"commands":[{"words":1}]}'],
         ["""p -m dray_node side-by-side '{"commands":[{"words":1}]}'"""]),
        (["echo", "dray-session"], ["echo dray-session"]),
    ],
)  # fmt: skip
def test_a_command_is_shown_as_its_user_knows_it(words: list[str], told: list[str]) -> None:
    assert output.told_commands(words) == told
    (line,) = lines_of([row(command=json.dumps(words))], 200)
    assert line.command == " & ".join(told)


def running() -> Row:
    now = time.time()
    last = {
        "number": 2, "started": now - 7500, "heartbeat": now, "ended": None,
        "deadline": now + 6900, "iteration": 420, "total": 1500,
    }  # fmt: skip
    metric = {"name": "Train/mean_reward", "value": 12.34, "step": 430, "recent": [1.0, 5.0, 11.0]}
    return row(metric=metric, last_attempt=last)


def test_the_range_of_a_groups_metric_hides_no_nan() -> None:
    def metrics(*values: float | None) -> list[Row]:
        return [row(metric={"name": "a/reward", "value": one, "step": 1}) for one in values]

    assert metric_of(metrics(9.5, 8.5), 200) == "reward 8.5 to 9.5"
    assert metric_of(metrics(9.5, None, 8.5), 200) == "reward 8.5 to 9.5 and nan"


def told(rows: list[Row], room: int) -> list[str]:
    return [str(line) for line in arranged(lines_of(rows, room), room)]


def test_at_80_columns_there_is_all_that_matters() -> None:
    failed = row("anymal-9x2m", state="failed", reason=REASON)
    lines = told([running(), failed], 80)
    assert max(map(columns, lines)) <= 80
    for word in (
        "running",
        "anymal-7f3k",
        "2h05m",
        "1h5",
        "420/1500",
        "mean_reward 12.34 ▁",
        "2h11m",
    ):
        assert word in lines[1], word
    assert lines[3] == f"    {REASON[:75]}…" if columns(REASON) > 76 else f"    {REASON}"
    assert len(lines) == 4


def test_where_there_is_room_the_reason_comes_before_the_command() -> None:
    lines = told([row(state="failed", reason=REASON), running()], 10_000)
    assert lines[1].endswith(f"({REASON}) {LONG}")
    assert len(lines) == 3
    assert lines[0].split() == [
        "ID", "STATE", "CLUSTER", "ATTEMPTS", "TIME", "LEFT", "PROGRESS", "METRIC", "AGE",
        "COMMAND",
    ]  # fmt: skip


@given(st.integers(20, 200), st.text(max_size=150), st.text(max_size=100))
def test_no_line_is_wider_than_the_terminal(room: int, reason: str, command: str) -> None:
    cells = ("a-1234", "failed", "local", "", "", "", "", "", "3s")
    lines = arranged([Line(cells, reason, command)], room)
    assert all("\n" not in line and columns(line) <= max(room, 30) for line in lines)


def test_jobs_that_share_a_line_show_how_far_they_are_apart() -> None:
    alike = [running()._replace(id=f"sweep-7f3k.{n}") for n in range(3)]
    last = {**json.loads(alike[0].last_attempt), "iteration": 90}
    alike[1] = alike[1]._replace(last_attempt=json.dumps(last))
    _, line = told(alike[::-1], 300)
    assert line.startswith("sweep-7f3k.0-2 ")
    assert "90-420/1500" in line


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([3.0], ""),
        ([None, None, 1.0], ""),
        ([0.0, 7.0], "▁█"),
        ([2.0, 2.0, 2.0], "▄▄▄"),
        ([0.0, None, 7.0], "▁ █"),
        (list(range(8)), "▁▂▃▄▅▆▇█"),
        (list(range(64)), "▁▂▃▄▅▆▇█"),
        ([-1e149, 1e149, 0], "▁█▅"),
        ([0.0, 5e-323], "▁█"),  # the smallest numbers there are
    ],
)
def test_sparklines(values: list[float | None], drawn: str) -> None:
    assert sparkline(values) == drawn


@given(st.lists(st.none() | st.floats(-1e149, 1e149), max_size=40))
def test_any_course_can_be_drawn(values: list[float | None]) -> None:
    assert len(sparkline(values)) <= 8


@pytest.mark.parametrize(
    ("job_filter", "passes"),
    [
        (JobFilter(("running", "queued")), True),
        (JobFilter(("failed",)), False),
        (JobFilter(text="NUM_ENVS 4096"), True),
        (JobFilter(text="7f3k"), True),
        (JobFilter(text="because"), True),
        (JobFilter(text="elsewhere"), False),
        (JobFilter(("running",), text="elsewhere"), False),
    ],
)
def test_which_jobs_pass(job_filter: JobFilter, passes: bool) -> None:
    assert job_filter.passes(row(reason="Because"), None) is passes
    assert not job_filter.passes(row(reason="Because"), {"another-job"})


def test_a_screen_is_filled_and_not_more() -> None:
    assert fitted(["a", "b"], 24) == ["a", "b"]
    assert fitted([str(n) for n in range(30)], 11) == [*map(str, range(9)), "… 21 more lines"]


# -- lines of an output -------------------------------------------------------------------------


def pieces_of(output: bytes, size: int, attempt: int = 1) -> list[log_lines.Piece]:
    return [(attempt, at, output[at : at + size]) for at in range(0, len(output), size)]


@given(st.binary(max_size=300), st.integers(1, 50))
def test_lines_are_whole_however_they_come(output: bytes, size: int) -> None:
    found = list(log_lines.lines_of([*pieces_of(output, size), *pieces_of(b"next", 2, 2)]))
    assert found.pop() == (2, 4, b"next")
    assert [line for _, _, line in found] == [
        line + b"\n" for line in output.removesuffix(b"\n").split(b"\n") if output
    ]
    for _, end, _ in found:
        assert output[:end] in (output, b"".join(line for _, at, line in found if at <= end))


def test_a_line_that_never_ends_is_cut() -> None:
    long = b"x" * (log_lines.LONGEST + 10)
    found = list(log_lines.lines_of([(1, 0, long), (1, len(long), b"y\nz")]))
    assert [(end, len(line)) for _, end, line in found] == [
        (len(long), len(long)), (len(long) + 2, 2), (len(long) + 3, 1),
    ]  # fmt: skip


def test_a_pattern_is_looked_for_in_what_is_seen() -> None:
    found = log_lines.search(re.compile("loss: 3$"))
    assert found(b"\x1b[1;31mloss\x1b[0m: 3\r\n")
    assert not found(b"loss: 30\n")
    assert log_lines.search(re.compile("^ü�$"))("ü".encode() + b"\xff")


class Log:
    """A cluster with nothing but one log."""

    def __init__(self, content: bytes, piece: int) -> None:
        self.content, self.piece = content, piece

    @property
    def files(self) -> Log:
        return self

    def read_log(self, _: str, __: int, offset: int = 0, ___: int = 0) -> Piece:
        return Piece(self.content[offset : offset + self.piece], len(self.content))


@given(st.lists(st.sampled_from([b"hit", b"miss", b"", b"hit " + b"x" * 99]), max_size=40),
       st.integers(0, 9), st.booleans(), st.integers(1, 40))  # fmt: skip
def test_the_last_lines_that_count(lines: list[bytes], most: int, ends: bool, block: int) -> None:
    content = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    cluster: Any = Log(content, 7)
    counts: Callable[[bytes], bool] = lambda line: b"hit" in line  # noqa: E731
    before, tail.TAIL_BLOCK = tail.TAIL_BLOCK, block
    try:
        offset, found = tail.last_lines(cluster, "job", 1, most, 0, counts)
    finally:
        tail.TAIL_BLOCK = before
    hits = [line for line in content.splitlines(keepends=True) if counts(line)]
    assert found == min(most, len(hits))
    kept = [line for line in content[offset:].splitlines(keepends=True) if counts(line)]
    assert kept == (hits[-most:] if most else [])


def test_a_long_line_is_counted_by_its_beginning() -> None:
    content = b"miss\nhit" + b"x" * (6 * log_lines.LONGEST) + b"\nmiss"
    seen: list[int] = []

    def counts(line: bytes) -> bool:
        seen.append(len(line))
        return b"hit" in line

    cluster: Any = Log(content, log_lines.LONGEST)
    assert tail.last_lines(cluster, "job", 1, 1, 0, counts) == (5, 1)
    assert seen == [4, log_lines.LONGEST]


@pytest.mark.parametrize("content", [b"", b"one\ntwo\n"])
def test_a_size_that_is_not_true_is_not_read_back_to_its_beginning(content: bytes) -> None:
    asked: list[int] = []

    class Boasting(Log):
        def read_log(self, _: str, __: int, offset: int = 0, ___: int = 0) -> Piece:
            if offset != END:
                asked.append(offset)
            return super().read_log(_, __, offset, ___)._replace(size=1 << 62)

    cluster: Any = Boasting(content, 7)
    assert tail.last_lines(cluster, "job", 1, 5, 0) == ((1 << 62) - tail.TAIL_BLOCK, 0)
    assert len(asked) == 1


def test_a_line_begins_behind_the_newline_before_it() -> None:
    cluster: Any = Log(b"one\ntwo\nthree", 4)
    places = [tail.line_start(cluster, "job", 1, offset, 0) for offset in (0, 2, 4, 6, 8, 13)]
    assert places == [0, 0, 4, 4, 8, 8]


# -- when they were written ---------------------------------------------------------------------


def test_times_are_kept_while_a_log_grows(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "log-times"
    times = log_times.LogTimes(str(log), str(path))
    with pytest.raises(FileNotFoundError):
        times.record(1.0)
    for now, content in ((10.0, "one\n"), (20.0, "one\n"), (30.0, "one\ntwo\n")):
        log.write_text(content)
        times.record(now)
    assert log_times.read(str(path)) == [(10.0, 4), (30.0, 8)]
    assert log_lines.size_at(log_times.read(str(path)), 29.0) == 4
    assert [log_lines.size_at(times.entries, moment) for moment in (5.0, 10.0, 99.0)] == [0, 4, 8]


def test_there_are_never_too_many_times(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "log-times"
    log.touch()
    times = log_times.LogTimes(str(log), str(path))
    for beat in range(3 * log_times.MOST):
        with log.open("a") as file:
            file.write("x")
        times.record(10.0 * beat)
    times.record(1e6, last=True)
    found = log_times.read(str(path))
    assert log_times.MOST // 4 < len(found) < log_times.MOST
    assert found == times.entries
    assert all(moment <= 10.0 * size + 40 for moment, size in found)
    assert path.stat().st_size < log_times.MOST * log_times.LONGEST


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1.0 ",
        b"nan 3\n",
        b"5.0 99999999999999999\n",
        b"9" * 10**6,
        b"\xff\n1 1\n",
        b"-1.0 3\n",
    ],
)
def test_times_that_are_none_are_left_out(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "log-times"
    path.write_bytes(b"7.500 10\n8.000 9\n" + text)
    assert log_times.read(str(path)) == [(7.5, 10)]
    assert log_times.read(str(tmp_path)) == []


def test_a_line_has_the_time_by_which_it_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    lines = [(1, 4, b"a\n"), (1, 8, b"b\n"), (2, 2, b"c\n")]
    times: dict[int, log_lines.Times | None] = {1: [(60.0, 4), (120.0, 8)], 2: None}
    found = [line.decode() for _, _, line in log_lines.stamped(lines, times.get)]
    assert found == [
        "1970-01-01 00:01:00  a\n", "1970-01-01 00:02:00  b\n", f"{log_lines.UNKNOWN}  c\n",
    ]  # fmt: skip
    assert log_lines.stamp_of([], 5, 180.0) == "1970-01-01 00:03:00"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("10m", 86400 * 2 - 600 + 36000),
        ("09:00", 86400 * 2 + 32400),
        ("11:00", 86400 + 39600),  # yesterday's
        ("11:00:05", 86400 + 39605),
        ("1970-01-02", 86400),
        ("1970-01-02 01:00", 90000),
        ("1970-01-02T01:00:01", 90001),
    ],
)
def test_moments(monkeypatch: pytest.MonkeyPatch, said: str, seconds: float) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert parse_since(said, 86400 * 2 + 36000) == seconds


@pytest.mark.parametrize("said", ["", "yesterday", "25:00", "1970-13-01", "10", "9" * 400 + "d"])
def test_no_moments(said: str) -> None:
    with pytest.raises(ValueError, match="cannot read the time"):
        parse_since(said, time.time())


# -- which outputs are meant --------------------------------------------------------------------

TREE = [
    "config.yaml", "logs/a/model_1.pt", "logs/a/model_20.pt", "logs/b/params/env.yaml",
    "videos/1.mp4", "odd [x]*.txt",
]  # fmt: skip


@pytest.mark.parametrize(
    ("glob", "fits"),
    [
        ("*", TREE),
        ("**", TREE),
        ("*.pt", TREE[1:3]),
        ("model_?.pt", TREE[1:2]),
        ("model_[1-3][0-9].pt", TREE[2:3]),
        ("model_[!2]*", TREE[1:2]),
        ("logs/*/model_*.pt", TREE[1:3]),
        ("logs/*.pt", []),
        ("logs/**/*.yaml", TREE[3:4]),
        ("**/*.yaml", [TREE[0], TREE[3]]),
        ("/*.yaml", TREE[:1]),
        ("logs", TREE[1:4]),
        ("logs/b/", TREE[3:4]),
        ("./videos", TREE[4:5]),
        ("params", TREE[3:4]),
        ("odd [[]x]*.txt", TREE[5:]),
        ("odd [x", []),
        ("", TREE),
        ("model_1.pt/x", []),
    ],
)
def test_globs(tmp_path: Path, glob: str, fits: list[str]) -> None:
    is_chosen = selecting.chooser(JobDir(str(tmp_path)), [glob], False)
    assert [path for path in TREE if is_chosen(path)] == fits


def test_no_glob_takes_long(tmp_path: Path) -> None:
    """A regular expression would not come to an end."""
    glob = "/".join(["**", "*a" * 20 + "b"] * 5)
    assert not selecting.chooser(JobDir(str(tmp_path)), [glob], False)("/".join(["a" * 60] * 20))


@given(st.text("ab*?[]!-/", max_size=20), st.text("ab-]/", max_size=20))
def test_any_glob_can_be_asked_about(glob: str, path: str) -> None:
    selecting.chooser(JobDir("/nowhere"), [glob], False)(path)


def test_the_newest_checkpoint_comes_with_its_partner(tmp_path: Path) -> None:
    job_dir = JobDir(str(tmp_path))
    resume = {
        "checkpoint": "run/model_*.pt", "number": r"model_(\d+)", "partner": "norm_{number}.pkl",
        "grace": 1.0, "backoff": 1.0,
    }  # fmt: skip
    about = {"command": ["a"], "resources": {}, "outputs": [], "retries": 0, "resumed_after": 0}
    Path(job_dir.job).write_text(json.dumps({**about, "resume": resume}))
    run = Path(job_dir.outputs, "run")
    run.mkdir(parents=True)
    for number in (1, 2, 3):
        (run / f"model_{number}.pt").write_bytes(b"x" if number < 3 else b"")  # the last was cut
        (run / f"norm_{number}.pkl").write_bytes(b"x")
        os.utime(run / f"model_{number}.pt", (number, number))
    is_chosen = selecting.chooser(job_dir, ["*.yaml"], True)
    names = [f"run/{one.name}" for one in sorted(run.iterdir())] + ["run/a.yaml"]
    assert [one for one in names if is_chosen(one)] == [
        "run/model_2.pt", "run/norm_2.pkl", "run/a.yaml",
    ]  # fmt: skip
    assert not selecting.chooser(JobDir(str(tmp_path / "none")), [], True)("run/model_2.pt")


def test_what_dray_occupies_is_counted_in_words() -> None:
    told = quota.own_lines([Own("packs", 4096, 1, True), Own("jobs", 4096, 1200, False)])
    assert told[:2] == ["4.0 KB in 1 file: packs", "at least 4.0 KB in 1,200 files: jobs"]
