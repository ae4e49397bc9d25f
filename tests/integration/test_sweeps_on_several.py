"""Sweeps over this machine and a real Slurm at once: what one cluster has found counts on the
other."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tests.conftest import Dray
from tests.integration.test_sweeps import far, start, trials, wait_until_all_are_done

__all__ = ["far"]  # a fixture
# Like the trainer there; one that does badly waits half-way until somebody ends it.
TRAINER = """
import pathlib, sys, time
import dray.training as t

own = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
reward = float(own["reward"])
for step in range(1, 21):
    t.report(step=step, reward=reward)
    while step == 10 and reward < 5:
        time.sleep(0.1)
"""
BOTH = "local,hpc"


def folders(dray: Dray, sweep: str) -> dict[str, Path]:
    roots = {"local": dray.home / "dray/local", "hpc": dray.jobs.parent}
    return {name: root / "sweeps" / sweep for name, root in roots.items()}


def heard(folder: Path) -> dict[str, float]:
    """What a cluster was told of the trials on the other: their values."""
    record = json.loads((folder / "others.json").read_text())
    return {number: one["value"] for number, one in record["results"].items()}


def test_trials_on_two_clusters_from_start_to_removal(far: Dray) -> None:
    sweep = start(far, BOTH, "--trials", "6", "--seed", "1", "--space", "reward=5..10:float")
    wait_until_all_are_done(far, sweep)
    found = trials(far, sweep)
    assert [one["cluster"] for one in found] == ["local"] * 3 + ["hpc"] * 3
    values = {str(one["number"]): one["value"] for one in found}
    there = folders(far, sweep)
    assert heard(there["local"]) == {number: values[number] for number in ("3", "4", "5")}
    assert heard(there["hpc"]) == {number: values[number] for number in ("0", "1", "2")}
    shown = far("sweep", "status", sweep).stdout
    assert "done 6" in shown
    assert "local: done 3" in shown
    assert "hpc: done 3" in shown
    assert "local,hpc" in far("sweep", "status").stdout
    best = max(found, key=lambda one: float(one["value"]))
    command = far("sweep", "best", "-n", "1", "--command", sweep).stdout
    assert f"reward={best['values']['reward']!r}" in command
    table = far.project / "all.csv"
    far("sweep", "export", sweep, "--csv", str(table))
    with table.open() as file:
        assert {row["cluster"] for row in csv.DictReader(file)} == {"local", "hpc"}
    far("sweep", "stop", sweep)
    far("rm", sweep)
    assert not any(folder.exists() for folder in there.values())
    assert sweep not in far("sweep", "status").stdout


def test_trials_are_compared_with_those_on_the_other_cluster(far: Dray) -> None:
    far.write("train.py", TRAINER)
    flags = ("--stop", "asha", "--stop-first", "5", "--sampler", "grid", "--trials", "2")
    sweep = start(far, BOTH, *flags, "--space", "reward=9,8,2,1")
    wait_until_all_are_done(far, sweep)  # 9 on this machine, 8 on Slurm; and a look carries them
    far("sweep", "add", sweep, "2")  # 2 on Slurm, 1 on this machine
    reasons = [far.wait(job)["reason"] for job in (f"{sweep}-3.0", f"{sweep}-4.0")]
    assert reasons == [
        "pruned at step 5: 2 is not among the best third of 3",
        "pruned at step 5: 1 is not among the best third of 3",
    ]
    found = trials(far, sweep)
    assert [one["cluster"] for one in found] == ["local", "hpc", "hpc", "local"]
    assert [one["state"] for one in found] == ["done", "done", "pruned", "pruned"]


def test_a_cluster_that_cannot_be_reached_hides_no_other(far: Dray, tmp_path: Path) -> None:
    sweep = start(far, BOTH, "--trials", "2", "--space", "reward=5..10:float")
    wait_until_all_are_done(far, sweep)
    values = [one["value"] for one in trials(far, sweep)]
    far("sweep", "stop", sweep)
    broken = tmp_path / "broken"
    broken.mkdir(mode=0o700)
    (broken / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (broken / "ssh").chmod(0o755)
    far.use(broken)
    far.env["XDG_RUNTIME_DIR"] = str(broken)  # without the connection that stands
    shown = far("sweep", "status", sweep).stdout
    assert "hpc was not reached, its trials are as last seen: " in shown
    # What this machine was told of them is still known.
    assert [one["value"] for one in trials(far, sweep)] == values
    refused = far("sweep", "add", sweep, "1", check=False)
    assert f"hpc, which has trials of {sweep}, was not reached" in refused.stderr
