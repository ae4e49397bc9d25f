"""The shim around the system's calls: compiled once, told what to do, read out afterwards."""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PHASE = 32  # bytes of struct state before its counter
STATE = PHASE + struct.calcsize("l")


def library() -> Path:
    """The compiled shim, in the tests' cache; another source makes another file."""
    source = HERE / "shim.c"
    kept = subprocess.run(
        [HERE.parent / "rigs/kept"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    path = Path(kept) / f"faults-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not path.exists():
        new = path.with_suffix(f".{os.getpid()}")
        words = ["cc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", new, source, "-ldl"]
        subprocess.run([str(word) for word in words], check=True)
        new.rename(path)
    return path


@dataclass(frozen=True)
class Fault:
    """What happens to one role at its ``first`` call that changes a file, and maybe the next few.
    ``how`` is kill (before the call), after (it), or the number of an error."""

    role: str
    how: str
    first: int
    length: int = 1


@dataclass(frozen=True)
class Call:
    """One call that the shim has logged."""

    role: str
    what: str
    pid: int
    time: int  # nanoseconds of the monotonic clock
    result: int
    inode: int
    offset: int  # of a write; the length of a truncation; 1 where an open cuts the file
    created: bool  # an open that has made the file
    path: str
    other: str  # what it was renamed or linked from
    data: bytes

    @property
    def name(self) -> str:
        return name_of(self.what)


def name_of(call: str) -> str:
    """Without what differs between two spellings of the same call."""
    return call.removesuffix("64").removesuffix("at2").removesuffix("at")


class Shim:
    """The shim's folder for one life. The calls below ``roots`` are its matter."""

    def __init__(self, folder: Path, roots: Sequence[Path]) -> None:
        self.folder = folder
        self.roots = roots
        self.library = library()
        folder.mkdir()
        (folder / "state").write_bytes(bytes(STATE))

    def plan(self, fault: Fault | None = None, log: str = "") -> None:
        """Tell it what to do from now on: strike, or log (calls, or contents too)."""
        lines = [f"root {root}" for root in self.roots]
        if fault is not None:
            last = fault.first + fault.length - 1
            lines += [f"role {fault.role}", f"how {fault.how}"]
            lines += [f"first {fault.first}", f"last {last}"]
        if log:
            lines.append(f"log {log}")
        (self.folder / "plan").write_text("\n".join([*lines, ""]))

    def enter(self, phase: str) -> None:
        """An agent's role is named after the command that it serves."""
        with (self.folder / "state").open("r+b") as file, mmap.mmap(file.fileno(), STATE) as state:
            state[:PHASE] = phase.encode().ljust(PHASE, b"\0")

    def env(self, verb: str) -> dict[str, str]:
        """For a process of dray's. What differs from verb to verb keeps dray's warm process, which
        would be without the shim, from carrying out the command."""
        return {"LD_PRELOAD": str(self.library), "LD_FAULTS": f"{self.folder}:{verb}"}

    def hit(self) -> tuple[str, str] | None:
        """The call that was struck first, and its path."""
        try:
            line = (self.folder / "hit").read_text().split("\n")[0]
        except FileNotFoundError:
            return None
        what, _, path = line.partition(" ")
        return what, path

    def strikes(self) -> int:
        """How many calls were struck."""
        path = self.folder / "hit"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def calls(self) -> list[Call]:
        log = self.folder / "log"
        return list(parse(log.read_bytes())) if log.exists() else []


def parse(log: bytes) -> Iterator[Call]:
    at = 0
    while at < len(log):
        end = log.index(b"\n", at)
        role, what, *fields = log[at:end].decode().split(" ")
        pid, time, result, inode, offset, size, created = map(int, fields)
        middle = log.index(b"\0", end)
        last = log.index(b"\0", middle + 1)
        path, other = os.fsdecode(log[end + 1 : middle]), os.fsdecode(log[middle + 1 : last])
        at = last + 1 + size
        data = log[last + 1 : at]
        yield Call(role, what, pid, time, result, inode, offset, bool(created), path, other, data)
