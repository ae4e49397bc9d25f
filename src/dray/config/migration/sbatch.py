"""Converts #SBATCH lines and ``module load`` lines to settings."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from dray.config.migration.found import HANDLED, Gathering, Text, as_number, is_number

SHORT = {
    "A": "account", "C": "constraint", "D": "chdir", "G": "gpus", "J": "job-name", "N": "nodes",
    "a": "array", "c": "cpus-per-task", "d": "dependency", "e": "error", "n": "ntasks",
    "o": "output", "p": "partition", "q": "qos", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
SAME = ("account", "partition", "qos", "constraint", "reservation", "nodelist", "exclude")
OWN = {
    **dict.fromkeys(("job-name", "output", "error", "open-mode", "comment", "chdir"), HANDLED),
    **dict.fromkeys(("requeue", "no-requeue"), "dray resumes jobs itself (resume_with)"),
    **dict.fromkeys(("array", "dependency"), "dray resumes jobs itself, without an array"),
    "signal": "dray asks for a checkpoint itself (checkpoint_signal)",
    "mail-type": "dray asks for END and FAIL",
}
COMPUTED = "a shell makes this value: write it itself"
WITHOUT_VALUE = ("exclusive", "requeue", "no-requeue", "overcommit", "oversubscribe", "hold")
GPU_FLAGS = ("gpus", "gpus-per-node", "gpus-per-task", "gres")
MEMORY_FLAGS = ("mem", "mem-per-cpu", "mem-per-gpu")
TO_MEGABYTES = {"K": 2**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20}


class Flag(NamedTuple):
    name: str  # long, without --
    value: str  # as it is written; "" for none
    line: int

    @property
    def origin(self) -> str:
        return f"#SBATCH --{self.name}" + (f"={self.value}" if self.value else "")


def flags(text: Text) -> list[Flag]:
    """Return every flag of every #SBATCH line, by its long name."""
    found = []
    for number, words in directives(text, "#SBATCH"):
        while words:
            found.append(_take(text, number, words))
    return found


