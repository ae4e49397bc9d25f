"""What the objects of a namespace say about the settings of a new cluster."""

from __future__ import annotations

from typing import Any

import pytest

from dray.clusters.kube import suggesting
from dray.clusters.options.kubernetes import volume_texts


def claim(name: str, *modes: str, phase: str = "Bound") -> dict[str, Any]:
    spec = {"accessModes": list(modes)}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def mounting(claim: str, path: str, **more: str) -> dict[str, Any]:
    mount = {"name": "v", "mountPath": path, **more}
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    return {"spec": {"containers": [{"volumeMounts": [mount]}], "volumes": [volume]}}


def test_claims_of_many_nodes_come_before_those_of_one() -> None:
    one, many = claim("one", "ReadWriteOnce"), claim("many", "ReadOnlyMany", "ReadWriteMany")
    assert suggesting.writable_claims([one, many]) == ["many"]
    assert suggesting.writable_claims([one, claim("own", "ReadWriteOncePod")]) == ["one"]
    assert suggesting.writable_claims([claim("gone", "ReadWriteMany", phase="Lost")]) == []
    assert suggesting.writable_claims([claim("read", "ReadOnlyMany")]) == []


def test_a_claim_lies_where_most_pods_have_it() -> None:
    pods = [mounting("a", "/x"), mounting("a", "/y"), mounting("a", "/y"), mounting("b", "/z")]
    assert suggesting.mount_paths(pods) == {"a": "/y", "b": "/z"}
    partly = mounting("a", "/x", subPath="inner")
    assert suggesting.mount_paths([partly, {"spec": None}, {}]) == {}


@pytest.mark.parametrize("path", ["/", "x", "", "/a:b", "/$HOME", "/a\nb"])
def test_a_path_that_no_setting_can_have_is_passed_over(path: str) -> None:
    text = suggesting.volume_text("a", suggesting.mount_paths([mounting("a", path)]))
    assert text == "pvc:a:/a"
    assert volume_texts([text]) == (text,)


def test_a_queue_with_others_below_it_takes_no_jobs() -> None:
    above = {"metadata": {"name": "all"}, "spec": {}}
    below = [{"metadata": {"name": one}, "spec": {"parentQueue": "all"}} for one in "ab"]
    assert suggesting.leaf_queues([above, *below]) == ["a", "b"]


def test_a_user_id_is_needed_where_root_is_forbidden() -> None:
    restricted = {"metadata": {"labels": {suggesting.ENFORCED: "restricted"}}}
    assert suggesting.user_id(restricted, 501) == 501
    assert suggesting.user_id(restricted, 0) == 1000
    baseline = {"metadata": {"labels": {suggesting.ENFORCED: "baseline"}}}
    assert suggesting.user_id(baseline, 501) is None
    given = {"metadata": {"annotations": {suggesting.UID_RANGE: "1000620000/10000"}}}
    assert suggesting.user_id(given, 501) == 1000620000


def test_gpus_are_what_nodes_have_of_them() -> None:
    nodes = [
        {"status": {"allocatable": {"cpu": "8", "amd.com/gpu": "2", "nvidia.com/gpu": "0"}}},
        {"status": {"allocatable": {"nvidia.com/mig-1g.10gb": "7"}}},
        {"status": {}},
    ]
    assert suggesting.gpu_resources(nodes) == ["amd.com/gpu", "nvidia.com/mig-1g.10gb"]


def test_the_current_context_comes_first() -> None:
    contexts = [
        {"name": "a", "context": {}},
        {"name": "b", "context": {"namespace": "lab"}},
    ]
    found = suggesting.contexts_of({"contexts": contexts, "current-context": "b"})
    assert [(one.name, one.namespace) for one in found] == [("b", "lab"), ("a", "default")]
    assert suggesting.contexts_of({"contexts": None}) == []
