"""Reads how a training does: from what it reports, from TensorBoard's files, or from its log.

The supervisor keeps the latest value (``Watch``), and reads only what is new. The whole curve is
read when somebody wants to see it (``series``).

A job says in ``metrics`` where to look: ``pattern`` (a regular expression for lines of the log,
a group named "step" is the step, the first other one the value), or ``tensorboard`` (a glob in the
outputs). ``main`` lists the names that matter: the first one found counts, and if there is none,
the likeliest of what there is. What ``dray.training`` reports is read unless there is a
``pattern``.
"""

import bisect
import glob
import json
import math
import os
import re
import time

from ..formats import shapes
from ..formats.messages import print_message
from ..formats.pace import Pace
from . import tfevents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple  # noqa: F401

    from ..formats.records import AttemptRecord, Curve, Description, Metric, Metrics
    from ..jobs.jobdir import AttemptDir, JobDir

REPORTS = "metrics.jsonl"  # in the outputs: see dray.training
EVENT_FILES = "**/events.out.tfevents.*"
PIECE = 1 << 20
NAMELESS = "value"  # what a pattern's value is called that has no word before it
LONGEST_LINE = 1000  # a pattern may take forever on a long one
LARGEST_STEP = 1 << 62  # the laptop takes no larger one
MOST_ATTEMPT = 10**6
MOST_RECENT = shapes.MOST_RECENT  # values of a course
MOST_POINTS = 400  # of a curve: more than a terminal has columns
# Which tag counts as the main one if nobody says: earlier patterns win.
TELLING = (
    r"(^|/)mean_reward$",
    r"(^|/)ep_rew_mean$",
    r"^rewards/(iter|step)$",
    r"^Reward / Total reward \(mean\)$",
    r"mean.*(reward|return)|(reward|return).*mean",
    r"reward|return",
    r"success|score|accuracy|(^|[/_ ])acc$",
    r"val.*loss",
    r"loss",
    r"^(?!.*(time|fps|per_second|speed|epoch|step|iteration|learning_rate|(^|[/_-])lr))",
)
REWARD_LIKE = re.compile(b"rew|return", re.I)
ANYTHING = re.compile(b"")


class Point:
    """One value of a curve. ``attempt`` is 0 if only the time is known."""

    def __init__(
        self, name: str, step: int, value: "Optional[float]", moment: float, attempt: int = 0
    ) -> None:
        self.name = name
        self.step = step
        self.value = value  # None: not a number, or infinite
        self.time = moment
        self.attempt = attempt


def is_usable(point: Point) -> bool:
    """Return whether this can be a point of a curve. One that cannot must not hide all others."""
    return abs(point.step) <= LARGEST_STEP and 0 <= point.attempt <= MOST_ATTEMPT


def finite(value: "Any") -> "Optional[float]":
    return float(value) if value is not None and math.isfinite(value) else None


# -- where they are read from -------------------------------------------------------------------


