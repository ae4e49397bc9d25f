"""A stand-in for ProtoMotions: resumes by itself where results/<experiment>/last.ckpt is, which it
writes in place; an experiment that has one but no config.yaml is an error."""

import argparse
import json
import os
import time
import zipfile

parser = argparse.ArgumentParser()
for flag in ("--robot-name", "--simulator", "--motion-file", "--experiment-name"):
    parser.add_argument(flag, required=True)
for flag in ("--num-envs", "--batch-size"):
    parser.add_argument(flag, type=int, required=True)
for flag in ("--ngpu", "--nodes"):
    parser.add_argument(flag, type=int, default=1)
parser.add_argument("--checkpoint")  # to begin from; one that is found counts for more
parser.add_argument("--training-max-steps", type=int, default=60)
args = parser.parse_args()

folder = os.path.join("results", args.experiment_name)
last, config = os.path.join(folder, "last.ckpt"), os.path.join(folder, "config.yaml")
epoch = 0
if os.path.exists(last):
    if not os.path.exists(config):
        raise FileNotFoundError("Config file not found at " + config)
    with zipfile.ZipFile(last) as archive:
        epoch = json.loads(archive.read("data.pkl"))["epoch"]
    print("RESUME: Found checkpoint in save_dir:", last, flush=True)
else:
    print(f"WARM START: {args.checkpoint}" if args.checkpoint else "FRESH START", flush=True)
    os.makedirs(folder, exist_ok=True)
    with open(config, "w") as file:
        json.dump(vars(args), file)
while epoch < args.training_max_steps:
    time.sleep(float(os.environ.get("STANDIN_NAP", "0.02")))
    epoch += 1
    with open(os.path.join(folder, "epochs"), "a") as log:
        log.write(f"{epoch - 1}\n")
    if epoch % 10 == 0 or epoch == args.training_max_steps:
        with zipfile.ZipFile(last, "w") as archive:
            archive.writestr("data.pkl", json.dumps({"epoch": epoch}))
