"""What a node gets that does not see the root: the job's directory as far as the next attempt needs
it, its code, and the newest of its checkpoints."""

import os
import re
import stat

from ..checkpoints import given, newest
from ..checkpoints.resuming import partner_of
from ..code.packs import Damaged, Packs
from ..formats import files
from ..jobs import arrays
from ..sweeps.population import has_checkpoint
from ..sweeps.study import Study
from ..sweeps.trial import is_population
from .mirror import PIECE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Set, Tuple  # noqa: F401

    from ..formats.records import Description, Rules
    from ..jobs.jobdir import JobDir
    from .host import Piece, Stamp  # noqa: F401

PROGRAM = re.compile(r"/node/([\w.-]+\.pyz)")
RECORDS = ("attempt.json", "outcome.json", "heartbeat.json")
OF_ARRAY = "arrays"
LARGEST_SCRIPT = 1 << 20


class Parcel:
    """Files by their paths below the root: those of the root, and others by their content."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.code = []  # type: List[str]  # never changes: it is sent once to a node
        self.files = []  # type: List[str]
        self.contents = {}  # type: Dict[str, bytes]
        self.folders = []  # type: List[str]
        self.links = []  # type: List[Tuple[str, str]]

    def add(self, path: str) -> None:
        """Add a file or link of the root, if it is there."""
        try:
            about = os.lstat(os.path.join(self.root, path))
        except OSError:
            return
        if stat.S_ISREG(about.st_mode):
            self.files.append(path)
        elif stat.S_ISLNK(about.st_mode):
            self.links.append((path, os.readlink(os.path.join(self.root, path))))

    def add_tree(self, path: str, without: "Set[str]" = frozenset()) -> None:  # type: ignore[assignment]
        """Add all that is below a folder, without some paths of the root and all below them."""
        top = os.path.join(self.root, path)
        if not os.path.isdir(top) or os.path.islink(top):
            self.add(path)
            return
        for folder, folders, names in os.walk(top):
            folders[:] = [one for one in folders if os.path.join(folder, one) not in without]
            self.folders.append(os.path.relpath(folder, self.root))
            links = [one for one in folders if os.path.islink(os.path.join(folder, one))]
            for name in names + links:
                if os.path.join(folder, name) not in without:
                    self.add(os.path.relpath(os.path.join(folder, name), self.root))


# -- what it consists of --------------------------------------------------------------------------


def parcel_of(job_dir: "JobDir", job: "Description") -> Parcel:
    """List what a node needs for the next attempt of a job."""
    parcel = Parcel(job_dir.root)
    own = os.path.join("jobs", job_dir.id)
    described = dict(job)
    described.pop("after", None)  # it was waited for here, where the other jobs are
    parcel.contents[os.path.join(own, "job.json")] = files.encode(described)
    for path in (job_dir.script, job_dir.stop):
        parcel.add(os.path.relpath(path, job_dir.root))
    secrets = files.read_record(job_dir.secrets)
    if secrets is not None:  # each content goes alone: what is small, Ray keeps in no store
        parcel.contents[os.path.join(own, "secrets.json")] = files.encode(secrets)
    for number in job_dir.numbers():
        for name in RECORDS:
            parcel.add(os.path.join(own, "attempts", job_dir.attempt(number).name, name))
    parcel.folders += [os.path.join(own, name) for name in ("attempts", "outputs")]
    parcel.add_tree(os.path.join(own, given.FOLDER))
    parcel.add_tree(os.path.join(own, "outputs"), old_checkpoints(job_dir, job))
    add_code(parcel, job_dir, job)
    add_inputs(parcel, job_dir, job)
    add_study(parcel, job)
    return parcel


def old_checkpoints(job_dir: "JobDir", job: "Description") -> "Set[str]":
    """Return the checkpoints that are of no use any more: all before the newest whole one, and the
    one before that."""
    rules = given.known(job_dir, job)["resume"]
    found = newest.candidates(job_dir.outputs, rules)
    whole = [at for at, one in enumerate(found) if newest.is_valid(one, found, rules)][:1]
    old = found[whole[0] + 2 :] if whole else []
    kept = {partner_of(one.path, rules) for one in found if one not in old}
    partners = {partner_of(one.path, rules) for one in old} - kept
    return {path for path in {one.path for one in old} | partners if path}


def add_code(parcel: Parcel, job_dir: "JobDir", job: "Description") -> None:
    """Add the program that makes attempts, and the snapshot with its packs."""
    with files.open_regular(job_dir.script) as file:
        script = file.read(LARGEST_SCRIPT).decode("utf-8", "replace")
    programs = sorted(set(PROGRAM.findall(script)))
    parcel.code += [os.path.join("node", name) for name in programs]
    if not job["snapshot"]:
        return
    packs = Packs(job_dir.root)
    try:
        names, _ = packs.read_snapshot(job["snapshot"])
    except Damaged:  # the attempt will find the same, and say so
        return
    parcel.code.append(os.path.join("snapshots", job["snapshot"]))
    parcel.code += [os.path.join("packs", name) for name in names]
    parcel.code = [one for one in parcel.code if os.path.isfile(os.path.join(parcel.root, one))]


def add_inputs(parcel: Parcel, job_dir: "JobDir", job: "Description") -> None:
    for one in (job.get("inputs") or {}).values():
        if not one.get("snapshot"):
            parcel.add_tree(os.path.join("jobs", one["job"], "outputs", one["path"]).rstrip("/"))
    parcel.add_tree(os.path.join("jobs", job_dir.id, "inputs"))
    place = arrays.split(job_dir.id)
    if place is not None:
        parcel.add_tree(os.path.join(OF_ARRAY, place[0], "inputs"))


def add_study(parcel: Parcel, job: "Description") -> None:
    """Add what a trial needs of its sweep, and what other trials have told."""
    part = job.get("sweep") or {}
    if not part.get("id"):
        return
    study = Study(parcel.root, part["id"])
    folder = os.path.relpath(study.path, parcel.root)
    parcel.folders += [os.path.join(folder, name) for name in ("trials", "results")]
    parcel.add(os.path.relpath(study.file, parcel.root))
    parcel.add(os.path.join(folder, "results", "{}.json".format(part["trial"])))
    others = os.path.relpath(study.others, parcel.root)
    parcel.contents[others] = told_by_others(study, job["resume"])


def told_by_others(study: Study, rules: "Rules") -> bytes:
    """Return what trials of the sweep have been given and have told, as a node reads it of those
    elsewhere."""
    trials, results = study.trials(), study.results()
    study.keep_cache()
    told = {
        "trials": {str(number): one for number, one in trials.items()},
        "results": {str(number): one for number, one in results.items()},
    }  # type: Dict[str, Any]
    if is_population(study.record() or {}):
        ids = [one.get("job", "") for one in results.values()]
        told["resumable"] = [one for one in ids if has_checkpoint(study.root, one, rules)]
    return files.encode(told)


# -- sending it -----------------------------------------------------------------------------------


def send(parcel: Parcel, base: str, stand_in: str, ask: "Callable[..., Any]") -> "Dict[str, Stamp]":
    """Send it to a node; return what each file of the job is there, by its path below the root."""
    ask("make", *folders_and_links(parcel, stand_in))
    sizes = {os.path.join(base, one): size_of(parcel, one) for one in parcel.code}
    lacking = set(ask("lacks", sorted(sizes.items())))
    code = [one for one in parcel.code if os.path.join(base, one) in lacking]
    for batch in pieces(parcel, [(one, os.path.join(base, one)) for one in code]):
        ask("put", batch)
    stamps = {}  # type: Dict[str, Stamp]
    for batch in pieces(parcel, [(one, os.path.join(stand_in, one)) for one in parcel.files]):
        stamps.update(ask("put", batch))
    for path, content in parcel.contents.items():
        ask("put", [(os.path.join(stand_in, path), 0, content, 0o600, 0, True)])
    return {os.path.relpath(path, stand_in): stamp for path, stamp in stamps.items()}


def folders_and_links(parcel: Parcel, stand_in: str) -> "Tuple[List[str], List[Tuple[str, str]]]":
    folders = [os.path.join(stand_in, one) for one in parcel.folders]
    return folders, [(os.path.join(stand_in, one), target) for one, target in parcel.links]


def size_of(parcel: Parcel, path: str) -> int:
    return os.stat(os.path.join(parcel.root, path)).st_size


def pieces(parcel: Parcel, wanted: "List[Tuple[str, str]]") -> "Iterator[List[Piece]]":
    """Yield the content of files in pieces; small ones are put together."""
    batch, size = [], 0  # type: List[Piece], int
    for path, target in wanted:
        for piece in pieces_of(os.path.join(parcel.root, path), target):
            batch.append(piece)
            size += len(piece[2])
            if size >= PIECE:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def pieces_of(path: str, target: str) -> "Iterator[Piece]":
    try:
        file = files.open_regular(path)
    except OSError:  # removed this moment
        return
    with file:
        about, offset = os.fstat(file.fileno()), 0
        mode = 0o700 if about.st_mode & 0o100 else 0o600
        content = file.read(PIECE)
        while True:
            more = file.read(PIECE) if len(content) == PIECE else b""
            yield (target, offset, content, mode, about.st_mtime_ns, not more)
            if not more:
                return
            offset, content = offset + len(content), more
