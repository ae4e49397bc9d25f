"""Recipes for your own trainer: a program that writes into ``checkpoints`` and reads
$DRAY_CHECKPOINT (or uses ``dray.training``), run once or as one worker for each GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dray.recipes import Filled, Request, starting
from dray.records import dataclass, field

COUNTS = {
    "environments": ("--num-envs", "--num_envs"),
    "samples a batch": ("--batch-size", "--batch_size"),
}


@dataclass(frozen=True, kw_only=True)
class Plain:
    name: str
    summary: str
    spread: bool
    settings: Mapping[str, Any] = field(
        default_factory=lambda: {
            "job.outputs": ("checkpoints", "logs"),
            "job.resume.checkpoint": "checkpoints/**/*.*",
        }
    )
    metrics: Mapping[str, Any] = field(
        default_factory=lambda: {"tensorboard": "**/events.out.tfevents.*", "main": []}
    )

    def detect(self, project: Path) -> str:
        return "" if self.spread or not (project / "train.py").is_file() else "there is train.py"

    def fill(self, request: Request) -> Filled:
        command = starting.require_command(request, self.name)
        notes = starting.totals(request, COUNTS)
        if not self.spread or request.workers == 1:
            return Filled(command, notes=notes)
        if request.nodes > 1:
            return Filled(command, {"job.launch": "torchrun"}, notes)
        python = (command[0],) if is_python(command[0]) else request.python or ("python",)
        workers = starting.torchrun(request, python)
        if workers == python:  # the cluster does it
            return Filled(command, notes=notes)
        rest = command[1:] if is_python(command[0]) else ("--no-python", *command)
        return Filled((*workers, *rest), notes=notes)


def is_python(word: str) -> bool:
    return word.rpartition("/")[2].startswith("python")


TORCHRUN = Plain(
    name="torchrun", summary="your own trainer, as one worker for each GPU", spread=True
)
GENERIC = Plain(
    name="generic", summary="your own trainer: writes checkpoints, reads $DRAY_CHECKPOINT",
    spread=False,
)  # fmt: skip
