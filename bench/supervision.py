"""What the processes around a command cost, and how long a job takes to be queued."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench.measure import Figure, best_of
from dray import api
from dray.node.formats.files import read_json
from dray.node.jobs.jobdir import JobDir

WATCHED = 40.0


def cpu_seconds(pid: int) -> float:
    """Time on a CPU so far, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def megabytes(pid: int) -> float:
    """Resident memory, with what is shared between processes divided among them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no Pss")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def run(folder: Path) -> list[Figure]:
    project = folder / "project"
    project.mkdir()
    os.environ["DRAY_HOME"] = str(folder / "dray")
    napping = [sys.executable, "-c", "import time; time.sleep(1000)"]
    job = api.run(napping, project=project, checkpoint="*.pt", memory="1G", time="1h")
    job_dir = JobDir(str(folder / "dray/local/jobs" / job.id))
    attempt = job_dir.attempt(1).attempt
    while not (record := read_json(attempt)):
        time.sleep(0.05)
    supervisor = parent(record["pid"])
    pids = [supervisor, parent(supervisor)]
    time.sleep(2)
    before = sum(map(cpu_seconds, pids))
    time.sleep(WATCHED)
    share = (sum(map(cpu_seconds, pids)) - before) / WATCHED * 100
    memory = sum(map(megabytes, pids))
    job.stop(now=True)
    queued = best_of({"run": lambda: api.run(["/bin/true"], project=project)}, rounds=10)["run"]
    for one in api.jobs():
        one.wait()
    return [
        Figure("supervisor and keeper, CPU", share, "%", "one core", None, "≤ 0.1 %", share <= 0.1),
        Figure("supervisor and keeper, memory", memory, "MB", "", None, "≤ 20 MB", memory <= 20),
        Figure(
            "`dray.run` on local until queued and cared for",
            queued * 1000,
            "ms",
            "",
            None,
            "none",
            True,
        ),
    ]
