"""What the stand-ins for Isaac Lab's training scripts have in common: flags, folders, log lines and
habits, good and bad. No GPU, nothing but the standard library; an iteration is a nap.

How long the nap is, and whether the app hangs when it is closed, is told by the environment.
"""

import argparse
import json
import os
import signal
import sys
import time
import zipfile
from datetime import datetime

NAP = float(os.environ.get("STANDIN_NAP", "0.02"))
HANGS = os.environ.get("STANDIN_HANGS") == "1"
LONGEST_HANG = 120


def parse(**more):
    parser = argparse.ArgumentParser()
    parser.add_argument("--task")
    parser.add_argument("--num_envs", type=int, default=64)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--max_iterations", type=int, default=None)
    parser.add_argument("--checkpoint", type=str, default=None)
    for flag in ("--headless", "--video", "--distributed"):
        parser.add_argument(flag, action="store_true")
    for flag, settings in more.items():
        parser.add_argument("--" + flag, **settings)
    args, overrides = parser.parse_known_args()
    for word in overrides:  # Hydra's
        if "=" not in word or word.startswith("-"):
            sys.exit("LexerNoViableAltException: " + word)
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


def new_run(library, experiment, suffix="", **params):
    """A new folder for every start, named by the second."""
    root = os.path.abspath(os.path.join("logs", library, experiment))
    print("[INFO] Logging experiment in directory:", root)
    folder = name = ""
    while not folder or os.path.exists(folder):  # the real app takes longer than a second to start
        time.sleep(0.05)
        name = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        folder = os.path.join(root, name + suffix)
    print("Exact experiment name requested from command line:", name, flush=True)
    os.makedirs(os.path.join(folder, "params"))
    for file, content in params.items():
        with open(os.path.join(folder, "params", file + ".yaml"), "w") as out:
            out.write(content)
    return folder


def save(path, **state):
    """In place, and not at once: a kill leaves half of it. As torch.save does, a zip."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", json.dumps(state))
        file.flush()
        time.sleep(NAP / 4)
        archive.writestr("model/version", "3")


def load(path):
    print("[INFO]: Loading model checkpoint from:", path, flush=True)
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("model/data.pkl"))
