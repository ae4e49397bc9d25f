"""Recipe for Lightning: the Trainer, with or without LightningCLI, and Fabric. On Slurm, srun
starts its ranks; elsewhere Lightning does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dray.recipes import Filled, Request, starting
from dray.records import dataclass, field

DECLARED_IN = ("pyproject.toml", "requirements.txt", "setup.py", "environment.yml")
BY_ITSELF = (
    "the checkpoint to go on from is in $DRAY_CHECKPOINT: "
    'trainer.fit(…, ckpt_path=os.environ.get("DRAY_CHECKPOINT"))'
)


@dataclass(frozen=True, kw_only=True)
class Lightning:
    name: str = "lightning"
    summary: str = "Lightning: a script with LightningCLI, a Trainer or Fabric"
    settings: Mapping[str, Any] = field(
        default_factory=lambda: {
            "job.outputs": ("lightning_logs", "checkpoints"),
            "job.resume.checkpoint": "**/*.ckpt",
        }
    )
    metrics: Mapping[str, Any] = field(
        default_factory=lambda: {"tensorboard": "**/events.out.tfevents.*", "main": []}
    )

    def detect(self, project: Path) -> str:
        for name in DECLARED_IN:
            if re.search(r"\b(pytorch-)?lightning\b", starting.content(project / name)):
                return f"{name} names lightning"
        return ""

    def fill(self, request: Request) -> Filled:
        command = starting.require_command(request, self.name)
        settings = on_slurm(request) if request.on.batch_variables == "SLURM_" else {}
        notes = starting.totals(request, {"samples a batch": ("--batch-size", "--batch_size")})
        if uses_cli(request):
            settings["job.resume.resume_args"] = ("--ckpt_path", "{checkpoint}")
        else:
            notes += (BY_ITSELF,)
        return Filled(command, settings, notes)


def on_slurm(request: Request) -> dict[str, Any]:
    launch = request.launch or ("srun" if request.workers > 1 else "none")
    if launch == "none":  # it would take itself for a task of srun's, and requeue the job itself
        return {"job.env": {"SLURM_JOB_NAME": "interactive"}}
    return {"job.launch": launch}


def uses_cli(request: Request) -> bool:
    scripts = [request.folder / word for word in request.command if word.endswith(".py")]
    return any("LightningCLI" in starting.content(script) for script in scripts)


LIGHTNING = Lightning()
