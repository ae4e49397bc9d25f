"""Trains with four seeds at once, waits for all of them, and tells which was best."""

import sys

import dray

SEEDS = range(4)

commands = [[sys.executable, "train.py", "--seed", str(seed)] for seed in SEEDS]
jobs = dray.run_many(commands, cpus=1)
jobs.wait()

rewards = {job.id: job.curve().points[-1][1] for job in jobs}
for job_id, reward in rewards.items():
    print(f"{job_id}  {reward:.3f}")
print("best:", max(rewards, key=rewards.get))
