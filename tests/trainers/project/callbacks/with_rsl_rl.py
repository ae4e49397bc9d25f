import os
import sys

for folder in ("", "scripts/reinforcement_learning/rsl_rl"):
    sys.path.insert(0, os.path.join(os.getcwd(), folder))

from rsl_rl.runners import OnPolicyRunner
from train import Env, agent_cfg

import dray.training as t
from dray.training.rsl_rl import watch

ITERATIONS = 150

config = {**agent_cfg(ITERATIONS, 1), "save_interval": 10_000}  # only when it is asked
runner = OnPolicyRunner(Env(8), config, log_dir=f"{t.outputs()}/checkpoints", device="cpu")
start = t.resume_path()
if start:
    runner.load(start)
watch(runner)
runner.learn(ITERATIONS - runner.current_learning_iteration)
