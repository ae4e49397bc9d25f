"""A Ray cluster: what is planned and refused, and how Ray's answers are read, whatever they are."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.checks import Malformed
from dray.clusters.agent import answers
from dray.clusters.agent.answers import Inspected
from dray.clusters.ray import (
    RayCluster,
    find_problem,
    inspected_findings,
    job_script,
    make_plan,
    ray_findings,
)
from dray.errors import ClusterError, ConfigError, LoginNeeded
from dray.job.model import Container, JobArray, Resources
from dray.job.options.ray_values import api_address, token_source
from dray.node.ray import bridge, inspection
from dray.node.ray.placing import bundle_of
from dray.node.schedulers import ray_view
from dray.node.schedulers.ray import end_of, live_drivers, shapes_of
from dray.node.schedulers.ray_api import DASHBOARD
from dray.node.schedulers.scheduler import of_kind
from dray.programs import shipping
from dray.transport.channel import LinkLost, from_spec
from dray.transport.ray_api import find_token
from dray.transport.ray_channel import RayHead
from dray.transport.ray_pipe import FAILED, Frames, is_old_link
from tests.unit.test_pbs_plan import JOB

FACTS = {"nodes": [{"nodes": 2, "cpus": 16, "kilobytes": 64 << 20, "gpus": 4}]}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
)


# -- the plan -----------------------------------------------------------------------------------


def test_the_driver_can_import_ray_and_a_node_is_prepared_first() -> None:
    app = f"@ROOT@/node/{shipping.name()}"
    settings = {"python": "/opt/my python", "setup": ["ulimit -c 0"]}
    lines = job_script("@ROOT@/jobs/x", settings).splitlines()
    assert f"    exec '/opt/my python' -I '{app}' drive '@ROOT@/jobs/x'" in lines
    program = f'"$root/node/{shipping.name()}"'
    assert lines[-1] == f"exec '/opt/my python' -I -S {program} node \"$root/jobs/x\""
    assert "root='@ROOT@'" in lines
    assert lines.index("fi") < lines.index("ulimit -c 0") < len(lines) - 1


def test_the_plan_holds_no_secret_and_no_word_of_the_command() -> None:
    job = replace(JOB, secrets=("API_KEY",), command=("zebra", "--stripes", "7"))
    plan = make_plan(job, "ray", {"gpu_type": "L4"})
    assert json.loads(plan.files["job.json"])["scheduler"] == {"kind": "ray"}
    assert not any(word in plan.files["batch.sh"] for word in ("zebra", "stripes", "API_KEY"))
    assert plan.notes == ("secret API_KEY: its value goes to secrets.json",)


def test_an_array_is_one_submission(tmp_path: Path) -> None:
    cluster = RayCluster("r", {"address": "http://h:1"}, tmp_path, tmp_path)
    plan = cluster.plan(JobArray(JOB, commands=(("a",), ("b",))))
    assert plan.is_array
    assert f"drive '@ROOT@/arrays/{JOB.id}'" in plan.files["batch.sh"]
    assert 'node "$root/jobs/@JOB@"' in plan.files["job.sh"]


@pytest.mark.parametrize(
    ("resources", "launch", "why"),
    [
        (Resources(gpus=5), "none", "5 GPUs asked for, and no node has more than 4"),
        (Resources(cpus=17), "none", "17 CPUs asked for, and no node has more than 16"),
        (Resources(memory=65 << 30), "none", "65.0 GB asked for, and no node has more than 64.0"),
        (Resources(gpus=1, nodes=3), "srun", "3 nodes asked for, and Ray has 2 such nodes"),
        (Resources(gpus=1, nodes=2), "none", "has no way to its other nodes"),
    ],
)
def test_what_ray_cannot_give_is_refused(resources: Resources, launch: str, why: str) -> None:
    found = find_problem(replace(JOB, resources=resources, launch=launch), FACTS)
    assert found is not None
    assert why in found.what


def test_parts_of_a_gpu_and_several_nodes_are_not() -> None:
    for resources in (Resources(gpus=0.5), Resources(gpus=4, cpus=16, nodes=2)):
        assert find_problem(replace(JOB, resources=resources, launch="srun"), FACTS) is None
    assert find_problem(replace(JOB, resources=Resources(gpus=64)), {}) is None  # nobody knows


def test_a_container_is_refused() -> None:
    found = find_problem(replace(JOB, container=Container(image="x" * 64)), FACTS)
    assert found is not None
    assert "Leave out --image" in found.advice


@pytest.mark.parametrize("settings", [{}, {"address": "http://h:1", "host": "h"}])
def test_there_is_one_way_to_the_head(settings: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a way to its head"):
        RayCluster("r", settings, tmp_path, tmp_path)


def test_the_agent_behind_ssh_is_told_where_the_dashboard_is(tmp_path: Path) -> None:
    settings = {"host": "h", "dashboard": "http://10.0.0.5:8265"}
    cluster = RayCluster("r", settings, tmp_path, tmp_path)
    scheduler: Any = of_kind(cluster.agent.scheduler, "/root")
    assert scheduler.api.address == "http://10.0.0.5:8265"


def test_what_a_node_has_to_have_is_said_in_rays_words() -> None:
    resources: Any = {"cpus": 4, "gpus": 0.5, "memory": 1 << 30, "gpu_type": "L4"}
    job: Any = {"resources": resources}
    expected = {"CPU": 4.0, "GPU": 0.5, "memory": float(1 << 30), "accelerator_type:L4": 0.001}
    assert bundle_of(job) == expected


# -- settings -----------------------------------------------------------------------------------


NO_ADDRESSES = ["10.0.0.5:8265", "http://", "http://a b", "http://h;id", "$(x)"]
NO_PORTS = ["http://h:port", "http://h:99999", "http://h:0", "http://:8265", "http://[:8265"]


@pytest.mark.parametrize("value", NO_ADDRESSES + NO_PORTS)
def test_what_is_no_address_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="must be the address of Ray's dashboard"):
        api_address(value)


@pytest.mark.parametrize(
    "value", ["t0ken", "env:", "env:A B", "files:x", "command: ", "command:a 'b"]
)
def test_a_token_itself_is_no_setting(value: str) -> None:
    with pytest.raises(ValueError, match="not the token itself"):
        token_source(value)


def test_an_address_with_a_port_and_a_path_is_one() -> None:
    for value in ("http://h", "https://[::1]:8265", "http://10.0.0.5:8265/ray"):
        assert api_address(value + "/") == value


def test_a_token_is_found_where_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_token("") == ""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("by file\n")
    assert find_token("") == "by file"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "by variable")
    assert find_token("") == "by variable"
    assert find_token("file:~/.ray/auth_token") == "by file"
    assert find_token("env:RAY_AUTH_TOKEN") == "by variable"
    assert find_token("command:echo 'by command'") == "by command"
    for source in ("env:NOT_SET_HERE", "file:/none", "command:false", "command:/none"):
        with pytest.raises(ConfigError):
            find_token(source)


# -- the connection -----------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("OEAX"), st.binary(max_size=40))), st.integers(1, 9))
def test_frames_are_read_however_they_come(frames: list[tuple[str, bytes]], size: int) -> None:
    sent = b"".join(f"{kind} {len(data)}\n".encode() + data for kind, data in frames)
    reader = Frames()
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert [one for piece in pieces for one in reader.take(piece)] == frames


def answers_in(folder: Path, name: str) -> bridge.Answers:
    """Make the file of a bridge whose own output goes to this folder."""
    log = os.open(folder / "job-driver.log", os.O_WRONLY | os.O_CREAT)
    kept = os.dup(1)
    try:
        os.dup2(log, 1)
        return bridge.Answers(name)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(log)


def test_a_file_that_nobody_reads_is_written_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray lets go of a request only when it has something to send."""
    monkeypatch.setattr(bridge, "FAREWELL", 0.0)
    answers = answers_in(tmp_path, "0" * 16)
    path = Path(answers.path)
    with path.open("rb") as follower:
        answers.end()
        assert {kind for kind, _ in Frames().take(follower.read())} == {"A"}
    os.close(answers.fd)
    assert not path.exists()


