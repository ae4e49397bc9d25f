"""Images from the laptop to a cluster: real podman here, real Slurm, sshd and Apptainer there."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import attempt_pid, parent_of
from tests.integration.test_slurm import scheduler_id
from tests.rigs.containers import Apptainer, Podman, all_programs_but
from tests.rigs.link import Link

pytestmark = pytest.mark.containers

ON = ("--on", "hpc")


@pytest.fixture
def far(dray: Dray, podman: Podman, apptainer_on_hpc: Hpc) -> Dray:
    apptainer_on_hpc.offer(dray)
    dray.use(podman.bin)
    return dray


def listing(dray: Dray, on: str = "hpc") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dray("image", "list", "--on", on, "--json").stdout)
    return found


def images_folder(dray: Dray) -> Path:
    return dray.jobs.parent / "images"


def test_an_image_is_pushed_layer_by_layer_and_only_once(
    far: Dray, podman: Podman, train_image: str
) -> None:
    pushed = far("image", "push", train_image, *ON)
    assert "3 layers sent" in pushed.stderr
    assert f"{train_image.removeprefix('localhost/')} is ready on hpc" in pushed.stderr
    number = podman("image", "inspect", "--format", "{{.Id}}", train_image).strip()
    assert pushed.stdout == f"sha256:{number}\n"
    (found,) = listing(far)
    assert (found["ready"], found["id"]) == (True, pushed.stdout.strip())
    again = far("image", "push", train_image, *ON)
    assert "is ready on hpc already" in again.stderr
    podman.make_train("localhost/other:1", "print('other')\n")
    other = far("image", "push", "other:1", *ON)
    assert "1 layer sent" in other.stderr
    far("image", "rm", "other:1", *ON)
    assert [one["id"] for one in listing(far)] == [found["id"]]


def test_an_image_is_made_ready_on_this_machine(
    dray: Dray, podman: Podman, apptainer: Apptainer, train_image: str
) -> None:
    dray.use(podman.bin)
    dray.use(apptainer.bin)
    dray("image", "push", train_image)
    (found,) = listing(dray, "local")
    assert found["ready"]
    assert found["sizes"]["layers"] == 0  # the engine has them, too
    sif = dray.jobs.parent / "images" / f"{found['id'].removeprefix('sha256:')}.sif"
    assert apptainer("exec", str(sif), "python3", "/opt/train/train.py", "x") == "training 0 x\n"


def test_a_cluster_without_apptainer_gets_one_file_that_is_made_here(
    dray: Dray, hpc: Hpc, podman: Podman, apptainer: Apptainer, train_image: str
) -> None:
    hpc.offer(dray, convert="laptop")
    dray.use(podman.bin)
    dray.use(apptainer.bin)
    pushed = dray("image", "push", train_image, *ON)
    assert "ready with apptainer on this machine" in pushed.stderr
    (found,) = listing(dray)
    assert (found["ready"], found["source"]) == (True, "file")
    assert found["id"] == pushed.stdout.strip()
    again = dray("image", "push", train_image, *ON)
    assert "is ready on hpc already" in again.stderr
    (kept,) = (dray.home / "dray/cache/images").glob("*.sif")
    for number, age in enumerate((10, 20, 30)):
        older = kept.with_name(f"{number}.sif")
        older.write_bytes(b"")
        os.utime(older, (time.time() - age, time.time() - age))
    podman.make_train("localhost/newer:1", "print('newer')\n")
    dray("image", "push", "newer:1", *ON)
    names = {path.name for path in (dray.home / "dray/cache/images").glob("*.sif")}
    assert len(names) == 3
    assert {kept.name, "0.sif"} < names


# -- Enroot, which cannot be had here: a stand-in takes only what its manual allows ---------------

ENROOT = Path(__file__).parents[1] / "standins/enroot"


@pytest.fixture
def enroot_on_hpc(hpc: Hpc) -> Iterator[Hpc]:
    (hpc.bin / "enroot").symlink_to(ENROOT / "enroot")
    yield hpc
    (hpc.bin / "enroot").unlink()


def test_enroot_fetches_an_image_on_the_cluster(dray: Dray, enroot_on_hpc: Hpc) -> None:
    enroot_on_hpc.offer(dray)
    dray("image", "push", "docker://images.example.org/lab/train:2.1", *ON)
    (found,) = listing(dray)
    assert (found["ready"], found["format"]) == (True, "sqsh")
    (file,) = images_folder(dray).glob("*.sqsh")
    assert file.read_bytes() == b"hsqsdocker://images.example.org#lab/train:2.1"


def test_enroot_makes_an_image_here_from_podman(
    dray: Dray, enroot_on_hpc: Hpc, podman: Podman, train_image: str
) -> None:
    enroot_on_hpc.offer(dray)
    dray.use(podman.bin)
    refused = dray("image", "push", train_image, *ON, check=False)
    assert refused.returncode == 4
    assert "install enroot here" in refused.stderr
    dray.use(ENROOT)
    dray("image", "push", train_image, *ON)
    (file,) = images_folder(dray).glob("*.sqsh")
    assert file.read_bytes() == b"hsqspodman://dray-train:1"


# -- jobs in images that the cluster does not have yet ---------------------------------------------

# Every rank counts, and rank 0 saves what they have come to.
TRAINER = """
import json, os, sys, time
rank, folder = int(os.environ["RANK"]), os.environ["DRAY_OUTPUTS"]
step = 0
if "--resume" in sys.argv:
    step = json.load(open(sys.argv[sys.argv.index("--resume") + 1]))["step"]