def directives(text: Text, mark: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the words of each line that a batch system reads, with its line number."""
    for number, line in enumerate(text.content.split("\n"), 1):
        if re.match(rf"{mark}\s", line):
            try:
                yield number, shlex.split(line[len(mark) :], comments=True)
            except ValueError as error:
                raise text.error(number, f"{error}: {line}") from error


def _take(text: Text, line: int, words: list[str]) -> Flag:
    word = words.pop(0)
    long = re.fullmatch(r"--([a-z][a-z-]*)(?:=(.*))?", word, re.S)
    short = re.fullmatch(r"-([A-Za-z])=?(.*)", word, re.S)
    if long:
        name, value = long[1], long[2]
    elif short:
        name, value = SHORT.get(short[1], short[1]), short[2] or None
    else:
        raise text.error(line, f"'{word}' is not a flag of sbatch")
    if value is None and words and not words[0].startswith("-") and name not in WITHOUT_VALUE:
        value = words.pop(0)
    return Flag(name, value or "", line)


def modules(text: Text) -> list[str]:
    found: list[str] = []
    for number, line in enumerate(text.content.split("\n"), 1):
        load = re.match(r"\s*(?:module\s+(?:load|add)|ml(?:\s+load)?)\s+(.*)", line)
        if load:
            try:
                found += shlex.split(load[1].split(";")[0], comments=True)
            except ValueError as error:
                raise text.error(number, f"{error}: {line}") from error
    return list(dict.fromkeys(found))


def gather(text: Text, into: Gathering) -> None:
    """Collect all of a batch script that has a counterpart; the rest becomes notes."""
    given = {flag.name: flag for flag in flags(text)}  # as with sbatch, the last one counts
    for flag in given.values():
        if flag.name == "export" and into.add_note_on_secrets("#SBATCH --export", flag.value):
            continue
        if "$" in flag.value or "`" in flag.value:
            into.add_note(flag.origin, OWN.get(flag.name, COMPUTED))
        else:
            _gather_one(flag, given, into)
    gather_shell(text, into)


def gather_shell(text: Text, into: Gathering) -> None:
    """Collect what the script does before it starts the command."""
    loaded = modules(text)
    if loaded:
        into.set("modules", loaded, "module load")
    for line in text.content.split("\n"):
        other = re.match(r"\s*(module\s+(?!load|add)\w+.*|export\s+\w+=.*)", line)
        if other and not into.add_note_on_secrets("export", other[1]):
            into.add_note(other[1], "if jobs need it, add it to setup")


def _gather_one(flag: Flag, given: Mapping[str, Flag], into: Gathering) -> None:
    if flag.name in SAME:
        into.set(flag.name, flag.value, flag.origin)
    elif flag.name in TRANSLATED:
        TRANSLATED[flag.name](flag, given, into)
    elif flag.name in OWN:
        into.add_note(flag.origin, OWN[flag.name])
    else:
        word = f"--{flag.name}" if len(flag.name) > 1 else f"-{flag.name}"
        extra = [*into.cluster.get("extra", ()), f"{word}={flag.value}" if flag.value else word]
        into.set("extra", extra, flag.origin)


def _gather_time(flag: Flag, _: Mapping[str, Flag], into: Gathering) -> None:
    into.set("job.resources.time", duration(flag.value) or flag.value, flag.origin)


def _gather_cpus(flag: Flag, _: Mapping[str, Flag], into: Gathering) -> None:
    into.set("job.resources.cpus", as_number(flag.value), flag.origin)


def _gather_gpus(flag: Flag, _: Mapping[str, Flag], into: Gathering) -> None:
    count, kind = gpus(flag.value.removeprefix("gpu:") if flag.name == "gres" else flag.value)
    if count is None or (flag.name == "gres" and not re.match(r"gpu(:|$)", flag.value)):
        into.add_note(flag.origin, "one sort of GPUs can be asked for: [TYPE:]NUMBER")
        return
    into.set("job.resources.gpus", count, flag.origin)
    if kind:
        into.set("gpu_type", kind, flag.origin)
    if flag.name in ("gpus", "gpus-per-node"):
        into.set("gpu_flag", flag.name, flag.origin)


def _gather_memory(flag: Flag, given: Mapping[str, Flag], into: Gathering) -> None:
    each = megabytes(flag.value)
    times: int | None = 1
    if flag.name == "mem-per-cpu":
        cpus = given.get("cpus-per-task")
        times = int(cpus.value) if cpus and is_number(cpus.value) else 1 if not cpus else None
    elif flag.name == "mem-per-gpu":
        counts = [gpus(given[one].value.removeprefix("gpu:"))[0] for one in GPU_FLAGS
                  if one in given]  # fmt: skip
        times = counts[0] if counts else None
    if each is None or times is None:
        into.add_note(flag.origin, "cannot be read as an amount of memory")
    elif each == 0:
        into.add_note(flag.origin, "all of a node's memory: dray asks for an amount, or for none")
    else:
        into.set("job.resources.memory", size(each * times), flag.origin)


def _gather_mail(flag: Flag, _: Mapping[str, Flag], into: Gathering) -> None:
    into.set("mail", flag.value, flag.origin)


def _gather_nodes(flag: Flag, _: Mapping[str, Flag], into: Gathering) -> None:
    if not is_number(flag.value):
        into.add_note(flag.origin, "one number of nodes can be asked for")
    elif flag.value != "1":
        into.set("job.resources.nodes", int(flag.value), flag.origin)


def _gather_tasks(flag: Flag, _: Mapping[str, Flag], into: Gathering) -> None:
    if flag.value != "1":
        into.add_note(flag.origin, "dray starts a task for each GPU, or one for each node (launch)")


def _gather_exclusive(flag: Flag, _: Mapping[str, Flag], into: Gathering) -> None:
    if flag.value:
        into.set(
            "extra", [*into.cluster.get("extra", ()), f"--exclusive={flag.value}"], flag.origin
        )
    else:
        into.set("exclusive", True, flag.origin)


Translation = Callable[[Flag, Mapping[str, Flag], Gathering], None]
TRANSLATED: dict[str, Translation] = {
    "time": _gather_time,
    "cpus-per-task": _gather_cpus,
    "mail-user": _gather_mail,
    "nodes": _gather_nodes,
    "exclusive": _gather_exclusive,
    **dict.fromkeys(("ntasks", "ntasks-per-node"), _gather_tasks),
    **dict.fromkeys(GPU_FLAGS, _gather_gpus),
    **dict.fromkeys(MEMORY_FLAGS, _gather_memory),
}


def duration(value: str) -> str | None:
    """Convert Slurm's time ('90', '90:00', '23:00:00', '1-12', '1-12:30:00') to dray's spelling."""
    days, dash, clock = value.rpartition("-")
    parts = clock.split(":")
    if not all(map(is_number, [*parts, *([days] if dash else [])])) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        hours += 24 * int(days)
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, minutes, seconds = 0, *[*numbers, 0][:2]
    total = hours * 3600 + minutes * 60 + seconds
    units = (("d", total // 86400), ("h", total // 3600 % 24), ("m", total // 60 % 60))
    return "".join(f"{count}{unit}" for unit, count in (*units, ("s", total % 60)) if count) or None


def gpus(value: str) -> tuple[int | None, str]:
    """Parse a number of GPUs: 'rtx_3090:1' → (1, 'rtx_3090'); '2' → (2, ''); 'gpu' → (1, '')."""
    if value == "gpu":
        return 1, ""
    match = re.fullmatch(r"(?:([A-Za-z][\w.-]*):?)?(\d{1,4})?", value)
    if not match or not value or (match[1] and match[2] and ":" not in value):
        return None, ""
    return int(match[2] or 1), match[1] or ""


def megabytes(value: str) -> float | None:
    """Parse a size as sbatch does: in megabytes, unless it has a unit."""
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", value, re.I)
    return int(match[1]) * TO_MEGABYTES[match[2].upper() or "M"] if match else None


def size(megabytes: float) -> str:
    whole = math.ceil(megabytes)
    return f"{whole // 1024}G" if whole % 1024 == 0 else f"{whole}M"
