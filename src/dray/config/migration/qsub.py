"""Converts #PBS lines and ``module load`` lines to settings."""

from __future__ import annotations

import re
from typing import NamedTuple

from dray.config.migration import sbatch
from dray.config.migration.found import HANDLED, Gathering, Text, as_number

SETTINGS = {"A": "account", "P": "project", "q": "queue", "M": "mail"}
OWN = {
    **dict.fromkeys(("N", "o", "e", "j", "S"), HANDLED),
    "m": "dray asks for the end and for failures",
    "r": "dray resumes jobs itself (resume_with)",
    "J": "dray resumes jobs itself, without an array",
    "t": "dray resumes jobs itself, without an array",
    "W": "dray resumes jobs itself",
}
WITHOUT_VALUE = ("h", "V", "X", "z")
JOB = {"ncpus": "cpus", "ppn": "cpus", "ngpus": "gpus", "gpus": "gpus"}
TASKS = ("mpiprocs", "ompthreads")


class Flag(NamedTuple):
    letter: str
    value: str

    @property
    def origin(self) -> str:
        return f"#PBS -{self.letter} {self.value}".rstrip()


def flags(text: Text) -> list[Flag]:
    found = []
    for number, words in sbatch.directives(text, "#PBS"):
        while words:
            word = words.pop(0)
            match = re.fullmatch(r"-([A-Za-z])(.*)", word, re.S)
            if not match:
                raise text.error(number, f"'{word}' is not a flag of qsub")
            letter, value = match[1], match[2]
            if not value and words and letter not in WITHOUT_VALUE:
                value = words.pop(0)
            found.append(Flag(letter, value))
    return found


def gather(text: Text, into: Gathering) -> None:
    """Collect all of a batch script that has a counterpart; the rest becomes notes."""
    for flag in flags(text):
        if flag.letter == "v" and into.add_note_on_secrets("#PBS -v", flag.value):
            continue
        if "$" in flag.value or "`" in flag.value:
            into.add_note(flag.origin, OWN.get(flag.letter, sbatch.COMPUTED))
        elif flag.letter == "l":
            for request in flag.value.split(","):
                _gather_request(request, flag.origin, into)
        elif flag.letter in SETTINGS:
            into.set(SETTINGS[flag.letter], flag.value, flag.origin)
        elif flag.letter in OWN:
            into.add_note(flag.origin, OWN[flag.letter])
        else:
            _keep(f"-{flag.letter} {flag.value}".rstrip(), flag.origin, into)
    sbatch.gather_shell(text, into)


def _gather_request(request: str, origin: str, into: Gathering) -> None:
    """Collect what -l asks for: select=1:ncpus=8:ngpus=1 (OpenPBS), nodes=1:ppn=8:gpus=1 (Torque),
    walltime …"""
    name, _, value = request.partition("=")
    if name in ("select", "nodes"):
        into.set("dialect", "openpbs" if name == "select" else "torque", origin)
        _gather_chunk(value.split(":"), origin, into)
    elif name == "walltime":
        into.set("job.resources.time", sbatch.duration(seconds_first(value)) or value, origin)
    elif name in (*JOB, "mem", "pmem", "vmem"):
        _gather_amount(name, value, origin, into)
    else:
        _keep(f"-l {request}", origin, into)


def _gather_chunk(parts: list[str], origin: str, into: Gathering) -> None:
    count, *rest = parts if parts[0].isdigit() else ["1", *parts]
    if count != "1":
        into.set("job.resources.nodes", int(count), origin)
    others = []
    for part in rest:
        name, _, value = part.partition("=")
        if name in (*JOB, "mem"):
            _gather_amount(name, value, origin, into)
        elif name not in TASKS:
            others.append(part)
    if others:
        into.set("chunk", ":".join(others), origin)


def _gather_amount(name: str, value: str, origin: str, into: Gathering) -> None:
    if name in JOB:
        into.set(f"job.resources.{JOB[name]}", as_number(value), origin)
        return
    amount = sbatch.megabytes(value)
    if amount is None:
        into.add_note(origin, f"'{value}' cannot be read as an amount of memory")
    else:
        into.set("job.resources.memory", sbatch.size(amount), origin)


def _keep(flag: str, origin: str, into: Gathering) -> None:
    into.set("extra", [*into.cluster.get("extra", ()), flag], origin)


def seconds_first(walltime: str) -> str:
    """Mark a number alone as seconds: PBS reads it so, Slurm as minutes."""
    return f"0:{walltime}" if walltime.isdigit() else walltime
