"""A Ray cluster that asks for a token."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Dray, RayCluster, environment
from tests.rigs.ray import Ray

pytestmark = pytest.mark.ray

TOKEN = "t0ken-" + 40 * "x"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RayCluster]:
    folder = Path(tempfile.mkdtemp(prefix="dray-"))
    rig = Ray(folder, environment("ray"), TOKEN)
    rig.space, rig.link = rig.space + "t", rig.link + "t"
    rig.subnet = "10.251.251"
    try:
        rig.start(workers=0)
        yield RayCluster(rig, folder / "sockets")
    finally:
        rig.stop()


def test_a_token_is_needed_and_found(dray: Dray, guarded: RayCluster) -> None:
    guarded.offer(dray)
    refused = dray("doctor", "ray", check=False)
    assert "asks for a token" in refused.stdout
    wrong = dray("run", "--on", "ray", "--", "true", check=False, RAY_AUTH_TOKEN="wrong" * 9)
    assert wrong.returncode != 0
    assert "refuses the token" in wrong.stderr
    kept = dray.home / "token"
    kept.write_text(TOKEN + "\n")
    for source in (f"file:{kept}", f"command:cat {kept}", "env:MY_TOKEN"):
        guarded.offer(dray, token=source)
        job = dray.run("--on", "ray", "--", "echo", "hello", MY_TOKEN=TOKEN)
        dray("wait", "--timeout", "100s", job, MY_TOKEN=TOKEN)
        assert dray("logs", job, MY_TOKEN=TOKEN).stdout == "hello\n"
    words = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in dray.processes()]
    assert not any(TOKEN.encode() in one for one in words)


def test_what_is_no_source_of_a_token_is_refused(dray: Dray, guarded: RayCluster) -> None:
    guarded.offer(dray, token=TOKEN)
    refused = dray("doctor", "ray", check=False)
    assert "and not the token itself" in refused.stderr + refused.stdout
    assert TOKEN not in refused.stderr + refused.stdout
