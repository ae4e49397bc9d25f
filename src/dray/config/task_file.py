"""Reads what Isaac Lab's ray scripts are given: the YAML of task_runner.py, and the arguments of
wrap_resources.py. Both become a batch; what has no counterpart is noted or refused. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from dray import plain_files
from dray.config.batch_file import (
    NAME,
    NO_SHELL,
    BatchFile,
    BatchJob,
    name_from,
    split_words,
)
from dray.config.migration.found import Text
from dray.config.yaml_subset import Yaml
from dray.config.yaml_subset import read as read_yaml
from dray.errors import ConfigError, NotFound, UsageError, nearest
from dray.job.options import GpuRequest
from dray.node.sweeps import expressions
from dray.records import NamedTuple

ENDINGS = (".yaml", ".yml")
WRAPPER = "wrap_resources.py"
PYTHON = ("python",)
KEYS = ("pip", "py_modules", "concurrent", "tasks")
TASK_KEYS = ("name", "py_args", "num_gpus", "num_cpus", "memory", "node")
TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
# Of torchrun's own flags, those without a value.
ALONE = ("standalone", "module", "no_python", "run_path", "help")
LARGEST = 1e18


def is_tasks(path: Path) -> bool:
    return path.suffix in ENDINGS


def read(path: Path) -> BatchFile:
    """Read task_runner's YAML."""
    try:
        content, _ = plain_files.read(path)
        text = Text(str(path), content.decode().replace("\r\n", "\n"))
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error
    return Tasks(text, read_yaml(text)).batch(path, content)


# -- arithmetic -----------------------------------------------------------------------------------


def number_of(value: Any) -> float:
    """Return a number, or what an arithmetic expression such as 10*1024**3 comes to; raise
    ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number")
    if isinstance(value, str):
        try:
            if expressions.names_in(value):
                raise ValueError("only numbers and + - * / // % ** are understood")
            value = expressions.evaluate(value, {})
        except expressions.NotAnExpression as error:
            raise ValueError(f"'{value}' is not arithmetic: {error}") from error
    if not math.isfinite(value) or not 0 <= value <= LARGEST:
        raise ValueError(f"{value} is too large, or below 0")
    return float(value)


# -- task_runner ----------------------------------------------------------------------------------


class Torchrun(NamedTuple):
    """A command that torchrun spreads over nodes: this is one node's."""

    nodes: int
    rank: str
    command: tuple[str, ...]  # the script and its arguments


