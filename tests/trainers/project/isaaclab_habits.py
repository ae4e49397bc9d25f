"""What Isaac Lab's train.py have in common: the flags, the run's folder, and params/*.yaml."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from typing import Any

import yaml


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser()
    flags.add_argument("--task", default="Point-Mass-v0")
    flags.add_argument("--num_envs", type=int, default=16)
    flags.add_argument("--max_iterations", type=int, default=40)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--headless", action="store_true")
    flags.add_argument("--checkpoint")
    return flags


def timestamp() -> str:
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S")


def dump_params(log_dir: str, num_envs: int, agent: dict[str, Any]) -> None:
    print(f"[INFO] Logging experiment in directory: {log_dir}", flush=True)
    os.makedirs(os.path.join(log_dir, "params"), exist_ok=True)
    for name, content in (("env", {"scene": {"num_envs": num_envs}}), ("agent", agent)):
        with open(os.path.join(log_dir, "params", f"{name}.yaml"), "w") as file:
            yaml.dump(content, file, sort_keys=False)
