"""What a setting is, and how two values of it are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OF_CLUSTERS = "clusters.*"
UNSET = object()


class Option(NamedTuple):
    """``key`` is the place in dray.toml; ``parse`` reads a TOML value or a flag's text."""

    key: str
    help: str
    parse: Callable[[object], Any]
    example: str
    flag: str = ""
    metavar: str = "TEXT"
    many: bool = False  # a list in TOML, a flag that may be repeated
    default: Any = None  # as it would be written in TOML; None where nothing is set by default
    default_text: str = ""  # in words, where a value cannot say it
    # What a stronger file or flag does to a weaker one's value: it replaces it, unless this says
    # how the two are merged.
    merge: Callable[[Any, Any], Any] | None = None
    # Heeded also from a project's file that the user has not trusted: it decides neither where
    # programs are started, nor what is run outside the job, nor which secrets go out.
    harmless: bool = False

    @property
    def table(self) -> str:
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2]

    @property
    def initial(self) -> Any:
        """The default, as a value."""
        if self.default is None:
            return () if self.many else None
        return self.parse(self.default)

    @property
    def shown_default(self) -> str:
        """The default, as shown to people."""
        if self.default_text or self.default in (None, {}):
            return self.default_text
        if isinstance(self.default, list):
            return ", ".join(map(str, self.default))
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)

    def of(self, settings: Mapping[str, Any]) -> Any:
        """Return what the settings say, else the default. Settings of a cluster are looked up by
        name, all others by key."""
        key = self.name if self.table == OF_CLUSTERS else self.key
        found = settings.get(key, UNSET)
        return self.initial if found is UNSET else found


# -- merging --------------------------------------------------------------------------------------


def joined(weaker: tuple[str, ...], stronger: tuple[str, ...]) -> tuple[str, ...]:
    """Append to a list: a flag adds to it without losing what the project says."""
    return tuple(dict.fromkeys([*weaker, *stronger]))


def updated(weaker: Mapping[str, str], stronger: Mapping[str, str]) -> dict[str, str]:
    """Merge tables name by name."""
    return {**weaker, **stronger}


def outermost(weaker: tuple[str, ...], stronger: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Append to a list of paths, and drop those that are below another: one link per output, none
    inside another's folder."""
    once = dict.fromkeys([*weaker, *stronger])
    return tuple(path for path in once if once.keys().isdisjoint(folders_above(path)))


def folders_above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
