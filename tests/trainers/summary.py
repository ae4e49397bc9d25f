"""What a run has left, as JSON: runs where the trainers are installed, which pytest's own
environment does not know.

summary.py TAG CHECKPOINT FOLDER: the steps of the tag in every event file below the folder, oldest
file first, and what the checkpoint says of the training's state.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader


def series(folder: Path, tag: str) -> list[list[int]]:
    files = sorted(folder.rglob("events.out.tfevents.*"), key=lambda one: one.name.split(".")[3])
    return [steps for steps in (steps_in(file, tag) for file in files) if steps]


def steps_in(file: Path, tag: str) -> list[int]:
    events = EventFileLoader(str(file)).Load()
    return [one.step for one in events if any(value.tag == tag for value in one.summary.value)]


def state_of(checkpoint: Path) -> dict[str, Any]:
    if checkpoint.suffix == ".zip":
        from stable_baselines3 import PPO

        model = PPO.load(checkpoint, device="cpu")
        optimizer = model.policy.optimizer.state_dict()
        state = {"updates": updates(optimizer), "counter": model.num_timesteps}
        name = checkpoint.name.replace("model", "model_vecnormalize", 1)
        partner = checkpoint.with_name(name)
        statistics = pickle.loads(partner.with_suffix(".pkl").read_bytes())
        return {**state, "normalized": round(statistics.obs_rms.count)}
    content = torch.load(checkpoint, map_location="cpu", weights_only=False)
    names = ("optimizer_state_dict", "optimizer_states", "optimizer")
    optimizer = next(content[name] for name in names if name in content)
    counters = ("iter", "epoch", "step")
    counter = next((content[name] for name in counters if name in content), None)
    state = {"updates": updates(optimizer), "counter": counter}
    if "model" in content and counters[-1] in content:  # a small one of the tests' own
        numbers = [number for one in content["model"].values() for number in one.flatten().tolist()]
        state["weights"] = numbers
    return state


def updates(optimizer: Any) -> int:
    """How often Adam has been asked to step."""
    one = optimizer[0] if isinstance(optimizer, list) else optimizer
    return int(next(iter(one["state"].values()))["step"])


tag, checkpoint, folder = sys.argv[1:]
print(json.dumps({"series": series(Path(folder), tag), **state_of(Path(checkpoint))}))