class Tail:
    """Reads the lines that a text file got since the last look, whole lines only."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0

    def skip(self) -> None:
        self.offset = size_of(self.path)

    def lines(self, latest: bool) -> "Iterator[bytes]":
        """Yield the new lines. ``latest``: of a long text, only the end."""
        size = size_of(self.path)
        if latest:
            self.offset = max(self.offset, size - PIECE)
        if self.offset >= size:
            return
        with open(self.path, "rb") as file:
            while self.offset < size:
                file.seek(self.offset)
                piece = file.read(PIECE)
                # A progress bar ends its lines without a new one.
                end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
                if not end and len(piece) < PIECE:
                    return
                self.offset += end or len(piece)
                for line in re.split(b"[\r\n]+", piece[:end]):
                    yield line


def size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


class Source:
    def skip(self) -> None:
        """Skip everything that is there by now."""
        raise NotImplementedError

    def read(self, latest: bool) -> "Iterator[Point]":
        """Yield the new points. ``latest``: of a long text, only the end."""
        raise NotImplementedError


class Reports(Source):
    """Reads what ``dray.training.report`` wrote."""

    def __init__(self, outputs: str) -> None:
        self.tail = Tail(os.path.join(outputs, REPORTS))

    def skip(self) -> None:
        self.tail.skip()

    def read(self, latest: bool) -> "Iterator[Point]":
        for line in self.tail.lines(latest):
            try:
                record = json.loads(line.decode("utf-8"))
                step, moment, attempt = record["step"], record["time"], record["attempt"]
                points = [
                    Point(name, int(step), finite(value), float(moment), int(attempt))
                    for name, value in record["values"].items()
                ]
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue  # cut short by a kill, or somebody else's
            for point in filter(is_usable, points):
                yield point


class Events(Source):
    """Reads TensorBoard's files, of which there are several if a training was resumed."""

    def __init__(self, outputs: str, pattern: str, main: "Sequence[str]") -> None:
        self.pattern = os.path.join(glob.escape(outputs), pattern)
        self.offsets = {}  # type: Dict[str, int]
        self.main = main
        tags = "|".join(re.escape(tag) + "|" + tags_spelled(tag) for tag in main)
        self.wanted = re.compile(tags.encode("utf-8")) if main else REWARD_LIKE
        self.seen = False  # whether anything of that was there

    def skip(self) -> None:
        for path in glob.iglob(self.pattern, recursive=True):
            self.offsets[path] = size_of(path)

    def read(self, latest: bool) -> "Iterator[Point]":  # noqa: ARG002
        paths = sorted(glob.iglob(self.pattern, recursive=True))
        before = dict(self.offsets)
        for point in self._new(paths):
            self.seen = True
            yield point
        if not self.seen and self._fall_back(paths, before):
            self.offsets = before
            for point in self._new(paths):
                yield point

    def _new(self, paths: "List[str]") -> "Iterator[Point]":
        for path in paths:
            offset = self.offsets.get(path, 0)
            if size_of(path) <= offset:
                continue
            found, self.offsets[path] = tfevents.read(path, offset, self.wanted)
            for tag, step, value, moment in found:
                yield Point(self._name_of(tag), step, finite(value), moment)

    def _name_of(self, tag: str) -> str:
        """Return a tag as it was asked for: as it is, or in its plain spelling."""
        return tag if tag in self.main or plain(tag) not in self.main else plain(tag)

    def _fall_back(self, paths: "List[str]", offsets: "Dict[str, int]") -> bool:
        """Fall back to the likeliest tag if none of the wanted ones is there. Return whether one
        was found."""
        tags = []  # type: List[str]
        for path in paths:
            found, _ = tfevents.read(path, offsets.get(path, 0), ANYTHING, most=PIECE)
            tags += [tag for tag, _, _, _ in found if tag not in tags]
        likely = [re.escape(tag.encode("utf-8")) for tag in by_likeness(tags)[:1]]
        self.wanted = re.compile(b"|".join([self.wanted.pattern] + likely), self.wanted.flags)
        return bool(likely)


class Logs(Source):
    """Reads the output of the attempts. Values without a step are counted."""

    def __init__(self, attempts: "List[AttemptDir]", pattern: str, name: str) -> None:
        self.tails = [(one.number, Tail(one.log)) for one in attempts]
        self.pattern = re.compile(pattern)
        self.group = value_group(pattern)
        self.name = name or name_in_log(pattern)
        self.count = 0

    def skip(self) -> None:
        """Skip nothing: a log holds only its own attempt."""

    def read(self, latest: bool) -> "Iterator[Point]":
        for attempt, tail in self.tails:
            for line in tail.lines(latest):
                found = self.pattern.search(line[:LONGEST_LINE].decode("utf-8", "replace"))
                point = self._point(found, attempt) if found else None
                if point and is_usable(point):
                    yield point

    def _point(self, found: "Any", attempt: int) -> "Optional[Point]":
        try:
            value = finite(float(found.group(self.group)))
            self.count += 1
            step = int(found.groupdict().get("step") or self.count)
        except (ValueError, TypeError):
            return None
        return Point(self.name, step, value, 0.0, attempt)


