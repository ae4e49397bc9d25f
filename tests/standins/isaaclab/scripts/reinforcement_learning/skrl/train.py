"""Steps count from 0 on a resume; 0 iterations mean the default; an interval that does not fit into
the rollouts."""

import os
import sys

sys.path.insert(0, os.getcwd())
import standin

ROLLOUTS, INTERVAL = 4, 35
args = standin.parse(algorithm={"default": "PPO"}, ml_framework={"default": "torch"})
app = standin.App()
timesteps = (args.max_iterations or 40) * ROLLOUTS
agent = f"agent:\n  rollouts: {ROLLOUTS}\ntrainer:\n  timesteps: {timesteps}\n"
run = standin.new_run("skrl", "cartpole", "_ppo_torch", agent=agent)
updates = standin.load(args.checkpoint)["updates"] if args.checkpoint else 0
for step in range(1, timesteps + 1):
    if step % ROLLOUTS == 0:
        app.step()
        updates += 1
        print(f"step {step}/{timesteps}", flush=True)
        with open("logs/iterations", "a") as log:
            log.write(f"{updates - 1}\n")
    if step % INTERVAL == 0 or step == timesteps:
        path = os.path.join(run, "checkpoints", f"agent_{step}.pt")
        standin.save(path, updates=updates)
        standin.save(os.path.join(run, "checkpoints", "best_agent.pt"), updates=updates)
app.close()