def test_files_of_bridges_that_were_killed_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "FAREWELL", 0.0)
    killed, living = answers_in(tmp_path, "1" * 16), answers_in(tmp_path, "2" * 16)
    other = tmp_path / "dray-notes.out"
    other.write_text("not a bridge's")
    os.close(killed.fd)
    long_ago = time.time() - 2 * bridge.SILENCE
    for one in (killed.path, living.path, other):
        os.utime(one, (long_ago, long_ago))
    with open(killed.path, "rb") as follower:
        os.close(answers_in(tmp_path, "3" * 16).fd)
        assert follower.read()
    assert not Path(killed.path).exists()
    assert Path(living.path).read_bytes() == b""
    assert other.read_text() == "not a bridge's"
    os.close(living.fd)


def test_many_files_of_killed_bridges_take_the_time_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(bridge.time, "sleep", pauses.append)
    long_ago = time.time() - 2 * bridge.SILENCE
    for number in range(bridge.MOST_RELEASED + 5):
        path = tmp_path / f"dray-{number:016x}.out"
        path.touch()
        os.utime(path, (long_ago, long_ago))
    bridge.release_abandoned(str(tmp_path))
    assert pauses == [bridge.FAREWELL] * bridge.FAREWELLS
    assert len(list(tmp_path.iterdir())) == 5


