"""A sweep that ran is read by the real Optuna, MLflow and TensorBoard as what it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dray.config import yaml_subset
from dray.config.migration.found import Text
from dray.errors import ConfigError, NotFound
from dray.sweep import mlflow, space
from dray.sweep.export import from_mlflow, optuna, to_mlflow
from dray.sweep.study import Objective, Study, Trial
from tests.conftest import Dray

pytestmark = [pytest.mark.sweeps, pytest.mark.xdist_group("sweeps")]

TRAINER = """
import sys
import dray.training as t
own = dict(word.split("=", 1) for word in sys.argv[1:])
for step in range(1, 21):
    t.report(step=step, reward=float(own["reward"]) * step / 20)
sys.exit(3 if own["how"] == "crash" else 0)
"""
SPACE = space.whole(
    [
        space.from_flag(one)
        for one in ("agent.lr=1e-5..1e-1:log", "--num_envs=512,1024", "units=[64,64],[128]")
    ]
    + [space.from_flag("n=1..9:int:step=2"), space.from_flag("twice==n*2")]
)


def study(identity: str, **more: Any) -> Study:
    return Study(id=identity, space=SPACE, metric="Train/reward", created=1.7e9, **more)


def trials(identity: str, count: int) -> list[Trial]:
    states = ("done", "done", "pruned", "failed", "running", "stopped", "done", "queued")
    found = []
    for number in range(count):
        state = states[number % len(states)]
        values = {
            "agent.lr": 10.0 ** -(1 + number % 4),
            "--num_envs": (512, 1024)[number % 2],
            "units": ((64, 64), (128,))[number // 2 % 2],
            "n": 1 + 2 * (number % 5),
            "twice": 2 + 4 * (number % 5),
        }
        has_value = state not in ("failed", "queued")
        found.append(
            Trial(
                number=number,
                configuration=number,
                job=f"{identity}.{number}",
                cluster="euler",
                values=values,
                state=state,
                value=float(number) if has_value else None,
                step=900 if has_value else None,
                rungs={100: 1.0 + number, 300: float("nan")} if has_value else {},
                gpu_seconds=60.0,
                reason="it\nended" if state == "failed" else "",
            )
        )
    return found


# -- Optuna -------------------------------------------------------------------------------------


def test_optuna_goes_on_from_our_journal(tmp_path: Path, ask: Callable[..., Any]) -> None:
    path = tmp_path / "journal.log"
    known = trials("policy-1", 16)
    optuna.write(path, study("policy-1"), known)
    told = ask("read_journal.py", path)
    assert (told["name"], told["direction"]) == ("policy-1", "MAXIMIZE")
    begun = [one for one in known if one.state != "queued"]
    states = {"done": "COMPLETE", "pruned": "PRUNED", "running": "RUNNING"}
    assert [one["state"] for one in told["trials"]] == [
        states.get(one.state, "FAIL") for one in begun
    ]
    first = told["trials"][0]
    assert first["params"] == {"agent.lr": 0.1, "--num_envs": 512, "units": "[64, 64]", "n": 1}
    assert (first["value"], first["intermediate"]) == (0.0, {"100": 1.0})
    assert (first["attrs"]["twice"], first["attrs"]["job"]) == (2, "policy-1.0")
    assert begun[told["best"]].number == 14
    assert set(told["importances"]) == set(first["params"])
    assert set(told["next"]) == set(first["params"])


def test_optuna_reads_a_minimum_and_an_empty_sweep(tmp_path: Path, ask: Callable[..., Any]) -> None:
    path = tmp_path / "journal.log"
    optuna.write(path, study("policy-2", mode="min"), [])
    told = ask("read_journal.py", path)
    assert (told["direction"], told["trials"]) == ("MINIMIZE", [])


# -- MLflow -------------------------------------------------------------------------------------


def test_optuna_reads_several_metrics(tmp_path: Path, ask: Callable[..., Any]) -> None:
    path = tmp_path / "journal.log"
    both = (Objective("Train/reward", "max"), Objective("energy", "min"))
    found = [
        one._replace(objectives=(one.value, None if one.value is None else abs(one.value - 3)))
        for one in trials("policy-5", 16)
    ]
    optuna.write(path, study("policy-5", objectives=both), found)
    told = ask("read_journal.py", path)
    assert told["direction"] == ["MAXIMIZE", "MINIMIZE"]
    assert told["trials"][1]["value"] == [1.0, 2.0]
    done = [(one.number, *one.objectives) for one in found if one.state == "done"]
    beaten = {one[0] for one in done for other in done if other[1] >= one[1] and other[2] < one[2]}
    front = {told["trials"][number]["attrs"]["job"] for number in told["front"]}
    assert front == {f"policy-5.{one[0]}" for one in done if one[0] not in beaten}


def runs_by_job(server: mlflow.Server, experiment: str) -> dict[str, mlflow.Run]:
    found = list(server.runs(server.experiment(experiment)))
    assert len({one.tags["dray.job"] for one in found}) == len(found)  # none is there twice
    return {one.tags["dray.job"]: one for one in found}


def test_mlflow_gets_each_trial_once_however_often_it_is_told(mlflow_server: str) -> None:
    server = mlflow.Server(mlflow_server, {})
    known = trials("policy-3", 8)
    curves = {"Train/reward": {"policy-3.0": [(step, step / 7) for step in range(2500)]}}
    for _ in range(2):
        assert to_mlflow.export(server, study("policy-3"), known, "robots", curves) == 7
    found = runs_by_job(server, "robots")
    assert {job: one.status for job, one in found.items()} == {
        "policy-3.0": "FINISHED",
        "policy-3.1": "FINISHED",
        "policy-3.2": "KILLED",
        "policy-3.3": "FAILED",
        "policy-3.4": "RUNNING",
        "policy-3.5": "KILLED",
        "policy-3.6": "FINISHED",
    }
    first = found["policy-3.0"]
    assert first.params == {
        "agent.lr": "0.1",
        "--num_envs": "512",
        "units": "[64,64]",
        "n": "1",
        "twice": "2",
    }
    points = sorted(server.history(first.id, "Train/reward"))
    assert [(one.step, one.value) for one in points] == [(n, n / 7) for n in range(2500)]
    assert len(list(server.history(found["policy-3.1"].id, "Train/reward"))) == 3
    # A trial that ran has ended meanwhile, and another one has begun.
    later = [one._replace(state="done", value=99.0, step=1500) for one in known]
    to_mlflow.export(server, study("policy-3"), later, "robots")
    again = runs_by_job(server, "robots")
    assert {one.status for one in again.values()} == {"FINISHED"}
    assert len(again) == 8
    assert {job: one.id for job, one in again.items() if job in found} == {
        job: one.id for job, one in found.items()
    }


def test_mlflows_refusals_are_told(mlflow_server: str) -> None:
    server = mlflow.Server(mlflow_server, {})
    with pytest.raises(NotFound, match="there is no experiment 'nobody'"):
        server.experiment("nobody")
    place = server.ensure_experiment("twice")
    assert server.ensure_experiment("twice") == place
    with pytest.raises(mlflow.Answered, match="answered 40"):
        server.update("0" * 32, "FINISHED")


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = EventAccumulator(str(folder))
    found.Reload()
    return {
        tag: [(one.step, one.value) for one in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_mlflows_runs_are_brought_for_tensorboard(mlflow_server: str, tmp_path: Path) -> None:
    server = mlflow.Server(mlflow_server, {})
    known = trials("policy-4", 6)
    curves = {"Train/reward": {"policy-4.1": [(step, float(step)) for step in range(1200)]}}
    to_mlflow.export(server, study("policy-4"), known, "brought", curves)
    ids = {job: one.id for job, one in runs_by_job(server, "brought").items()}
    assert from_mlflow.bring(server, "brought", tmp_path) == (6, 0)
    own = tmp_path / f"run_{ids['policy-4.1']}"
    assert scalars(own) == {"metrics/Train/reward": [(n, float(n)) for n in range(1200)]}
    found = EventAccumulator(str(own))
    found.Reload()
    (text,) = found.Tensors("params/units/text_summary")
    assert text.tensor_proto.string_val == [b"[64,64]"]
    # What is over is not asked for again; what runs is, and is there once.
    to_mlflow.export(server, study("policy-4"), [known[4]._replace(value=7.5, step=950)], "brought")
    assert from_mlflow.bring(server, "brought", tmp_path) == (1, 5)
    running = tmp_path / f"run_{ids['policy-4.4']}"
    assert len(list(running.iterdir())) == 1
    assert (950, 7.5) in scalars(running)["metrics/Train/reward"]


# -- from the command line ----------------------------------------------------------------------


def test_a_sweep_that_ran_is_exported_to_all_of_them(
    dray: Dray, mlflow_server: str, tmp_path: Path, ask: Callable[..., Any]
) -> None:
    dray.write("train.py", TRAINER)
    flags = ("--sampler", "grid", "--space", "reward=1,2,3", "--space", "how=ends,crash")
    words = ("--metric", "reward", *flags, "--", sys.executable, "train.py")
    sweep = dray("sweep", "start", *words).stdout.strip()
    dray("wait", "--timeout", "100s", sweep, check=False)
    where = {name: tmp_path / name for name in ("t.csv", "t.json", "board", "journal.log")}
    arguments = ["--csv", where["t.csv"], "--json", where["t.json"], "--mlflow", mlflow_server]
    arguments += ["--tensorboard", where["board"], "--optuna", where["journal.log"]]
    for _ in range(2):
        dray("sweep", "export", sweep, *map(str, arguments))
    assert len(where["t.csv"].read_text().splitlines()) == 7
    told = json.loads(where["t.json"].read_text())
    assert told["counts"] == {"done": 3, "failed": 3}
    curve = scalars(where["board"] / f"{sweep}.4")["reward"]
    assert curve == [(step, pytest.approx(3 * step / 20)) for step in range(1, 21)]
    server = mlflow.Server(mlflow_server, {})
    runs = runs_by_job(server, sweep)
    assert sorted(one.status for one in runs.values()) == ["FAILED"] * 3 + ["FINISHED"] * 3
    assert len(list(server.history(runs[f"{sweep}.4"].id, "reward"))) == 20
    assert runs[f"{sweep}.4"].params == {"reward": "3", "how": "ends"}
    best = ask("read_journal.py", where["journal.log"])["best"]
    assert best == 4
    board = tmp_path / "brought"
    brought = ("--from-mlflow", mlflow_server, "--experiment", sweep, "--tensorboard", str(board))
    assert "6 runs" in dray("sweep", "export", *brought).stderr
    assert "6 runs were there" in dray("sweep", "export", *brought).stderr
    shown = dray("sweep", "picture", sweep, "--parallel", str(tmp_path / "p.svg"))
    assert (tmp_path / "p.svg").read_text().startswith("<svg"), shown.stderr
    assert "once 12 configurations" in dray("sweep", "picture", sweep).stdout


# -- PyYAML -------------------------------------------------------------------------------------

DOCUMENTS = [
    "a: 1\nb:\n  c: [1, 2.5, x, 'y z', \"q\\n\"]\n  d: {e: null, f: ~}\n",
    "- a: 1\n  b: 2\n-\n  - 3\n  - - 4\n    - 5\n-\n",
    "k: text with: colon\n",
    "k: text # comment\nj: a#b\nurl: http://x:80/y?z=1#f\n",
    "t: >\n  one\n  two\n\n  three\n\nl: |\n  x\n    y\n  z\ne: >-\n  end\n",
    "a:\n- 1\n- 2\nb:\n  - 3\n",
    "n: -1\nf: -.5\ng: 1.5e+3\nh: 1.\ni: 12e03\n",
    "s: 'it''s'\nt: ''\nu: \"\"\n",
    "a: [ ]\nb: { }\nc: [[1, [2]], {x: [3]}]\nd: [a b, c]\n",
    "'q k': 1\n\"r s\": 2\nx y: 3\n",
    "v: True\nw: FALSE\nx: Null\n",
    "command:\n  - ${env}\n  - ${program}\n  - --a=b\n",
    "a: x\n\n\nb: y\n   \n# end\n",
    "a: - b\n",
    "a: 'x' y\n",
    "a: [1, 2]]\n",
    "a: {b: 1, c}\n",
    "date: 2001-01-01\n",
    "a: 1:30\nb: 0x1f\n",
    "a: =\nb: <<\n",
]  # fmt: skip


def numbers(value: Any) -> Any:
    """PyYAML takes 1e-5 and -.5 for texts, as YAML did before 1.2."""
    if isinstance(value, dict):
        return {key: numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [numbers(one) for one in value]
    is_float = isinstance(value, str) and yaml_subset.FLOAT.fullmatch(value)
    return float(value) if is_float else value


def test_what_we_read_of_yaml_is_what_pyyaml_reads(tmp_path: Path, ask: Callable[..., Any]) -> None:
    """We may refuse what PyYAML reads, but never read something else."""
    path = tmp_path / "documents.json"
    path.write_text(json.dumps(DOCUMENTS))
    theirs = ask("read_yaml.py", path)
    refused = []
    for document, told in zip(DOCUMENTS, theirs, strict=True):
        try:
            ours = yaml_subset.Reader(Text("a.yaml", document)).read().content
        except ConfigError:
            refused.append(document)
        else:
            assert json.loads(json.dumps(ours)) == numbers(told.get("content")), document
    assert len(refused) <= 8


def test_what_is_left_to_pyyaml_is_bounded(tmp_path: Path, ask: Callable[..., Any]) -> None:
    doubling = "".join(f"- &x{at} {{k: *x{at - 1}, k: *x{at - 1}}}\n" for at in range(1, 25))
    documents = {
        "- &x 1\n- {a: *x, b: *x}\n": None,
        "- &x0 1\n" + doubling: "it lies too deep, or has too many values",
        "? [a, b]\n: 1\n": "a key that is not a text",
        "a: " + "1" * 5000: "a value in it cannot be read",
        "a: 2026-13-45\n": "a value in it cannot be read",
    }
    path = tmp_path / "documents.json"
    path.write_text(json.dumps([*documents]))
    sources = Path(yaml_subset.__file__).parents[2]
    told = ask("read_by_pyyaml.py", path, sources)
    for found, expected in zip(told, documents.values(), strict=True):
        assert found is None if expected is None else expected in found
