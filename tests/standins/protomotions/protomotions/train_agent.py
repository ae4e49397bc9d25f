"""A stand-in for ProtoMotions: resumes by itself where results/<experiment>/last.ckpt is, with the
arguments of its first start, whatever it is told then. An experiment that has one but not its
configuration is an error. All that it saves is written in place, the environments first; what it
does not know it ignores."""

import argparse
import json
import os
import time
import zipfile

SAVES_EVERY, KEEPS_EVERY = 10, 40
NAP = float(os.environ.get("STANDIN_NAP", "0.02"))
parser = argparse.ArgumentParser()
for flag in ("--robot-name", "--simulator", "--motion-file", "--experiment-path"):
    parser.add_argument(flag, required=True)
parser.add_argument("--experiment-name", required=True)
for flag in ("--num-envs", "--batch-size"):
    parser.add_argument(flag, type=int, required=True)
for flag in ("--ngpu", "--nodes"):
    parser.add_argument(flag, type=int, default=1)
parser.add_argument("--checkpoint", default=None)
parser.add_argument("--use-slurm", action="store_true")
limits = parser.add_mutually_exclusive_group()
limits.add_argument("--training-max-steps", type=int, default=60)
limits.add_argument("--training-max-iterations", type=int, default=None)
args, _ = parser.parse_known_args()

folder = os.path.join("results", args.experiment_name)
last, env = os.path.join(folder, "last.ckpt"), os.path.join(folder, "env_0.ckpt")
config, resolved = os.path.join(folder, "config.yaml"), os.path.join(folder, "resolved_configs.pt")


def save(path, **state):
    with open(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", json.dumps(state))
        file.flush()
        time.sleep(NAP / 4)


def load(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("data.pkl"))


epoch = 0
if os.path.exists(last):
    print("RESUME: Found checkpoint in save_dir:", last, flush=True)
    for needed in (config, resolved):
        if not os.path.exists(needed):
            raise FileNotFoundError("Config file not found at " + needed)
    with open(config) as file:
        vars(args).update(json.load(file))
    epoch = load(last)["epoch"]
    if os.path.exists(env):
        print("Loading env checkpoint:", env, load(env), flush=True)
else:
    print(f"WARM START: {args.checkpoint}" if args.checkpoint else "FRESH START", flush=True)
    if not os.path.exists(args.experiment_path):
        raise FileNotFoundError("Experiment file not found: " + args.experiment_path)
    os.makedirs(folder, exist_ok=True)
    save(resolved)
    with open(config, "w") as file:
        json.dump(vars(args), file)
total = args.training_max_iterations or args.training_max_steps
while epoch < total:
    time.sleep(NAP)
    epoch += 1
    with open(os.path.join(folder, "epochs"), "a") as log:
        log.write(f"{epoch - 1}\n")
    if epoch % SAVES_EVERY == 0 or epoch == total:
        save(env, epoch=epoch)
        save(last, epoch=epoch)
    if epoch % KEEPS_EVERY == 0:
        save(os.path.join(folder, f"epoch_{epoch}.ckpt"), epoch=epoch)
