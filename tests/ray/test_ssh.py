"""A Ray cluster whose head is reached by SSH: the agent asks Ray's API itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Dray, RayCluster
from tests.rigs.ssh import Sshd

pytestmark = pytest.mark.ray


@pytest.fixture
def sshd(rig_folder: Path, tmp_path: Path) -> Iterator[Sshd]:
    home = tmp_path / "head"
    home.mkdir()
    login = Sshd(rig_folder / "ray-head", {"HOME": str(home), "PATH": "/usr/bin:/bin"})
    try:
        login.start()
        yield login
    finally:
        login.stop()


def test_a_job_runs_on_a_cluster_behind_ssh(
    dray: Dray, ray_cluster: RayCluster, sshd: Sshd
) -> None:
    address = ray_cluster.rig.address
    ray_cluster.offer(dray, address="", host="hpc", dashboard=address)
    dray.use(sshd.bin)
    found = dray("doctor", "ray", check=False).stdout
    assert "Ray 2." in found
    job = dray.run("--on", "ray", "--gpus", "1", "--", "echo", "hello")
    assert dray.wait(job)["state"] == "done"
    assert dray.log(job) == "hello\n"
    names = [one["submission_id"] for one in ray_cluster.rig.jobs()]
    assert f"dray-0-{job}" in names
