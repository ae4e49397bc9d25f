"""What the stand-ins for Isaac Lab's training scripts have in common: flags, folders, log lines and
habits, good and bad. No GPU, nothing but the standard library; an iteration is a nap.

How long the nap is, and whether the app hangs when it is closed, is told by the environment.
"""

import argparse
import json
import os
import pickle
import re
import signal
import sys
import time
import zipfile
from datetime import datetime

NAP = float(os.environ.get("STANDIN_NAP", "0.02"))
HANGS = os.environ.get("STANDIN_HANGS") == "1"
LONGEST_HANG = 120
OVERRIDE = re.compile(r"[+~]{0,2}(env|agent)(\.\w+)+=.*")  # of what Hydra knows here


def parser():
    """With what all of the scripts know, and the app."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--task")
    flags.add_argument("--num_envs", type=int, default=None)
    flags.add_argument("--seed", type=int, default=None)
    flags.add_argument("--device", default="cuda:0")
    for flag in ("--headless", "--video", "--enable_cameras"):
        flags.add_argument(flag, action="store_true")
    return flags


def parse(flags, argv=None):
    """A flag that is not known goes to Hydra, which takes it for a bad override; one of a key that
    is not there is an error, too."""
    args, overrides = flags.parse_known_args(argv)
    for word in overrides:
        if not OVERRIDE.fullmatch(word):
            sys.exit("LexerNoViableAltException: " + word)
    if not args.task:
        sys.exit("AttributeError: 'NoneType' object has no attribute 'split'")
    if getattr(args, "distributed", False) and "LOCAL_RANK" not in os.environ:
        sys.exit("ValueError: the environment variable RANK expected, but not set")
    args.num_envs = 64 if args.num_envs is None else args.num_envs
    return args


class App:
    """SIGTERM closes it; Python goes on all the same."""

    def __init__(self):
        self.closed = False
        signal.signal(signal.SIGTERM, self.on_sigterm)

    def on_sigterm(self, *_):
        print("[INFO] Closing the app", flush=True)
        self.closed = True

    def step(self):
        if self.closed:  # it can do no more, and does not end
            time.sleep(LONGEST_HANG)
        time.sleep(NAP)

    def close(self):
        if HANGS:
            time.sleep(LONGEST_HANG)


def new_run(library, experiment, suffix=""):
    """A new folder for every start, named by the second: nothing is in it yet."""
    root = os.path.abspath(os.path.join("logs", library, experiment))
    print("[INFO] Logging experiment in directory:", root)
    folder = name = ""
    while not folder or os.path.exists(folder):  # the real app takes longer than a second to start
        time.sleep(0.05)
        name = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        folder = os.path.join(root, name + suffix)
    print("Exact experiment name requested from command line:", name, flush=True)
    os.makedirs(folder)
    return folder


def dump(folder, **params):
    os.makedirs(os.path.join(folder, "params"))
    for file, content in params.items():
        with open(os.path.join(folder, "params", file + ".yaml"), "w") as out:
            out.write(content)


def count(iteration):
    """For the tests: every iteration that is done, those that are lost too."""
    with open("logs/iterations", "a") as log:
        log.write(f"{iteration}\n")


def save(path, **state):
    """In place, and not at once: a kill leaves half of it. As torch.save does, a zip; what is not
    torch's is a pickle."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if path.endswith(".pickle"):
        content = pickle.dumps(state)
        with open(path, "wb") as file:
            for part in (content[:-3], content[-3:]):
                file.write(part)
                file.flush()
                time.sleep(NAP / 4)
        return
    with open(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", json.dumps(state))
        file.flush()
        time.sleep(NAP / 4)
        archive.writestr("model/version", "3")


def load(path):
    if not os.path.isfile(path):
        raise FileNotFoundError("Unable to find the file: " + path)
    print("[INFO]: Loading model checkpoint from:", path, flush=True)
    if path.endswith(".pickle"):
        with open(path, "rb") as file:
            return pickle.load(file)
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("model/data.pkl"))
