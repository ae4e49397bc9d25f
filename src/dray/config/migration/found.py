"""What the modules here read, and what they return."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from dray.config.toml_lines import one_line
from dray.errors import ConfigError
from dray.job import options

HANDLED = "dray does this itself"
ASSIGNED = re.compile(r"(?:^|[\s;,])([A-Za-z_]\w*)=")
SECRET_NAME = re.compile(r"key|token|secret|pass|pwd|credential|auth", re.I)
# What the first part of a host's name is at many sites: it tells none of them from another.
NODE = r"(?:login|head|submit|gateway|frontend|access|ssh)(?:-?node)?(?:[-_]?\d+|[-_][a-z])?"
SAYS_NOTHING = re.compile(rf"{NODE}|hpc|cluster|slurm|pbs|grid", re.I)
# A password in an address, or a long word of letters and digits.
SECRET_VALUE = re.compile(r"://[^/\s]*@|\b(?=[A-Za-z]*\d)[A-Za-z0-9]{20,}\b(?!=)")


class Text(NamedTuple):
    path: str
    content: str  # lines end in \n

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def error(self, line: int, message: str) -> ConfigError:
        return ConfigError(f"{self.path}:{line}: {one_line(message)}")


class Found(NamedTuple):
    """Settings as they would be written to a file, and a note for all that could not be
    converted."""

    source: str
    name: str  # what the cluster might be called
    kind: str = "slurm"
    cluster: Mapping[str, Any] = MappingProxyType({})  # by key of [clusters.NAME], without kind
    job: Mapping[str, Any] = MappingProxyType({})  # by key, such as job.resources.gpus
    notes: tuple[str, ...] = ()
    needs: str = "host"  # the setting without which it cannot be used
    others: tuple[Found, ...] = ()  # further clusters of the same file


class Source(Protocol):
    """The interface of each module here."""

    @property
    def WHAT(self) -> str: ...  # noqa: N802

    @property
    def BESIDE(self) -> tuple[str, ...]: ...  # noqa: N802

    def recognises(self, text: Text, /) -> bool: ...

    def read(self, text: Text, beside: Mapping[str, Text], /) -> Found: ...


class Gathering:
    """Collects settings one by one; what cannot be converted becomes a note and is never
    dropped."""

    def __init__(
        self, source: Text, placeholders: tuple[str, ...] = (), kind: str = "slurm"
    ) -> None:
        self.source = source
        self.kind = kind
        self.placeholders = placeholders
        self.cluster: dict[str, Any] = {}
        self.job: dict[str, Any] = {}
        self.notes: list[str] = []
        self._parsers = {one.name: one.parse for one in options.CLUSTERS[kind]}
        self._parsers |= {one.key: one.parse for one in options.JOB}

    def add_note(self, origin: str, why: str) -> None:
        self.notes.append(f"{origin}: {why}")

    def add_note_on_secrets(self, where: str, assignments: str) -> bool:
        """Note the names of what may be secret, without values; return whether there is any."""
        names = ASSIGNED.findall(assignments)
        secret = [name for name in names if SECRET_NAME.search(name)]
        if not secret and SECRET_VALUE.search(assignments):
            secret = names
        if secret:
            flags = " ".join(f"--secret {name}" for name in secret)
            self.add_note(f"{where} {', '.join(names)}", f"if jobs need it, dray run {flags}")
        return bool(secret)

    def set(self, key: str, value: Any, origin: str) -> bool:
        """Add a setting of the cluster, or with a whole key (job.…) of the job; return whether it
        is valid."""
        if isinstance(value, str) and any(is_unfilled(value, one) for one in self.placeholders):
            self.add_note(origin, "still the template's placeholder")
            return False
        try:
            self._parsers[key](value)
        except ValueError as error:
            self.add_note(origin, str(error))
            return False
        (self.job if key.startswith("job.") else self.cluster)[key] = value
        return True

    def found(self) -> Found:
        host = str(self.cluster.get("host", ""))
        # In the order of the reference, whatever the order in the source was.
        cluster = {key: self.cluster[key] for key in self._parsers if key in self.cluster}
        job = {key: self.job[key] for key in self._parsers if key in self.job}
        name, notes = cluster_name(host, self.kind), tuple(self.notes)
        return Found(self.source.path, name, self.kind, cluster, job, notes)


def is_unfilled(value: str, placeholder: str) -> bool:
    """Return whether a value is still the template's. An address is compared as a whole:
    'user@mail' is the template's, 'user@mail.org' is somebody's."""
    return value == placeholder if "@" in placeholder else placeholder in value


def cluster_name(host: str, kind: str = "slurm") -> str:
    """Name a cluster after its host: 'me@euler.ethz.ch' and 'login1.euler.ethz.ch' → 'euler';
    '10.0.0.7' → 'slurm-10-0-0-7'."""
    place = host.rpartition("@")[2]
    if re.fullmatch(r"[\d.:]*|\[.*\]", place):  # an address, or none
        return "-".join([kind, *re.findall(r"[0-9a-f]+", place)])
    labels = place.split(".")
    names = [re.sub(rf"[-_]{NODE}$", "", one) for one in labels[:-1] or labels]
    telling = [one for one in names if one and not SAYS_NOTHING.fullmatch(one)]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", (telling or labels)[0]).strip("-_")
    return name if name and not name.isdigit() else kind


def is_number(text: str) -> bool:
    """Return whether this is a number that anybody could mean, in digits that are read as one."""
    return re.fullmatch("[0-9]{1,12}", text) is not None


def as_number(text: str) -> int | str:
    return int(text) if is_number(text) else text


def remote(path: str) -> str:
    """Write a path as dray does: ${NAME} as $NAME where that is the same."""
    return re.sub(r"\$\{(\w+)\}(?!\w)", r"$\1", path)


def shown(name: str, value: object) -> str:
    return f"{name} = {value}"
