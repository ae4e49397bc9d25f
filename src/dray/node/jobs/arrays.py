"""Arrays: jobs that were submitted together and differ only in their commands.

    <root>/arrays/<array>/
        job.json                 what the jobs have in common, and every job's command; or, for
                                 trials of a sweep, one command that each fills in, and their count
        batch.sh, scheduler.json, secrets.json, notify.json, snapshot   as in a job's own directory
        job.sh                   the batch script of a job that continues on its own
        removed.json             which jobs have been removed
        stopped.json             which jobs were to be stopped before they had a directory
        7.log                    what the batch job of job 7 printed

Job N of an array has the id ``<array>.N``. It gets a directory of its own, made from the array's,
when it first needs one: a thousand waiting jobs are one directory.

Where several trials share a batch job (``per_node`` in their ``sweep``), that is numbered like the
first of them: of fours, batch job 8 has the jobs 8 to 11. One that is resumed alone has no
``per_node`` in its own description any more.
"""

import os
import re

from ..formats import files, shapes
from . import staging
from .jobdir import LARGEST_WITH_COMMANDS, JobDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import (  # noqa: F401
        Any,
        Callable,
        Dict,
        Iterable,
        Iterator,
        List,
        Mapping,
        Optional,
        Set,
        Tuple,
    )

    from ..formats.records import Record

RANGE = re.compile(r"(.+)\.([0-9]{1,9})-([0-9]{1,9})$")
INDEX = re.compile(r"(.+)\.([0-9]{1,9})$")
MOST_JOBS = 1000000  # in one request
MOST_PER_NODE = 100  # jobs that share a batch job
OF_ARRAY = ("commands", "count")  # keys of a description that no single job has
JOB = "@JOB@"  # stands for the job's id in the script that each job may need for itself


def job_id(array: str, index: int) -> str:
    return "{}.{}".format(array, index)


def split(name: str) -> "Optional[Tuple[str, int]]":
    """Return the array and the index in it; None if the job belongs to no array."""
    found = INDEX.match(name)
    return (found.group(1), int(found.group(2))) if found else None


def fold(names: "Iterable[str]") -> "List[str]":
    """Shorten a list of ids: a thousand in a row become sweep-7f3k.0-999."""
    runs = []  # type: List[List[Any]]  # first id, its array and the last index
    expected = ""
    for name in names:
        if name != expected:
            runs.append([name] + list(split(name) or ("", -1)))
        else:
            runs[-1][2] += 1
        array, index = runs[-1][1:]
        expected = "{}.{}".format(array, index + 1) if array else ""
    return [
        "{}-{}".format(first, last) if array and first != job_id(array, last) else first
        for first, array, last in runs
    ]


def unfold(folded: "Iterable[str]", most: int = MOST_JOBS) -> "Iterator[str]":
    """Yield the ids one by one. Raise ValueError for more than anybody could mean."""
    for text in folded:
        found = RANGE.match(text)
        first, last = (int(found.group(2)), int(found.group(3))) if found else (0, 0)
        most -= last - first + 1
        if most < 0:
            raise ValueError("too many jobs are named at once: {}".format(text[:200]))
        if found is None:
            yield text
            continue
        for index in range(first, last + 1):
            yield job_id(found.group(1), index)


