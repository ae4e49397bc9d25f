"""One program for all libraries: what it does not know itself is the library's."""

import argparse
import os
import runpy
import sys

BACKENDS = "source/isaaclab_rl/isaaclab_rl/entrypoints/backends"
parser = argparse.ArgumentParser(add_help=False)
parser.add_argument("--rl_library", choices=["rl_games", "rlinf", "rsl_rl", "sb3", "skrl"])
known, rest = parser.parse_known_args()
if known.rl_library is None:
    print("train: error: the following argument is required: --rl_library", file=sys.stderr)
    sys.exit(2)
sys.argv[1:] = rest
sys.path.insert(0, os.getcwd())
runpy.run_path(os.path.join(BACKENDS, f"train_{known.rl_library}.py"), run_name="__main__")
