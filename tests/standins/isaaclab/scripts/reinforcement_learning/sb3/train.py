"""Steps are those of all environments, and count from 0 on a resume; the last model is saved under
another name."""

import os
import sys

sys.path.insert(0, os.getcwd())
import standin

N_STEPS, INTERVAL = 16, 7
args = standin.parse()
app = standin.App()
of_an_iteration = N_STEPS * args.num_envs
timesteps = (40 if args.max_iterations is None else args.max_iterations) * of_an_iteration
agent = f"seed: 42\nn_timesteps: {float(timesteps)}\nn_steps: {N_STEPS}\n"
env = f"scene:\n  num_envs: {args.num_envs}\n"
run = standin.new_run("sb3", args.task, agent=agent, env=env)
updates = standin.load(args.checkpoint)["updates"] if args.checkpoint else 0
for iteration in range(1, timesteps // of_an_iteration + 1):
    app.step()
    updates += 1
    print("total_timesteps", iteration * of_an_iteration, flush=True)
    with open("logs/iterations", "a") as log:
        log.write(f"{updates - 1}\n")
    if iteration % INTERVAL == 0:
        name = f"model_{iteration * of_an_iteration}_steps.zip"
        standin.save(os.path.join(run, name), updates=updates)
standin.save(os.path.join(run, "model.zip"), updates=updates)
app.close()
