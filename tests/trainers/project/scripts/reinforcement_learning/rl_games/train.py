"""rl_games as Isaac Lab starts it: --max_iterations are epochs in all, also on a resume."""

from __future__ import annotations

import os
import sys
from typing import Any

sys.path.insert(0, os.getcwd())

import torch
from isaaclab_habits import dump_params, parser, timestamp
from point_mass import PointMass
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv
from rl_games.torch_runner import Runner

NAME = "point_mass"


class Env(IVecEnv):
    def __init__(self, _name: str, num_actors: int, **_: Any) -> None:
        self.task = PointMass(num_actors)

    def reset(self) -> torch.Tensor:
        return self.task.reset()

    def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
        observations, rewards, over = self.task.step(actions)
        return observations, rewards, over, {"time_outs": over}

    def get_env_info(self) -> dict[str, Any]:
        return {
            "observation_space": self.task.observation_space,
            "action_space": self.task.action_space,
        }


def agent_cfg(args: Any, root: str, log_dir: str) -> dict[str, Any]:
    fixed = {"name": "default"}
    space = {
        "mu_activation": "None",
        "sigma_activation": "None",
        "mu_init": fixed,
        "sigma_init": {"name": "const_initializer", "val": 0},
        "fixed_sigma": True,
    }
    mlp = {"units": [32, 32], "activation": "elu", "initializer": fixed}
    config = {
        "name": NAME,
        "env_name": "rlgpu",
        "device": "cpu",
        "train_dir": root,
        "full_experiment_name": log_dir,
        "num_actors": args.num_envs,
        "max_epochs": args.max_iterations,
        "save_frequency": 5,
        "save_best_after": 10,
        "horizon_length": 16,
        "minibatch_size": 128,
        "mini_epochs": 2,
        "reward_shaper": {"scale_value": 1.0},
        "learning_rate": 1e-3,
        "lr_schedule": "adaptive",
        "kl_threshold": 0.008,
        "gamma": 0.99,
        "tau": 0.95,
        "e_clip": 0.2,
        "clip_value": True,
        "critic_coef": 1,
        "entropy_coef": 0.0,
        "bounds_loss_coef": 0.0,
        "grad_norm": 1.0,
        "truncate_grads": True,
        "normalize_advantage": True,
        "normalize_input": True,
        "normalize_value": True,
        "ppo": True,
        "torch_compile": False,
    }
    network = {"name": "actor_critic", "separate": False, "space": {"continuous": space}}
    return {
        "params": {
            "seed": args.seed,
            "torch_threads": 1,  # it sets them itself, whatever OMP_NUM_THREADS says
            "algo": {"name": "a2c_continuous"},
            "model": {"name": "continuous_a2c_logstd"},
            "network": {**network, "mlp": mlp},
            "config": config,
        }
    }


def main() -> None:
    args = parser().parse_args()
    root = os.path.abspath(os.path.join("logs", "rl_games", NAME))
    log_dir = timestamp()
    cfg = agent_cfg(args, root, log_dir)
    dump_params(os.path.join(root, log_dir), args.num_envs, cfg)
    vecenv.register("IsaacRlgWrapper", Env)
    env_configurations.register("rlgpu", {"vecenv_type": "IsaacRlgWrapper"})
    runner = Runner()
    runner.load(cfg)
    runner.run({"train": True, "play": False, "sigma": None, "checkpoint": args.checkpoint})


if __name__ == "__main__":
    main()
