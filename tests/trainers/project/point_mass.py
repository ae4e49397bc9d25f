"""A point that has to be steered to the middle: a task for every trainer, small enough for a CPU.

A step takes a moment, as a simulator's does: so a run lasts long enough to be interrupted.
"""

from __future__ import annotations

import os
import time

import gymnasium
import torch

EPISODE = 32
STEP_SECONDS = float(os.environ.get("POINT_MASS_NAP", "0.001"))


class PointMass:
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (4,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.device = torch.device("cpu")
        self.age = torch.zeros(num_envs, dtype=torch.long)
        self.state = torch.zeros(num_envs, 4)
        self.reset()

    def reset(self) -> torch.Tensor:
        self._begin(torch.ones(self.num_envs, dtype=torch.bool))
        return self.state.clone()

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Observations, rewards, and which episodes are over; those begin anew."""
        time.sleep(STEP_SECONDS)
        place, speed = self.state[:, :2], self.state[:, 2:]
        speed = 0.9 * speed + 0.1 * actions.detach().clamp(-1, 1)
        place = (place + speed).clamp(-5, 5)
        self.state = torch.cat([place, speed], dim=1)
        rewards = -place.norm(dim=1)
        self.age = self.age + 1
        over = self.age >= EPISODE
        self._begin(over)
        return self.state.clone(), rewards, over

    def _begin(self, which: torch.Tensor) -> None:
        self.age = torch.where(which, torch.zeros_like(self.age), self.age)
        start = torch.cat([torch.rand(self.num_envs, 2) * 2 - 1, torch.zeros(self.num_envs, 2)], 1)
        self.state = torch.where(which[:, None], start, self.state)
