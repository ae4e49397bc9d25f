"""Several commands in one job: what each gets, and how one end decides on the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dray.config.batch_file import BatchFile, BatchJob
from dray.config.loading import Config
from dray.errors import ConfigError
from dray.home import Home
from dray.job.options import GpuRequest
from dray.launcher.batches.together import as_one_job
from dray.node.processes import dividing


@pytest.mark.parametrize(
    ("visible", "wanted", "divided"),
    [
        ("0,1,2,3", [None, None], [["0", "1"], ["2", "3"]]),
        ("4,5,6", [None, None], [["4"], ["5", "6"]]),
        ("7", [None, None, None], [["7"], ["7"], ["7"]]),
        ("0,1", [None, None, None], [["0"], ["1"], ["0"]]),
        ("", [None, None], [[], []]),
        ("0,1,2", [2, 0, 1], [["0", "1"], [], ["2"]]),
    ],
)
def test_gpus_are_divided(visible: str, wanted: list[int | None], divided: list[list[str]]) -> None:
    found = dividing.visible_gpus({"CUDA_VISIBLE_DEVICES": visible})
    assert found is not None
    assert dividing.divide_gpus(found, wanted) == divided


def test_without_a_word_on_gpus_none_are_divided() -> None:
    assert dividing.visible_gpus({}) is None


# -- the program --------------------------------------------------------------------------------


class Started:
    def __init__(self, outputs: Path, **described: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dray.node", "side-by-side", json.dumps(described)],
            env={**os.environ, "DRAY_OUTPUTS": str(outputs), "CUDA_VISIBLE_DEVICES": "0,1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, list[str], str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, sorted(out.splitlines()), err


def member(name: str, code: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "words": [sys.executable, "-c", code], **more}


SHOW = (
    "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['DRAY_OUTPUTS'][-1]);"
    "open(os.environ['DRAY_OUTPUTS'] + '/ran', 'a').write('x')"
)
SLEEP = "import time; time.sleep(600)"


def test_each_has_its_own_gpu_and_outputs(tmp_path: Path) -> None:
    code, lines, _ = Started(tmp_path, commands=[member("0", SHOW), member("1", SHOW)]).end()
    assert (code, lines) == (0, ["0 | 0 0", "1 | 1 1"])


def test_one_that_fails_leaves_the_others_alone_and_is_told(tmp_path: Path) -> None:
    """Those that are done are not run again by the next attempt."""
    failing = (
        "import os, sys; sys.exit(0 if os.path.exists(os.environ['DRAY_OUTPUTS'] + '/2') else 5)"
    )
    commands = [member("0", SHOW), member("1", failing)]
    code, _, told = Started(tmp_path, commands=commands).end()
    assert code == 5
    assert "1 ended with 5" in told
    (tmp_path / "1/2").touch()
    code, _, told = Started(tmp_path, commands=commands).end()
    assert code == 0
    assert "0 is done already" in told
    assert (tmp_path / "0/ran").read_text() == "x"


def test_a_failure_ends_those_that_run_together(tmp_path: Path) -> None:
    commands = [member("a", SLEEP), member("b", "raise SystemExit(4)")]
    code, _, told = Started(tmp_path, commands=commands, together=True).end()
    assert code == 4
    assert f"a ended with {128 + signal.SIGTERM}" in told


def test_the_end_of_the_lead_ends_the_others(tmp_path: Path) -> None:
    peer = "import os; print(os.environ['DRAY_PEER_SERVER_1'])"
    commands = [member("server-1", SLEEP), member("lead", peer)]
    code, lines, _ = Started(tmp_path, commands=commands, together=True, lead="lead").end()
    assert (code, lines) == (0, ["lead | 127.0.0.1"])


def test_a_program_that_is_missing_is_told(tmp_path: Path) -> None:
    commands = [{"name": "x", "words": ["/no/such/program"]}]
    code, _, told = Started(tmp_path, commands=commands).end()
    assert code == 127
    assert "x could not be started" in told


def test_a_signal_reaches_all(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time, os; signal.signal(15, lambda *_: sys.exit(9));"
        "open(os.environ['DRAY_OUTPUTS'] + '/ready', 'w'); time.sleep(600)"
    )
    started = Started(tmp_path, commands=[member("0", code), member("1", code)])
    for _ in range(600):
        if (tmp_path / "0/ready").exists() and (tmp_path / "1/ready").exists():
            break
        time.sleep(0.05)
    started.process.send_signal(signal.SIGTERM)
    code_of_all, _, told = started.end()
    assert code_of_all == 9
    assert "0 ended with 9" in told
    assert "1 ended with 9" in told


# -- jobs that run together ---------------------------------------------------------------------


def config(tmp_path: Path) -> Config:
    return Config(Home(tmp_path, tmp_path, tmp_path), tmp_path, "", {}, {})


def gang(*jobs: BatchJob) -> BatchFile:
    return BatchFile(Path("jobs.toml"), "jobs", b"", jobs, together=True)


def test_jobs_that_run_together_ask_for_the_sum(tmp_path: Path) -> None:
    gpus, cpus, time_ = "job.resources.gpus", "job.resources.cpus", "job.resources.time"
    file = gang(
        BatchJob("a", "learner", ("l",), {gpus: GpuRequest(2), time_: 60.0}, is_lead=True),
        BatchJob("b", "actor", ("a", "{index}"), {cpus: 4, time_: 90.0}, number=2),
    )
    (job,) = as_one_job(file, config(tmp_path)).jobs
    assert job.settings[gpus] == GpuRequest(2, None)
    assert job.settings[cpus] == 1 + 4 + 4
    assert job.settings[time_] == 90.0
    described = json.loads(job.command[-1])
    assert described["lead"] == "learner"
    assert [one["name"] for one in described["commands"]] == ["learner", "actor-0", "actor-1"]
    assert described["commands"][2]["words"] == ["a", "1"]


def test_jobs_that_cannot_run_together_are_refused(tmp_path: Path) -> None:
    a, b = BatchJob("x:1", "a", ("a",)), BatchJob("x:5", "b", ("b",))
    for wrong, message in (
        (b._replace(settings={"job.image": "other"}), "--nodes 2"),
        (b._replace(after=("a",)), "cannot wait for each other"),
        (b._replace(settings={"job.resources.memory": 5}), "all say how much"),
        (b._replace(settings={"job.resources.gpus": GpuRequest(0.5)}), "whole GPUs"),
    ):
        with pytest.raises(ConfigError) as raised:
            as_one_job(gang(a, wrong), config(tmp_path))
        assert message in str(raised.value)
