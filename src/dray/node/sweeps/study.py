"""The files of a sweep, below one root. Each is written once, or by one process alone: there is no
lock, and no server.

    <root>/sweeps/<id>/
        sweep.json            the space, the sampler, what is compared: written once
        parts/<first>.json    an array of it: its id, the number of its first trial, and how many
        trials/<c>.json       the parameters of configuration c, by link(2): the first one wins
        results/<n>.json      how trial n does: replaced by that trial's supervisor alone
        known.json            what was read of both folders so far: a cache, which may be lost
        others.json           the same of the sweep's trials on other clusters, brought by a laptop
        closed                no further configuration is to start
        queue/                where a machine has no scheduler: which trials may run at once

Trial n has the configuration n // repeats. Whatever cannot be read counts as not there yet.
"""

import errno
import json
import os
import re
import time

from ..formats import files, shapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional  # noqa: F401

    from ..formats.records import (  # noqa: F401
        PartRecord,
        Record,
        ResultRecord,
        StudyFiles,
        StudyRecord,
        TrialRecord,
    )

NUMBER = re.compile(r"[0-9]{1,9}$")
STEP = re.compile(r"[0-9]{1,18}$")
NUMBERED = re.compile(r"([0-9]{1,9})\.json$")
LARGEST_STUDY = 64 << 20  # bytes of sweep.json, which may have a value for each trial in it
LARGEST_KNOWN = 256 << 20
LONGEST_MARK = 100
UNSEEN = 90.0  # seconds after which every node sees a file that another one has made
WORTH_KEEPING = 20  # files that were read, from which on the cache is written anew
MOST_OBJECTIVES = 10  # metrics of one sweep
STATES = ("running", "done", "failed", "pruned", "stopped")


def is_rungs(value: "Any") -> bool:
    """Return whether these are values by step; null is one that is not a number."""
    return isinstance(value, dict) and all(
        STEP.match(step) and (one is None or shapes.is_number(one)) for step, one in value.items()
    )


def is_levels(value: "Any") -> bool:
    """Return whether these are numbers by the names of metrics."""
    return isinstance(value, dict) and all(shapes.is_number(one) for one in value.values())


def is_objectives(value: "Any") -> bool:
    """Return whether these are the values of several metrics; null is one that was not seen."""
    if not isinstance(value, list) or len(value) > MOST_OBJECTIVES:
        return False
    return all(one is None or one == "nan" or shapes.is_number(one) for one in value)


EXCHANGE = {"step": shapes.is_count, "job": shapes.is_id, "values": shapes.is_record}


def is_exchanges(value: "Any") -> bool:
    """Return whether these are parts of other trials that one has taken over."""
    if not isinstance(value, list):
        return False
    return all(shapes.is_record(one) and shapes.fits(one, EXCHANGE, EXCHANGE) for one in value)


RESULT = {
    "job": shapes.is_id,
    "state": shapes.is_text,
    "step": shapes.is_count,
    "rungs": is_rungs,
    "objectives": is_objectives,
    "gpu_seconds": shapes.is_number,
    "reason": shapes.is_text,
    "promoted": shapes.is_flag,
    "metrics": shapes.is_texts,
    "levels": is_levels,
    "exchanges": is_exchanges,
    "taken": shapes.is_count,
    "values": shapes.is_record,
}  # type: shapes.Shape
PART = {
    "id": shapes.is_id,
    "first": shapes.is_count,
    "count": shapes.is_count,
    "at_once": shapes.is_count,
}  # type: shapes.Shape


class Taken(Exception):
    """Another sweep, or other trials, have this place."""


