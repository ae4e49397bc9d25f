"""Steps are those of all environments, and count from 0 on a resume. A model is saved by the number
of calls, before the update that they may complete; the last one under another name, and the
statistics of VecNormalize only then, and nobody loads them. An iteration is done to its end."""

import os
import sys

sys.path.insert(0, os.getcwd())
import standin

N_STEPS, SAVE_FREQUENCY = 16, 7 * 16
parser = standin.parser()
parser.add_argument("--log_interval", type=int, default=100_000)
parser.add_argument("--checkpoint", default=None)
parser.add_argument("--max_iterations", type=int, default=None)
parser.add_argument("--keep_all_info", action="store_true", default=False)
args = standin.parse(parser)
app = standin.App()
timesteps = 39.5 * N_STEPS * args.num_envs  # as configured: the 40th iteration is done, too
if args.max_iterations is not None:
    timesteps = args.max_iterations * N_STEPS * args.num_envs
run = standin.new_run("sb3", args.task)
agent = f"seed: 42\nn_timesteps: {float(timesteps)}\nn_steps: {N_STEPS}\n"
standin.dump(run, agent=agent, env=f"scene:\n  num_envs: {args.num_envs}\n")
updates = standin.load(args.checkpoint)["updates"] if args.checkpoint else 0
calls = 0
while calls * args.num_envs < timesteps:
    app.step()
    for _ in range(N_STEPS):
        calls += 1
        if calls % SAVE_FREQUENCY == 0:
            name = f"model_{calls * args.num_envs}_steps.zip"
            standin.save(os.path.join(run, name), updates=updates)
    updates += 1
    print("total_timesteps", calls * args.num_envs, flush=True)
    standin.count(updates - 1)
standin.save(os.path.join(run, "model.zip"), updates=updates)
with open(os.path.join(run, "model_vecnormalize.pkl"), "w") as file:
    file.write("statistics")
app.close()
