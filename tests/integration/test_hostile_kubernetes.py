"""An API server, or an agent in a pod, that means ill: what comes from there is data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Dray
from tests.rigs.hostile_kubernetes import HostileKubernetes

pytestmark = pytest.mark.hostile

WAITS = """
if request["verb"] == "status":
    why = request["queue"][0]["why"] if request.get("queue") else "nothing said"
    row = {"id": "1", "state": "waiting", "why": why, "start": ""}
    return {"jobs": [job(request, state="queued", scheduler=row)], "waiting": []}
"""


@pytest.fixture
def evil(dray: Dray, tmp_path: Path) -> HostileKubernetes:
    return HostileKubernetes(tmp_path / "evil", dray)


@pytest.fixture
def job(dray: Dray, evil: HostileKubernetes) -> str:
    return dray.run("--on", "evil", "--no-snapshot", "--", "true")


ESCAPES = """
if verb == "get" and "/jobs?" in path:
    return {"items": [{"metadata": {"name": NAME}, "status": {}}]}
if verb == "get" and "/pods?" in path:
    said = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202e very " + "long " * 100000
    waiting = {"waiting": {"reason": "\\x1b[31mErr", "message": said}}
    return {"items": [{"metadata": {"name": NAME + "-0-abcde"}, "status": {
        "phase": "Pending", "containerStatuses": [{"state": waiting}]}}]}
"""


def test_a_reason_does_not_act_on_the_terminal(
    dray: Dray, evil: HostileKubernetes, job: str
) -> None:
    evil.answers(ESCAPES.replace("NAME", repr(job)), WAITS)
    for words in (("show", job), ("ps",), ("ps", "--json"), ("show", "--json", job)):
        said = dray(*words, check=False).stdout
        assert "very long" in said or words == ("ps",)
        assert not {"\x1b", "\x07", "\x9b"} & set(said)
        assert len(said) < 20_000


TABLE = '{"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Status"}], "rows": '
SHAPES = (
    '"[" * 200000',
    '"x" * 5000000',
    '"[1, 2]"',
    '{"items": {"a": 1}}',
    '{"items": [1, None, "x", [], {"metadata": 7, "status": []}]}',
    '{"items": [{"metadata": {"name": [], "deletionTimestamp": {}}, "status": 5}]}',
    '{"kind": "Table", "columnDefinitions": 5, "rows": [5]}',
    TABLE + '[{"cells": [{}, []]}, {"cells": 5}, 7, {"cells": ["a"]}]}',
)


def test_an_answer_of_any_shape_is_survived(dray: Dray, evil: HostileKubernetes, job: str) -> None:
    for shape in SHAPES:
        evil.answers(f"if verb == 'get':\n    return {shape}", WAITS)
        for words in (("show", job), ("doctor", "evil")):
            ended = dray(*words, check=False)
            assert "Traceback" not in ended.stderr, shape
            assert len(ended.stdout + ended.stderr) < 20_000, shape


OTHERS = """
if request["verb"] == "stop":
    open(ROOT + "/stopped", "w").close()
if request["verb"] in ("status", "stop"):
    state = "stopped" if os.path.exists(ROOT + "/stopped") else "running"
    wishes = {"cancel": ["other-2345", "other-2346.0-999"], "interrupt": ["other-2347"],
              "give_up": ["other-2348"]}
    return dict(wishes, jobs=[job(request, state=state)], waiting=[])
"""


def test_the_agent_has_no_say_over_other_jobs(
    dray: Dray, evil: HostileKubernetes, job: str
) -> None:
    evil.answers("", OTHERS)
    assert dray.show(job)["state"] == "running"
    dray("stop", job)
    assert evil.asked("stop")
    assert [one for one in evil.asked("delete") if "other" in one["path"]] == []


MALFORMED = """
if request["verb"] in ("status", "stop"):
    return {"cancel": 7, "interrupt": [{}], "give_up": "x", "jobs": [], "waiting": []}
"""


def test_wishes_of_any_shape_are_refused(dray: Dray, evil: HostileKubernetes, job: str) -> None:
    evil.answers("", MALFORMED)
    ended = dray("stop", job, check=False)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert evil.asked("delete") == []


def test_what_was_submitted_says_nothing_of_the_command(
    dray: Dray, evil: HostileKubernetes
) -> None:
    job = dray.run("--on", "evil", "--no-snapshot", "--", "echo", "private words")
    assert job
    assert "private words" not in json.dumps(evil.asked("create"))
