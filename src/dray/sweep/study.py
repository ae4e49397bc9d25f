"""A sweep as frozen types: the parameters it varies, the study, and its trials.

``Study.to_dict`` is the content of ``sweep.json``. What is read back comes from a cluster, where a
job can change it: every field is checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from dray import checks
from dray.checks import Malformed, optional, several
from dray.node.sweeps import optuna_question
from dray.node.sweeps.stopping import CONDITION
from dray.node.sweeps.study import MOST_OBJECTIVES
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1  # of sweep.json
KINDS = ("choice", "float", "int", "formula", "table", "drawn", "fixed")
LEARNT = ("choice", "float", "int")  # the kinds that a sampler chooses
EMITS = ("flag", "assignment", "value", "none")
MODES = ("max", "min")
STATES = ("queued", "running", "done", "failed", "pruned", "stopped")
RULES = ("asha", "median", "pbt")
SAMPLERS = ("tpe", "random", "grid", "quasi")
RESERVED = ("trial", "repeat", "seed")  # what a command may name besides the parameters

MOST_PARAMETERS = 1000
MOST_VALUES = 10**5
MOST_TRIALS = 10**6
MOST_GPU_SECONDS = 1e13  # of one trial: a thousand GPUs for three centuries
LARGEST = 1e100  # number in a space, so that what is computed with it stays finite
LARGEST_WHOLE = 2**62  # what is read back: see checks.integer
MOST_STEPS = 2.0**63  # of a range
DEEPEST = 8
LONGEST_NAME = 200
NAME = re.compile(r"[^\s{}=]+")
STUDY_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")


class Parameter(NamedTuple):
    """One parameter of a sweep. Which fields say something depends on ``kind``."""

    name: str
    kind: str
    emit: str = "none"  # how it gets into a command that does not mention it
    values: tuple[Any, ...] = ()  # choice, drawn
    low: float = 0.0  # float, int
    high: float = 0.0
    log: bool = False
    step: float | None = None
    formula: str = ""
    of: tuple[str, ...] = ()  # formula, table: the parameters that it is made of, by full name
    rows: tuple[tuple[tuple[Any, ...], Any], ...] = ()  # table: values of those, and its own
    value: Any = None  # fixed
    # Choices, by full name, with the values for which it is there; none: it always is.
    when: Mapping[str, tuple[Any, ...]] = MappingProxyType({})

    def to_dict(self) -> dict[str, Any]:
        """Return the parameter as sweep.json has it: with the fields of its kind alone."""
        record: dict[str, Any] = {"name": self.name, "kind": self.kind, "emit": self.emit}
        for field in FIELDS[self.kind]:
            record[field] = _plain(getattr(self, field))
        return {**record, "when": _plain(self.when)} if self.when else record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Parameter:
        told = checks.required(record, name=parameter_name, kind=_one_of(KINDS))
        own = {key: CHECKS[key] for key in FIELDS[told["kind"]]}
        common = {"emit": _one_of(EMITS), "when": checks.table(several(plain_value, MOST_VALUES))}
        read = cls(**told, **checks.fields(record, {**common, **own}))
        if "emit" not in record:
            read = read._replace(emit=usual_emit(read.name))
        if reason := read.problem():
            raise Malformed(f"{checks.brief(read.name)}: {reason}")
        return read

    def problem(self) -> str:
        """Say what is wrong with it; '' where nothing is."""
        if self.kind in ("choice", "drawn"):
            return "" if self.values else "it has no values"
        if self.kind in ("float", "int"):
            return self._range_problem()
        if self.kind == "formula":
            return "" if self.formula else "the formula is empty"
        if self.kind == "table" and any(len(given) != len(self.of) for given, _ in self.rows):
            return "a row has more or fewer values than the table has columns"
        return ""

    def _range_problem(self) -> str:
        largest = LARGEST_WHOLE if self.kind == "int" else LARGEST
        for one in (self.low, self.high, self.step or 0):
            if not abs(one) <= largest:  # nan, too
                return f"{checks.brief(one)} is out of bounds: at most {largest:g} can be used"
        if not self.low <= self.high:
            return f"{self.low:g} is more than {self.high:g}"
        if self.log and self.low <= 0:
            return "a logarithmic range begins above zero"
        if self.step is not None and self.step <= 0:
            return "the step is not more than zero"
        if self.step is not None and not (self.high - self.low) / self.step <= MOST_STEPS:
            return f"steps of {self.step:g} are too small for this range: leave them out"
        if self.log and self.step not in (None, 1):
            return "a logarithmic range has no steps"
        if self.kind == "int":
            ends = (self.low, self.high, self.step or 1)
            if any(one != int(one) for one in ends):
                return "the ends and the step of a range of integers are integers"
        return ""


class Stop(NamedTuple):
    """How trials that do badly are ended early."""

    rule: str
    first: int | None = None  # the step of the first look; None: a share of the total
    factor: int = 3
    total: int | None = None  # steps of a whole training
    change: tuple[str, ...] = ()  # pbt: which parameters; none: all floating-point numbers

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "change": list(self.change)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Stop:
        checks.required(record, rule=_one_of(RULES))
        return cls(**checks.fields(record, STOP))


class Objective(NamedTuple):
    """One of several metrics of a sweep."""

    metric: str
    mode: str = "max"

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Objective:
        return cls(**checks.required(record, metric=_metric, mode=_one_of(MODES)))

    def loss(self, value: float | None) -> float:
        """Return what a sampler and a ranking go by: the smaller, the better."""
        if value is None or not math.isfinite(value):
            return math.inf
        return -value if self.mode == "max" else value


class Study(NamedTuple):
    """A sweep as it was submitted; nothing of it changes afterwards."""

    id: str
    space: tuple[Parameter, ...]
    name: str = ""
    created: float = 0.0
    sampler: str = "tpe"
    sampler_python: tuple[str, ...] = ()  # that has Optuna; none: the command's own
    seed: int = 0
    metric: str = ""  # "": the main metric of each trial, whatever it is called
    mode: str = "max"
    objectives: tuple[Objective, ...] = ()  # several metrics at once, the first one too
    repeats: int = 1
    stop: Stop | None = None
    stop_if: tuple[str, ...] = ()
    max_failures: int | None = None
    mlflow: str = ""  # the address of a server that trials tell how they do
    experiment: str = ""  # there; "": the sweep's id

    def to_dict(self) -> dict[str, Any]:
        """Return what sweep.json has in it."""
        return {
            "version": VERSION,
            **self._asdict(),
            "space": [one.to_dict() for one in self.space],
            "objectives": [one._asdict() for one in self.objectives],
            "stop": self.stop.to_dict() if self.stop else None,
            "stop_if": list(self.stop_if),
            "sampler_python": list(self.sampler_python),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Study:
        """Read a study; fields that a newer dray wrote are left out."""
        checks.required(record, id=study_id, space=checks.several(checks.record))
        read = cls(**checks.fields(record, STUDY))
        names = [one.name for one in read.space]
        if len(set(names)) != len(names):
            raise Malformed("two parameters of the space have the same name")
        if len({one.metric for one in read.objectives}) != len(read.objectives):
            raise Malformed("two metrics have the same name")
        return read

    @property
    def goals(self) -> tuple[Objective, ...]:
        """All metrics of the sweep: several, or the one that it has, which may be without a
        name."""
        return self.objectives or (Objective(self.metric, self.mode),)

    @property
    def goal(self) -> str:
        """What the sweep is for, for people."""
        return ", ".join(f"{one.mode} {one.metric or 'of the main metric'}" for one in self.goals)

    def is_better(self, value: float, other: float) -> bool:
        """Tell whether a value is better than another; what is no finite number is the worst."""
        return self.loss(value) < self.loss(other)

    def loss(self, value: float | None) -> float:
        """Return what a sampler and a ranking go by: the smaller, the better."""
        return Objective(self.metric, self.mode).loss(value)


class Trial(NamedTuple):
    """One job of a sweep, as it was last seen."""

    number: int
    configuration: int  # its repeats have the same
    job: str = ""  # the job's id
    cluster: str = ""
    values: Mapping[str, Any] = MappingProxyType({})  # of the parameters
    state: str = "queued"
    value: float | None = None  # of the metric, or of the first one; nan and inf as they are
    step: int | None = None
    rungs: Mapping[int, float] = MappingProxyType({})  # step → value, where it was compared
    gpu_seconds: float = 0.0
    reason: str = ""
    metrics: tuple[str, ...] = ()  # names that were seen, as far as they are told
    levels: Mapping[str, float] = MappingProxyType({})  # what these are, by name
    objectives: tuple[float | None, ...] = ()  # values of each metric, where the sweep has several
    taken: int = 0  # how often it went on from another trial's checkpoint

    def to_dict(self) -> dict[str, Any]:
        """Return the documented form that ``--json`` prints."""
        record = self._asdict()
        told = {"rungs": dict(self.rungs), "levels": dict(self.levels)}
        told["objectives"] = list(self.objectives)
        return {**record, "values": _plain(self.values), **told}

    @property
    def met_condition(self) -> bool:
        """Whether a condition of --stop-if has ended it."""
        return self.state == "pruned" and self.reason.startswith(CONDITION)

    def by_metric(self, at: int) -> Trial:
        """Return the trial as if this were the only metric of its sweep."""
        if not self.objectives:
            return self
        return self._replace(value=self.objectives[at], objectives=())

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Trial:
        checks.required(record, number=TRIAL["number"], configuration=TRIAL["configuration"])
        return cls(**checks.fields(record, TRIAL))


def usual_emit(name: str) -> str:
    """Say how a parameter of this name is added to a command: ``--x v`` or ``x=v``."""
    return "flag" if name.startswith("-") else "assignment"


# -- what each field has to be, in a record that was written elsewhere ----------------------------


def parameter_name(value: Any) -> str:
    read = checks.text(value, LONGEST_NAME)
    if not NAME.fullmatch(read) or not read.isprintable():
        raise Malformed(f"{checks.brief(value)} is not the name of a parameter")
    return read


def study_id(value: Any) -> str:
    if not STUDY_ID.fullmatch(checks.text(value)):
        raise Malformed(f"{checks.brief(value)} is not the id of a sweep")
    return str(value)


def plain_value(value: Any, deepest: int = DEEPEST) -> Any:
    """Read a value as JSON has it: a scalar, or lists and tables of them."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checks.text(value)
    if isinstance(value, int):
        return checks.integer(value)
    if isinstance(value, float):
        return checks.number(value)
    if not deepest:
        raise Malformed("its lists lie too deep in one another")
    if isinstance(value, list | tuple):
        return several(lambda one: plain_value(one, deepest - 1), MOST_VALUES)(value)
    return checks.table(lambda one: plain_value(one, deepest - 1))(value)