def test_the_answers_are_written_as_they_are_read(tmp_path: Path) -> None:
    answers = answers_in(tmp_path, "n")
    answers.write("O", b"a\nb")
    answers.write("X", b"7")
    os.close(answers.fd)
    path = tmp_path / "dray-n.out"
    assert path.stat().st_mode & 0o077 == 0
    assert list(Frames().take(path.read_bytes())) == [("O", b"a\nb"), ("X", b"7")]


def test_both_ends_use_the_same_words() -> None:
    assert bridge.DASHBOARD == DASHBOARD
    assert shipping.sources()["dray_node/ray/bridge.py"].isascii()


def test_the_channel_names_no_token_and_is_made_again_from_its_words() -> None:
    head = RayHead("http://h:1", "env:T", "python3")
    again = from_spec(*head.spec())
    assert again.argv("true") == head.argv("true")
    assert head.explain(1, "anything") is None
    lost = head.explain(FAILED, "LinkLost: Ray's API at http://h:1 does not answer\nIs it right?\n")
    assert isinstance(lost, LinkLost)
    assert (lost.message, lost.hint) == (
        "Ray's API at http://h:1 does not answer",
        "Is it right?",
    )
    assert isinstance(head.explain(FAILED, "LoginNeeded: it asks for a token\nhint"), LoginNeeded)
    assert isinstance(head.explain(FAILED, "no words of ours"), ClusterError)


# -- Ray's answers ------------------------------------------------------------------------------


def of_ray(number: str, **more: Any) -> dict[str, Any]:
    about = {"metadata": {"dray": "job", "root": "/r"}, "status": "RUNNING"}
    return {"submission_id": f"dray-{number}", **about, **more}


def test_drivers_of_this_root_are_told_from_all_else() -> None:
    jobs = [
        of_ray("0-mine"),
        of_ray("3-waits", status="PENDING"),
        of_ray("0-over", status="FAILED"),
        of_ray("0-other", metadata={"dray": "job", "root": "/other"}),
        of_ray("link-7", metadata={"dray": "link"}),
        of_ray("0-plain", metadata=None),
    ]
    assert live_drivers(jobs, "/r") == {"0-mine": "RUNNING", "3-waits": "PENDING"}


@given(ANYTHING)
def test_whatever_ray_says_is_read(answer: Any) -> None:
    live_drivers(answer, "/r")
    shapes_of(answer)
    if isinstance(answer, dict):
        end_of(answer)
        is_old_link(answer)


def test_equal_nodes_are_counted_together() -> None:
    node = {"state": "ALIVE", "resources_total": {"CPU": 8.0, "GPU": 2.0, "memory": 33.2 * 2**30}}
    other = {**node, "resources_total": {"CPU": 8.0, "GPU": 2.0, "memory": 33.7 * 2**30}}
    dead = {**node, "state": "DEAD"}
    answer = {"data": {"result": {"result": [node, other, dead, None]}}}
    assert shapes_of(answer) == [{"nodes": 2, "cpus": 8, "kilobytes": 33 << 20, "gpus": 2}]


