"""Whatever an agent answers: it is read, or refused as malformed, and nothing else happens."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray import checks
from dray.checks import Malformed
from dray.clusters import pbs, slurm
from dray.clusters.agent import answers
from dray.clusters.agent.cluster import lock_findings
from dray.clusters.container_findings import findings
from dray.job.model import JobSpec, JobView, Resources, Series
from dray.job.quantities import show_duration
from dray.landing import is_unwanted
from dray.launcher import log_lines

JOB = "train-2345"
SPEC = JobSpec(
    id=JOB,
    name="train",
    command=("python", "train.py"),
    resources=Resources(gpus=1.0, memory=2**30, time=60.0),
    snapshot="0" * 40,
    secrets=("TOKEN",),
)
ATTEMPT = {
    "number": 1,
    "outcome": "failed",
    "exit_code": 3,
    "reason": "exit code 3",
    "started": 1.0,
    "ended": 2.0,
    "host": "node1",
    "gpus": [0],
    "checkpoint": "model_1.pt",
    "metric": {"name": "reward", "value": 1.5, "step": 10, "recent": [0.5, None]},
    "deadline": 3.0,
    "iteration": 1,
    "total": 2,
    "left": ["x"],
}
ANSWERS: dict[str, Any] = {
    "status": {
        "jobs": [
            {
                "id": JOB,
                "job": json.loads(json.dumps(SPEC.to_dict())),
                "state": "queued",
                "reason": "",
                "ended": None,
                "attempts": [ATTEMPT],
                "scheduler": {"id": "7", "why": "Priority", "start": "N/A"},
            }
        ],
        "waiting": [{"ids": [JOB, "sweep-2345.0-9"], "why": "Resources", "start": "N/A"}],
    },
    "ids": {"ids": [JOB, "sweep-2345.0-9"]},
    "log": {"size": 7, "payload": 3},
    "log-times": {"times": [[1.5, 10], [2.5, 20]]},
    "outputs": {"files": [{"path": "a/b", "size": 1, "mtime": 7, "mode": 420, "link": None}]},
    "checkpoint": {
        "path": "a/b",
        "files": [{"path": "a/b", "size": 1, "mtime": 7, "mode": 420, "link": None}],
        "remarks": ["passed over a/c: it is not whole"],
    },
    "remove": {"left": []},
    "submit": {"missing": ["0" * 40]},
    "image": {
        "ready": False,
        "machine": "x86_64",
        "builders": ["apptainer"],
        "lacking": {"sha256:00": [[0, 7]]},
    },
    "images": {
        "images": [
            {
                "id": "sha256:" + "0" * 64,
                "name": "isaac",
                "ready": True,
                "sizes": {"file": 1, "layers": 0},
                "jobs": [JOB],
            }
        ]
    },
    "metrics": {"name": "reward", "points": [[1, 2.5, 1], [2, None, 1]]},
    "hello": {
        "time": 1.0,
        "root": "/scratch/dray",
        "python": "3.6.8",
        "free": 7,
        "files": None,
        "slurm": "slurm 22.05",
        "accounts": "a\nb",
        "partitions": "gpu*|up|1-00:00:00|4|8+|64000|gpu:a100:4(S:0-1)",
        "config": {"MaxArraySize": "1001", "JobRequeue": "1"},
        "container_facts": {
            "runtimes": {"apptainer": "1.4.5"},
            "setuid": False,
            "namespaces": True,
            "subuid": False,
            "fuse": True,
        },
        "locks": {
            "file_system": "lustre",
            "options": ["noflock"],
            "work": False,
            "only_here": False,
        },
        "version": "pbs_version = 23",
        "dialect": "openpbs",
        "queues": {"gpu": {"enabled": "True", "resources_max.walltime": "24:00:00"}},
        "nodes": [{"nodes": 1, "cpus": 8, "kilobytes": 1024, "gpus": 2}],
    },
}


def read_status(answer: Any) -> object:
    views = answers.job_views(answer, "hpc", {JOB}, slurm.waiting_reason)
    for view in views.values():
        assert view.id == JOB
        json.dumps(view.to_dict()).encode("ascii")
        view.reason.encode()
        for attempt in view.attempts:
            show_duration((attempt.ended or 0) - (attempt.started or 0))
    asked = {JOB, *(f"sweep-2345.{index}" for index in range(10))}
    groups = list(answers.waiting_groups(answer, asked))
    assert {name for names, _ in groups for name in names} <= asked
    return views, [pbs.waiting_reason(row) for _, row in groups]


def read_times(answer: Any) -> object:
    times = answers.log_times(answer)
    return log_lines.size_at(times, 2.0), log_lines.stamp_of(times, 15, 0.0)


def read_facts(answer: Any) -> object:
    facts = answers.facts(answer)
    json.dumps(facts)
    settings = {"partition": "gpu"}
    return (
        slurm.find_problem(SPEC, settings, facts),
        slurm.slurm_findings({"slurm": "", **facts}, settings),
        pbs.find_problem(SPEC, {}, facts),
        findings(facts.get("container_facts", {})),
        lock_findings(facts.get("locks")),
    )


def read_outputs(answer: Any) -> object:
    return [is_unwanted(file) for file in answers.output_files(answer)]


def read_checkpoint(answer: Any) -> object:
    found = answers.checkpoint(answer)
    for path in (found.path, *(file.path for file in found.files)):
        assert not os.path.isabs(path)
        assert ".." not in path.split("/")
    return found


READERS: dict[str, Callable[[Any], object]] = {
    "status": read_status,
    "ids": answers.job_ids,
    "log": answers.log_piece,
    "log-times": read_times,
    "outputs": read_outputs,
    "checkpoint": read_checkpoint,
    "remove": answers.left_behind,
    "submit": answers.missing_contents,
    "image": lambda answer: answers.image_state(answer, ["sha256:00"]),
    "images": answers.image_records,
    "metrics": Series.from_dict,
    "hello": read_facts,
}


@pytest.mark.parametrize("verb", READERS)
def test_what_the_agent_answers_is_read(verb: str) -> None:
    assert READERS[verb](ANSWERS[verb]) is not None


ODD: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([-1, 0, 10**9, 10**18, 10**400, -(10**30), 1e300, float("inf")]),
        st.sampled_from([float("nan"), "", "x" * 5000, "\ud800", "\x1b[2J", "²", "9" * 5000]),
        st.sampled_from(
            ["a-2345.0-999999999", "a-2345.5-1", "../x", "a\nb", JOB, "gpu|up|²|²|²|²|gpu:²"]
        ),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at]
    for key, one in value.items() if isinstance(value, dict) else ():
        found += places(one, (*at, key))
    for index, one in enumerate(value if isinstance(value, list) else ()):
        found += places(one, (*at, index))
    return found


def changed(value: Any, at: tuple[Any, ...], odd: Any) -> Any:
    if not at:
        return odd
    copied = copy.deepcopy(value)
    within = copied
    for key in at[:-1]:
        within = within[key]
    within[at[-1]] = odd
    return copied


@settings(max_examples=500)
@given(data=st.data(), verb=st.sampled_from(sorted(READERS)), odd=ODD)
def test_anything_else_is_malformed_or_harmless(data: st.DataObject, verb: str, odd: Any) -> None:
    """Something odd in any one place of an answer."""
    answer = ANSWERS[verb]
    at = data.draw(st.sampled_from(places(answer)[1:]))  # that it is an object is known by then
    with suppress(Malformed):
        READERS[verb](changed(answer, at, odd))


def test_a_job_that_is_malformed_is_told_so() -> None:
    record = {**ANSWERS["status"]["jobs"][0], "job": {"command": 7}}
    view = JobView.from_dict(record, "hpc", JOB)
    assert (view.id, str(view.state)) == (JOB, "lost")
    assert view.reason.startswith("its files on hpc are damaged: ")


def test_a_message_goes_by_channels_that_are_known() -> None:
    told = [["webhook", "pigeon", "webhook"], ["pigeon"], [], ["a\nb"]]
    rows = [{"id": JOB, "over": True, "channels": one} for one in told]
    assert answers.unsent({"unsent": rows}) == [(JOB, True, ("webhook",))]
    with pytest.raises(Malformed):
        answers.unsent({"unsent": [{**rows[0], "channels": "webhook"}]})


def test_ranges_are_counted_before_they_are_unfolded() -> None:
    assert answers.unfold(["a-2345.7-9"], 3) == ["a-2345.7", "a-2345.8", "a-2345.9"]
    assert answers.unfold(["a-2345.train.0-1"], 3) == ["a-2345.train.0", "a-2345.train.1"]
    for wrong in (["a-2345.0-999999999"], ["a-2345.0-2", "b-2345"], ["a-2345.0-1", "a-2345.0-1"]):
        with pytest.raises(Malformed):
            answers.unfold(wrong, 3)


@pytest.mark.parametrize(
    "value",
    ["", "-a", ".a", "a/b", "a b", "A", "a.B", "a.b.c", "a.1.2", "a.1b", "a.b.", "a\n", "ä"],
)
def test_what_is_no_id(value: str) -> None:
    with pytest.raises(Malformed):
        checks.job_id(value)


@pytest.mark.parametrize(
    ("work", "only_here", "said"),
    [
        (True, False, "files can be locked (lustre, flock)"),
        (True, True, "between nodes (lustre, flock): leases are used instead"),
        (False, False, "at all (lustre, flock): leases are used instead"),
    ],
)
def test_doctor_tells_of_locks(work: bool, only_here: bool, said: str) -> None:
    facts = {"file_system": "lustre", "options": ["flock"], "work": work, "only_here": only_here}
    (finding,) = lock_findings(facts)
    assert said in finding.detail


@pytest.mark.parametrize("name", ["A; curl evil|sh #", "", "1A", "A B", "A\n", "Ä"])
def test_a_secret_is_the_name_of_a_variable(name: str) -> None:
    """It appears in a command to copy: dray resume JOB --secret NAME."""
    record = {**ANSWERS["status"]["jobs"][0], "job": {**SPEC.to_dict(), "secrets": [name]}}
    view = JobView.from_dict(record, "evil", JOB)
    assert (view.state, view.spec.secrets) == ("lost", ())
    assert "not the name of a variable" in view.reason


@pytest.mark.parametrize(
    "change",
    [
        {"project": "x" * (checks.LONGEST_TEXT + 1)},
        {"command": ["x"] * (checks.MOST_TEXTS + 1)},
        {"command": ["x" * 1000_000] * 9},
        {"env": {"x" * (checks.LONGEST_TEXT + 1): ""}},
        {"env": {str(number): "" for number in range(checks.MOST_TEXTS + 1)}},
        {"resume": {"total": {"flag": "x" * (checks.LONGEST_TEXT + 1)}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_stored_is_bounded(change: dict[str, Any]) -> None:
    record = {**ANSWERS["status"]["jobs"][0], "job": {**SPEC.to_dict(), **change}}
    assert JobView.from_dict(record, "evil", JOB).spec == JobSpec(id=JOB, name="", command=())


def test_what_jobs_really_have_is_read() -> None:
    """Linux allows no longer words, and no longer command."""
    for command in (["x"] * 100_000, ["x" * 131_071] * 48):
        spec = {**SPEC.to_dict(), "command": command, "env": {"A": "x" * 131_071}}
        view = JobView.from_dict({**ANSWERS["status"]["jobs"][0], "job": spec}, "evil", JOB)
        assert list(view.spec.command) == command


def test_a_long_list_of_partitions_is_read() -> None:
    told = {"root": "/", "python": "3.9", "free": 1, "time": 1.0}
    assert len(answers.facts({**told, "partitions": "x" * 3_000_000})["partitions"]) == 3_000_000
    with pytest.raises(Malformed):
        answers.facts({**told, "partitions": "x" * 5_000_000})


def test_facts_that_are_not_told_are_not_known() -> None:
    told = answers.facts({"root": "/", "python": "3.9", "free": 1, "time": 1.0})
    assert told["files"] is None
    (slurm_version, _) = slurm.slurm_findings(told, {})
    (pbs_version,) = pbs.pbs_findings(told, {})
    assert slurm_version.detail == pbs_version.detail == "of a version that it does not tell"


@pytest.mark.parametrize("points", [[[10**30, 1.0, 1]], [[1, 1.0, -1]], [[1, 1.0]], 7])
def test_a_curve_that_cannot_be_read_is_not_drawn(points: Any) -> None:
    assert Series.from_dict({"name": "reward", "points": points}) == Series()
