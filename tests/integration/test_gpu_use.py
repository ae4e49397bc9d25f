"""How busy a job's GPUs are: by a libnvidia-ml that is made up, as there is no GPU here."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dray.cli import ps
from dray.job.model import idle_words
from dray.node.processes.gpu_use import visible_devices
from dray.records import replace
from dray.testing import FakeCluster, launcher
from tests.conftest import Dray, Hpc, wait_for

SOURCE = Path(__file__).parents[1] / "rigs/nvml.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    made = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, SOURCE], check=True)
    return made


def gauge(library: Path, folder: Path, wanted: str, use: str, **env: str) -> str:
    """What a gauge in a process of its own reads, or what it did wrong."""
    (folder / "use").write_text(use)
    code = (
        "import sys, time; from dray.node.processes import gpu_use\n"
        "one = gpu_use.Gauge(gpu_use.visible_devices(sys.argv[2] or None), sys.argv[1])\n"
        "for _ in range(40):\n"
        "    found = one.read()\n"
        "    if found: break\n"
        "    time.sleep(0.05)\n"
        "print(found and (found[0], found[1] is not None))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(library), wanted],
        env={
            "FAKE_NVML_USE": str(folder / "use"),
            "FAKE_NVML_WRONG": str(folder / "wrong"),
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not (folder / "wrong").exists(), (folder / "wrong").read_text()
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize(
    ("wanted", "use", "read"),
    [
        ("", "30 90", "(60.0, False)"),
        ("0", "30 90", "(30.0, False)"),
        ("1", "30 90", "(90.0, False)"),
        ("GPU-11111111-aaaa", "30 90", "(90.0, False)"),
        ("0,1", "0 0", "(0.0, True)"),
        ("0,1", "0 1", "(0.5, False)"),
        ("7", "30 90", "None"),
        ("GPU-none-such", "30 90", "None"),
        ("0", "4000000000 0", "(100.0, False)"),
    ],
)
def test_what_is_read(library: Path, tmp_path: Path, wanted: str, use: str, read: str) -> None:
    assert gauge(library, tmp_path, wanted, use) == read


def test_without_a_driver_or_a_library_nothing_is_read(library: Path, tmp_path: Path) -> None:
    assert gauge(library, tmp_path, "", "1 1", FAKE_NVML_NO_DRIVER="1") == "None"
    assert gauge(tmp_path / "nosuch.so", tmp_path, "", "1 1") == "None"
    (tmp_path / "text.so").write_text("no library")
    assert gauge(tmp_path / "text.so", tmp_path, "", "1 1") == "None"


def test_a_driver_that_hangs_does_not_keep_the_process(library: Path, tmp_path: Path) -> None:
    assert gauge(library, tmp_path, "0", "1 1", FAKE_NVML_HANGS="1") == "None"


def test_which_gpus_are_seen() -> None:
    assert visible_devices(None) is None
    assert visible_devices("0,2") == ["0", "2"]
    assert visible_devices("GPU-1, MIG-2") == ["GPU-1", "MIG-2"]
    assert visible_devices("1,-1,0") == ["1"]
    assert visible_devices("") == []
    assert visible_devices("NoDevFiles") == []


def test_words() -> None:
    assert idle_words(None, 5000.0) == ""
    assert idle_words(1000.0, 1300.0) == ""
    assert idle_words(1000.0, 2200.0).startswith("GPU idle for 20m")


def test_a_job_that_does_nothing_with_its_gpu(
    dray: Dray, hpc: Hpc, library: Path, tmp_path: Path
) -> None:
    """The real supervisor in a batch job, beside a library that says so; the time is set back by
    the test, as ten minutes are long."""
    (tmp_path / "use").write_text("0 70")
    setup = {
        "LD_LIBRARY_PATH": library.parent,
        "FAKE_NVML_USE": tmp_path / "use",
        "FAKE_NVML_WRONG": tmp_path / "wrong",
    }
    hpc.offer(dray, setup=[f"export {name}={value}" for name, value in setup.items()])
    job = dray.run("--on", "hpc", "--gpus", "1", "--", "sleep", "120")
    shown = wait_for(lambda: [one for one in dray.show(job)["attempts"] if one["gpu_idle"]])[-1]
    assert shown["gpu_use"] == 0, "its own GPU, not that of the node's other job"
    assert abs(shown["gpu_idle"] - time.time()) < 60
    beat = dray.job_dir(job) / "attempts/001/heartbeat.json"
    record = json.loads(beat.read_text())
    since = record["heartbeat"] - 1260
    beat.write_text(json.dumps({**record, "gpu_idle": since}))
    found = json.loads(dray("why", "--json", job).stdout)["findings"]
    if not found[0].startswith("GPU idle for 21m"):  # it has beaten at this very moment
        beat.write_text(json.dumps({**record, "gpu_idle": since}))
        found = json.loads(dray("why", "--json", job).stdout)["findings"]
    assert found[0].startswith("GPU idle for 21m")
    assert not (tmp_path / "wrong").exists()
    dray("stop", "--now", job)
    dray.wait(job)


def test_the_listing_tells_it(tmp_path: Path) -> None:
    cluster = FakeCluster("hpc")
    verbs = launcher(tmp_path, cluster)
    job = verbs.run(["python", "train.py"], snapshot=False)
    cluster.start(job)
    running = cluster.jobs[job]
    idle = replace(running.attempts[-1], heartbeat=5000.0, gpu_idle=3740.0, gpu_use=0.0)
    running.attempts[-1] = idle
    (line,) = ps.lines_of(verbs.listing().rows, 80)
    assert line.reason == idle_words(3740.0, 5000.0)
    assert line.reason.startswith("GPU idle for 21m")
