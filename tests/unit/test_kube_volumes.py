"""Which node a pod goes to for its volume, and who can be asked about it, whatever the API server
says."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.agent.cluster import link_findings
from dray.clusters.kube import doctor, manifest, names, queue, volumes
from dray.clusters.kube.manifest import Place
from dray.clusters.kubernetes import find_problem
from dray.job.model import JobSpec, Resources
from dray.node.agent import site

SETTINGS = {
    "volumes": ["pvc:lab:/lab", "pvc:data:/lab/data:ro", "nfs:server:/e:/nfs", "pvc:me:/lab/me"],
    "image": "image:1",
}
JOB = JobSpec(id="walk-7f3k", name="walk", command=("true",), created=1.0)
ONCE = Place("space", "/lab/me/dray", "me", one_node=True)
RULE = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("root", "claim"), [("/lab/me/dray", "me"), ("/lab/dray", "lab"), ("/nfs/dray", "")]
)
def test_the_claim_that_jobs_are_on(root: str, claim: str) -> None:
    assert volumes.claim_of_root({**SETTINGS, "root": root}) == claim


@pytest.mark.parametrize(
    ("modes", "one_node", "is_refused"),
    [
        ([], False, False),  # nobody may look
        (["ReadWriteMany"], False, False),
        (["ReadWriteOnce", "ReadWriteMany"], False, False),
        (["ReadWriteOnce"], True, False),
        (["ReadWriteOncePod"], True, True),
    ],
)
def test_what_an_access_mode_means(modes: list[str], one_node: bool, is_refused: bool) -> None:
    assert volumes.is_for_one_node(modes) == one_node
    assert (volumes.find_problem(modes) is not None) == is_refused
    facts = {"kube": {"modes": modes, "version": [1, 35]}}
    assert (find_problem(JOB, SETTINGS, facts) is not None) == is_refused
    wide = JobSpec(id="a", name="a", command=("true",), launch="srun", resources=Resources(nodes=2))
    assert (find_problem(wide, SETTINGS, facts) is not None) == one_node


def terms(described: dict[str, Any]) -> dict[str, Any]:
    (rule,) = described["spec"]["template"]["spec"]["affinity"]["podAffinity"][RULE]
    found: dict[str, Any] = rule["labelSelector"]
    return found


def test_pods_share_the_node_of_such_a_volume() -> None:
    """A pod has to be one of those that its own rule is about: else the first would go nowhere."""
    job, helper = (
        manifest.job_manifest(JOB, SETTINGS, ONCE),
        manifest.helper_manifest(SETTINGS, ONCE),
    )
    for described in (job, helper):
        labels = described["spec"]["template"]["metadata"]["labels"]
        assert terms(described)["matchLabels"].items() <= labels.items()
    assert terms(job)["matchExpressions"] == [{"key": names.JOB, "operator": "Exists"}]
    assert names.JOB in job["spec"]["template"]["metadata"]["labels"]
    assert "matchExpressions" not in terms(helper)
    many = ONCE._replace(one_node=False)
    for described in (
        manifest.job_manifest(JOB, SETTINGS, many),
        manifest.helper_manifest(SETTINGS, many),
    ):
        assert "affinity" not in described["spec"]["template"]["spec"]


def test_the_python_of_a_pod_is_how_its_job_was_started() -> None:
    described = manifest.job_manifest(JOB, SETTINGS, ONCE)
    words = ["/root/python/ld.so", "--library-path", "/root/lib", "/root/python3"]
    for started in (described, manifest.carrying(described)):
        template = manifest.with_python(started, words)["spec"]["template"]
        assert manifest.python_of(template) == words


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        {"containers": None},
        {"containers": []},
        {"containers": [7]},
        {"containers": [{"name": "job"}]},
        {"containers": [{"name": "job", "command": "python3 -I"}]},
        {"containers": [{"name": "job", "command": ["sleep", "1"]}]},
        {"containers": [{"name": "agent", "command": ["python3", "-I"]}]},
    ],
)
def test_other_pods_are_not_asked(spec: object) -> None:
    assert manifest.python_of({"spec": spec}) == []


@pytest.mark.parametrize("said", ["", "[", "[1]", '"text"', '{"reason": 7}', "[" * 100_000])
def test_a_message_of_another_shape_tells_nothing(said: str) -> None:
    assert queue.own_words(said) == ""


@pytest.mark.parametrize(
    ("phase", "mode", "is_fine", "said"),
    [
        ("Bound", "ReadWriteMany", True, "claim me, Bound, ReadWriteMany"),
        ("Pending", "ReadWriteMany", True, "claim me, Pending, bound once a pod uses it"),
        ("Lost", "ReadWriteOnce", False, "claim me, Lost"),
        ("Bound", "ReadWriteOnce", True, "one node at a time"),
        ("Bound", "ReadWriteOncePod", False, "ReadWriteOncePod"),
    ],
)
def test_what_doctor_says_of_a_claim(phase: str, mode: str, is_fine: bool, said: str) -> None:
    claim = {"spec": {"accessModes": [mode]}, "status": {"phase": phase}}
    volume = volumes.parse("pvc:me:/lab/me")
    found = doctor.claim_finding("volume /lab/me", volume, claim)
    assert found.ok == is_fine
    assert said in found.detail
    readonly = doctor.claim_finding("", volume._replace(is_readonly=True), claim)
    assert readonly.ok == (phase != "Lost")


def test_files_that_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file system without links can be made here: what one says is put in its place."""
    assert site.can_link(str(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refuse)
    assert not site.can_link(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    facts = {"links": False, "root": "/lab", "locks": {"file_system": "cifs"}}
    (finding,) = link_findings(facts)
    assert (finding.ok, finding.detail) == (False, "files in /lab cannot be linked (cifs)")
    assert link_findings({"links": True}) == link_findings({}) == []
    problem = find_problem(JOB, SETTINGS, facts)
    assert problem is not None
    assert "cannot be linked" in problem.what
