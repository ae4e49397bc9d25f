"""Steps count from 0 on a resume; 0 iterations mean the default; an interval that does not fit into
the rollouts, and nothing more at the end."""

import os
import sys

sys.path.insert(0, os.getcwd())
import standin

ROLLOUTS, INTERVAL = 4, 35
parser = standin.parser()
parser.add_argument("--distributed", action="store_true", default=False)
parser.add_argument("--checkpoint", default=None)
parser.add_argument("--max_iterations", type=int, default=None)
parser.add_argument("--ml_framework", default="torch", choices=["torch", "jax", "jax-numpy"])
parser.add_argument("--algorithm", default="PPO", choices=["AMP", "PPO", "IPPO", "MAPPO"])
args = standin.parse(parser)
app = standin.App()
timesteps = (args.max_iterations or 40) * ROLLOUTS
run = standin.new_run("skrl", "cartpole", f"_{args.algorithm.lower()}_{args.ml_framework}")
agent = f"agent:\n  rollouts: {ROLLOUTS}\ntrainer:\n  timesteps: {timesteps}\n"
standin.dump(run, agent=agent)
updates = standin.load(args.checkpoint)["updates"] if args.checkpoint else 0
extension = "pt" if args.ml_framework == "torch" else "pickle"
for step in range(1, timesteps + 1):
    if step % ROLLOUTS == 0:
        app.step()
        updates += 1
        print(f"step {step}/{timesteps}", flush=True)
        standin.count(updates - 1)
    if step > 1 and step % INTERVAL == 0:
        for name in (f"agent_{step}", "best_agent"):
            path = os.path.join(run, "checkpoints", f"{name}.{extension}")
            standin.save(path, updates=updates)
app.close()
