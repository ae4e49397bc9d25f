"""Every setting of a sweep, declared once: the key in [sweep], the flag, the type, the default."""

from __future__ import annotations

import json

from dray.checks import Malformed
from dray.job.options import Option
from dray.job.options.values import Choice, count_from_zero, job_name, text, texts, words
from dray.job.quantities import parse_count
from dray.node.jobs.arrays import MOST_PER_NODE
from dray.node.sweeps.mlflow import why_not_an_address
from dray.sweep.study import MODES, RULES, Stop, sampler_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USUAL_TRIALS = 50


def sampler(value: object) -> str:
    """Read "tpe", "optuna:TPESampler,multivariate=true", or { optuna = "TPESampler", … }."""
    if isinstance(value, dict):
        given = {key: argument(key, one) for key, one in value.items() if key != "optuna"}
        words = [f"optuna:{value.get('optuna', '')}", *(f"{key}={given[key]}" for key in given)]
        value = ",".join(words)
    try:
        return sampler_name(text(value))
    except Malformed as error:
        raise ValueError(str(error)) from None


def argument(key: str, value: object) -> str:
    """Write an argument of a sampler; TOML's dates and times are none."""
    try:
        return json.dumps(value)
    except TypeError:
        raise ValueError(f"{key} is no number, text, true, false or list of these") from None


def mlflow_address(value: object) -> str:
    if reason := why_not_an_address(text(value)):
        raise ValueError(reason)
    return text(value)


def seed(value: object) -> int:
    return parse_count(value, least=0)


def per_node(value: object) -> int:
    number = parse_count(value)
    if number > MOST_PER_NODE:
        raise ValueError(f"at most {MOST_PER_NODE} trials share a node")
    return number


def stop(value: object) -> Stop:
    """Read "asha", or { rule = "asha", first = 100, factor = 3, total = 1500 }."""
    table: dict[str, Any] = dict(value) if isinstance(value, dict) else {"rule": value}
    for key in table:
        if key not in Stop._fields:
            raise ValueError(f"'{key}' is none of {', '.join(Stop._fields)}")
    rule, change = Choice(*RULES)(table.pop("rule", "")), texts(table.pop("change", ()))
    counts = {key: parse_count(one) for key, one in table.items()}
    if counts.get("factor", 3) < 2:
        raise ValueError("the factor is at least 2")
    return Stop(rule=rule, change=change, **counts)


def modes(value: object) -> tuple[str, ...]:
    """Read "max", or one for each metric: "max,min", ["max", "min"]."""
    words = value.split(",") if isinstance(value, str) else texts(value)
    return tuple(Choice(*MODES)(one.strip()) for one in words)


def several_texts(value: object) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else texts(value)


SWEEP = (
    Option(
        key="sweep.name",
        flag="--name",
        metavar="NAME",
        parse=job_name,
        help="The sweep's name, the first part of its id.",
        example='"policy"',
        default_text="taken from the command",
        harmless=True,
    ),
    Option(
        key="sweep.command",
        parse=texts,
        help="The command, where none is given on the command line; {lr} stands for a parameter.",
        example='["python", "train.py", "--lr={lr}"]',
        many=True,
        harmless=True,
    ),
    Option(
        key="sweep.trials",
        flag="--trials",
        metavar="N",
        parse=parse_count,
        help="How many configurations are tried.",
        example="50",
        default_text=f"{USUAL_TRIALS}; all of them for a grid",
        harmless=True,
    ),
    Option(
        key="sweep.repeats",
        flag="--repeats",
        metavar="N",
        parse=parse_count,
        help="How often each configuration is run, with another seed; their mean counts.",
        example="3",
        default=1,
        harmless=True,
    ),
    Option(
        key="sweep.metric",
        flag="--metric",
        metavar="TAG",
        parse=several_texts,
        help="What is to become best: a tag of TensorBoard, or a name that the trainer reports; "
        'a list is several at once: ["Train/mean_reward", "Episode/energy"].',
        example='"Train/mean_reward"',
        default_text="the job's main metric",
        harmless=True,
    ),
    Option(
        key="sweep.mode",
        flag="--mode",
        metavar="MODE",
        parse=modes,
        help="Whether the most (max) or the least (min) is best; of several metrics one for each: "
        "max,min.",
        example='"max"',
        default="max",
        harmless=True,
    ),
    Option(
        key="sweep.sampler",
        flag="--sampler",
        metavar="NAME",
        parse=sampler,
        help="How values are chosen: tpe learns from earlier trials; random, grid, quasi do not; "
        "optuna:NAME is a sampler of Optuna's, perhaps with arguments "
        "(optuna:TPESampler,multivariate=true), where the command's Python has Optuna. As a table: "
        '{ optuna = "TPESampler", multivariate = true }.',
        example='"tpe"',
        default="tpe",
        harmless=True,
    ),
    Option(
        key="sweep.sampler_python",
        flag="--sampler-python",
        metavar="PYTHON",
        parse=words,
        help="The Python that has Optuna, on the node or in the container.",
        example='"/opt/conda/bin/python"',
        default_text="the command's own, else python3",
        harmless=True,
    ),
    Option(
        key="sweep.seed",
        flag="--seed",
        metavar="N",
        parse=seed,
        help="Where the sampler begins: the same number, the same first values.",
        example="1",
        default_text="drawn once for the sweep",
        harmless=True,
    ),
    Option(
        key="sweep.at_once",
        flag="--at-once",
        metavar="N",
        parse=parse_count,
        help="How many trials run at the same time, at most.",
        example="8",
        default_text="as many as the cluster starts",
        harmless=True,
    ),
    Option(
        key="sweep.per_node",
        flag="--per-node",
        metavar="N",
        parse=per_node,
        help="How many trials share what --gpus, --cpus and --memory ask for, side by side on one "
        "node: each has its part of the GPUs, or shares one.",
        example="4",
        default=1,
        harmless=True,
    ),
    Option(
        key="sweep.stop",
        flag="--stop",
        metavar="RULE",
        parse=stop,
        help="End trials that do badly: asha keeps the best third at each look, median the better "
        "half; with pbt they go on from the checkpoint of a better one, with changed parameters. "
        "As a table: { rule, first, factor, total, change }, in steps of the metric.",
        example='"asha"',
        default_text="every trial runs to its end",
        harmless=True,
    ),
    Option(
        key="sweep.stop_if",
        flag="--stop-if",
        metavar="EXPRESSION",
        parse=several_texts,
        help="End a trial where this becomes true of its metrics.",
        example='["Loss/value > 1e6 after 20"]',
        many=True,
        harmless=True,
    ),
    Option(
        key="sweep.max_failures",
        flag="--max-failures",
        metavar="N",
        parse=count_from_zero,
        help="Start no further trial once more than this many have failed.",
        example="10",
        default_text="failures do not end the sweep",
        harmless=True,
    ),
    Option(
        key="sweep.mlflow",
        flag="--mlflow",
        metavar="URI",
        parse=mlflow_address,
        help="An MLflow server that trials tell from their nodes how they do. Credentials are "
        "secrets of the job: --secret MLFLOW_TRACKING_TOKEN.",
        example='"https://mlflow.example.org"',
        default_text="none",
        harmless=True,
    ),
    Option(
        key="sweep.experiment",
        flag="--mlflow-experiment",
        metavar="NAME",
        parse=text,
        help="The experiment on that server.",
        example='"robots"',
        default_text="the sweep's id",
        harmless=True,
    ),
)
