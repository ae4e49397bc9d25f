"""rsl_rl as Isaac Lab starts it: every run makes a new folder, and --max_iterations are added."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

sys.path.insert(0, os.getcwd())  # Isaac Lab's own packages are installed; these lie beside it

import torch
from isaaclab_habits import dump_params, parser, timestamp
from point_mass import EPISODE, PointMass
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

NETWORK = {"class_name": "MLPModel", "hidden_dims": [32, 32]}


class Env(VecEnv):
    def __init__(self, num_envs: int) -> None:
        self.task = PointMass(num_envs)
        self.num_envs, self.num_actions = num_envs, 2
        self.max_episode_length, self.device, self.cfg = EPISODE, "cpu", {}
        self.episode_length_buf = self.task.age

    def get_observations(self) -> TensorDict:
        return TensorDict({"policy": self.task.state.clone()}, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        _, rewards, over = self.task.step(actions)
        return self.get_observations(), rewards, over, {"time_outs": over}


def agent_cfg(max_iterations: int, seed: int) -> dict[str, Any]:
    gaussian = {"class_name": "GaussianDistribution"}
    return {
        "seed": seed,
        "max_iterations": max_iterations,
        "num_steps_per_env": 16,
        "save_interval": 5,
        "experiment_name": "point_mass",
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**NETWORK, "distribution_cfg": gaussian},
        "critic": dict(NETWORK),
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 2, "num_mini_batches": 2},
    }


def get_checkpoint_path(root: str, run: str, checkpoint: str) -> str:
    """The newest run's, as Isaac Lab looks it up: an empty folder is an error."""
    runs = sorted(one for one in os.listdir(root) if re.match(run, one))
    folder = os.path.join(root, runs[-1])
    found = [one for one in os.listdir(folder) if re.match(checkpoint, one)]
    if not found:
        raise ValueError(f"No checkpoints in the directory: '{folder}' match '{checkpoint}'.")
    return os.path.join(folder, sorted(found, key=lambda name: f"{name:0>15}")[-1])


def main() -> None:
    flags = parser()
    flags.add_argument("--resume", action="store_true")
    flags.add_argument("--load_run", default=".*")
    args = flags.parse_args()
    torch.manual_seed(args.seed)
    cfg = agent_cfg(args.max_iterations, args.seed)
    root = os.path.abspath(os.path.join("logs", "rsl_rl", cfg["experiment_name"]))
    log_dir = os.path.join(root, timestamp())
    resume_path = ""
    if args.resume:
        resume_path = get_checkpoint_path(root, args.load_run, args.checkpoint or r"model_.*\.pt")
    dump_params(log_dir, args.num_envs, cfg)
    runner = OnPolicyRunner(Env(args.num_envs), cfg, log_dir=log_dir, device="cpu")
    if resume_path:
        print(f"[INFO]: Loading model checkpoint from: {resume_path}")
        runner.load(resume_path)
    runner.learn(num_learning_iterations=cfg["max_iterations"], init_at_random_ep_len=True)


if __name__ == "__main__":
    main()