class Study:
    def __init__(self, root: str, sweep_id: str) -> None:
        self.id = sweep_id
        self.root = root
        self.path = os.path.join(root, "sweeps", sweep_id)
        self.file = os.path.join(self.path, "sweep.json")
        self.closed = os.path.join(self.path, "closed")
        self.others = os.path.join(self.path, "others.json")
        self._record = None  # type: Optional[StudyRecord]
        self._trials = Folder(os.path.join(self.path, "trials"), changes=False)
        self._results = Folder(os.path.join(self.path, "results"), changes=True)
        self._has_cache = False

    # -- what it is -----------------------------------------------------------------------------

    def begin(self, record: "StudyRecord", part: "PartRecord") -> None:
        """Write down what is about to be submitted; doing so again changes nothing."""
        for name in ("parts", "trials", "results"):
            files.make_folder(os.path.join(self.path, name))
        if not files.write_once(self.file, record) and not self._is(record):
            raise Taken("another sweep has the id {}: try again".format(self.id))
        path = self._part(part["first"])
        if not files.write_once(path, part):
            known = files.read_record(path) or {}
            if known.get("id") != part["id"]:
                raise Taken("somebody else has just added trials to {}: try again".format(self.id))
            if known.get("count") != part["count"]:  # it was shortened, and is tried again
                files.write_json(path, part)
        files.discard(self.closed)

    def withdraw(self, part: "PartRecord") -> None:
        """Take back an array that was not submitted after all."""
        path = self._part(part["first"])
        if part_id(path) == part["id"]:
            files.discard(path)

    def shorten(self, part: "PartRecord", count: int) -> None:
        """Write down that only the first trials of an array were submitted."""
        path = self._part(part["first"])
        if 0 < count < part["count"] and part_id(path) == part["id"]:
            files.write_json(path, dict(part, count=count))

    def _part(self, first: int) -> str:
        return os.path.join(self.path, "parts", "{}.json".format(first))

    def _is(self, record: "StudyRecord") -> bool:
        known = self.record()
        return known is not None and known.get("created") == record["created"]

    def record(self) -> "Optional[StudyRecord]":
        """Read what the sweep is; None if that is missing or damaged. It never changes."""
        if self._record is None:
            found = files.read_record(self.file, LARGEST_STUDY)  # type: Any
            self._record = found if found and is_study(found) else None
        return self._record

    def parts(self) -> "List[PartRecord]":
        """Return its arrays, in the order of their trials."""
        folder = os.path.join(self.path, "parts")
        paths = [os.path.join(folder, name) for name in files.names_in(folder)]
        read = [files.read_record(path) or {} for path in paths]
        found = []  # type: List[Any]
        found += [one for one in read if shapes.fits(one, PART, ("id", "first", "count"))]
        return sorted(found, key=lambda one: one["first"])

    def close(self) -> None:
        """Let no further configuration start."""
        files.write_bytes(self.closed, b"")

    def is_closed(self) -> bool:
        return files.exists(self.closed)

    # -- its trials -----------------------------------------------------------------------------

    def parameters(self, configuration: int) -> "Optional[TrialRecord]":
        """Return what a configuration has been given; None if nobody has asked for it yet."""
        return trial_in(files.read_record(self._trials.path_of(configuration)))

    def give(self, configuration: int, record: "TrialRecord") -> "TrialRecord":
        """Write down the parameters of a configuration, unless another process was quicker; return
        those that hold."""
        path = self._trials.path_of(configuration)
        if files.write_once(path, record):
            return record
        until = time.monotonic() + UNSEEN
        while True:  # a network's file system may hide for a while what another node has made
            known = self.parameters(configuration)
            if known is not None:
                return known
            if time.monotonic() > until:
                break
            time.sleep(1.0)
        if files.exists(path):
            raise ValueError("{} is damaged".format(path))
        raise OSError(errno.ESTALE, "another trial's file cannot be seen yet", path)

    def result(self, trial: int) -> "ResultRecord":
        """Return what a trial has told so far, which may be nothing."""
        return result_in(files.read_record(self._results.path_of(trial))) or {}

    def tell(self, trial: int, result: "ResultRecord") -> None:
        files.write_json(self._results.path_of(trial), result)

    def trials(self) -> "Dict[int, TrialRecord]":
        """Return the parameters of all configurations that have any, other clusters' too."""
        self._read_cache()
        found = self._others("trials", trial_in)
        found.update((number, trial_in(one)) for number, one in self._trials.read().items())
        return {number: one for number, one in found.items() if one is not None}

    def results(self) -> "Dict[int, ResultRecord]":
        """Return what all trials have told, other clusters' too."""
        self._read_cache()
        found = self._others("results", result_in)
        found.update((number, result_in(one)) for number, one in self._results.read().items())
        return {number: one for number, one in found.items() if one is not None}

    def hear(self, others: "Record") -> None:
        """Write down what a laptop tells of the sweep's trials on other clusters: all it knows."""
        files.write_json(self.others, others)

    def resumable_elsewhere(self) -> "List[str]":
        """Return the trials that have a checkpoint which is not here, but will be once it is gone
        on from."""
        found = self._heard().get("resumable")
        return found if isinstance(found, list) and shapes.is_texts(found) else []

    def _heard(self) -> "Record":
        return files.read_record(self.others, LARGEST_KNOWN) or {}

    def _others(self, kind: str, checked: "Any") -> "Dict[int, Any]":
        found = self._heard().get(kind)
        if not isinstance(found, dict):
            return {}
        return {int(name): checked(one) for name, one in found.items() if NUMBER.match(name)}

    # -- the cache ------------------------------------------------------------------------------

    @property
    def _folders(self) -> "Dict[str, Folder]":
        return {"trials": self._trials, "results": self._results}

    def _read_cache(self) -> None:
        """Take what others have read already, once."""
        if self._has_cache:
            return
        self._has_cache = True
        known = files.read_record(os.path.join(self.path, "known.json"), LARGEST_KNOWN) or {}
        stamps = known.get("stamps")
        for name, folder in self._folders.items():
            folder.take(known.get(name), stamps.get(name) if isinstance(stamps, dict) else None)

    def keep_cache(self) -> None:
        """Save what was read for the next who asks. It is no loss if that fails."""
        if sum(one.fresh for one in self._folders.values()) < WORTH_KEEPING:
            return
        known = {name: one.records for name, one in self._folders.items()}  # type: Record
        known["stamps"] = {name: one.stamps for name, one in self._folders.items()}
        content = json.dumps(known).encode("ascii")  # compact: ten times as quick as for people
        try:
            files.write_bytes(os.path.join(self.path, "known.json"), content, durable=False)
        except OSError:
            pass

    # -- for the laptop -------------------------------------------------------------------------

    def all_files(self) -> "Optional[StudyFiles]":
        """Return all that is known here of the sweep; None if there is no such sweep."""
        record = self.record()
        if record is None:
            return None
        trials, results = self.trials(), self.results()
        self.keep_cache()
        return {
            "study": record,
            "parts": self.parts(),
            "trials": {str(number): for_people(trials[number]) for number in sorted(trials)},
            "results": {str(number): results[number] for number in sorted(results)},
            "closed": self.is_closed(),
            "others": str(self._heard().get("mark") or "")[:LONGEST_MARK],
        }


