"""Trains a small policy with the real rsl_rl on the CPU, with what it is given as name=value.

``bench.stopping_trainer`` copies it into tests/trainers/project, whose task takes a moment for each
step, as a simulator does. How many iterations it has done is in ``iterations`` among its outputs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[:0] = [os.getcwd(), "scripts/reinforcement_learning/rsl_rl"]

import torch  # noqa: E402
from rsl_rl.runners import OnPolicyRunner  # noqa: E402
from train import Env, agent_cfg  # noqa: E402


def main(iterations: int, seed: int, *words: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    own = {name: float(value) for name, _, value in (one.partition("=") for one in words)}
    cfg = agent_cfg(iterations, seed)
    width = int(own.pop("width"))
    for network in ("actor", "critic"):
        cfg[network]["hidden_dims"] = [width, width]
    cfg["algorithm"].update(own, schedule="fixed")
    outputs = Path(os.environ["DRAY_OUTPUTS"])
    runner = OnPolicyRunner(Env(16), cfg, log_dir=str(outputs / "logs"), device="cpu")
    update, done = runner.alg.update, []

    def counted() -> object:
        done.append(1)
        (outputs / "iterations").write_text(str(len(done)))
        return update()

    runner.alg.update = counted
    runner.learn(num_learning_iterations=iterations, init_at_random_ep_len=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
