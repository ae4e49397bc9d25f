"""Runs a user's Python file, and prints the search space that it makes. Started by
``python_space`` in a process of its own: ``python -I python_child.py FILE NAME CONFIGURATIONS``.

Neither ray nor Isaac Lab is needed: ray's functions, ``tuner`` and ``util`` are stand-ins that only
note what they are given, and libraries that are not installed are modules of empty classes. A
function of other values (``sample_from``) is called for all of them where these are few, and gives
a table; else it is called once for each configuration. Imports nothing of dray.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import math
import os
import random
import sys
import types
from typing import Any

MOST_ROWS = 10_000
PARTS = ("runner_args", "hydra_args")
# Libraries without which a configuration can be read: empty where they are not installed.
DISPENSABLE = {"isaaclab", "isaaclab_assets", "isaaclab_rl", "isaaclab_tasks", "isaacsim"}
DISPENSABLE |= {"carb", "gymnasium", "hydra", "mlflow", "omegaconf", "omni", "optuna", "pxr"}
DISPENSABLE |= {"ray", "tensorboard", "tensorboardX", "torch", "warp"}
rng = random.Random(0)


class Domain:
    """What ``tune.choice`` and its like return; ``sample`` draws as ray's does."""

    def __init__(self, draw: Any, **spec: Any) -> None:
        self.draw = draw
        self.spec = spec

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        drawn = [self.draw(config or {}) for _ in range(size)]
        return drawn[0] if size == 1 else drawn

    def quantized(self, q: float) -> "Domain":
        return Domain(lambda given: round(self.draw(given) / q) * q, **{**self.spec, "step": q})

    def uniform(self) -> "Domain":
        return self

    def loguniform(self, base: float = 10) -> "Domain":
        return Domain(self.draw, **{**self.spec, "log": True})


class Config(dict):  # type: ignore[type-arg]
    """What ray hands to ``sample_from``: a dict that also has its keys as attributes."""

    def __getattr__(self, name: str) -> Any:
        return self if name == "config" else self[name]  # ray 1 had them in spec.config


# -- ray.tune, as far as it makes spaces ----------------------------------------------------------


def choice(values: Any) -> Domain:
    values = list(values)
    return Domain(lambda given: rng.choice(values), kind="choice", values=values)


def uniform(low: float, high: float) -> Domain:
    return Domain(lambda given: rng.uniform(low, high), kind="float", low=low, high=high)


def loguniform(low: float, high: float, base: float = 10) -> Domain:
    def draw(given: Any) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    return Domain(draw, kind="float", low=low, high=high, log=True)


def quniform(low: float, high: float, q: float) -> Domain:
    return uniform(low, high).quantized(q)


def qloguniform(low: float, high: float, q: float, base: float = 10) -> Domain:
    return loguniform(low, high).quantized(q)


def randint(low: int, high: int) -> Domain:
    return Domain(lambda given: rng.randrange(low, high), kind="int", low=low, high=high - 1)


def qrandint(low: int, high: int, q: int = 1) -> Domain:
    def draw(given: Any) -> int:
        return rng.randrange(low, high + 1, q)

    return Domain(draw, kind="int", low=low, high=high, step=q)


def lograndint(low: int, high: int, base: float = 10) -> Domain:
    def draw(given: Any) -> int:
        return int(math.exp(rng.uniform(math.log(low), math.log(high))))

    return Domain(draw, kind="int", low=low, high=high - 1, log=True)