class Folder:
    """Numbered files of a folder, of which only what is new is read. ``changes``: whether a file is
    ever replaced."""

    def __init__(self, path: str, changes: bool) -> None:
        self.path = path
        self.changes = changes
        self.records = {}  # type: Dict[str, Any]  # by number
        self.stamps = {}  # type: Dict[str, List[int]]
        self.fresh = 0  # how many were read here, and not taken from the cache

    def path_of(self, number: int) -> str:
        return os.path.join(self.path, "{}.json".format(number))

    def take(self, records: "Any", stamps: "Any") -> None:
        """Take what a cache has, if it is whole."""
        if isinstance(records, dict) and isinstance(stamps, dict) and set(records) == set(stamps):
            self.records, self.stamps = records, stamps

    def read(self) -> "Dict[int, Any]":
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    self._look_at(entry)
        except OSError as error:
            if error.errno not in files.NO_FILE:
                raise
        return {int(name): one for name, one in self.records.items() if NUMBER.match(name)}

    def _look_at(self, entry: "os.DirEntry[str]") -> None:
        found = NUMBERED.match(entry.name)
        if found is None or (not self.changes and found.group(1) in self.records):
            return
        number = found.group(1)
        try:
            about = entry.stat(follow_symlinks=False)
            stamp = [about.st_mtime_ns, about.st_size, about.st_ino]
            if self.stamps.get(number) == stamp:
                return
            record = files.read_record(entry.path)
        except OSError:  # replaced this moment, or unreadable: it is not there yet
            return
        if record is not None:
            self.records[number], self.stamps[number] = record, stamp
            self.fresh += 1


# -- what each file has to be -------------------------------------------------------------------


def is_study(record: "Record") -> bool:
    space, seed = record.get("space"), record.get("seed")
    if not isinstance(space, list) or not all(isinstance(one, dict) for one in space):
        return False
    if not all(is_parameter(one) for one in space) or not is_goals(record.get("objectives")):
        return False
    repeats = record.get("repeats")  # type: Any
    return shapes.is_count(repeats) and repeats > 0 and shapes.is_count(seed)


def is_parameter(record: "Record") -> bool:
    """Return whether it says what it is; each kind has keys of its own."""
    when = record.get("when") or {}
    if not isinstance(when, dict) or not all(isinstance(one, list) for one in when.values()):
        return False
    return shapes.is_text(record.get("name")) and shapes.is_text(record.get("kind"))


def is_goals(value: "Any") -> bool:
    """Return whether these are several metrics with their modes; an older dray has written none."""
    if not value:
        return True
    goal = {"metric": shapes.is_text, "mode": shapes.is_text}  # type: shapes.Shape
    if not isinstance(value, list) or len(value) > MOST_OBJECTIVES:
        return False
    return all(isinstance(one, dict) and shapes.fits(one, goal, goal) for one in value)


def part_id(path: str) -> "Any":
    return (files.read_record(path) or {}).get("id")


def trial_in(record: "Any") -> "Optional[TrialRecord]":
    if not isinstance(record, dict) or not shapes.is_record(record.get("values")):
        return None
    trial = {"values": record["values"], "by": str(record.get("by") or "")}  # type: TrialRecord
    if shapes.is_record(record.get("attrs")):
        trial["attrs"] = record["attrs"]
    return trial


def for_people(trial: "TrialRecord") -> "TrialRecord":
    """Return a trial without what its sampler has noted for itself."""
    return {"values": trial["values"], "by": trial["by"]}


def result_in(record: "Any") -> "Optional[ResultRecord]":
    if not isinstance(record, dict):
        return None
    found = shapes.fitting(record, RESULT)  # type: ResultRecord
    return found if found.get("state") in STATES else None
