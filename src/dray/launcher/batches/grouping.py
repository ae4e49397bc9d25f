"""Decides which jobs of a batch are submitted in one step, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.config.batch_file import NAME, BatchFile, BatchJob
from dray.description.describing import name_of
from dray.launcher.pipelines import read_after, read_input
from dray.records import NamedTuple

LONGEST_NAME = 24

Commands = tuple[tuple[str, ...], ...]


class Group(NamedTuple):
    """Jobs of a batch that are submitted in one step: one of them, or an array."""

    name: str
    entry: BatchJob  # what they have in common, and where it is written
    jobs: tuple[Commands, ...]  # for each of them what it runs
    is_array: bool = False

    def ids(self, batch: str) -> list[str]:
        top = f"{batch}.{self.name}"
        return [f"{top}.{index}" for index in range(len(self.jobs))] if self.is_array else [top]


def groups_of(file: BatchFile) -> list[Group]:
    """Divide a batch: a job that has a name, or a count, stands for itself; those without, of equal
    settings, become one array."""
    taken = {one.name: one for one in file.jobs if one.name}
    twice = [one for one in file.jobs if one.name and taken[one.name] is not one]
    if twice:
        raise twice[0].mistake(f"there are two jobs called '{twice[0].name}'")
    alike: list[list[BatchJob]] = []
    for one in file.jobs:
        same = [few for few in alike if not has_own_place(one) and is_alike(few[0], one)]
        if same:
            same[0].append(one)
        else:
            alike.append([one])
    names = set(taken)
    found = []
    for few in alike:
        first = few[0]
        name = first.name or free_name(name_of(first.command), names)
        names.add(name)
        commands = tuple(command for one in few for command in one.commands)
        starts = range(0, len(commands), first.share)
        jobs = tuple(commands[start : start + first.share] for start in starts)
        is_array = len(jobs) > 1 or (first.number is not None and first.share == 1)
        found.append(Group(name, first, jobs, is_array))
    return found


def has_own_place(job: BatchJob) -> bool:
    return bool(job.name) or job.number is not None


def is_alike(one: BatchJob, other: BatchJob) -> bool:
    """Return whether two jobs differ in nothing but their commands."""
    return not has_own_place(one) and one[3:] == other[3:]


def free_name(wanted: str, taken: set[str]) -> str:
    """Return a name that no other job of the batch has."""
    wanted = wanted[:LONGEST_NAME].strip("-")
    wanted = wanted if NAME.fullmatch(wanted) else f"job-{wanted}".strip("-")
    number = 2
    name = wanted
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


class Named:
    """Finds the jobs of a batch by their names."""

    def __init__(self, groups: Sequence[Group], batch: str) -> None:
        self.groups = {one.name: one for one in groups}
        self.batch = batch

    def group(self, reference: str) -> Group | None:
        """Return the group that NAME or NAME.INDEX is of; None if that is another job's id."""
        name, dot, index = reference.rpartition(".")
        found = self.groups.get(reference)
        if found is None and dot and index.isdigit():
            found = self.groups.get(name)
        return found

    def ids(self, reference: str, job: BatchJob) -> list[str]:
        """Return the jobs that are meant, which are of this batch."""
        found = self.group(reference)
        assert found is not None
        ids = found.ids(self.batch)
        if reference in self.groups:
            return ids
        wanted = f"{self.batch}.{reference}"
        if wanted not in ids:
            raise job.mistake(f"there is no job '{reference}': {found.name} has {len(ids)}")
        return [wanted]

    def before(self, group: Group) -> Iterator[Group]:
        """Yield the groups of this batch that come before this one."""
        entry = group.entry
        named = [read_after(one)[0] for one in entry.after]
        named += [read_input(name, one)[0] for name, one in entry.inputs.items()]
        for reference in named:
            found = self.group(reference)
            if found is not None:
                yield found


def in_order(groups: Sequence[Group], named: Named) -> list[Group]:
    """Put those first that others come after; refuse a circle."""
    done: dict[str, Group] = {}
    open_: list[str] = []

    def visit(group: Group) -> None:
        if group.name in done:
            return
        if group.name in open_:
            circle = " after ".join([*open_[open_.index(group.name) :], group.name])
            raise group.entry.mistake(f"no job could ever start: {circle}")
        open_.append(group.name)
        for other in named.before(group):
            visit(other)
        open_.pop()
        done[group.name] = group

    for one in groups:
        visit(one)
    return list(done.values())