print("rank", rank, "of", os.environ["WORLD_SIZE"], "starts at", step, flush=True)
while step < 60:
    time.sleep(0.05)
    step += 1
    if rank == 0:
        name = os.path.join(folder, f"ckpt_{step}.json")
        open(name + ".tmp", "w").write(json.dumps({"step": step}))
        os.replace(name + ".tmp", name)
"""


def test_built_pushed_run_on_two_nodes_interrupted_and_resumed(
    far: Dray, apptainer_on_hpc: Hpc, podman: Podman, train_image: str
) -> None:
    apptainer_on_hpc.offer(far, partition="scavenge")
    far.write("docker/Dockerfile", f"FROM {train_image}\nCOPY train.py /opt/two.py\n")
    far.write("docker/train.py", TRAINER)
    far("image", "build", "docker", "--tag", "two:1")
    wide = ("--nodes", "2", "--gpus", "1", "--launch", "srun")
    resumed = ("--checkpoint", "ckpt_*.json", "--resume-arg=--resume", "--resume-arg={checkpoint}")
    ended = far("run", *ON, "--image", "two:1", *wide, *resumed, "--", "python3", "/opt/two.py")
    job = ended.stdout.strip()
    assert "sending two:1 to hpc: 4 of 4 layers" in ended.stderr
    assert far.show(job)["state"] in ("queued", "running")  # behind the job that makes the image
    wait_for(lambda: list((far.job_dir(job) / "outputs").glob("ckpt_*")), 60)
    both = ("--nodes=2", "--exclusive", "--partition=urgent")
    slurm = apptainer_on_hpc.slurm
    slurm.call("sbatch", "--parsable", *both, "--output=/dev/null", "--wrap=sleep 1")
    shown = far.wait(job)
    assert shown["state"] == "done", shown
    assert [one["outcome"] for one in shown["attempts"]] == ["interrupted", "done"]
    assert shown["attempts"][1]["from_checkpoint"] is not None
    for rank in (0, 1):
        lines = far("logs", "--rank", str(rank), job).stdout.splitlines()
        assert lines[0] == f"rank {rank} of 2 starts at 0"
        assert lines[1].startswith(f"rank {rank} of 2 starts at ")
        assert lines[1] != lines[0]
    ids = [row["id"] for row in json.loads(far("ps", "--all", "--json").stdout)]
    assert len(ids) == 2  # the job, and the one that made its image
    second = far("run", *ON, "--image", "two:1", "--", "python3", "-c", "print('again')")
    assert "sending" not in second.stderr
    assert far.wait(second.stdout.strip())["state"] == "done"
    assert far.log(second.stdout.strip()) == "again\n"


def test_a_run_waits_for_its_image_on_pbs_too(
    far: Dray, apptainer_on_hpc: Hpc, train_image: str
) -> None:
    path = f"export PATH={apptainer_on_hpc.bin}:$PATH"
    apptainer_on_hpc.offer_pbs(far, setup=[*apptainer_on_hpc.pbs.setup, path])
    job = far.run(
        "--on", "pbs", "--image", train_image, "--", "python3", "/opt/train/train.py", "x"
    )
    shown = far.wait(job)
    assert shown["state"] == "done", shown
    assert far.log(job) == f"training {os.getuid()} x\n"


def test_a_run_waits_for_the_batch_job_that_goes_on_making_its_image(
    far: Dray, apptainer_on_hpc: Hpc, podman: Podman
) -> None:
    apptainer_on_hpc.offer(far, resume_with="chain")
    podman.make_train("localhost/interrupted:1", "print('made after all')\n")
    number = podman("image", "inspect", "--format", "{{.Id}}", "interrupted:1").strip()
    images_folder(far).mkdir(parents=True)
    with (images_folder(far) / f".lock-{number}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the image is not made before this one is free
        job = far.run(*ON, "--image", "interrupted:1", "--", "python3", "/opt/train/train.py")
        (image,) = listing(far)
        command = wait_for(lambda: attempt_pid(far, image["job"]), 60)
        first = scheduler_id(far, job)
        os.kill(parent_of(command), signal.SIGTERM)
        wait_for(lambda: attempt_pid(far, image["job"], 2), 60)
        wait_for(lambda: scheduler_id(far, job) != first, 60)
    shown = far.wait(job)
    assert shown["state"] == "done", shown
    assert len(shown["attempts"]) == 1
    assert far.log(job) == "made after all\n"
    assert [one["outcome"] for one in far.show(image["job"])["attempts"]] == ["interrupted", "done"]


def test_a_run_whose_image_cannot_be_made_says_so(far: Dray, hpc: Hpc, podman: Podman) -> None:
    """Apptainer on the cluster fails: the run that waits for the image tells where to look."""
    broken = "echo FATAL: no space left >&2; exit 255"
    (hpc.bin / "apptainer").unlink()
    (hpc.bin / "apptainer").write_text(f"#!/bin/sh\n{broken}\n")
    (hpc.bin / "apptainer").chmod(0o755)
    podman.make_train("localhost/unmakeable:1", "print('unmakeable')\n")
    pushed = far("image", "push", "unmakeable:1", *ON, check=False)
    assert pushed.returncode == 7
    assert "unmakeable:1 could not be made ready on hpc: apptainer build failed" in pushed.stderr
    assert "no space left; a disk is full, or a quota is used up" in pushed.stderr
    job = far.run(*ON, "--image", "unmakeable:1", "--", "true")
    shown = far.wait(job)
    assert shown["state"] == "failed"
    assert "dray image push" in shown["reason"]


# -- a file that is sent in parts, over a link that breaks ----------------------------------------


SIZE = 70_000_000  # three parts


@pytest.fixture
def sif(dray: Dray) -> Path:
    path = dray.project / "big.sif"
    head = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x0002\x00"
    path.write_bytes(head + os.urandom(SIZE - len(head)))
    return path


def ready_file(dray: Dray) -> Path:
    (found,) = images_folder(dray).glob("*.sif")
    return found


def test_cut_in_the_middle_of_an_image(dray: Dray, hpc: Hpc, link: Link, sif: Path) -> None:
    hpc.offer(dray)
    dray("doctor", "hpc", check=False)
    link.cut_after = link.sent_up + SIZE // 2
    dray("image", "push", "big.sif", *ON)
    assert link.cut_after is None  # it did happen
    assert ready_file(dray).read_bytes() == sif.read_bytes()
    assert not list(images_folder(dray).glob("layers/*"))


def test_killed_in_the_middle_of_an_image(dray: Dray, hpc: Hpc, link: Link, sif: Path) -> None:
    """What has arrived is not sent again."""
    hpc.offer(dray)
    words = [sys.executable, "-m", "dray", "image", "push", "big.sif", *ON]
    with subprocess.Popen(words, cwd=dray.project, env=dray.env) as pushing:
        wait_for(lambda: list(images_folder(dray).glob("layers/*/*.gz")))
        pushing.send_signal(signal.SIGKILL)
    arrived = sum(path.stat().st_size for path in images_folder(dray).glob("layers/*/*.gz"))
    (half,) = listing(dray)
    assert not half["ready"]
    before = link.sent_up
    dray("image", "push", "big.sif", *ON)
    assert link.sent_up - before < SIZE - arrived + 3_000_000
    assert ready_file(dray).read_bytes() == sif.read_bytes()


def test_a_full_disk_in_the_middle_of_an_image(
    dray: Dray, hpc: Hpc, sif: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=50m", "none", str(small)], check=True)
    try:
        hpc.offer(dray, root=str(small / "root"))
        ended = dray("image", "push", "big.sif", *ON, check=False)
        assert ended.returncode == 8
        assert "No space left" in ended.stderr
        assert "dray image rm big.sif --on hpc" in ended.stderr
        assert not list(small.glob("root/images/**/*.tmp"))
        assert json.loads(dray("ps", "--all", "--json").stdout) == []
        dray("image", "rm", "big.sif", *ON)
        assert [path.name for path in small.glob("root/images/[!.]*")] == ["layers"]
        assert list(small.glob("root/images/layers/*")) == []
    finally:
        dray.close_connections()
        wait_for(lambda: subprocess.run(["umount", str(small)]).returncode == 0)


# -- what cannot be -------------------------------------------------------------------------------


def test_wrong_names_are_told_with_the_way_out(far: Dray, train_image: str) -> None:
    def refused(*words: str) -> str:
        ended = far(*words, check=False)
        assert ended.returncode in (2, 3, 4)
        assert "Traceback" not in ended.stderr
        return ended.stderr

    assert "no image 'dray-trian:1'" in refused("image", "push", "dray-trian:1", *ON)
    assert "there is no image file x.sif" in refused("image", "push", "x.sif", *ON)
    assert "hpc has no image 'x'" in refused("image", "rm", "x", *ON)
    assert "there is no image /no/such.sif here" in refused(
        "run", *ON, "--image", "/no/such.sif", "--", "true"
    )
    assert json.loads(far("ps", "--all", "--json").stdout) == []


def test_an_image_for_another_machine_is_not_sent(far: Dray, podman: Podman) -> None:
    files = {"Dockerfile": "FROM scratch\nCOPY x /x\n", "x": "x"}
    context = podman.folder / "arm"
    context.mkdir(exist_ok=True)
    for name, text in files.items():
        (context / name).write_text(text)
    podman("build", "--quiet", "--platform", "linux/arm64", "--tag", "localhost/arm", str(context))
    ended = far("image", "push", "arm", *ON, check=False)
    assert ended.returncode == 4
    assert "arm:latest is made for arm64, and hpc is amd64" in ended.stderr
    assert "--platform linux/amd64" in ended.stderr
    assert listing(far) == []


def test_no_container_tool_anywhere(
    dray: Dray, hpc: Hpc, podman: Podman, train_image: str, tmp_path: Path
) -> None:
    hpc.offer(dray, setup=[])
    dray.use(podman.bin)
    ended = dray("image", "push", train_image, *ON, check=False)
    assert ended.returncode == 4
    assert "hpc: there is nothing to make a container image with" in ended.stderr
    assert "Install apptainer" in ended.stderr
    dray.env["PATH"] = str(all_programs_but(tmp_path / "bin", "podman", "docker"))
    ended = dray("image", "push", train_image, *ON, check=False)
    assert ended.returncode == 4
    assert "neither docker nor podman" in ended.stderr
