"""Stands for a training whose reward depends on its seed."""

import random
import sys

import dray.training as t

chance = random.Random(int(sys.argv[sys.argv.index("--seed") + 1]))
reward = 0.0
for step in range(1, 51):
    reward += chance.gauss(0.1, 0.3)
    t.report(step=step, reward=reward)