def plain(tag: str) -> str:
    """Spell a tag as Isaac Lab's tuner does: 'Reward_/_Total_reward_mean' of
    'Reward / Total reward (mean)'."""
    return re.sub("_+", "_", re.sub("[^0-9A-Za-z_./]", "_", tag)).strip("_")


def tags_spelled(name: str) -> str:
    """Return an expression for the tags whose plain spelling is this."""
    return "[^0-9A-Za-z./]{1,20}".join(re.escape(part) for part in re.split("_+", name))


def value_group(pattern: str) -> int:
    """Return which group of a pattern is the value: the first that is not the step."""
    return 2 if re.compile(pattern).groupindex.get("step") == 1 else 1


def name_in_log(pattern: str) -> str:
    """Return the word before the value in a pattern: 'reward' of 'reward: ([-0-9.e]+)'."""
    before = "(".join(pattern.split("(")[: value_group(pattern)]).rpartition(")")[2]
    words = re.findall(r"[A-Za-z]\w*", re.sub(r"\\.", " ", before))
    return words[-1] if words else NAMELESS


def sources(
    job: "Optional[Description]", outputs: str, attempts: "List[AttemptDir]"
) -> "List[Source]":
    wanted = metrics_of(job)
    main = wanted.get("main") or []
    pattern = wanted.get("pattern")
    if pattern:
        return [Logs(attempts, pattern, main[0] if main else "")]
    return [Reports(outputs), Events(outputs, wanted.get("tensorboard") or EVENT_FILES, main)]


def metrics_of(job: "Optional[Description]") -> "Metrics":
    return (job.get("metrics") if job else None) or {}


def main_of(found: "List[Dict[str, Any]]", main: "Sequence[str]") -> "Optional[str]":
    """Choose the main metric from what each source found. Reported values take precedence over
    tags."""
    tags = [name for more in found[1:] for name in more]
    wanted = [name for name in main if name in found[0] or name in tags]
    names = wanted or list(found[0]) or by_likeness(tags)
    return names[0] if names else None


def under(name: str, found: "List[Dict[str, Any]]") -> "Any":
    return next(one[name] for one in found if name in one)


def by_likeness(tags: "Sequence[str]") -> "List[str]":
    """Return the tags that tell how a training does, the likeliest first."""
    found = []
    for pattern in TELLING:
        found += [tag for tag in tags if re.search(pattern, tag, re.I) and tag not in found]
    return found


# -- the latest value, for the supervisor -------------------------------------------------------


class Course:
    """The course of a value over the attempt: a few values at even distances, for a listing."""

    def __init__(self) -> None:
        self.kept = []  # type: List[Optional[float]]
        self.distance = 1
        self.seen = 0

    def add(self, value: "Optional[float]") -> None:
        if self.seen % self.distance == 0:
            self.kept.append(value)
        self.seen += 1
        if len(self.kept) == MOST_RECENT:
            self.kept = self.kept[::2]
            self.distance *= 2

    def values(self) -> "List[Optional[float]]":
        """Return the values, rounded to four digits: more than a sparkline can show."""
        return [one if one is None else float("{:.4g}".format(one)) for one in self.kept]


