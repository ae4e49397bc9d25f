"""skrl as Isaac Lab starts it: a resumed run counts its timesteps from zero. It saves between two
updates, and at the end, as since Isaac Lab 3.0."""

from __future__ import annotations

import os
import sys
from typing import Any

sys.path.insert(0, os.getcwd())

import torch
from isaaclab_habits import dump_params, parser, timestamp
from point_mass import PointMass
from skrl.envs.wrappers.torch import Wrapper
from skrl.utils.runner.torch import Runner


class Env(Wrapper):
    def reset(self) -> tuple[torch.Tensor, dict[str, Any]]:
        return self._env.reset(), {}

    def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
        observations, rewards, over = self._env.step(actions)
        over = over[:, None]
        return observations, rewards[:, None], torch.zeros_like(over), over, {}

    def state(self) -> None:
        return None

    def render(self) -> None:
        return None

    def close(self) -> None:
        return None


def agent_cfg(args: Any, root: str, log_dir: str) -> dict[str, Any]:
    layers = [{"name": "net", "input": "OBSERVATIONS", "layers": [32, 32], "activations": "elu"}]
    rollouts = 16
    return {
        "seed": args.seed,
        "models": {
            "separate": False,
            "policy": {"class": "GaussianMixin", "network": layers, "output": "ACTIONS"},
            "value": {"class": "DeterministicMixin", "network": layers, "output": "ONE"},
        },
        "memory": {"class": "RandomMemory", "memory_size": -1},
        "agent": {
            "class": "PPO",
            "rollouts": rollouts,
            "learning_epochs": 2,
            "mini_batches": 2,
            "learning_rate": 1e-3,
            "experiment": {
                "directory": root,
                "experiment_name": log_dir,
                "write_interval": rollouts,
                "checkpoint_interval": 5 * rollouts - 3,
            },
        },
        "trainer": {
            "class": "SequentialTrainer",
            "timesteps": args.max_iterations * rollouts,
            "environment_info": "log",
            "disable_progressbar": True,
            "close_environment_at_exit": False,
        },
    }


def main() -> None:
    flags = parser()
    flags.add_argument("--algorithm", default="PPO")
    flags.add_argument("--ml_framework", default="torch")
    args = flags.parse_args()
    root = os.path.abspath(os.path.join("logs", "skrl", "point_mass"))
    log_dir = f"{timestamp()}_{args.algorithm.lower()}_{args.ml_framework}"
    cfg = agent_cfg(args, root, log_dir)
    dump_params(os.path.join(root, log_dir), args.num_envs, cfg)
    runner = Runner(Env(PointMass(args.num_envs)), cfg)
    if args.checkpoint:
        print(f"[INFO] Loading model checkpoint from: {args.checkpoint}")
        runner.agent.load(os.path.abspath(args.checkpoint))
    runner.trainer.train()
    timesteps = cfg["trainer"]["timesteps"]
    runner.agent.write_checkpoint(timestep=timesteps, timesteps=timesteps)


if __name__ == "__main__":
    main()
