"""--max_iterations are additional on a resume; the number goes on, from 0; --checkpoint alone does
nothing; without --load_run the newest folder is taken, and an empty one is an error."""

import os
import re
import sys

sys.path.insert(0, os.getcwd())
import standin

SAVE_INTERVAL = 10
flag = {"action": "store_true", "default": False}
args = standin.parse(resume=flag, load_run={"default": ".*"}, run_name={"default": ""})
root = os.path.join("logs", "rsl_rl", "anymal")


def checkpoint_path(run, checkpoint):
    runs = sorted(one for one in os.listdir(root) if re.match(run, one))
    folder = os.path.join(root, runs[-1])
    found = [one for one in os.listdir(folder) if re.match(checkpoint or "model_.*.pt", one)]
    if not found:
        raise ValueError(f"No checkpoints in the directory: '{folder}'")
    return os.path.join(folder, max(found, key=lambda name: f"{name:0>15}"))


app = standin.App()
path = checkpoint_path(args.load_run, args.checkpoint) if args.resume else None
iterations = 40 if args.max_iterations is None else args.max_iterations
agent = f"seed: 42\nmax_iterations: {iterations}\nsave_interval: {SAVE_INTERVAL}\n"
run = standin.new_run("rsl_rl", "anymal", args.run_name and "_" + args.run_name, agent=agent)
start = standin.load(path)["iter"] if path else 0
for iteration in range(start, start + iterations):
    app.step()
    print(f"Learning iteration {iteration}/{start + iterations}", flush=True)
    with open("logs/iterations", "a") as log:
        log.write(f"{iteration}\n")
    if iteration % SAVE_INTERVAL == 0:
        standin.save(os.path.join(run, f"model_{iteration}.pt"), iter=iteration)
standin.save(os.path.join(run, f"model_{iteration}.pt"), iter=iteration)
app.close()