class Watch:
    """Follows the metrics of one attempt. It is made before the command starts: everything there by
    then belongs to earlier attempts."""

    def __init__(
        self,
        job: "Description",
        outputs: str,
        attempt: "AttemptDir",
        note: "Optional[Callable[[Point], None]]" = None,
    ) -> None:
        self.note = note  # called with each point
        self.main = metrics_of(job).get("main") or []
        self.sources = sources(job, outputs, [attempt])
        self.latest = [{} for _ in self.sources]  # type: List[Dict[str, Point]]
        self.courses = {}  # type: Dict[Tuple[int, str], Course]
        self.points = 0  # how many were read
        self.next_look = 0.0
        self.pace = Pace()
        self.complaint = ""
        self._for_each_source(lambda source: source.skip())

    def look(self, last: bool = False) -> None:
        """Read what is new: never for more than 0.05 % of a CPU, but always at the end."""
        now = time.monotonic()
        if now < self.next_look and not last:
            return
        with self.pace:
            self._for_each_source(self._read)
        self.next_look = now + self.pace.rest()

    def _read(self, source: Source) -> None:
        index = self.sources.index(source)
        latest = self.latest[index]
        for point in source.read(latest=True):
            latest[point.name] = point
            self.points += 1
            if self.note is not None:
                self.note(point)
            self.courses.setdefault((index, point.name), Course()).add(point.value)

    def _for_each_source(self, act: "Callable[[Source], None]") -> None:
        """Call ``act`` for each source, and log errors: a file that vanished, or is no such file at
        all, must not end the attempt."""
        for source in self.sources:
            try:
                act(source)
            except Exception as error:
                if repr(error) != self.complaint:
                    print_message("metrics: {!r}".format(error))
                self.complaint = repr(error)

    def value(self) -> "Optional[Metric]":
        name = main_of(self.latest, self.main)
        if name is None:
            return None
        index = next(at for at, one in enumerate(self.latest) if name in one)
        point, course = self.latest[index][name], self.courses[index, name]
        recent = course.values()
        return {"name": name, "value": point.value, "step": point.step, "recent": recent}


# -- the whole curve, for people ----------------------------------------------------------------


def series(job: "Optional[Description]", job_dir: "JobDir", wanted: str = "") -> "Curve":
    """Return a metric over all attempts: its name, and points of (step, value, attempt). It is the
    wanted one where there is such a one, else the main one."""
    main = ([wanted] if wanted else []) + list(metrics_of(job).get("main") or ())
    found = all_points(job, job_dir)
    name = main_of(found, main)
    if name is None:
        return {"name": "", "points": []}
    points = under(name, found)
    assign_attempts(points, job_dir.records())
    kept = thin_out(without_superseded(points))
    return {"name": name, "points": [[one.step, one.value, one.attempt] for one in kept]}


def all_points(job: "Optional[Description]", job_dir: "JobDir") -> "List[Dict[str, List[Point]]]":
    """Return what each source has, by name."""
    attempts = [job_dir.attempt(number) for number in job_dir.numbers()]
    found = []  # type: List[Dict[str, List[Point]]]
    for source in sources(job, job_dir.outputs, attempts):
        found.append({})
        try:
            for point in source.read(latest=False):
                found[-1].setdefault(point.name, []).append(point)
        except OSError:  # a folder of that name, or one that cannot be read
            pass
    return found


def assign_attempts(points: "List[Point]", records: "List[AttemptRecord]") -> None:
    """Fill in the attempt of points that only have a time: the one that ran then."""
    begun = sorted((one["started"], one["number"]) for one in records if one.get("started"))
    starts = [started for started, _ in begun]
    numbers = [number for _, number in begun] or [1]
    for point in points:
        if not point.attempt:
            point.attempt = numbers[max(bisect.bisect_right(starts, point.time) - 1, 0)]


def without_superseded(points: "List[Point]") -> "List[Point]":
    """Drop the points beyond the step at which the next attempt resumed: that work was lost and
    done again."""
    by_attempt = {}  # type: Dict[int, List[Point]]
    for point in points:
        by_attempt.setdefault(point.attempt, []).append(point)
    kept = []  # type: List[Point]
    for attempt in sorted(by_attempt, reverse=True):
        own = sorted(by_attempt[attempt], key=lambda point: point.step)
        kept = [one for one in own if not kept or one.step < kept[0].step] + kept
    return kept


def thin_out(points: "List[Point]") -> "List[Point]":
    """Reduce the points evenly to at most ``MOST_POINTS``, plus the first of each attempt."""
    if len(points) <= MOST_POINTS:
        return points
    last = len(points) - 1
    chosen = {index * last // (MOST_POINTS - 1) for index in range(MOST_POINTS)}
    for index in range(1, len(points)):
        if points[index].attempt != points[index - 1].attempt:
            chosen.add(index)
    return [points[index] for index in sorted(chosen)]