def has_huge(value: Any) -> bool:
    """Tell whether there is a number in it, at any depth, that no space may have."""
    if isinstance(value, Mapping):
        return any(map(has_huge, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_huge, value))
    return isinstance(value, int | float) and not abs(value) <= LARGEST


def measured(value: Any) -> float | None:
    """Read what a metric was: any float, nan and inf too, which JSON may have as texts."""
    if value in ("nan", "inf", "-inf") or isinstance(value, float):
        return float(value)
    return None if value is None else checks.number(value)


def gpu_seconds(value: Any) -> float:
    read = checks.number(value)
    if not 0 <= read <= MOST_GPU_SECONDS:
        raise Malformed(f"{checks.brief(value)} is not a time on GPUs")
    return read


def _metric(value: Any) -> str:
    return checks.text(value, checks.LONGEST_NOTE)


def _rungs(value: Any) -> dict[int, float]:
    read: dict[int, float] = {}
    for step, one in checks.table(measured)(value).items():
        if not re.fullmatch(r"[0-9]{1,15}", step):
            raise Malformed(f"{checks.brief(step)} is not a step")
        read[int(step)] = math.nan if one is None else one
    return read


def _row(value: Any) -> tuple[tuple[Any, ...], Any]:
    pair = several(lambda one: one, 2)(value)
    if len(pair) != 2:
        raise Malformed(f"{checks.brief(value)} is not a row")
    return several(plain_value, MOST_PARAMETERS)(pair[0]), plain_value(pair[1])


