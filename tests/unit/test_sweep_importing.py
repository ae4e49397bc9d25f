"""Sweeps of other tools become dray's: Isaac Lab's classes, ray.tune's spaces, W&B's files.

The Isaac Lab file is a stand-in of our own that does what theirs do: it inherits, samples, and
computes values from others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dray.config import yaml_subset
from dray.config.migration.found import Text
from dray.config.reading import Document
from dray.errors import ConfigError, UsageError
from dray.node.sweeps import filling, sampler
from dray.sweep import file, space
from dray.sweep.importing import python_space, wandb
from dray.sweep.importing.found import Imported

ISAAC = """\
import pathlib, sys
sys.path.append(str(pathlib.Path(__file__).parent))
import tuner
import util
import torch
from ray import tune
from ray.tune.stopper import Stopper
from ray.tune.progress_reporter import CLIReporter
from isaaclab.utils import configclass
print("what the file prints is not the answer")


class WalkerJobCfg(tuner.JobCfg):
    def __init__(self, cfg={}, deep=False):
        cfg = util.populate_isaac_ray_cfg_args(cfg)
        cfg["runner_args"]["headless_singleton"] = "--headless"
        cfg["runner_args"]["--task"] = tune.choice(["Walker-v0"])
        cfg["runner_args"]["--num_envs"] = tune.choice([512, 1024])
        cfg["runner_args"]["extra"] = "word"
        cfg["hydra_args"]["agent.horizon"] = tune.choice([8, 16])
        cfg["hydra_args"]["agent.lr"] = tune.loguniform(1e-5, 1e-2)
        cfg["hydra_args"]["agent.layers"] = tune.randint(2, 5)
        cfg["hydra_args"]["agent.fixed"] = True
        cfg["hydra_args"]["agent.none"] = None
        cfg["hydra_args"]["agent.pair"] = (1, 2)
        cfg["hydra_args"]["agent.net"] = "{name:default}"

        def batch(config):
            return config["runner_args"]["--num_envs"] * config["hydra_args"]["agent.horizon"] // 4

        cfg["hydra_args"]["agent.batch"] = tune.sample_from(batch)
        cfg["hydra_args"]["agent.same"] = tune.sample_from(
            lambda spec: spec.config.runner_args["--num_envs"] * 0 + 128
        )
        units = lambda _: [tune.randint(4, 64).sample() for _ in range(tune.randint(1, 4).sample())]
        cfg["hydra_args"]["agent.units"] = tune.sample_from(units)
        convs = lambda _: [{"filters": 16, "bias": False}]
        cfg["hydra_args"]["agent.convs"] = tune.sample_from(convs)
        super().__init__(cfg)


class TasklessJobCfg(tuner.JobCfg):
    def __init__(self, cfg={}):
        super().__init__(util.populate_isaac_ray_cfg_args(cfg))


class BrokenJobCfg(WalkerJobCfg):
    def __init__(self, cfg={}):
        super().__init__(cfg)
        self.cfg["hydra_args"]["agent.bad"] = tune.sample_from(lambda _: undefined_name)


class NormalJobCfg(WalkerJobCfg):
    def __init__(self, cfg={}):
        super().__init__(cfg)
        self.cfg["hydra_args"]["agent.bad"] = tune.randn(0, 1)


class EarlyStopper(Stopper):
    pass


class Columns(CLIReporter):
    pass


space = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "net": {"width": tune.qrandint(64, 256, 64), "act": tune.choice(["elu", "relu"])},
    "double": tune.sample_from(lambda config: config["net.act"] + "2"),
    "epochs": tune.lograndint(1, 100),
}
functions = {"act": tune.choice([print, len])}
"""


@pytest.fixture
def isaac(tmp_path: Path) -> Path:
    path = tmp_path / "walker_cfg.py"
    path.write_text(ISAAC)
    return path


def command_of(found: Imported, number: int = 0) -> list[str]:
    records = space.records_of(found.parameters)
    return filling.fill([], records, sampler.spread_evenly(records, 0, number))


def test_a_jobcfg_becomes_a_sweep_without_ray_or_isaaclab(isaac: Path) -> None:
    found = python_space.isaaclab(f"{isaac}:WalkerJobCfg", samples=100, repeats=3)
    kinds = {one.name: one.kind for one in found.parameters}
    assert kinds["--task"] == "fixed"
    assert (kinds["agent.lr"], kinds["agent.layers"]) == ("float", "int")
    assert (kinds["agent.batch"], kinds["agent.units"]) == ("table", "drawn")
    assert kinds["agent.same"] == "fixed"
    layers = next(one for one in found.parameters if one.name == "agent.layers")
    assert (layers.low, layers.high) == (2, 4)  # ray's upper end is not one of them


def test_num_samples_counts_repeats_there(isaac: Path) -> None:
    found = python_space.isaaclab(f"{isaac}:WalkerJobCfg", samples=100, repeats=3)
    assert (found.settings["sweep.trials"], found.settings["sweep.repeats"]) == (33, 3)
    assert "33 configurations, 3 runs of each; the 1 left over" in found.notes[0]
    drawn = next(one for one in found.parameters if one.name == "agent.units")
    assert len(drawn.values) == 33


def test_the_words_are_those_that_isaac_lab_writes(isaac: Path) -> None:
    found = python_space.isaaclab(f"{isaac}:WalkerJobCfg")
    words = command_of(found)
    assert words[:5] == ["--headless", "--task", "Walker-v0", "--num_envs", words[4]]
    assert words[5] == "word"
    envs = int(words[4])
    (horizon,) = (int(one[14:]) for one in words if one.startswith("agent.horizon="))
    assert f"agent.batch={envs * horizon // 4}" in words
    for exact in (
        "agent.fixed=True",
        "agent.none=None",
        "agent.pair=(1, 2)",
        "agent.net={name:default}",
        "agent.same=128",
        "agent.convs=[{filters:16,bias:False}]",
    ):
        assert exact in words
    assert any(re.fullmatch(r"agent\.units=\[\d+(,\d+)*\]", one) for one in words)


def test_what_is_not_taken_over_is_noted(isaac: Path) -> None:
    notes = "\n".join(python_space.isaaclab(f"{isaac}:WalkerJobCfg").notes)
    assert "agent.same is computed from num_envs, but is 128 in all 2 cases" in notes
    assert "agent.units is drawn anew each time: 33 values" in notes
    assert "EarlyStopper is not used: say in stop_if" in notes
    assert "Columns is not used" in notes


def test_an_import_can_be_written_and_started(isaac: Path) -> None:
    found = python_space.isaaclab(f"{isaac}:WalkerJobCfg")
    again = file.read_sweep(Document(Path("sweep.toml"), found.toml().encode()))
    assert space.whole(again.parameters) == found.parameters
    assert again.sweep("metric") == ("rewards/time",)
    assert again.sweep("command")[0] == "./isaaclab.sh"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("WalkrJobCfg", "Did you mean 'WalkerJobCfg'?"),
        ("TasklessJobCfg", "names no --task"),
        ("BrokenJobCfg", "agent.bad: its function fails"),
        ("NormalJobCfg", "agent.bad: a normal distribution has no counterpart"),
    ],
)
def test_a_class_that_cannot_be_read_says_why(isaac: Path, name: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        python_space.isaaclab(f"{isaac}:{name}")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import a_module_nobody_has\n", "a_module_nobody_has"),
        ("raise SystemExit(3)\n", "exit code 3"),
        ("import os; os.write(1, b'no answer'); os._exit(0)\n", "no answer"),
    ],
)
def test_a_file_that_cannot_be_run_says_why(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "cfg.py"
    path.write_text(content)
    with pytest.raises(ConfigError) as error:
        python_space.isaaclab(f"{path}:JobCfg")
    assert told in str(error.value)


def test_a_dict_of_ray_tunes_becomes_a_sweep(isaac: Path) -> None:
    found = python_space.ray(f"{isaac}:space", 20)
    kinds = {one.name: (one.kind, one.log, one.step) for one in found.parameters}
    assert kinds == {
        "lr": ("float", True, None),
        "net.width": ("int", False, 64),
        "net.act": ("choice", False, None),
        "double": ("table", False, None),
        "epochs": ("int", True, 1),
    }


def test_a_value_that_is_no_data_is_refused(isaac: Path) -> None:
    with pytest.raises(ConfigError, match="act: Object of type builtin_function_or_method"):
        python_space.ray(f"{isaac}:functions", 20)


# -- W&B ----------------------------------------------------------------------------------------

WANDB = """\
# a sweep
program: train.py
method: bayes
name: "My PPO sweep"
project: robots
metric:
  name: Train/mean_reward   # what counts
  goal: maximize
run_cap: 40
parameters:
  lr:
    distribution: log_uniform_values
    min: 1e-5
    max: 0.1
  entropy: {distribution: log_uniform, min: -4.6, max: 0}
  epochs: {min: 1, max: 10}
  gamma: { min: 0.9, max: 0.999 }
  act:
    values: ["elu", relu, 'tanh']
  net:
    values:
    - [64, 64]
    - [128, 128]
  opt:
    parameters:
      beta: {value: 0.9}
  noise: {distribution: q_uniform, min: 0, max: 1, q: 0.25}
