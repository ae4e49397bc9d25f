"""--max_iterations are additional on a resume, and the number goes on; the iteration of the
checkpoint is done, and saved, once more; --checkpoint without --resume does nothing; the run and
the checkpoint are regular expressions, and of several that match the last is taken."""

import os
import re
import sys

import cli_args

sys.path.insert(0, os.getcwd())
import standin

SAVE_INTERVAL = 10
parser = standin.parser()
parser.add_argument("--distributed", action="store_true", default=False)
parser.add_argument("--max_iterations", type=int, default=None)
cli_args.add_rsl_rl_args(parser)
args = standin.parse(parser)
experiment = args.experiment_name or "anymal"
root = os.path.join("logs", "rsl_rl", experiment)


def checkpoint_path(run, checkpoint):
    runs = sorted(one.path for one in os.scandir(root) if one.is_dir() and re.match(run, one.name))
    if not runs:
        raise ValueError(f"No runs present in the directory: '{root}' match: '{run}'.")
    found = [one for one in os.listdir(runs[-1]) if re.match(checkpoint, one)]
    if not found:
        raise ValueError(f"No checkpoints in the directory: '{runs[-1]}' match '{checkpoint}'.")
    return os.path.join(runs[-1], max(found, key=lambda name: f"{name:0>15}"))


app = standin.App()
path = None
if args.resume:  # before there is a folder of its own
    path = checkpoint_path(args.load_run or ".*", args.checkpoint or "model_.*.pt")
iterations = 40 if args.max_iterations is None else args.max_iterations
run = standin.new_run("rsl_rl", experiment, f"_{args.run_name}" if args.run_name else "")
start = iteration = standin.load(path)["iter"] if path else 0
agent = f"seed: 42\nmax_iterations: {iterations}\nsave_interval: {SAVE_INTERVAL}\n"
standin.dump(run, agent=agent)
for iteration in range(start, start + iterations):
    app.step()
    print(f"Learning iteration {iteration}/{start + iterations}", flush=True)
    standin.count(iteration)
    if iteration % SAVE_INTERVAL == 0:
        standin.save(os.path.join(run, f"model_{iteration}.pt"), iter=iteration)
standin.save(os.path.join(run, f"model_{iteration}.pt"), iter=iteration)
app.close()
