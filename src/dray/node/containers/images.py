"""Images on a cluster: their layers as they arrive, and the file that a container starts from.

    images/<hex>.json      what it is, written down before its layers come
    images/<hex>.sif       ready to run; each runtime's files have an ending of their own
    images/layers/<hex>/   a layer, or a whole image file, in the parts in which it came

A part is a gzip of a piece of the layer, named by its place there: what has arrived need not be
sent again after a broken link, and parts may come in any order. The last one says that it is.
"""

import collections
import os
import re

from ..formats import files
from ..jobs.jobdir import JobDir
from .known import ENDINGS
from .runtimes import installed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional  # noqa: F401

    from ..formats.records import ImageNeeds, ImageRecord, ListedImage, Row

PART = re.compile(r"^(\d+)-(\d+)(-last)?\.gz$")

Part = collections.namedtuple("Part", "offset length is_last path")
Maker = collections.namedtuple("Maker", "job number")  # a job, and its number in the queue


def hex_of(digest: str) -> str:
    """Return the hex digits of an image's id or a layer's digest; refuse what would lead out of the
    folder."""
    name = digest.rpartition(":")[2]
    if not re.match("^[0-9a-f]{64}$", name):
        raise ValueError("'{}' is not a digest".format(digest))
    return name


class Images:
    def __init__(self, root: str) -> None:
        self.folder = os.path.join(root, "images")
        self.layers = os.path.join(self.folder, "layers")

    # -- one image ------------------------------------------------------------------------------

    def file(self, image: str) -> "Optional[str]":
        """Return the file that a container is started from, or None while it is not there."""
        for ending in ENDINGS:
            path = os.path.join(self.folder, hex_of(image) + ending)
            if os.path.exists(path):
                return path
        return None

    def lacks(self, image: str) -> bool:
        """Return whether the image should be here, and is not. A path, or no image at all, need not
        be."""
        return bool(image) and not image.startswith("/") and self.file(image) is None

    def record(self, image: str) -> "Optional[ImageRecord]":
        return shaped(files.read_record(self._record_file(image)))

    def announce(self, record: "ImageRecord") -> None:
        files.make_folder(self.folder)
        files.write_json(self._record_file(record["id"]), record)

    def _record_file(self, image: str) -> str:
        return os.path.join(self.folder, hex_of(image) + ".json")

    def maker(self, image: str, queue: "Callable[[], Dict[str, Row]]") -> "Optional[Maker]":
        """Return the queued job that converts the image, if there is one."""
        job = (self.record(image) or {}).get("job")
        queued = queue().get(job) if job else None
        if queued is None or queued["state"] == "ending":
            return None
        return Maker(job, str(queued["id"]))

    def lock(self, image: str) -> files.Lock:
        """Return the lock that is held while the image's file is made or removed."""
        files.make_folder(self.folder)
        return files.Lock(os.path.join(self.folder, ".lock-" + hex_of(image)))

    # -- layers ---------------------------------------------------------------------------------

    def layer(self, digest: str) -> str:
        return os.path.join(self.layers, hex_of(digest))

    def part_file(self, digest: str, offset: int, length: int, is_last: bool) -> str:
        name = "{:015d}-{}{}.gz".format(offset, length, "-last" if is_last else "")
        return os.path.join(self.layer(digest), name)

    def parts(self, digest: str) -> "List[Part]":
        """Return the parts of a layer that have arrived, in order."""
        folder = self.layer(digest)
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            match = PART.match(name)
            if match:
                offset, length, is_last = int(match.group(1)), int(match.group(2)), match.group(3)
                found.append(Part(offset, length, bool(is_last), os.path.join(folder, name)))
        return found

    def whole(self, digest: str) -> "Optional[List[Part]]":
        """Return a layer's parts from the first to the last without a gap, or None."""
        chain = []  # type: List[Part]
        end = 0
        for part in self.parts(digest):
            if part.offset == end and not (chain and chain[-1].is_last):
                chain.append(part)
                end += part.length
        return chain if chain and chain[-1].is_last else None

    def needs(self, digests: "List[str]") -> "ImageNeeds":
        """Report what is missing to have an image of these layers here, and what could build it."""
        builders = [runtime.name for runtime in installed()]
        machine = os.uname().machine
        return {"machine": machine, "builders": builders, "lacking": self.lacking(digests)}

    def lacking(self, digests: "List[str]") -> "Dict[str, List[List[int]]]":
        """Return the layers that are not whole here, each with the parts that have arrived."""
        return {
            digest: [[part.offset, part.length] for part in self.parts(digest)]
            for digest in digests
            if self.whole(digest) is None
        }

    # -- all of them ----------------------------------------------------------------------------

    def records(self) -> "List[ListedImage]":
        """Return all images, each with whether it is ready, its size, and the jobs that need it."""
        users = self._users()
        found = [self._with_sizes(record) for record in self._announced()]
        for one in found:
            one["jobs"] = users.get(one["id"], [])
        return found

    def _announced(self) -> "List[ImageRecord]":
        """Return the records of all images, as they were written."""
        names = [name for name in files.names_in(self.folder) if is_record(name)]
        found = [self.record(name[: -len(".json")]) for name in names]
        return [record for record in found if record is not None]

    def _with_sizes(self, record: "ImageRecord") -> "ListedImage":
        file = self.file(record["id"])
        layers = [size_of(self.layer(digest)) for digest in record["layers"]]
        listed = dict(record)  # type: Any
        found = listed  # type: ListedImage
        found["ready"] = file is not None
        found["sizes"] = {"file": os.path.getsize(file) if file else 0, "layers": sum(layers)}
        return found

    def _users(self) -> "Dict[str, List[str]]":
        """Return the jobs and arrays that have not ended, by their image."""
        found = {}  # type: Dict[str, List[str]]
        root = os.path.dirname(self.folder)
        for kind in ("jobs", "arrays"):
            for name in files.names_in(os.path.join(root, kind)):
                place = os.path.join(root, kind, name)
                job = JobDir(place).description()
                container = job.get("container") if job else None
                if container and not os.path.exists(os.path.join(place, "end.json")):
                    found.setdefault(str(container.get("image")), []).append(name)
        return found

    def remove(self, image: str) -> bool:
        """Remove an image, and the layers that no other image has; return False where it is being
        converted. The lock's file stays: others may be waiting for it."""
        lock = self.lock(image)
        if not lock.take(wait=False):
            return False
        try:
            record = self.record(image)
            for ending in ENDINGS + (".json",):
                files.remove(os.path.join(self.folder, hex_of(image) + ending))
        finally:
            lock.__exit__()
        if record is not None:
            self._remove_layers(record, self._announced())
        return True

    def drop_layers(self, record: "ImageRecord") -> None:
        """Remove the layers of an image that is ready, except those that an unfinished one
        needs."""
        unready = [one for one in self._announced() if self.file(one["id"]) is None]
        self._remove_layers(record, unready)

    def _remove_layers(self, record: "ImageRecord", others: "List[ImageRecord]") -> None:
        """Remove the image's layers, except those that ``others`` need."""
        needed = {digest for other in others for digest in other["layers"]}
        for digest in record["layers"]:
            if digest not in needed:
                files.remove_tree(self.layer(digest))


def shaped(record: "Any") -> "Optional[ImageRecord]":
    """Return the record if it is well-formed, else None: any job can write to these files."""
    try:
        if record is not None:
            digests = [record["id"]] + record["layers"]
            checked = dict(record, id=str(record["id"]))  # type: Any
            found = checked  # type: ImageRecord
            return found if all(map(hex_of, digests)) else None
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    return None


def is_record(name: str) -> bool:
    return bool(re.match(r"^[0-9a-f]{64}\.json$", name))


def size_of(folder: str) -> int:
    try:
        return sum(entry.stat().st_size for entry in os.scandir(folder))
    except OSError:
        return 0
