"""A sweep of Isaac Lab's tuner, from its file to trials that ran, on stand-ins for both."""

from __future__ import annotations

import json
import sys

from tests.conftest import Dray

CONFIGURATION = """
import tuner, util
from ray import tune

class WalkerJobCfg(tuner.JobCfg):
    def __init__(self, cfg={}):
        cfg = util.populate_isaac_ray_cfg_args(cfg)
        cfg["runner_args"]["headless_singleton"] = "--headless"
        cfg["runner_args"]["--task"] = tune.choice(["Walker-v0"])
        cfg["runner_args"]["--num_envs"] = tune.choice([512, 1024])
        cfg["hydra_args"]["agent.batch"] = tune.sample_from(
            lambda config: config["runner_args"]["--num_envs"] // 4
        )
        super().__init__(cfg)

class UntunedJobCfg(tuner.JobCfg):
    def __init__(self, cfg={}):
        cfg = util.populate_isaac_ray_cfg_args(cfg)
        cfg["runner_args"]["--task"] = tune.choice(["Walker-v0"])
        cfg["hydra_args"]["agent.epochs"] = 200
        super().__init__(cfg)
"""
TRAINER = """
import sys
import dray.training as t
words = sys.argv[1:]
envs = words[words.index("--num_envs") + 1]
batch = f"agent.batch={int(envs) // 4}"
assert words == ["--headless", "--task", "Walker-v0", "--num_envs", envs, batch]
t.report(step=1, **{"rewards/time": float(envs)})
"""


def test_a_jobcfg_is_imported_and_run(dray: Dray) -> None:
    dray.write("walker_cfg.py", CONFIGURATION)
    dray.write("train.py", TRAINER)
    words = ("--isaaclab", "walker_cfg.py:WalkerJobCfg", "--num-samples", "7")
    imported = dray("sweep", "import", *words, "--repeat-run-count", "3")
    assert "running walker_cfg.py in a Python process of its own" in imported.stderr
    assert "2 configurations, 3 runs of each; the 1 left over" in imported.stderr
    dray.write("sweep.toml", imported.stdout)
    command = ("--", sys.executable, "train.py")
    sweep = dray("sweep", "start", "sweep.toml", *command).stdout.strip()
    dray("wait", "--timeout", "100s", sweep)
    told = json.loads(dray("sweep", "status", "--json", sweep).stdout)
    assert told["counts"] == {"done": 6}
    for one in told["configurations"]:
        assert one["value"] == one["values"]["--num_envs"]
        assert (len(one["trials"]), one["spread"]) == (3, 0.0)


def test_a_jobcfg_is_started_without_a_file_between(dray: Dray) -> None:
    dray.write("walker_cfg.py", CONFIGURATION)
    dray.write("train.py", TRAINER)
    where = ("--isaaclab", "walker_cfg.py:WalkerJobCfg")
    words = (*where, "--trials", "2", "--repeats", "1", "--", sys.executable, "train.py")
    started = dray("sweep", "start", *words)
    assert "running walker_cfg.py in a Python process of its own" in started.stderr
    sweep = started.stdout.strip()
    dray("wait", "--timeout", "100s", sweep)
    told = json.loads(dray("sweep", "status", "--json", sweep).stdout)
    assert told["counts"] == {"done": 2}
    assert told["sweep"]["metric"] == "rewards/time"
    both = dray("sweep", "start", "some.toml", *where, "--", "true", check=False)
    assert both.returncode == 2
    assert "name one of them" in both.stderr


def test_a_jobcfg_that_varies_nothing_is_run_and_shown(dray: Dray) -> None:
    """There is no column behind the state then."""
    dray.write("walker_cfg.py", CONFIGURATION)
    where = ("--isaaclab", "walker_cfg.py:UntunedJobCfg", "--trials", "2", "--repeats", "1")
    sweep = dray("sweep", "start", *where, "--", "echo").stdout.strip()
    dray("wait", "--timeout", "100s", sweep)
    assert dray.log(f"{sweep}.1") == "--task Walker-v0 agent.epochs=200\n"
    shown = dray("sweep", "status", sweep).stdout
    assert [line.split() for line in shown.split("\n") if line.startswith(".")] == [
        [".0", "done"],
        [".1", "done"],
    ]
