"""The containers' rig itself: real podman builds, real Apptainer converts and runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc
from tests.rigs.containers import Apptainer, Podman

pytestmark = pytest.mark.containers


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.1f} s")


def layers(podman: Podman, image: str) -> list[str]:
    return podman("image", "inspect", "--format", "{{.RootFS.Layers}}", image).split()


def test_podman_builds_and_runs(podman: Podman, train_image: str) -> None:
    with timed("podman run"):
        assert podman("run", "--rm", train_image) == f"training {os.getuid()}\n"


def test_another_trainer_changes_the_top_layer_only(podman: Podman, train_image: str) -> None:
    with timed("podman build"):
        podman.make_train("localhost/dray-train:2", "print('another')\n")
    before, after = layers(podman, train_image), layers(podman, "localhost/dray-train:2")
    assert before[:-1] == after[:-1]
    assert before[-1] != after[-1]


def test_apptainer_makes_what_podman_saves_runnable(
    podman: Podman, train_image: str, apptainer: Apptainer, tmp_path: Path
) -> None:
    archive, sif = str(tmp_path / "it.tar"), str(tmp_path / "it.sif")
    with timed("podman save"):
        podman("save", "--quiet", "--output", archive, train_image)
    with timed("apptainer build"):
        apptainer("build", sif, f"docker-archive:{archive}")
    with timed("apptainer exec"):
        said = apptainer("exec", sif, "python3", "/opt/train/train.py", "on")
    assert said == f"training {os.getuid()} on\n"


def test_a_job_of_slurm_runs_apptainer(dray: Dray, apptainer_on_hpc: Hpc, train_sif: Path) -> None:
    apptainer_on_hpc.offer(dray)
    command = ["apptainer", "exec", str(train_sif), "python3", "/opt/train/train.py", "there"]
    job = dray.run("--on", "hpc", "--nodes", "2", "--", *command)
    assert dray.wait(job)["state"] == "done", dray("show", job).stdout
    assert f"training {os.getuid()} there" in dray.log(job)


class TestOrdinaryUser:
    @pytest.fixture
    def hpc(self, ordinary_hpc: Hpc) -> Hpc:
        return ordinary_hpc

    def test_an_ordinary_user_runs_apptainer(
        self, dray: Dray, apptainer_on_hpc: Hpc, train_sif: Path
    ) -> None:
        apptainer_on_hpc.offer(dray)
        command = ["apptainer", "exec", str(train_sif), "id", "-u"]
        job = dray.run("--on", "hpc", "--", *command)
        assert dray.wait(job)["state"] == "done", dray("show", job).stdout
        assert dray.log(job).split()[-1] != "0"