early_terminate:
  type: hyperband
  min_iter: 50
command:
  - ${env}
  - python3
  - ${program}
  - --headless
  - ${args}
"""


@pytest.fixture(params=["with PyYAML, if there is one", "without PyYAML"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without PyYAML":
        monkeypatch.setattr(yaml_subset, "by_pyyaml", lambda text: None)


@pytest.mark.usefixtures("reader")
def test_a_sweep_of_wandb_becomes_ours() -> None:
    found = wandb.read(Text("sweep.yaml", WANDB))
    kinds = {one.name: (one.kind, one.log, one.step) for one in found.parameters}
    assert kinds == {
        "lr": ("float", True, None),
        "entropy": ("float", True, None),
        "epochs": ("int", False, 1),
        "gamma": ("float", False, None),
        "act": ("choice", False, None),
        "net": ("choice", False, None),
        "opt.beta": ("fixed", False, None),
        "noise": ("float", False, 0.25),
    }
    entropy = next(one for one in found.parameters if one.name == "entropy")
    assert (round(entropy.low, 4), entropy.high) == (0.0101, 1.0)
    assert found.settings["sweep.command"][:4] == ["python3", "train.py", "--headless", "--lr={lr}"]
    assert found.settings["sweep.stop"] == {"rule": "asha", "factor": 3, "first": 50}
    again = file.read_sweep(Document(Path("sweep.toml"), found.toml().encode()))
    assert (again.sweep("trials"), again.sweep("mode")) == (40, ("max",))
    space.check_template(again.sweep("command"), space.whole(again.parameters))


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    ("before", "after", "line", "told"),
    [
        ("bayes", "bayse", 3, "none of grid, random, bayes"),
        ("maximize", "maximise", 8, "none of minimize, maximize"),
        ("run_cap: 40", "run_cap: 0", 9, "from 1 to"),
        ("run_cap", "runcap", 9, "Did you mean 'run_cap'?"),
        ("max: 0.1", "mx: 0.1", 11, "max is missing"),
        ("max: 0.1", f"max: 1{'0' * 400}", 14, "is no number"),
        ("q: 0.25", "q: 1.0e-320", 27, "are too small"),
        ("log_uniform_values", "inv_log_uniform", 12, "has no counterpart"),
        ("min: 1e-5", "min: low", 13, "is no number"),
        ("${args}", "${args_json}", 36, "has no counterpart"),
        ("type: hyperband", "type: other", 29, "only hyperband"),
        ("min_iter: 50", "max_iter: 100\n  s: 65", 31, "s: 65 is not a whole number from 1 to 64"),
        ("min_iter: 50", "max_iter: 100\n  eta: 1001", 31, "from 1 to 1000"),
        ("min: -4.6, max: 0", "min: 0, max: 1000", 15, "out of all bounds"),
        ("program: train.py", "# none", 3, "not named"),
    ],
)
def test_what_has_no_counterpart_is_refused_with_its_line(
    before: str, after: str, line: int, told: str
) -> None:
    with pytest.raises(ConfigError, match=f"^sweep.yaml:{line}: ") as error:
        wandb.read(Text("sweep.yaml", WANDB.replace(before, after, 1)))
    assert told in str(error.value)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("run_cap: 40", '"x\\ndray: all is well": 40'),
        ("  lr:", '  "x\\ndray: all is well":'),
        ("log_uniform_values", '"x\\ndray: all is well"'),
    ],
)
def test_an_error_has_no_lines_of_the_files_own(before: str, after: str) -> None:
    with pytest.raises(ConfigError, match="all is well") as error:
        wandb.read(Text("sweep.yaml", WANDB.replace(before, after, 1)))
    assert str(error.value).isprintable()


def test_a_grid_needs_no_number_of_trials() -> None:
    content = WANDB.replace("method: bayes", "method: grid").replace("run_cap: 40\n", "")
    assert "sweep.trials" not in wandb.read(Text("w", content)).settings
    endless = wandb.read(Text("w", WANDB.replace("run_cap: 40\n", "")))
    assert endless.settings["sweep.trials"] == 50
    assert "go on without end" in "\n".join(endless.notes)


def test_without_a_metric_nothing_says_that_less_is_better() -> None:
    content = "program: a.py\nmethod: grid\nparameters:\n  lr: {values: [0.1, 0.2]}\n"
    assert "sweep.mode" not in wandb.read(Text("w", content)).settings
    named = wandb.read(Text("w", content + "metric: {name: loss}\n"))
    assert named.settings["sweep.mode"] == "min", "as it is there"


# -- YAML ---------------------------------------------------------------------------------------


READ = """
import sys
from dray.config.migration.found import Text
from dray.config.yaml_subset import Reader
content = Reader(Text("a.yaml", sys.stdin.read())).read().content
print(len(content))
"""


@pytest.mark.parametrize(
    "line",
    [
        '"\\' * 30_000,  # quotes, none of which ends
        "'" * 60_000 + "x",
        "x" + '"\\' * 30_000,
        "1" * 60_000 + "x",
        "1" + "_" * 60_000 + "x",
        "x" + " " * 60_000 + "y",
        "[" + "1," * 30_000 + "]",
    ],
    ids=["escapes", "quotes", "escapes in a text", "digits", "underscores", "spaces", "a list"],
)
def test_no_file_takes_hours_to_read(line: str) -> None:
    """A megabyte that is made for it. Without end it would be, if time grew with the square."""
    words = [sys.executable, "-c", READ]
    text = f"- {line}\n" * 16
    ended = subprocess.run(
        words, input=text, text=True, capture_output=True, timeout=60, check=False
    )
    assert ended.stdout == "16\n" or "dray.errors.ConfigError: a.yaml:1: " in ended.stderr


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="a line of more than 65536 characters"):
        yaml("a: " + "x" * 65_536)


def yaml(text: str) -> object:
    return yaml_subset.Reader(Text("a.yaml", text)).read().content


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("---\na: 1\n", {"a": 1}),
        ("a:\n  c:\n    - 1\n    - x: y\n      z: ~\n", {"a": {"c": [1, {"x": "y", "z": None}]}}),
        ("- - 1\n  - 2\n- []\n", [[1, 2], []]),
        ("a:\nb: {x: [1, 'it''s'], y: {}}\n", {"a": None, "b": {"x": [1, "it's"], "y": {}}}),
        ("a: >\n  one\n  two\n\n  three\nb: 1\n", {"a": "one two\nthree\n", "b": 1}),
        ("a: |-\n  x\n   y\nb: 1\n", {"a": "x\n y", "b": 1}),
        ('a: "tab\\tend" # c\nb: x#y\n', {"a": "tab\tend", "b": "x#y"}),
        ("a: http://x:5/y\nb: 1.5e3\nc: TRUE\n", {"a": "http://x:5/y", "b": 1500.0, "c": True}),
        ("a: -0.1\nb: 1e-5\nc: -7\n", {"a": -0.1, "b": 1e-5, "c": -7}),
        ("'quoted key': 1\n", {"quoted key": 1}),
    ],
)
def test_simple_yaml_is_read(text: str, expected: object) -> None:
    assert yaml(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("a: &x 1\n", 1, "an anchor"),
        ("a: 1\nb: *x\n", 2, "an alias"),
        ("a: !!python/object:os.system x\n", 1, "a tag"),
        ("a: yes\n", 1, "quote it"),
        ("a: 010\n", 1, "quote it"),
        ("a: 1\n\tb: 2\n", 2, "a tab"),
        ("a: 1\n  b: 2\n", 2, "a value of several lines"),
        ("a: [1,\n  2]\n", 2, "a value of several lines"),
        ("a: [1, 2\n", 1, "does not end on its line"),
        ('a: "x\n', 1, "does not end on its line"),
        ("a: 1\na: 2\n", 2, "there twice"),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a:\n    b: 1\n  c: 2\n", 3, "indented unlike"),
        ("? a\n", 1, "a '?'"),
        ("[" * 100 + "]" * 100 + "\n", 1, "too deep"),
    ],
)
def test_any_other_yaml_is_refused_with_its_line(text: str, line: int, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^a.yaml:{line}: ") as error:
        yaml(text)
    assert told in str(error.value)


def test_a_seed_of_wandb_is_a_flag_of_the_trainer() -> None:
    """{seed} is dray's own number: the parameter has the flag's name."""
    text = "program: train.py\nmethod: grid\nparameters:\n  seed:\n    values: [1, 2]\n"
    found = wandb.read(Text("sweep.yaml", text))
    assert [one.name for one in found.parameters] == ["--seed"]
    command = found.settings["sweep.command"]
    filled = filling.fill(command, space.records_of(found.parameters), {"--seed": 2}, seed=9)
    assert filled == ["python", "train.py", "--seed=2"]
