"""Records that are quick to define do what the standard library's do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import typing
from collections.abc import Mapping
from typing import Any

import pytest

from dray import records
from dray.job.model import JobSpec, Resources


@records.dataclass(frozen=True, kw_only=True)
class Ours:
    name: str
    size: int = 3
    parts: tuple[Any, ...] = ()
    notes: Mapping[str, Any] = records.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Theirs:
    name: str
    size: int = 3
    parts: tuple[Any, ...] = ()
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Pair(records.NamedTuple):
    """Two of them."""

    left: int
    right: int = 2

    @property
    def total(self) -> int:
        return self.left + self.right


class TheirPair(typing.NamedTuple):
    left: int
    right: int = 2


GIVEN: list[dict[str, Any]] = [
    {"name": "a"},
    {"name": "b", "size": 5, "parts": (1, ("x",)), "notes": {"k": [1, {"deep": (2,)}]}},
]


@pytest.mark.parametrize("given", GIVEN)
def test_fields_and_text(given: dict[str, Any]) -> None:
    ours, theirs = Ours(**given), Theirs(**given)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert records.asdict(ours) == dataclasses.asdict(theirs) == dataclasses.asdict(ours)
    assert list(records.asdict(ours)) == list(dataclasses.asdict(theirs))
    changed = records.replace(ours, size=9)
    assert changed == dataclasses.replace(ours, size=9) == Ours(**{**given, "size": 9}) != ours
    assert copy.deepcopy(ours) == pickle.loads(pickle.dumps(ours)) == ours


def test_nothing_is_shared() -> None:
    first = Ours(name="a")
    assert first.notes is not Ours(name="a").notes
    given = {"k": [1]}
    records.asdict(Ours(name="a", notes=given))["notes"]["k"].append(2)
    assert given == {"k": [1]}


def test_equality_and_hash() -> None:
    plain = Resources(gpus=1.0)
    assert {plain: 1}[Resources(gpus=1.0)] == 1
    assert plain != records.asdict(plain)
    assert Ours(name="a") != Theirs(name="a")


@pytest.mark.parametrize("given", [{}, {"name": "a", "other": 1}, {"size": 1, "other": 1}])
def test_wrong_fields(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Theirs(**given)
    with pytest.raises(TypeError, match=r"field '(name|other)'"):
        Ours(**given)


def test_it_is_frozen() -> None:
    ours: Any = Ours(name="a")
    with pytest.raises(AttributeError, match="frozen"):
        ours.name = "b"
    with pytest.raises(AttributeError, match="frozen"):
        del ours.name


def test_the_whole_description() -> None:
    spec = JobSpec(id="a-1", name="a", command=("true",))
    assert JobSpec.from_dict(spec.to_dict()) == spec
    assert dataclasses.asdict(spec) == spec.to_dict()


def test_named_tuples() -> None:
    pair, theirs = Pair(1), TheirPair(1)
    assert (pair, pair.total) == (theirs, 3)
    assert repr(pair) == repr(theirs)[len("Their") :]
    assert (Pair._fields, Pair._field_defaults) == (TheirPair._fields, TheirPair._field_defaults)
    assert (Pair.__doc__, Pair.__module__, Pair.__qualname__) == ("Two of them.", __name__, "Pair")
    assert pair._replace(left=5) == (5, 2)
    assert pickle.loads(pickle.dumps(pair)) == pair
    assert (Pair.__match_args__, pair._asdict()) == (TheirPair.__match_args__, theirs._asdict())
    assert Pair._make([3, 4]) == Pair(right=4, left=3) == TheirPair(3, 4)
    assert not hasattr(pair, "__dict__")


@pytest.mark.parametrize(
    ("values", "given"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"left": 2}), ((1,), {"other": 2}), ((), {"other": 1})],
)
def test_named_tuples_with_wrong_fields(values: tuple[int, ...], given: dict[str, int]) -> None:
    for made in (TheirPair, Pair):
        with pytest.raises(TypeError):
            made(*values, **given)
    with pytest.raises(ValueError, match=r"unexpected field names"):
        TheirPair(1)._replace(other=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="other"):
        Pair(1)._replace(other=3)  # type: ignore[call-arg]
