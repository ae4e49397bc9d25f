"""Defines frozen records and named tuples as the standard library does, in a fraction of the time.

``dataclasses`` writes and compiles the source of six methods for each class, and imports
``inspect`` for that; ``typing.NamedTuple`` compiles every annotation. Together that was a third of
what ``dray ps`` took. Here all records share the same methods, and annotations are left to type
checkers, which see the standard library. Its functions work on these records too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter

TYPE_CHECKING = False  # as typing has it, which takes longer to import than a listing to be read
if TYPE_CHECKING:
    from typing import Any


class Factory:
    """Makes the default value of a field, anew for each record."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class Methods:
    """What every record can do; copied into its class."""

    __fields__: tuple[str, ...]
    __defaults__: dict[str, Any]
    __factories__: dict[str, Callable[[], Any]]

    def __init__(self, **given: Any) -> None:
        cls, values = type(self), self.__dict__
        values.update(cls.__defaults__)
        for name, make in cls.__factories__.items():
            if name not in given:
                values[name] = make()
        values.update(given)
        if len(values) != len(cls.__fields__) or any(name not in values for name in cls.__fields__):
            raise TypeError(complaint(cls, given))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.__fields__)
        return f"{type(self).__qualname__}({fields})"

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__[name] for name in self.__fields__))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign {value!r} to field {name!r}: it is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}: it is frozen")


COPIED = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")


class StandardFields:
    """Tells ``dataclasses`` of the fields once its functions ask for them."""

    def __get__(self, record: object, cls: Any) -> Any:
        import dataclasses  # only for others

        given = {
            **{name: dataclasses.field(default=one) for name, one in cls.__defaults__.items()},
            **{n: dataclasses.field(default_factory=one) for n, one in cls.__factories__.items()},
        }
        fields = [(name, object, given.get(name, dataclasses.field())) for name in cls.__fields__]
        same: Any = dataclasses.make_dataclass(cls.__name__, fields, kw_only=True)
        cls.__dataclass_fields__ = same.__dataclass_fields__
        return cls.__dataclass_fields__


def complaint(cls: type[Methods], given: dict[str, Any]) -> str:
    for name in given:
        if name not in cls.__fields__:
            return f"{cls.__name__} has no field {name!r}"
    known = {*given, *cls.__defaults__, *cls.__factories__}
    missing = [name for name in cls.__fields__ if name not in known]
    return f"{cls.__name__} lacks the field {missing[0]!r}"


def complete(cls: Any) -> Any:
    """Make a record of a class that only names its fields and their defaults."""
    own = vars(cls)
    given = {name: own[name] for name in cls.__annotations__ if name in own}
    cls.__fields__ = tuple(cls.__annotations__)
    cls.__defaults__ = {k: v for k, v in given.items() if not isinstance(v, Factory)}
    cls.__factories__ = {k: v.make for k, v in given.items() if isinstance(v, Factory)}
    for name in cls.__factories__:
        delattr(cls, name)
    for name in COPIED:
        setattr(cls, name, vars(Methods)[name])
    cls.__dataclass_fields__ = StandardFields()
    return cls


def plain(value: Any) -> Any:
    """Turn records into dicts, at any depth; nothing that can be changed is shared."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        parts = map(plain, value)
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    fields = getattr(type(value), "__fields__", None)
    return value if fields is None else {name: plain(value.__dict__[name]) for name in fields}


class TupleMaker(type):
    """Makes a tuple with names of a class that only names its fields and their defaults."""

    def __new__(cls, name: str, bases: tuple[type, ...], content: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, content)
        fields = tuple(content["__annotations__"])
        own = {key: value for key, value in content.items() if key not in fields}
        getters = {one: property(itemgetter(at)) for at, one in enumerate(fields)}
        own.update(getters, __slots__=(), __match_args__=fields, _fields=fields)
        own["_field_defaults"] = {one: content[one] for one in fields if one in content}
        return type(name, (NamedValues,), own)


class NamedValues(tuple[object, ...]):
    """What every tuple with names can do."""

    __slots__ = ()
    _fields: tuple[str, ...]
    _field_defaults: dict[str, Any]

    def __new__(cls, *values: Any, **given: Any) -> Any:
        if given or len(values) != len(cls._fields):
            values = cls._completed(values, given)
        return tuple.__new__(cls, values)

    @classmethod
    def _completed(cls, values: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, ...]:
        fields = cls._fields
        known = {**cls._field_defaults, **dict(zip(fields, values, strict=False)), **given}
        is_twice = not given.keys().isdisjoint(fields[: len(values)])
        if is_twice or len(values) > len(fields) or known.keys() != set(fields):
            told = ", ".join([f"{len(values)} values", *given])
            raise TypeError(f"{cls.__name__}({', '.join(fields)}) cannot be made of {told}")
        return tuple([known[one] for one in fields])

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Any:
        made = tuple.__new__(cls, values)
        return made if len(made) == len(cls._fields) else cls(*made)

    def _replace(self, **changes: Any) -> Any:
        return type(self)(**{**self._asdict(), **changes})

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
        return f"{type(self).__name__}({fields})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


if TYPE_CHECKING:
    from dataclasses import asdict, dataclass, field, replace
    from typing import NamedTuple
else:

    class NamedTuple(metaclass=TupleMaker):
        pass

    asdict = plain

    def dataclass(*, frozen, kw_only):
        assert frozen
        assert kw_only  # there are no others here
        return complete

    def field(*, default_factory):
        return Factory(default_factory)

    def replace(record, /, **changes):
        return type(record)(**{**record.__dict__, **changes})


__all__ = ["NamedTuple", "asdict", "dataclass", "field", "replace"]