class Tasks:
    """Turns a file of tasks into a batch."""

    def __init__(self, text: Text, yaml: Yaml) -> None:
        self.text = text
        self.yaml = yaml
        self.notes: list[str] = []
        self.names: dict[str, int] = {}  # with how often each was wanted

    def error(self, message: str, *path: str | int, hint: str = "") -> ConfigError:
        where = f"{self.text.path}:{self._line(path)}"
        return ConfigError(f"{where}: {message}", hint=hint)

    def _line(self, path: tuple[str | int, ...]) -> int:
        while path and path not in self.yaml.lines:
            path = path[:-1]
        return self.yaml.lines.get(path, 1)

    def batch(self, path: Path, content: bytes) -> BatchFile:
        found = self.yaml.content
        if not isinstance(found, dict) or not isinstance(found.get("tasks"), list):
            raise self.error("there are no tasks in it", hint="It is task_runner's YAML: tasks: …")
        self.check_names(found, KEYS)
        if found.get("pip"):
            raise self.error(
                "pip: nothing is installed when a job starts", "pip",
                hint="Put the packages into the image, or the environment, of the jobs.",
            )  # fmt: skip
        concurrent = found.get("concurrent", False)
        if not isinstance(concurrent, bool):
            raise self.error("concurrent: must be true or false", "concurrent")
        tasks = [self.task(at, one) for at, one in enumerate(found["tasks"])]
        jobs = self.merged(tasks)
        together = concurrent and len(jobs) > 1
        defaults = self.modules(found.get("py_modules") or [])
        return BatchFile(
            path, name_from(path), content, tuple(jobs), defaults, together, tuple(self.notes)
        )

    def check_names(self, found: Mapping[str, Any], known: Sequence[str], *path: str | int) -> None:
        for name in found:
            if name not in known:
                raise self.error(f"{name}: unknown key.{nearest(str(name), known)}", *path, name)

    def modules(self, found: Any) -> dict[str, Any]:
        """Return the path on which Python finds these modules, which lie in the project."""
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self.error("py_modules: must be a list of paths", "py_modules")
        return path_of(found)

    def task(self, at: int, found: Any) -> BatchJob:
        if not isinstance(found, dict):
            raise self.error("a task has a name and py_args", "tasks", at)
        self.check_names(found, TASK_KEYS, "tasks", at)
        try:
            words = split_words(found.get("py_args"))
        except ValueError as error:
            hint = NO_SHELL.partition(".")[0] + "."
            raise self.error(f"py_args: {error}", "tasks", at, "py_args", hint=hint) from error
        node = found.get("node") or {}
        if isinstance(node, dict) and node.get("specific", "any") != "any":
            self.notes.append(
                f"{self.text.path}:{self._line(('tasks', at, 'node'))}: the scheduler chooses the "
                "node, not the file"
            )
        where = f"{self.text.path}:{self._line(('tasks', at))}"
        name = self.name(str(found.get("name") or f"task-{at}"))
        return BatchJob(where, name, (*PYTHON, *words), self.resources(at, found))

    def name(self, given: str) -> str:
        """Make a name of what a task is called."""
        name = re.sub(r"[^a-z0-9]+", "-", given.lower()).strip("-")[:26].strip("-")
        name = name if NAME.fullmatch(name) else f"task-{name}".strip("-")[:26]
        free = name
        while free in self.names:
            self.names[name] += 1
            free = f"{name}-{self.names[name]}"
        self.names[free] = 1
        return free

    def resources(self, at: int, found: Mapping[str, Any]) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for name in ("num_gpus", "num_cpus", "memory"):
            if name not in found:
                continue
            try:
                settings.update(as_setting(name, number_of(found[name])))
            except ValueError as error:
                raise self.error(f"{name}: {error}", "tasks", at, name) from error
        return settings

    def merged(self, tasks: Sequence[BatchJob]) -> list[BatchJob]:
        """Make one job on several nodes of tasks that are the nodes of one torchrun."""
        spread: dict[tuple[str, ...], list[tuple[BatchJob, Torchrun]]] = {}
        jobs: list[BatchJob] = []
        for one in tasks:
            run = torchrun_of(one.command[len(PYTHON) :])
            if run is None or run.nodes == 1:
                jobs.append(one)
                continue
            if run.command not in spread:
                jobs.append(one)  # its place; the job of all of them comes there
            spread.setdefault(run.command, []).append((one, run))
        return [self.one_job(job, spread) for job in jobs]

    def one_job(
        self, job: BatchJob, spread: Mapping[tuple[str, ...], list[tuple[BatchJob, Torchrun]]]
    ) -> BatchJob:
        run = torchrun_of(job.command[len(PYTHON) :])
        if run is None or run.nodes == 1:
            return job
        parts = spread[run.command]
        ranks = {one.rank for _, one in parts}
        if len(parts) != run.nodes or len(ranks) != run.nodes:
            raise job.mistake(
                f"torchrun on {run.nodes} nodes, and {len(parts)} tasks of it",
                hint="Write one job instead: dray run --nodes N --launch torchrun -- python …",
            )
        if any(one.settings != job.settings for one, _ in parts):
            raise job.mistake("the tasks of one torchrun have to ask for the same on every node")
        self.notes.append(
            f"{job.where}: {len(parts)} tasks are the nodes of one torchrun: they become one job "
            "on as many nodes, and torchrun's own flags are dray's business"
        )
        settings = {
            **job.settings, "job.resources.nodes": run.nodes, "job.launch": "torchrun"
        }  # fmt: skip
        return job._replace(command=(*PYTHON, *run.command), settings=settings)