def qlograndint(low: int, high: int, q: int, base: float = 10) -> Domain:
    return lograndint(low, high + 1).quantized(q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Domain:
    return Domain(lambda given: rng.gauss(mean, sd), kind="normal")


def qrandn(mean: float, sd: float, q: float) -> Domain:
    return randn(mean, sd)


def sample_from(function: Any) -> Domain:
    return Domain(function, kind="function")


def grid_search(values: Any) -> Domain:
    return choice(values)


TUNE: list[Any] = [choice, uniform, loguniform, quniform, qloguniform, randint, qrandint]
TUNE += [lograndint, qlograndint, randn, qrandn, sample_from, grid_search]


# -- stand-in modules -----------------------------------------------------------------------------


class Empty(types.ModuleType):
    """A module of which every name is a class to inherit from, to call or to decorate with."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        content = {"__init__": lambda self, *given, **named: None, "__module__": self.__name__}
        made = type(name, (), content)
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes after all others: what is not installed here is empty."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] in DISPENSABLE:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Empty:
        return Empty(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


class JobCfg:
    """Stands in for tuner.JobCfg, and asks for the same."""

    def __init__(self, cfg: dict[str, Any]) -> None:
        for part in PARTS:
            if part not in cfg:
                raise ValueError(f"the configuration has no {part}")
        if "--task" not in cfg["runner_args"]:
            raise ValueError("the configuration names no --task")
        self.cfg = cfg


def with_parts(cfg: dict[str, Any]) -> dict[str, Any]:
    """Stand in for util.populate_isaac_ray_cfg_args."""
    for part in PARTS:
        cfg.setdefault(part, {})
    return cfg


def install_stand_ins() -> None:
    sys.meta_path.append(Finder())
    ray, tune, util, tuner = map(Empty, ("ray", "ray.tune", "util", "tuner"))
    for function in TUNE:
        setattr(tune, function.__name__, function)
    for module, name, value in (
        (ray, "tune", tune),
        (util, "populate_isaac_ray_cfg_args", with_parts),
        (tuner, "JobCfg", JobCfg),
    ):
        setattr(module, name, value)
    sys.modules.update({"ray": ray, "ray.tune": tune, "util": util, "tuner": tuner})


# -- describing a space ---------------------------------------------------------------------------


class Watched(Config):
    """Notes which values a function asks for."""

    def __init__(self, content: Any, part: str, asked: set[tuple[str, str]]) -> None:
        super().__init__(content)
        self.part, self.asked = part, asked

    def __getitem__(self, key: str) -> Any:
        self.asked.add((self.part, key))
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401


class Space:
    """The entries of a configuration, by part and key; a flat space has one part, ''."""

    def __init__(self, entries: dict[tuple[str, str], Any], configurations: int) -> None:
        self.entries = entries
        self.configurations = configurations
        self.finite = {
            place: one.spec["values"]
            for place, one in entries.items()
            if isinstance(one, Domain) and one.spec["kind"] == "choice"
        }

    def describe(self, place: tuple[str, str]) -> dict[str, Any]:
        value = self.entries[place]
        if not isinstance(value, Domain):
            return {"kind": "fixed", "value": value}
        if value.spec["kind"] == "function":
            return self.resolve(value)
        return value.spec

    def resolve(self, function: Domain) -> dict[str, Any]:
        """Call a function of other values: for each combination of them where these are few and
        the answer is the same twice; else once for each configuration."""
        asked: set[tuple[str, str]] = set()
        try:
            function.draw(self.one({}, asked))
            places = sorted(asked)
            if places and all(place in self.finite for place in places):
                rows = self.rows(function, places)
                if rows is not None and rows == self.rows(function, places):
                    return {"kind": "table", "of": places, "rows": rows}
            drawn = [function.draw(self.one({})) for _ in range(self.configurations)]
        except Exception as error:
            return {"kind": "unreadable", "why": repr(error)}
        return {"kind": "drawn", "of": places, "values": drawn}

    def rows(self, function: Domain, places: list[tuple[str, str]]) -> list[Any] | None:
        if math.prod(len(self.finite[place]) for place in places) > MOST_ROWS:
            return None
        combinations = itertools.product(*(self.finite[place] for place in places))
        return [
            [list(one), function.draw(self.one(dict(zip(places, one, strict=True))))]
            for one in combinations
        ]

    def one(
        self, chosen: dict[tuple[str, str], Any], asked: set[tuple[str, str]] | None = None
    ) -> Config:
        """Return a configuration, with these values and otherwise any."""
        noted = set() if asked is None else asked
        parts: dict[str, dict[str, Any]] = {part: {} for part, _ in self.entries}
        for place, value in self.entries.items():
            if place in chosen:
                value = chosen[place]
            elif isinstance(value, Domain):
                value = None if value.spec["kind"] == "function" else value.sample()
            parts[place[0]][place[1]] = value
        watched = {part: Watched(content, part, noted) for part, content in parts.items()}
        return watched.get("") or Config(watched)


def as_isaac_writes(value: Any) -> Any:
    """Return a value of which dray makes the word that Isaac Lab makes: what it writes by ``str``
    becomes that text."""
    if isinstance(value, list):
        has_tables = bool(value) and isinstance(value[0], dict)
        if has_tables:
            return [{key: plain(one) for key, one in item.items()} for item in value]
        return [plain(one) for one in value]
    return plain(value)


def as_it_is(value: Any) -> Any:
    json.dumps(value)  # what is no JSON is refused here
    return value


def plain(value: Any) -> Any:
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return value if is_plain else str(value)


def converted(spec: dict[str, Any], convert: Any) -> dict[str, Any]:
    """Convert all values of a described parameter."""
    found = dict(spec)
    if "value" in spec:
        found["value"] = convert(spec["value"])
    if "values" in spec:
        found["values"] = [convert(one) for one in spec["values"]]
    if "rows" in spec:
        found["rows"] = [[[convert(one) for one in key], convert(own)] for key, own in spec["rows"]]
    return found


# -- the file -------------------------------------------------------------------------------------


def load(path: str) -> Any:
    folder, file = os.path.split(os.path.abspath(path))
    sys.path.insert(0, folder)
    name = os.path.splitext(file)[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError("this is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def answer(path: str, name: str, configurations: int) -> dict[str, Any]:
    module = load(path)
    own = {key: one for key, one in vars(module).items() if not key.startswith("_")}
    found = own.get(name)
    jobs = {key for key, one in own.items() if isinstance(one, type) and issubclass(one, JobCfg)}
    spaces = {key for key, one in own.items() if isinstance(one, dict)}
    if isinstance(found, dict):
        entries = flattened(found)
        convert: Any = as_it_is
    elif name in jobs:
        cfg = made(found).cfg
        entries = {(part, key): one for part in PARTS for key, one in cfg[part].items()}
        convert = as_isaac_writes
    else:
        return {"names": sorted(jobs | spaces)}
    space = Space(entries, configurations)
    return {
        "parameters": [described(space, part, key, convert) for part, key in entries],
        "others": bystanders(module, own),
    }


def described(space: Space, part: str, key: str, convert: Any) -> dict[str, Any]:
    try:
        return {"part": part, "key": key, **converted(space.describe((part, key)), convert)}
    except TypeError as error:
        raise ValueError(f"{key}: {error}") from None


def made(cls: Any) -> Any:
    """Make a configuration from an empty one of its own: the classes' default is shared."""
    try:
        return cls({})
    except TypeError:
        return cls()


def flattened(space: dict[str, Any], before: str = "") -> dict[tuple[str, str], Any]:
    found = {}
    for key, value in space.items():
        if isinstance(value, dict):
            found.update(flattened(value, f"{before}{key}."))
        else:
            found["", f"{before}{key}"] = value
    return found


def bystanders(module: Any, own: dict[str, Any]) -> dict[str, list[str]]:
    """Return the file's other classes that the tuner can be given, and what they inherit from."""
    classes = [one for one in own.values() if isinstance(one, type)]
    here = [one for one in classes if one.__module__ == module.__name__]
    return {
        one.__name__: [base.__name__ for base in one.__mro__[1:-1]]
        for one in here
        if not issubclass(one, JobCfg)
    }


def main(path: str, name: str, configurations: str) -> None:
    # What the file prints goes to stderr; the answer alone to stdout.
    stdout = os.dup(1)
    os.dup2(2, 1)
    install_stand_ins()
    try:
        told = json.dumps(answer(path, name, int(configurations)))
    except Exception as error:
        told = json.dumps({"error": f"{type(error).__name__}: {error}"})
    with open(stdout, "w") as stream:
        stream.write(told)


if __name__ == "__main__":
    main(*sys.argv[1:])
