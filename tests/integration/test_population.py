"""Population based training, on this machine and on a real Slurm: a trial that does badly goes on
from the checkpoint of a better one, with that one's parameters, a little changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.integration.test_sweeps import jobs_on, start, study_folder, trials

# What it has learnt grows with its speed. The slowest one waits at its beginning, the others
# half-way, each until the test says so; one that goes on from a checkpoint does not wait.
TRAINER = """
import os, pathlib, sys, time
import dray.training as t

speed = float(sys.argv[1].split("=")[1])
out, begin = pathlib.Path(t.outputs()), t.resume_path()
first, level = json.loads(pathlib.Path(begin).read_text()) if begin else (0, 0.0)
gates = {} if begin else {1: "go"} if speed < 0.3 else {25: "end"}
for step in range(first + 1, 41):
    while step in gates and not pathlib.Path(FOLDER, gates[step]).exists():
        time.sleep(0.1)
    level += speed
    t.report(step=step, reward=level)
    (out / "model_new").write_text(json.dumps([step, level]))
    os.rename(out / "model_new", out / f"model_{step}.json")
    while step == 12 and speed < 0.3:
        time.sleep(0.1)
"""


@pytest.mark.parametrize(("on", "per_node"), [("local", 1), ("hpc", 1), ("hpc", 2)])
def test_a_trial_goes_on_from_a_better_one(
    dray: Dray, hpc: Hpc, on: str, per_node: int, tmp_path: Path
) -> None:
    gates = hpc.host.folder(tmp_path / "gates")
    gates.mkdir(exist_ok=True)
    dray.write("train.py", f"import json\nFOLDER = {str(gates)!r}\n{TRAINER}")
    hpc.offer(dray)
    config = dray.home / "dray/config.toml"
    config.write_text(config.read_text() + "[clusters.local]\ncpus = 8\n")
    dray.jobs = jobs_on(dray, on)
    flags = ("--sampler", "grid", "--seed", "1", "--space", "speed=0.2..0.8:step=0.2")
    flags += ("--stop", "pbt", "--stop-first", "10", "--stop-total", "40")
    flags += ("--checkpoint", "model_*.json", "--checkpoint-number", r"model_(\d+)")
    sweep = start(dray, on, "--per-node", str(per_node), *flags)
    results = study_folder(dray, sweep) / "results"

    def rungs(number: int) -> dict[str, float]:
        path = results / f"{number}.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        return found.get("rungs") or {}

    wait_for(lambda: all("20" in rungs(number) for number in (1, 2, 3)), 90)
    (gates / "go").touch()
    ended = dray.wait(f"{sweep}.0")
    assert ended["state"] == "done", ended["reason"]
    first, second = ended["attempts"]
    better = f"{sweep}.3"
    reason = f"goes on from {better}: 2 at step 10 is in the worst quarter of 4"
    assert (first["outcome"], first["reason"]) == ("interrupted", reason)
    assert second["from_checkpoint"] == "model_24.json"
    (gates / "end").touch()
    dray("wait", "--timeout", "100s", sweep)
    found = trials(dray, sweep)
    speed = found[0]["values"]["speed"]
    assert speed not in (0.2, 0.8)
    assert 0.2 <= speed <= 0.8
    last = json.loads((dray.job_dir(f"{sweep}.0") / "outputs/model_40.json").read_text())
    assert last == [40, pytest.approx(24 * 0.8 + 16 * speed)]
    assert found[0]["value"] == pytest.approx(last[1], rel=0.1)
    # What is shown, and can be run again, is what it has ended with.
    shown = dray.show(f"{sweep}.0")
    assert f"speed={speed!r}" in shown["command"]
    assert json.loads(shown["env"]["DRAY_PARAMS"]) == {"speed": speed}
    if on == "hpc":  # all in one batch job
        said = hpc.slurm.call("scontrol", "--oneliner", "show", "job", slurm_id(dray, sweep))
        assert " Restarts=0 " in said
    dray("rm", sweep)


def slurm_id(dray: Dray, sweep: str) -> str:
    record = json.loads((dray.job_dir(f"{sweep}.0") / "scheduler.json").read_text())
    return str(record["id"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--space", "x=1..2:float"), "not known what they are"),
        (("--space", "x=1..2:float", "--checkpoint", "*.pt", "--repeats", "2"), "no repeats"),
        (("--space", "x=1,2", "--checkpoint", "*.pt"), "would change nothing"),
        (("--space", "x=1..2:float", "--checkpoint", "*", "--stop-change", "y"), "has that name"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_population_is_refused(
    dray: Dray, words: tuple[str, ...], message: str
) -> None:
    flags = ("--stop", "pbt", "--stop-first", "5")
    ended = dray("sweep", "start", *flags, *words, "--", "true", check=False)
    assert ended.returncode == 2
    assert message in ended.stderr
