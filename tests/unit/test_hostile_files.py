"""A job's own code can write anything to the job's files: that harms this job, and no other."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.clusters.local import LocalCluster
from dray.job.model import JobView
from dray.node.agent import jobs, root_requests, site, status
from dray.node.agent.agent import Agent
from dray.node.formats import files, interpreters, shapes
from dray.node.formats.wire import Refusal
from dray.node.interpreter import tree
from dray.node.jobs import jobdir, states
from dray.node.jobs.arrays import ArrayDir, unfold
from dray.node.jobs.jobdir import JobDir
from dray.node.metrics import sources
from dray.node.schedulers.local import Local
from dray.node.schedulers.queue import Queue
from dray.node.schedulers.scheduler import Scheduler, SchedulerError
from dray.node.schedulers.slurm import parse_indices
from tests.unit.test_trouble import JOB

pytestmark = pytest.mark.hostile

DEEP = "[" * 100_000 + "]" * 100_000


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def unreadable(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0)


def huge(path: Path) -> None:
    path.write_text("{")
    os.truncate(path, files.LARGEST * 20)


JUNK: dict[str, Callable[[Path], object]] = {
    "empty": text(""),
    "half": text('{"state": "do'),
    "list": text("[1, 2]"),
    "text": text('"done"'),
    "null": text("null"),
    "number": text("7"),
    "other keys": text('{"x": 1}'),
    "wrong types": text(
        '{"state": 1, "reason": [], "outcome": {}, "number": "x", "started": "now", "id": {},'
        ' "time": "x", "now": "x", "exit_code": 1e999, "metric": 3, "left": 7, "gpus": "all",'
        ' "resumed_after": "x", "outputs": 5, "asked": [], "text": 3, "heartbeat": NaN}'
    ),
    "deep": text(DEEP),
    "huge": huge,
    "pipe": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "looping link": lambda path: path.symlink_to(path.name),
    "unreadable": unreadable,
}
FILES = [
    "jobs/bad-7f3k/job.json",
    "jobs/bad-7f3k/stop.json",
    "jobs/bad-7f3k/end.json",
    "jobs/bad-7f3k/scheduler.json",
    "jobs/bad-7f3k/secrets.json",
    "jobs/bad-7f3k/batch.log",
    "jobs/bad-7f3k/alive",
    "jobs/bad-7f3k/attempts",
    "jobs/bad-7f3k/attempts/002",
    "jobs/bad-7f3k/attempts/99999999999999999999",
    "jobs/bad-7f3k/attempts/²",
    "jobs/bad-7f3k/attempts/001/attempt.json",
    "jobs/bad-7f3k/attempts/001/heartbeat.json",
    "jobs/bad-7f3k/attempts/001/outcome.json",
    "jobs/bad-7f3k/attempts/001/log",
    "jobs/bad-7f3k/outputs/metrics.jsonl",
    "arrays/sweep-a/job.json",
    "arrays/sweep-a/removed.json",
    "arrays/sweep-a/stopped.json",
    "arrays/sweep-a/secrets.json",
    "queue.json",
    "facts.json",
]


class Idle(Scheduler):
    """Has nothing in its queue, and keeps no books."""

    name = "Slurm"

    def __init__(self, queued: dict[str, Any] | None = None) -> None:
        self.queued = queued or {}

    def read_queue(self) -> str:
        return json.dumps(self.queued)

    def parse_queue(self, text: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(text)
        return found

    def describe(self) -> dict[str, Any]:
        return {}


def make_agent(root: Path, queued: dict[str, Any] | None = None) -> Agent:
    return Agent(str(root), Idle(queued), io.BytesIO(), io.BytesIO())


def make_job(root: Path, job_id: str) -> JobDir:
    job_dir = JobDir(str(root / "jobs" / job_id))
    os.makedirs(job_dir.attempt(1).path)
    os.makedirs(job_dir.outputs)
    files.write_json(job_dir.job, {**JOB, "id": job_id, "name": "x", "created": 1.0})
    files.write_json(job_dir.scheduler, {"id": "14"})
    os.utime(job_dir.scheduler, (1, 1))  # before anybody asked for the queue
    files.write_json(job_dir.attempt(1).attempt, {"started": 1.0})
    return job_dir


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    make_job(root, "bad-7f3k")
    good = make_job(root, "good-7f3k")
    files.write_json(good.attempt(1).outcome, {"outcome": "done"})
    files.write_json(good.end, {"state": "done", "reason": "", "time": 2.0})
    array = ArrayDir(str(root), "sweep-a")
    os.makedirs(array.path)
    common = {**JOB, "id": "sweep-a", "name": "sweep", "created": 1.0}
    files.write_json(array.job, {**common, "commands": [["a"], ["b"]]})
    files.write_json(array.scheduler, {"id": "15"})
    os.chmod(root, 0o700)
    return root


def put(root: Path, name: str, kind: str) -> None:
    path = root / name
    if path.is_dir() and not path.is_symlink():
        files.remove_tree(str(path))
    files.remove(str(path))
    JUNK[kind](path)


@pytest.mark.parametrize("kind", JUNK)
@pytest.mark.parametrize("name", FILES)
def test_junk_in_one_file_hides_no_other_job(root: Path, name: str, kind: str) -> None:
    put(root, name, kind)
    dray = make_agent(root)
    ids = root_requests.ids(dray, {})["ids"]
    assert {"good-7f3k", "bad-7f3k"} <= set(ids)
    asked = ["bad-7f3k", "good-7f3k", "sweep-a.0-1"]
    answer = status.status(dray, {"ids": asked})
    json.dumps(answer, allow_nan=False)
    rows = {row["id"]: row for row in answer["jobs"]}
    assert rows["good-7f3k"]["state"] == "done"
    beats = name.endswith("heartbeat.json")  # whatever it says, it was written this moment
    assert rows["bad-7f3k"]["state"] in (("lost", "running") if beats else ("lost", "stopped"))
    root_requests.log(dray, {"id": "bad-7f3k", "attempt": 1, "offset": 0})
    root_requests.curve(dray, {"id": "bad-7f3k"})
    root_requests.outputs(dray, {"id": "bad-7f3k"})
    root_requests.pull(dray, {"id": "bad-7f3k", "paths": ["a"]})
    site.facts_if_changed(dray, {})


@pytest.mark.parametrize("kind", JUNK)
@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("jobs/")])
def test_the_same_on_this_machine(root: Path, name: str, kind: str) -> None:
    put(root, name, kind)
    cluster = LocalCluster("local", {"root": str(root), "gpus": 0}, root, root)
    assert list(cluster.queue.ids()) == ["bad-7f3k", "good-7f3k"]
    views = cluster.queue.status(["bad-7f3k", "good-7f3k"]).jobs
    assert views["good-7f3k"].state == "done"
    assert views["bad-7f3k"].state == "lost"
    cluster.files.read_log("bad-7f3k", 1)
    cluster.files.curve("bad-7f3k")


TIMED_OUT = {"outcome": "interrupted", "cause": "time"}
NESTED: Any = []
for _ in range(300):  # some Pythons read it, and others do not
    NESTED = [NESTED]
ODD: list[dict[str, dict[str, Any]]] = [
    {
        "job.json": {**JOB, "resume": {"grace": 1, "backoff": 1}},
        "attempts/001/outcome.json": TIMED_OUT,
    },
    {"attempts/001/outcome.json": {"outcome": "failed", "reason": None}},
    {"attempts/001/outcome.json": {"outcome": "done", "reason": None}},
    {"end.json": {"state": "done", "reason": None, "time": 2.0}},
    {"end.json": {"state": "done", "reason": "", "time": 1e12}},
    {"attempts/001/attempt.json": {"started": 1e12}},
    {"attempts/001/attempt.json": {"newer": NESTED, "metric": {"name": "a", "x": NESTED}}},
    {"job.json": {**JOB, "newer": NESTED}},
    {"job.json": {**JOB, "resume": {**JOB["resume"], "total": {"begin": NESTED}}}},
]


@pytest.mark.parametrize("odd", ODD)
def test_values_that_only_seem_right_hide_no_other_job(
    root: Path, odd: dict[str, dict[str, Any]]
) -> None:
    for name, content in odd.items():
        files.write_json(str(root / "jobs/bad-7f3k" / name), content)
    answer = status.status(make_agent(root), {"ids": ["bad-7f3k", "good-7f3k"]})
    assert depth_of(answer) < 20
    views = {row["id"]: JobView.from_dict(row, "there", row["id"]) for row in answer["jobs"]}
    assert views["good-7f3k"].state == "done"
    assert "bad-7f3k" in views
    cluster = LocalCluster("local", {"root": str(root), "gpus": 0}, root, root)
    assert cluster.queue.status(["bad-7f3k", "good-7f3k"]).jobs["good-7f3k"].state == "done"


def depth_of(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth_of, inside), default=0)


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "reason", "passes"),
    [
        (OSError(5, "Input/output error"), "its files cannot be read: [Errno 5]", True),
        (KeyError("checkpoint"), "its files are damaged: KeyError('checkpoint'", False),
    ],
)
def test_whatever_goes_wrong_with_one_job_is_told_of_that_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, passes: bool
) -> None:
    real = states.from_files

    def from_files(facts: states.FileFacts, *more: Any, **named: Any) -> Any:
        return failing(error)() if facts.id == "bad-7f3k" else real(facts, *more, **named)

    monkeypatch.setattr(states, "from_files", from_files)
    asked = ["bad-7f3k", "good-7f3k"]
    bad, good = status.status(make_agent(root), {"ids": asked})["jobs"]
    assert (bad["state"], good["state"]) == ("lost", "done")
    assert bad["reason"].startswith(reason)
    cluster = LocalCluster("local", {"root": str(root), "gpus": 0}, root, root)
    views = cluster.queue.status(asked).jobs
    assert views["bad-7f3k"].reason.startswith(reason)
    assert views["bad-7f3k"].is_unreadable == passes
    assert views["good-7f3k"].state == "done"


def test_a_disk_that_fails_for_one_waiting_job_is_told_of_that_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = JobDir.numbers
    error = OSError(5, "Input/output error")

    def numbers(job: JobDir) -> list[int]:
        return failing(error)() if job.id == "bad-7f3k" else real(job)

    monkeypatch.setattr(JobDir, "numbers", numbers)
    row = {"id": "14", "state": "waiting", "why": "Priority", "start": ""}
    request = {"ids": ["bad-7f3k", "good-7f3k"], "brief": True}
    bad, good = status.status(make_agent(root, {"bad-7f3k": row}), request)["jobs"]
    assert (bad["state"], bad["unreadable"], good["state"]) == ("queued", True, "done")


def test_an_arrays_secrets_that_cannot_be_removed_hide_no_job(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "drop_secrets", failing(OSError(5, "Input/output error")))
    assert len(status.status(make_agent(root), {"ids": ["sweep-a.0"]})["jobs"]) == 1


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, -1, 1, 10**12, 10**30, 0.5, 1e12, 1e300, "", "a", "*.pt", "time", "node"])
    | st.sampled_from(["done", "failed", "stopped", "lost", "interrupted"]),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.sampled_from("ab"), inside),
    max_leaves=4,
)


def changed(record: dict[str, Any], shape: shapes.Shape) -> st.SearchStrategy[dict[str, Any]]:
    """The record with fields of the shape set to anything, or left out."""
    changes = st.dictionaries(st.sampled_from(sorted(shape)), VALUES, max_size=4)
    gone = st.sets(st.sampled_from(sorted(record)), max_size=1)
    return st.builds(
        lambda new, old: {**{key: record[key] for key in record if key not in old}, **new},
        changes,
        gone,
    )


RESUMES = changed(JOB["resume"], shapes.RESUME)
DESCRIPTIONS = changed(JOB, shapes.DESCRIPTION) | RESUMES.map(lambda one: {**JOB, "resume": one})
OUTCOMES = changed({"outcome": "interrupted", "cause": "time"}, shapes.ATTEMPT)
ENDS = st.none() | changed({"state": "done", "reason": "", "time": 1.0}, shapes.END)


@settings(max_examples=300)
@given(DESCRIPTIONS, st.lists(OUTCOMES, max_size=3), ENDS)
def test_whatever_has_the_right_shape_can_be_used(
    job: dict[str, Any], outcomes: list[dict[str, Any]], end: dict[str, Any] | None
) -> None:
    """By the policy, and by the laptop."""
    with tempfile.TemporaryDirectory() as folder:
        job_dir = JobDir(f"{folder}/jobs/bad-7f3k")
        os.makedirs(job_dir.path)
        write_raw(job_dir.job, job)
        for number, outcome in enumerate(outcomes, 1):
            os.makedirs(job_dir.attempt(number).path)
            write_raw(job_dir.attempt(number).outcome, outcome)
        if end is not None:
            write_raw(job_dir.end, end)
        record = states.status(job_dir, cared_for=False)
        description = job_dir.description()
        if description is not None:
            jobdir.decide(description, job_dir.records())
    assert record is not None
    view = JobView.from_dict(json.loads(json.dumps(record)), "there", "bad-7f3k")
    json.dumps(view.to_dict())


def write_raw(path: str, record: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps(record))


def test_an_outcome_without_a_checkpoint_has_none(root: Path) -> None:
    """Also where the last heartbeat had one, which is gone."""
    attempt = JobDir(str(root / "jobs/bad-7f3k")).attempt(1)
    files.write_json(attempt.heartbeat, {"checkpoint": "model_1.pt"})
    assert attempt.record()["checkpoint"] == "model_1.pt"
    files.write_json(attempt.outcome, {"outcome": "lost", "checkpoint": None})
    assert attempt.record().get("checkpoint") is None


@pytest.mark.parametrize("kind", ["half", "list", "deep", "pipe", "folder", "other keys"])
def test_a_damaged_description_is_told(root: Path, kind: str) -> None:
    put(root, "jobs/bad-7f3k/job.json", kind)
    (row,) = status.status(make_agent(root), {"ids": ["bad-7f3k"]})["jobs"]
    path = root / "jobs/bad-7f3k/job.json"
    assert (row["state"], row["reason"]) == ("lost", f"its description is damaged: {path}")


@pytest.mark.parametrize("kind", [kind for kind in JUNK if kind != "dangling link"])
@pytest.mark.parametrize("name", ["counter", "capacity.json", "grants/bad-7f3k", "tickets/0-x"])
def test_junk_in_the_queue_stops_no_other_job(root: Path, name: str, kind: str) -> None:
    queue = Queue(str(root))
    queue.make()
    put(root / "queue", name, kind)
    wanted = {"cpus": 1, "gpus": 0, "memory": None}
    ticket = queue.take_ticket("good-7f3k", wanted)
    grant = queue.wait_for_grant(ticket, "good-7f3k", wanted)
    assert grant.given["cpus"] == 1
    grant.release()


@pytest.mark.parametrize("share", ["/etc/passwd", "/x/" + "y" * 5000, "/proc/self/mem/x"])
def test_a_share_that_cannot_be_looked_at_hides_no_other_job(root: Path, share: str) -> None:
    """Its owner may have closed it, too."""
    bad, good = (JobDir(str(root / "jobs" / name)) for name in ("bad-7f3k", "live-7f3k"))
    files.write_json(bad.job, {**JOB, "id": bad.id, "name": "x", "share": share})
    make_job(root, good.id)
    files.remove_tree(good.attempts)
    held = [files.open_lock(job.alive) for job in (bad, good)]
    assert all(map(files.try_lock, held))
    dray = Agent(str(root), Local(str(root)), io.BytesIO(), io.BytesIO())
    found = status.status(dray, {"ids": [bad.id, good.id]})["jobs"]
    assert [one["id"] for one in found] == [bad.id, good.id]
    rows = Local(str(root)).parse_queue(Local(str(root)).read_queue())
    assert (rows[bad.id]["state"], rows[good.id]["state"]) == ("running", "waiting")
    assert "cannot be looked at" in rows[bad.id]["why"]
    settings = {"root": str(root), "share": share}
    views = LocalCluster("local", settings, root, root).queue.status([bad.id, good.id]).jobs
    assert list(views) == [bad.id, good.id]
    for fd in held:
        os.close(fd)


def test_a_copied_python_of_a_forged_record_is_none(root: Path) -> None:
    forged = root / "python" / f"{os.uname().machine}-forged"
    forged.mkdir(parents=True)
    (forged / interpreters.RECORD).write_text(json.dumps({"files": {"/a\0b": None}}))
    assert tree.find(str(root / "python"), "/usr/bin/python3") is None


@pytest.mark.parametrize("kind", ["folder", "dangling link", "pipe"])
def test_a_state_file_is_written_whatever_lies_there(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "outcome.json"
    JUNK[kind](path)
    files.write_json(str(path), {"outcome": "done"})
    assert files.read_record(str(path)) == {"outcome": "done"}


def test_a_stop_request_that_was_cut_short_is_one(root: Path) -> None:
    job_dir = JobDir(str(root / "jobs/bad-7f3k"))
    assert job_dir.stop_request() is None
    Path(job_dir.stop).write_text("")
    assert job_dir.stop_request() == {"now": False}


@pytest.mark.parametrize("content", ["-1", "0", "1", "99999999", "x", str(os.getppid())])
def test_only_a_process_of_the_job_is_taken_for_its_keeper(root: Path, content: str) -> None:
    job_dir = JobDir(str(root / "jobs/bad-7f3k"))
    Path(job_dir.alive).write_text(content)
    assert job_dir.keeper_pid() is None


def test_numbers_run_out_before_names_do(root: Path) -> None:
    job_dir = JobDir(str(root / "jobs/bad-7f3k"))
    os.mkdir(job_dir.attempt(jobdir.MOST_ATTEMPTS).path)
    assert not jobdir.decide(JOB, job_dir.records()).again


# -- what the agent is asked ------------------------------------------------------------------

FORGED = [
    "../x",
    "..",
    ".",
    "",
    "a/b",
    "/etc",
    ".hidden",
    "a\nb",
    "a\0b",
    "x" * 101,
    7,
    None,
    "a..b",
]


@pytest.mark.parametrize("forged", FORGED)
def test_an_id_that_could_lead_elsewhere_is_refused(root: Path, forged: Any) -> None:
    dray = make_agent(root)
    with pytest.raises(Refusal):
        dray.root.job(forged)
    for verb in (status.status, jobs.stop, root_requests.remove):
        if isinstance(forged, str):
            with pytest.raises(Refusal):
                verb(dray, {"ids": [forged], "now": True})
    if isinstance(forged, str):
        with pytest.raises(Refusal):
            status.status(dray, {"ids": [forged + ".3"]})
    for verb in (root_requests.log, root_requests.curve, root_requests.outputs, root_requests.pull):
        with pytest.raises(Refusal):
            verb(dray, {"id": forged, "attempt": 1, "offset": 0, "paths": []})
    assert JobDir(str(root / "jobs/good-7f3k")).ended()


@pytest.mark.parametrize("number", ["../../x", -1, 10**30, None, 1.5, True])
@pytest.mark.parametrize("key", ["attempt", "rank"])
def test_an_attempt_or_a_rank_is_a_small_number(root: Path, key: str, number: Any) -> None:
    request = {"id": "good-7f3k", "attempt": 1, "rank": 0, "offset": 0, key: number}
    with pytest.raises(Refusal):
        root_requests.log(make_agent(root), request)


def test_endless_ranges_are_refused_before_they_are_written_out(root: Path) -> None:
    with pytest.raises(ValueError, match="too many"):
        list(unfold(["a.0-999999999"]))
    with pytest.raises(ValueError, match="too many"):
        list(unfold(["a.0-5", "b.0-5"], most=10))
    assert list(unfold(["a.0-99999999999"])) == ["a.0-99999999999"]  # no index has so many digits
    with pytest.raises(Refusal, match="too many"):
        status.status(make_agent(root), {"ids": ["a.0-999999999"]})
    with pytest.raises(SchedulerError, match="more indices"):
        list(parse_indices("0-999999999"))
    with pytest.raises(SchedulerError):
        list(parse_indices("0-99999999999"))
    assert list(parse_indices("3-5,9", most=4)) == [3, 4, 5, 9]


def test_a_pipe_in_the_outputs_does_not_hold_up_a_pull(root: Path) -> None:
    """It has taken the place of a file between the list and the contents."""
    outputs = root / "jobs/good-7f3k/outputs"
    (outputs / "model.pt").write_bytes(b"weights")
    answer = root_requests.pull(make_agent(root), {"id": "good-7f3k", "paths": ["model.pt"]})
    (outputs / "model.pt").unlink()
    os.mkfifo(outputs / "model.pt")
    assert b"".join(answer["pieces"]) == bytes(7) + b"\0"


def test_a_link_in_place_of_a_file_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "private").write_bytes(b"private")
    outputs = root / "jobs/good-7f3k/outputs"
    (outputs / "model.pt").write_bytes(b"weights")
    answer = root_requests.pull(make_agent(root), {"id": "good-7f3k", "paths": ["model.pt"]})
    (outputs / "model.pt").unlink()
    (outputs / "model.pt").symlink_to(tmp_path / "private")
    assert b"".join(answer["pieces"]) == bytes(7) + b"\0"


def test_outputs_that_are_a_link_are_not_walked_into(root: Path, tmp_path: Path) -> None:
    outputs = root / "jobs/good-7f3k/outputs"
    outputs.rmdir()
    outputs.symlink_to(tmp_path)
    with pytest.raises(Refusal, match="is a link"):
        root_requests.outputs(make_agent(root), {"id": "good-7f3k"})


def test_hostile_reports_are_left_out(root: Path) -> None:
    job_dir = JobDir(str(root / "jobs/bad-7f3k"))
    good = '{"step": 1, "time": 2.0, "attempt": 1, "values": {"reward": 3.0}}'
    lines = [DEEP, '{"step": 1e999}', good.replace("3.0", "1" + "0" * 400), good]
    lines += [good.replace('"step": 1', '"step": 1' + "0" * 30)]
    lines += [good.replace('"attempt": 1', f'"attempt": {odd}') for odd in (-1, 10**12)]
    Path(job_dir.outputs, "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert sources.series(JOB, job_dir)["points"] == [[1, 3.0, 1]]


def test_so_are_hostile_lines_of_a_log(root: Path) -> None:
    job_dir = JobDir(str(root / "jobs/bad-7f3k"))
    Path(job_dir.attempt(1).log).write_text("1" + "0" * 30 + ": 2.0\n7: 3.0\n")
    job = {**JOB, "metrics": {"pattern": r"(?P<step>\d+): ([\d.]+)"}}
    assert sources.series(job, job_dir)["points"] == [[7, 3.0, 1]]


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": ["../../.ssh"]},
        {"outputs": ["/etc"]},
        {"folder": "../.."},
        {"env": {"A": 1}},
        {"share": "share"},
        {"share": "/a\0b"},
        {"metrics": {"pattern": "("}},
        {"resources": {"gpus": "many"}},
        {"resume": {**JOB["resume"], "grace": "long"}},
    ],
)
def test_a_description_that_could_do_harm_is_damaged(change: dict[str, Any]) -> None:
    assert shapes.description(dict(JOB)) is not None
    assert shapes.description({**JOB, **change}) is None
