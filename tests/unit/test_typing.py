"""What a type checker says of programs that use the public API, in its strict mode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RIGHT = """
from pathlib import Path

import dray

settings: dray.JobSettings = {"gpus": 1, "time": "4h", "metrics": ["reward"], "env": {"SEED": 3}}


def train() -> list[dray.JobView]:
    try:
        job = dray.run(["python", "train.py"], on="hpc", project=Path(), **settings)
        state: dray.JobState = job.wait(timeout=3600.0)
    except (dray.NotFound, dray.Refused, dray.TimedOut, dray.ClusterError) as error:
        raise SystemExit(error.hint) from error
    if state is not dray.JobState.DONE:
        job.resume(total_time="48h", gpu_hours=64)
    curve: dray.Series = job.curve()
    print(curve.points, b"".join(job.logs(follow=True)), job.pull(only=["*.pt"]).name)
    jobs: dray.Jobs = dray.run_many([["true"], ["false"]], cpus=2, keep_checkpoints=3)
    print(jobs.stop(now=True), jobs[0].id, jobs[1:].states(), [one.id for one in dray.jobs()])
    attempts: tuple[dray.Attempt, ...] = job.show().attempts
    print(attempts)
    return jobs.show()
"""
WRONG = {
    'dray.run(["true"], gpu=1)': 'Unexpected keyword argument "gpu"',
    'dray.run(["true"], outputs="logs")': 'Argument "outputs" to "run" has incompatible type',
    'dray.run(["true"], number="x")': 'Unexpected keyword argument "number"',
    'dray.run_many([["true"]], container_home="mine")': 'Argument "container_home"',
    'dray.Job("a").resume(time="4h")': 'Unexpected keyword argument "time"',
    "dray.nothing": 'Module has no attribute "nothing"',
}


def test_a_type_checker_knows_the_api(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text("import dray\n\n" + "\n".join(WRONG) + "\n")
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path)]
    words += ["right.py", "wrong.py"]
    checked = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert "right.py" not in checked.stdout, checked.stdout
    for number, (line, complaint) in enumerate(WRONG.items(), 3):
        assert f"wrong.py:{number}: error: {complaint}" in checked.stdout, (line, checked.stdout)