def path_of(modules: Sequence[str]) -> dict[str, Any]:
    """Return the setting by which Python finds these modules, each by its folder's name."""
    folders = dict.fromkeys(str(PurePosixPath(one).parent) for one in modules)
    return {"job.env": {"PYTHONPATH": ":".join(folders)}} if folders else {}


def as_setting(name: str, number: float) -> dict[str, Any]:
    if name == "num_gpus":
        return {"job.resources.gpus": GpuRequest(number)}
    if name == "num_cpus":
        return {"job.resources.cpus": max(math.ceil(number), 1)}
    return {"job.resources.memory": math.ceil(number)} if number else {}


def torchrun_of(words: Sequence[str]) -> Torchrun | None:
    """Read a call of torchrun; None where it is none."""
    if len(words) < 3 or words[0] != "-m" or words[1] not in TORCHRUN:
        return None
    flags, at = {}, 2
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].lstrip("-").replace("-", "_").partition("=")
        at += 1
        if not equals and name not in ALONE and at < len(words):
            value = words[at]
            at += 1
        flags[name] = value
    nodes = flags.get("nnodes", "1")
    if not nodes.isdigit() or at >= len(words) or "module" in flags:
        return None
    return Torchrun(int(nodes), flags.get("node_rank", ""), tuple(words[at:]))


# -- wrap_resources -------------------------------------------------------------------------------

LISTS = {
    "gpu_per_worker": "num_gpus",
    "cpu_per_worker": "num_cpus",
    "ram_gb_per_worker": "memory",
    "num_workers": "",
    "py_modules": "",
}


def read_wrapped(words: Sequence[str]) -> BatchFile:
    """Read the arguments of wrap_resources.py: resources by number, and sub-jobs between '+'."""
    flags, jobs = split_flags(words)
    if not jobs:
        raise UsageError("--sub_jobs is missing", hint="It comes last: --sub_jobs A+B")
    if flags.get("num_workers", ["1"]) != ["1"]:
        raise UsageError(
            "--num_workers divides a node, and how large that is only the cluster knows",
            hint="Say what a job needs (--gpu_per_worker 1), or let commands share an allocation "
            "in a batch file: share = 2",
        )
    found = []
    for at, line in enumerate(jobs):
        settings: dict[str, Any] = {}
        try:
            for name, values in flags.items():
                if LISTS[name] and values:
                    number = number_of(values[min(at, len(values) - 1)])
                    number *= 2**30 if name == "ram_gb_per_worker" else 1
                    settings.update(as_setting(LISTS[name], number))
            command = split_words(line)
        except ValueError as error:
            raise UsageError(f"sub-job {at + 1}: {error}") from error
        found.append(BatchJob(f"sub-job {at + 1}", f"job-{at + 1}", command, settings))
    content = "\0".join(words).encode("utf-8", "surrogateescape")
    defaults = path_of(flags.get("py_modules", []))
    return BatchFile(Path(WRAPPER), "sub-jobs", content, tuple(found), defaults)


def split_flags(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    flags: dict[str, list[str]] = {}
    rest = list(words)
    current: list[str] = []
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--sub_jobs"):
            line = " ".join([value, *rest] if equals else rest)
            return flags, [one.strip() for one in line.split("+") if one.strip()]
        if not word.startswith("--"):
            current.append(word)
        elif name in LISTS:
            current = flags.setdefault(name, [])
            current += [value] if equals else []
        elif name == "ray_address":
            current = [value]
        elif name == "test":
            raise UsageError(
                "--test runs no job", hint="dray cluster check CLUSTER looks at its nodes and GPUs."
            )
        else:
            raise UsageError(f"{word}: unknown argument of {WRAPPER}.{nearest(name, LISTS)}")
    return flags, []