class ArrayDir(JobDir):
    """The directory of an array. What it shares with a job's directory lies in files of the same
    names."""

    def __init__(self, root: str, array: str) -> None:
        JobDir.__init__(self, os.path.join(root, "arrays", array))
        self.removed = os.path.join(self.path, "removed.json")
        self.stopped = os.path.join(self.path, "stopped.json")
        self._common = None  # type: Optional[Record]

    def batch_log_of(self, index: int) -> str:
        return os.path.join(self.path, "{}.log".format(index))

    def common(self) -> "Record":
        """Return what the jobs have in common. It never changes, so it is read only once."""
        if self._common is None:
            found = files.read_record(self.job, LARGEST_WITH_COMMANDS) or {}
            self._common = found if size_of(found) else {"commands": ()}
        return self._common

    def size(self) -> int:
        """Return how many jobs there are, or were before some were removed; 0 where the description
        is damaged."""
        return size_of(self.common())

    def description_of(self, index: int) -> "Optional[Record]":
        """Return what job.json in the job's own directory says; None if there is no such job."""
        common = self.common()
        if index >= self.size() or index in read_indices(self.removed):
            return None
        own = {key: common[key] for key in common if key not in OF_ARRAY}
        own["id"] = job_id(self.id, index)
        if "commands" in common:
            own["command"] = common["commands"][index]
            return own
        return as_trial(own, index)

    def per_node(self) -> int:
        """Return how many jobs share a batch job."""
        return per_node_of(self.common())

    def task_of(self, index: int) -> int:
        """Return the number that the job's batch job has in the scheduler's array."""
        return first_in_task(index, self.per_node())

    def sharing(self, index: int) -> "List[int]":
        """Return the jobs that share the batch job of this one, apart from those that have been
        removed."""
        return in_task(index, self.per_node(), self.indices())

    def job_dir(self, index: int) -> JobDir:
        """Return the job's own directory, which may not exist yet."""
        return JobDir(os.path.join(self.root, "jobs", job_id(self.id, index)))

    def make_job(self, index: int) -> JobDir:
        """Create the job's own directory and return it. Several processes may try at once: one is
        first, and all find the same directory."""
        job_dir = self.job_dir(index)
        if files.exists(job_dir.job):
            return job_dir
        description = self.description_of(index)
        if description is None:
            raise FileNotFoundError("there is no job {} in {}".format(job_dir.id, self.path))
        contents = {"job.json": files.encode(description)}
        template = os.path.join(self.path, "job.sh")
        if files.exists(template):  # else the laptop submits it, and with no script
            with open(template, "rb") as file:
                contents["batch.sh"] = file.read().replace(JOB.encode(), job_dir.id.encode())
        for path in (self.secrets, self.notify):
            values = files.read_record(path)
            if values is not None:
                contents[os.path.basename(path)] = files.encode(values)
        if index in read_indices(self.stopped):
            contents["stop.json"] = files.encode({"now": True})
        write_directory(job_dir, contents, os.path.join(self.path, "snapshot"))
        if "stop.json" not in contents and index in read_indices(self.stopped):
            files.write_json(job_dir.stop, {"now": True})  # somebody has asked for it just now
        self._forget_secrets()
        return job_dir

    def known_number(self) -> "Optional[str]":
        """Return the scheduler's id of the array, from its own file or from a job that has
        started."""
        number = JobDir.known_number(self)
        for name in files.names_in(os.path.join(self.root, "jobs")) if number is None else ():
            if (split(name) or ("",))[0] == self.id:
                own = JobDir(os.path.join(self.root, "jobs", name)).known_number() or ""
                if "_" in own:  # otherwise it was resumed on its own
                    return own.partition("_")[0]
        return number

    def _forget_secrets(self) -> None:
        """Delete the array's secrets once every job has its own copy."""
        if not files.exists(self.secrets) and not files.exists(self.notify):
            return
        if not self.without_directory():
            staging.discard_secrets(self.path)

    def indices(self) -> "Set[int]":
        """Return the indices of the jobs that have not been removed."""
        return set(range(self.size())) - read_indices(self.removed)

    def without_directory(self) -> "Set[int]":
        own = {split(name) for name in files.names_in(os.path.join(self.root, "jobs"))}
        return {index for index in self.indices() if (self.id, index) not in own}

    def stop_jobs(self, indices: "Iterable[int]") -> None:
        """Record that these jobs, which have no directory yet, must not start any more."""
        if not files.exists(self.path):
            return
        with files.Lock(self.path + ".lock"):
            if files.exists(self.path):
                add_indices(self.stopped, indices)
        if not files.exists(self.path):  # its submission has just been refused
            files.discard(self.path + ".lock")

    def remove_jobs(self, indices: "Iterable[int]") -> None:
        """Record these jobs as removed. The array's directory is removed with its last job."""
        if not os.path.exists(self.path):  # its jobs were submitted one by one
            return
        with files.Lock(self.path + ".lock"):
            add_indices(self.removed, indices)
            if not self.indices():
                staging.remove(self.path)
        if not os.path.exists(self.path):
            files.discard(self.path + ".lock")


def is_array(job: "Mapping[str, Any]") -> bool:
    """Return whether this is the description of an array, and not of one job."""
    return any(key in job for key in OF_ARRAY)


def size_of(common: "Record") -> int:
    """Return the number of an array's jobs; 0 where its description is damaged."""
    commands = common.get("commands")
    if commands is None:
        count = common.get("count")  # type: Any
        return int(count) if shapes.is_count(count) and 0 < count <= MOST_JOBS else 0
    is_list = isinstance(commands, list) and all(shapes.is_texts(one) for one in commands)
    return len(commands) if is_list else 0


