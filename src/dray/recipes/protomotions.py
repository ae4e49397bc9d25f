"""Recipe for ProtoMotions, which resumes by itself from results/<experiment>/last.ckpt and
spreads by Fabric."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dray.errors import UsageError
from dray.recipes import Filled, Request, starting
from dray.records import dataclass, field

SCRIPT = "protomotions/train_agent.py"


@dataclass(frozen=True, kw_only=True)
class ProtoMotions:
    name: str = "protomotions"
    summary: str = "ProtoMotions' train_agent.py"
    settings: Mapping[str, Any] = field(
        default_factory=lambda: {
            "job.outputs": ("results",),
            "job.resume.checkpoint": "results/**/last.ckpt",
            "job.resume.looks_for": "last.ckpt",
            "job.resume.beside": "env_*.ckpt",  # of each task's environments; loaded if there
            "job.resume.begin_args": ("--checkpoint", "{checkpoint}"),
            "job.resume.saves": "periodically",
        }
    )
    metrics: Mapping[str, Any] = field(
        default_factory=lambda: {"tensorboard": "results/**/events.out.tfevents.*", "main": []}
    )

    def detect(self, project: Path) -> str:
        return f"there is {SCRIPT}" if (project / SCRIPT).is_file() else ""

    def fill(self, request: Request) -> Filled:
        counts = {"environments": ("--num-envs",), "samples a batch": ("--batch-size",)}
        notes = starting.totals(request, counts)
        launch = "srun" if request.workers > 1 and "srun" in request.on.launchers else None
        settings = {"job.launch": launch} if launch else {}
        if not starting.is_arguments(request.command):
            return Filled(request.command, settings, notes)
        if not (request.folder / SCRIPT).is_file():
            raise UsageError(f"there is no {SCRIPT} in {request.folder}")
        python = request.python or ("python",)
        command = (*python, SCRIPT, *request.command)
        if request.workers > 1:
            command += self.spread(request)
        return Filled(command, settings, notes)

    def spread(self, request: Request) -> tuple[str, ...]:
        """Return what Fabric has to be told and the user has not given."""
        counts = {"--ngpu": max(request.gpus, 1), "--nodes": request.nodes}
        return tuple(
            word
            for flag, count in counts.items()
            if starting.value_of(request.command, (flag,)) is None
            for word in (flag, str(count))
        )


PROTOMOTIONS = ProtoMotions()