def _bound(value: Any) -> float:
    """Read an end of a range; a whole number stays one."""
    return checks.integer(value) if isinstance(value, int) else checks.number(value)


def _one_of(valid: tuple[str, ...]) -> checks.Check[str]:
    def read(value: Any) -> str:
        if value not in valid:
            raise Malformed(f"{checks.brief(value)} is not one of {', '.join(valid)}")
        return str(value)

    return read


def sampler_name(value: Any) -> str:
    if checks.text(value) in SAMPLERS:
        return str(value)
    if not optuna_question.is_optuna(str(value)):
        valid = ", ".join(SAMPLERS)
        raise Malformed(f"{checks.brief(value)} is not a sampler: there is {valid}, optuna:NAME")
    try:
        optuna_question.parsed(str(value))
    except ValueError as error:
        raise Malformed(f"{checks.brief(value)}: {error}") from None
    return str(value)


def _plain(value: Any) -> Any:
    """Turn tuples into lists, at any depth, as they are read back."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


FIELDS: Mapping[str, tuple[str, ...]] = {
    "choice": ("values",),
    "float": ("low", "high", "log", "step"),
    "int": ("low", "high", "log", "step"),
    "formula": ("formula", "of"),
    "table": ("of", "rows"),
    "drawn": ("values",),
    "fixed": ("value",),
}
CHECKS: Mapping[str, checks.Check[Any]] = {
    "values": several(plain_value, MOST_VALUES),
    "low": _bound,
    "high": _bound,
    "log": checks.boolean,
    "step": optional(_bound),
    "formula": lambda value: checks.text(value, checks.LONGEST_NOTE),
    "of": several(parameter_name, MOST_PARAMETERS),
    "rows": several(_row, MOST_VALUES),
    "value": plain_value,
}
STOP: Mapping[str, checks.Check[Any]] = {
    "rule": _one_of(RULES),
    "first": optional(lambda value: checks.integer(value, 1)),
    "factor": lambda value: checks.integer(value, 2, 100),
    "total": optional(lambda value: checks.integer(value, 1)),
    "change": several(parameter_name, MOST_PARAMETERS),
}
STUDY: Mapping[str, checks.Check[Any]] = {
    "id": study_id,
    "name": checks.note,
    "created": checks.moment,
    "space": several(Parameter.from_dict, MOST_PARAMETERS),
    "sampler": sampler_name,
    "sampler_python": checks.texts,
    "seed": checks.integer,
    "metric": _metric,
    "mode": _one_of(MODES),
    "objectives": several(Objective.from_dict, MOST_OBJECTIVES),
    "repeats": lambda value: checks.integer(value, 1, MOST_TRIALS),
    "stop": optional(Stop.from_dict),
    "stop_if": checks.texts,
    "max_failures": optional(checks.count),
    "mlflow": lambda value: checks.text(value, checks.LONGEST_NOTE),
    "experiment": lambda value: checks.text(value, checks.LONGEST_NOTE),
}
TRIAL: Mapping[str, checks.Check[Any]] = {
    "number": lambda value: checks.integer(value, 0, MOST_TRIALS),
    "configuration": lambda value: checks.integer(value, 0, MOST_TRIALS),
    "job": lambda value: checks.job_id(value) if value else "",
    "cluster": checks.note,
    "values": checks.table(plain_value),
    "state": _one_of(STATES),
    "value": measured,
    "objectives": several(measured, MOST_OBJECTIVES),
    "step": optional(checks.integer),
    "rungs": _rungs,
    "gpu_seconds": gpu_seconds,
    "reason": checks.note,
    "metrics": checks.texts,
    "levels": checks.table(checks.number),
    "taken": checks.count,
}