def as_trial(common: "Record", index: int) -> "Record":
    """Return the description of the trial at this place of an array, from what all of them have in
    common: which trial of its sweep it is, and its part of a batch job that it shares."""
    own = dict(common, sweep=trial_at(common.get("sweep") or {}, index))
    if isinstance(own.get("resources"), dict):
        own["resources"] = part_of(own["resources"], per_node_of(own))
    return own


def part_of(resources: "Mapping[str, Any]", many: int) -> "Record":
    """Return what one of so many jobs has of the GPUs, CPUs and memory that they share; perhaps a
    fraction of a GPU. All of them have all the time."""
    own = dict(resources)  # type: Record
    if many > 1:
        own["gpus"] = (own.get("gpus") or 0.0) / many
        own["cpus"] = max((own.get("cpus") or 1) // many, 1)
        own["memory"] = own["memory"] // many if own.get("memory") else None
    return own


def trial_at(sweep: "Record", index: int) -> "Record":
    """Return which trial of its sweep the job at this place of an array is."""
    own = {key: sweep[key] for key in sweep if key != "first"}
    own["trial"] = (sweep.get("first") or 0) + index
    return own


def per_node_of(description: "Mapping[str, Any]") -> int:
    """Return how many jobs share a batch job, by the description of an array or of one of them; 1
    for a job that has one of its own."""
    sweep = description.get("sweep")
    number = sweep.get("per_node") if isinstance(sweep, dict) else None  # type: Any
    return int(number) if shapes.is_count(number) and 1 < number <= MOST_PER_NODE else 1


def first_in_task(index: int, per_node: int) -> int:
    """Return the first of the jobs that share a batch job with this one."""
    return index - index % per_node


def in_task(index: int, per_node: int, there: "Iterable[int]") -> "List[int]":
    """Return which of those that are there share a batch job with this one, itself included."""
    first = first_in_task(index, per_node)
    return sorted(set(there).intersection(range(first, first + per_node)))


def read_indices(path: str) -> "Set[int]":
    found = files.read_json(path)
    return set(found) if found and shapes.is_counts(found) else set()


def add_indices(path: str, indices: "Iterable[int]") -> None:
    files.write_json(path, sorted(read_indices(path) | set(indices)))


def by_array(names: "Iterable[str]") -> "Dict[str, List[int]]":
    """Group by array the indices of those jobs that belong to one."""
    found = {}  # type: Dict[str, List[int]]
    for name in names:
        place = split(name)
        if place is not None:
            found.setdefault(place[0], []).append(place[1])
    return found


def write_directory(
    job_dir: JobDir,
    contents: "Dict[str, bytes]",
    snapshot: "Optional[str]",
    fill: "Optional[Callable[[str], None]]" = None,
) -> None:
    """Create a job's directory, which appears whole, with its description, or not at all.

    ``contents``: the files by name. ``snapshot`` is linked, so that the code stays as long as the
    job does. ``fill`` puts more into the folder before it appears.
    """
    folder, name = os.path.split(job_dir.path)
    with staging.New(folder, name) as new:
        if not isinstance(job_dir, ArrayDir):
            for path in (job_dir.attempts, job_dir.outputs):
                files.make_folder(os.path.join(new.path, os.path.basename(path)), durable=False)
        link_snapshot(new.path, snapshot)
        if fill is not None:
            fill(new.path)
        new.write(contents)
        try:
            new.become(job_dir.path)
        except OSError:
            if not os.path.exists(job_dir.job):  # otherwise another process was quicker
                raise
    files.discard(os.path.join(job_dir.path, staging.WRITING))


def rewrite(job_dir: JobDir, contents: "Dict[str, bytes]", snapshot: "Optional[str]") -> None:
    """Replace files of an existing directory. A kill leaves none of them half written."""
    folder, name = os.path.split(job_dir.path)
    with staging.New(folder, name) as new:
        link_snapshot(new.path, snapshot)
        new.write(contents)
        if staging.NOTIFY not in contents:
            files.discard(job_dir.notify)
        new.move_into(job_dir.path)


def link_snapshot(folder: str, snapshot: "Optional[str]") -> None:
    if snapshot and files.exists(snapshot):
        os.link(snapshot, os.path.join(folder, "snapshot"))
