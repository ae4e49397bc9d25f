"""rsl_rl since Isaac Lab 3.0: a checkpoint's path is enough, and --resume and --load_run are gone.
Everything else is as it was."""

import os

import standin

SAVE_INTERVAL = 10
parser = standin.parser()
parser.add_argument("--distributed", action="store_true", default=False)
parser.add_argument("--max_iterations", type=int, default=None)
parser.add_argument("--experiment_name", default="anymal")
parser.add_argument("--run_name", default=None)
parser.add_argument("--checkpoint", default=None)
args = standin.parse(parser)
app = standin.App()
run = standin.new_run("rsl_rl", args.experiment_name, f"_{args.run_name}" if args.run_name else "")
with open(os.path.join(run, "run.json"), "w") as file:
    file.write('{"library": "rsl_rl"}')
start = iteration = standin.load(args.checkpoint)["iter"] if args.checkpoint else 0
iterations = 40 if args.max_iterations is None else args.max_iterations
standin.dump(run, agent=f"seed: 42\nmax_iterations: {iterations}\n")
for iteration in range(start, start + iterations):
    app.step()
    print(f"Learning iteration {iteration}/{start + iterations}", flush=True)
    standin.count(iteration)
    if iteration % SAVE_INTERVAL == 0:
        standin.save(os.path.join(run, f"model_{iteration}.pt"), iter=iteration)
standin.save(os.path.join(run, f"model_{iteration}.pt"), iter=iteration)
app.close()