def test_what_the_driver_writes_down_is_read(tmp_path: Path) -> None:
    assert ray_view.read(str(tmp_path)) is None
    ray_view.write(str(tmp_path), ["a.1", "a.2"], ["a.0"], "waiting for 1 GPU")
    assert ray_view.read(str(tmp_path)) == {
        "a.0": ("running", ""),
        "a.1": ("waiting", "waiting for 1 GPU"),
        "a.2": ("waiting", "waiting for 1 GPU"),
    }
    (tmp_path / ray_view.NAME).write_text('{"waiting": "x"}')
    assert ray_view.read(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("about", "bad"),
    [
        ({"ray": "2.60.0", "ray_of_python": "2.60.0", "nodes": ()}, ""),
        ({"ray": "2.60.0", "ray_of_python": "2.9.0", "nodes": ()}, "imports Ray 2.9.0"),
        ({"ray": "2.60.0", "ray_of_python": "", "nodes": ()}, "imports no Ray"),
        ({"ray_error": "nobody answers"}, "nobody answers"),
    ],
)
def test_the_doctor_compares_versions(about: dict[str, Any], bad: str) -> None:
    found = [one for one in ray_findings(about, {}) if not one.ok]
    assert bool(found) == bool(bad)
    assert all(bad in one.detail and one.advice for one in found)


# -- what doctor says of nodes ------------------------------------------------------------------

GOOD = Inspected("10.0.0.3", 2, visible="1", devices=2, versions=("2.60.0", "3.11.7"), root=True)


def test_equal_nodes_are_one_line() -> None:
    nodes = [GOOD._replace(address=f"10.0.0.{number}") for number in range(3, 8)]
    (found,) = inspected_findings(nodes, "2.60.0")
    assert found.ok
    assert found.detail == (
        "10.0.0.3, 10.0.0.4, 10.0.0.5 and 2 more: Ray 2.60.0, Python 3.11.7, "
        "a job sees one of 2 GPUs, sees the root"
    )


@pytest.mark.parametrize(
    ("node", "ok", "detail"),
    [
        (GOOD._replace(visible="0,1"), False, "CUDA_VISIBLE_DEVICES is '0,1'"),
        (GOOD._replace(visible=""), False, "CUDA_VISIBLE_DEVICES is ''"),
        (GOOD._replace(versions=("2.9.0", "3.11.7")), False, "imports Ray 2.9.0"),
        (GOOD._replace(versions=(), complaint="No module named 'ray'"), False, "No module named"),
        (GOOD._replace(root=False), True, "does not see the root: files are carried"),
        (GOOD._replace(devices=0), True, "nvidia-smi lists none"),
        (Inspected("10.0.0.3", 2, "not looked at: busy"), True, "10.0.0.3: not looked at: busy"),
        (Inspected("10.0.0.3", 0, versions=("2.60.0", "3.11")), True, "Ray 2.60.0, Python 3.11, "),
    ],
)
def test_a_node_is_judged_by_what_a_job_would_find(node: Inspected, ok: bool, detail: str) -> None:
    (found,) = inspected_findings([node], "2.60.0")
    assert (found.ok, detail in found.detail, bool(found.advice)) == (ok, True, not ok)


@given(ANYTHING)
def test_whatever_is_told_of_nodes_is_read_or_refused(value: Any) -> None:
    try:
        found = answers.inspected({"inspected": [value]})
    except Malformed:
        return
    assert all(isinstance(one.address, str) and isinstance(one.gpus, int) for one in found)


def test_nodes_with_gpus_are_looked_at_or_all() -> None:
    nodes = [
        {"NodeManagerAddress": "b", "Alive": True, "Resources": {"GPU": 1.0}},
        {"NodeManagerAddress": "a", "Alive": True, "Resources": {"CPU": 2.0}},
        {"NodeManagerAddress": "c", "Alive": False, "Resources": {"GPU": 1.0}},
    ]
    assert [one["NodeManagerAddress"] for one in inspection.chosen(nodes)] == ["b"]
    assert [one["NodeManagerAddress"] for one in inspection.chosen(nodes[1:])] == ["a"]
