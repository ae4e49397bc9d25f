"""dray.training's callbacks in the real libraries: asked once, saved, resumed, reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Dray, wait_for

pytestmark = pytest.mark.trainers

PAIRS = (
    "--checkpoint-number", r"model_(\d+)_steps",
    "--checkpoint-partner", "model_vecnormalize_{number}_steps.pkl",
)  # fmt: skip


@pytest.mark.parametrize(
    ("script", "ending", "more", "metric", "end"),
    [
        ("with_sb3.py", "zip", PAIRS, "reward", 5000),
        ("with_lightning.py", "ckpt", (), "loss", 500),
        ("with_rsl_rl.py", "pt", (), "reward", 149),
    ],
)
def test_a_callback_saves_when_asked_and_reports(
    dray: Dray,
    trainers: Path,
    script: str,
    ending: str,
    more: tuple[str, ...],
    metric: str,
    end: int,
) -> None:
    asked = ("--checkpoint", f"checkpoints/*.{ending}", "--checkpoint-signal", "USR1", *more)
    python = str(trainers / "python")
    job = dray.run(*asked, "--env", "OMP_NUM_THREADS=1", "--", python, f"callbacks/{script}")
    reports = dray.job_dir(job) / "outputs/metrics.jsonl"
    wait_for(lambda: reports.exists() and len(reports.read_text().splitlines()) > 2, 60)
    dray("stop", job)
    first = dray.wait(job)["attempts"][0]
    assert first["checkpoint"] is not None, dray.log(job)
    dray("resume", job)
    shown = dray.wait(job)
    assert shown["state"] == "done", dray.log(job)
    assert shown["attempts"][1]["from_checkpoint"] == first["checkpoint"]
    steps = [step for step, _, _ in shown["curve"]["points"]]
    assert shown["curve"]["name"] == metric
    assert steps == sorted(set(steps))  # none doubled
    assert {attempt for _, _, attempt in shown["curve"]["points"]} == {1, 2}
    assert steps[-1] >= end
