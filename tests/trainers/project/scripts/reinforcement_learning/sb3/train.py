"""stable-baselines3 as Isaac Lab starts it: a resumed run counts its steps from zero. But for the
statistics of VecNormalize, which are saved with each model, and loaded."""

from __future__ import annotations

import os
import sys
from typing import Any

sys.path.insert(0, os.getcwd())

import numpy as np
import torch
from isaaclab_habits import dump_params, parser, timestamp
from point_mass import PointMass
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecEnv, VecNormalize


class Env(VecEnv):
    def __init__(self, num_envs: int) -> None:
        self.task = PointMass(num_envs)
        super().__init__(num_envs, self.task.observation_space, self.task.action_space)

    def reset(self) -> np.ndarray:
        return self.task.reset().numpy()

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = torch.from_numpy(actions)

    def step_wait(self) -> tuple[Any, ...]:
        observations, rewards, over = (one.numpy() for one in self.task.step(self.actions))
        return observations, rewards, over, [{} for _ in range(self.num_envs)]

    def close(self) -> None:
        return None

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.task, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def main() -> None:
    flags = parser()
    flags.add_argument("--vecnormalize")
    args = flags.parse_args()
    n_steps = 16
    cfg = {
        "seed": args.seed,
        "n_timesteps": args.max_iterations * n_steps * args.num_envs,
        "policy": "MlpPolicy",
        "n_steps": n_steps,
        "batch_size": 128,
        "n_epochs": 2,
    }
    log_dir = os.path.abspath(os.path.join("logs", "sb3", args.task, timestamp()))
    dump_params(log_dir, args.num_envs, cfg)
    env = VecNormalize(Env(args.num_envs))
    if args.vecnormalize:
        env = VecNormalize.load(args.vecnormalize, env.venv)
    total, policy = cfg.pop("n_timesteps"), cfg.pop("policy")
    agent = PPO(policy, env, verbose=0, tensorboard_log=log_dir, device="cpu", **cfg)
    agent.set_logger(configure(log_dir, ["tensorboard"]))
    if args.checkpoint:
        print(f"[INFO] Loading checkpoint from: {args.checkpoint}")
        logger = agent.logger
        agent = agent.load(args.checkpoint, env, device="cpu")
        agent.set_logger(logger)
    saving = CheckpointCallback(5 * n_steps, log_dir, "model", save_vecnormalize=True)
    agent.learn(total_timesteps=total, callback=saving, log_interval=1)
    agent.save(os.path.join(log_dir, "model"))
    env.save(os.path.join(log_dir, "model_vecnormalize.pkl"))


if __name__ == "__main__":
    main()
