"""Pods that bring their own submission along, as processes of this machine: the first of them puts
what the Secret holds on the volume, once, with the node side that is in the Secret, too."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.kube import carrying
from dray.clusters.kube.carrying import NODE
from dray.clusters.kube.manifest import failure_policy
from dray.errors import Refused
from dray.job.model import JobSpec, Snapshot
from dray.node.code.packs import hash_of
from dray.node.schedulers.gathered import CODES, OWN_FAULT
from dray.node.schedulers.kubernetes import PACK, REQUEST
from dray.snapshot import Scanner

JOB = "walk-7f3k"
WHY = "the helper pod does not start: the quota is used up"
COMMAND = ("sh", "-c", "cat code.txt; echo x >> $DRAY_OUTPUTS/starts")


class Secret:
    """A project, and the Secret of its job, as a kubelet mounts it: all files are links."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.mounted = folder / "secret"
        self.root = folder / "volume/dray"
        self.project.mkdir()
        self.mounted.mkdir()
        (self.project / "code.txt").write_text("as it was\n")

    @property
    def job_dir(self) -> Path:
        return self.root / "jobs" / JOB

    def snapshot(self) -> Snapshot:
        return Scanner(self.project, (), Path("/nonexistent"), 1 << 40).take(remember=False)

    def wrap(self, code: Snapshot, last: bytes = b"") -> dict[str, bytes]:
        spec = JobSpec(id=JOB, name="walk", command=COMMAND, created=1.0, snapshot=code.id)
        about = {**spec.to_dict(), "container": None, "scheduler": {"kind": "kubernetes"}}
        request: Any = {
            "job": {"id": JOB, "created": 1.0, "snapshot": code.id},
            "files": {"job.json": json.dumps(about)},
            "command": [],
            "facts": None,
            "image": None,
        }
        return dict(carrying.parcel(request, code, last, lambda *_: None, WHY))

    def fill(self, files: dict[str, bytes]) -> None:
        data = self.mounted / "..data"
        data.mkdir()
        for name, content in files.items():
            (data / name).write_bytes(content)
            (self.mounted / name).symlink_to(f"..data/{name}")

    def pod(self) -> subprocess.Popen[str]:
        node = str(self.mounted / NODE)
        words = [sys.executable, "-I", "-S", node, "carried", str(self.mounted), str(self.job_dir)]
        env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
        pipe = subprocess.PIPE
        return subprocess.Popen(words, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def end(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.job_dir / "end.json").read_text())
        return found


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path)


def ended(pod: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = pod.communicate(timeout=60)
    return pod.returncode, said


def test_it_runs_what_it_has_brought(secret: Secret) -> None:
    secret.fill(secret.wrap(secret.snapshot()))
    code, said = ended(secret.pod())
    assert code == 0, said
    assert (secret.job_dir / "attempts/001/log").read_text() == "as it was\n"
    assert secret.end()["state"] == "done"


def test_several_pods_bring_it_once(secret: Secret) -> None:
    """One that takes over does not bring back what the job has changed since; nor do two that
    start at once run it twice."""
    secret.fill(secret.wrap(secret.snapshot()))
    first, second = secret.pod(), secret.pod()
    assert [ended(first)[0], ended(second)[0]] == [0, 0]
    (secret.job_dir / "job.json").touch()
    before = (secret.job_dir / "job.json").stat().st_mtime_ns
    assert ended(secret.pod())[0] == 0
    assert (secret.job_dir / "job.json").stat().st_mtime_ns == before
    assert (secret.job_dir / "outputs/starts").read_text() == "x\n"


def test_another_job_of_the_same_name_is_left_alone(secret: Secret) -> None:
    secret.fill(secret.wrap(secret.snapshot()))
    secret.job_dir.mkdir(parents=True)
    theirs = json.dumps({"id": JOB, "created": 2.0})
    (secret.job_dir / "job.json").write_text(theirs)
    code, said = ended(secret.pod())
    assert (code, "another job has the id" in said) == (CODES["failed"], True)
    assert (secret.job_dir / "job.json").read_text() == theirs
    assert not (secret.job_dir / "end.json").exists()


def incompressible(project: Path, size: int) -> None:
    (project / "weights.bin").write_bytes(random.Random(1).randbytes(size))


def test_what_has_changed_alone_where_all_is_too_much(secret: Secret) -> None:
    incompressible(secret.project, 2 * carrying.MOST)
    before = secret.snapshot()
    (secret.project / "code.txt").write_text("as it is now\n")
    files = secret.wrap(secret.snapshot(), before.manifest)
    assert len(files[PACK]) < 1000
    assert json.loads(files[REQUEST])["manifest"]["base"] == hash_of(before.manifest)
    secret.fill(files)
    # The volume lacks what was there when it was sent: that is the job's end, and it is told.
    code, said = ended(secret.pod())
    assert code == CODES["failed"]
    assert "missing on the volume" in said
    assert secret.end()["state"] == "failed"
    assert "submit it again" in secret.end()["reason"]
    assert ended(secret.pod())[0] == CODES["failed"]


def test_too_much_is_refused_and_says_what_to_do(secret: Secret) -> None:
    incompressible(secret.project, 2 * carrying.MOST)
    with pytest.raises(Refused, match=r"the quota is used up. Without it a job can bring") as found:
        secret.wrap(secret.snapshot())
    assert "Free room in the quota" in found.value.hint


def test_what_can_be_compressed_counts_as_little(secret: Secret) -> None:
    (secret.project / "long.txt").write_text("all work and no play\n" * 100_000)
    files = secret.wrap(secret.snapshot())
    assert sum(map(len, files.values())) < 1 << 20
    secret.fill(files)
    assert ended(secret.pod())[0] == 0


@pytest.mark.parametrize("missing", ["zlib", "json"])
def test_a_python_that_cannot_do_it_fails_the_job(secret: Secret, missing: str) -> None:
    """Else a thousand pods would follow each other."""
    secret.fill(secret.wrap(secret.snapshot()))
    node = str(secret.mounted / NODE)
    start = f"import runpy, sys; sys.modules[{missing!r}] = None; runpy.run_path({node!r})"
    words = ("carried", str(secret.mounted), str(secret.job_dir))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    (rule,) = failure_policy()["rules"]
    assert done.returncode == OWN_FAULT
    assert OWN_FAULT in rule["onExitCodes"]["values"]
    assert "dray needs Python 3.6 or newer" in done.stderr
