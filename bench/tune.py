"""Runs trials that do nothing under Ray Tune, and prints how long they took, as JSON.

``bench.trials`` starts it with the Python of an environment that has Ray. Ray listens on all
addresses: it has a network of its own there."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

import ray
from ray import tune


def nothing(config: dict[str, Any]) -> dict[str, Any]:
    return {"value": config["x"]}


def main(trials: int) -> None:
    begin = time.perf_counter()
    ray.init(num_cpus=os.cpu_count(), include_dashboard=False, logging_level="ERROR")
    began = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            nothing,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=trials, metric="value", mode="max"),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        begin = time.perf_counter()
        results = tuner.fit()
        took = time.perf_counter() - begin
    done = sum(1 for one in results if one.error is None)
    version = ray.__version__
    ray.shutdown()
    told = {"version": version, "start": began, "seconds": took, "done": done}
    os.write(1, (json.dumps(told) + "\n").encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
