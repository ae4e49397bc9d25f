"""What doctor says of containers."""

from __future__ import annotations

from typing import Any

import pytest

from dray.clusters.container_findings import bad_pair, findings, pair_findings

FINE = {
    "runtimes": {"apptainer": "1.4.5"},
    "setuid": False,
    "namespaces": True,
    "subuid": True,
    "fuse": True,
}


def told(**facts: Any) -> dict[str, tuple[bool, str, str]]:
    found = findings({**FINE, **facts})
    return {one.what: (one.ok, one.detail, one.advice) for one in found}


def test_a_machine_that_has_all() -> None:
    found = told()
    assert list(found) == ["containers", "namespaces", "fuse", "fakeroot"]
    assert all(ok and not advice for ok, _, advice in found.values())
    assert found["containers"][1] == "apptainer 1.4.5"


def test_what_is_missing_is_told_with_what_to_do() -> None:
    found = told(namespaces=False, fuse=False, subuid=False)
    assert found["namespaces"][0] is False
    assert "ask its administrators" in found["namespaces"][2]
    assert found["fuse"][0] is False
    assert "sandbox folder" in found["fuse"][2]
    assert found["fakeroot"][0] is True  # images are made without
    assert "no entry for you in /etc/subuid" in found["fakeroot"][1]


def test_with_setuid_nothing_else_is_needed() -> None:
    assert list(told(setuid=True, namespaces=False, fuse=False)) == ["containers", "fakeroot"]


def test_enroot_and_nothing() -> None:
    found = told(runtimes={"enroot": "3.5.0"}, fuse=False)
    assert found["containers"] == (True, "enroot 3.5.0", "")
    assert found["fuse"][0] is False  # it starts an image file in the same way
    assert "fakeroot" not in found
    (nothing,) = findings({})
    assert nothing.ok
    assert "module" in nothing.detail


@pytest.mark.parametrize(
    ("docker", "apptainer", "bad"),
    [
        ("25.0.3", "1.2.5", True),
        ("26.1.0", "1.3.3-1.el9", True),
        ("27.0.0", "1.3.4", False),
        ("24.0.7", "1.2.5", False),
        ("28.2.2", "1.4.5", False),
        ("", "1.2.5", False),
        ("26.0.0", "", False),
    ],
)
def test_versions_that_do_not_go_together(docker: str, apptainer: str, bad: bool) -> None:
    assert bool(bad_pair(docker, apptainer)) is bad
    assert bool(pair_findings(docker, apptainer)) is bad
