"""Finds the newest whole checkpoint.

A trainer killed while it saves leaves a file that looks like a checkpoint and cannot be loaded.
Formats that say where they end are checked for that end; the rest must at least not be empty.
A checkpoint may be a folder. It is as new as its newest file, and whole if all its files are and it
lacks none that earlier ones have.
"""

import glob
import json
import os
import re
import stat
import struct
import zipfile
from collections import Counter, OrderedDict

from ..formats import files
from .resuming import number_of, partner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Set, Tuple

    from ..formats.records import Rules

# model.pt.tmp, model.tmp.pt, tmp-checkpoint-500, 100.orbax-checkpoint-tmp-1719, model.pt.part …
UNFINISHED = re.compile(r"(^|[._-])tmp([._-]|$)|\.(temp|part|partial|incomplete)$|~$", re.I)
# Folders only by names that nobody gives a run: "2026-11-16_tmp" is one of Isaac Lab's.
UNFINISHED_FOLDER = re.compile(
    r"^tmp-checkpoint|checkpoint-tmp|\.tmp([._-]|$)|\.(temp|part|partial|incomplete)$|~$", re.I
)
CONTENT = (
    ".bin", ".ckpt", ".distcp", ".json", ".metadata", ".msgpack", ".npz", ".pkl", ".pt", ".pth",
    ".safetensors", ".zip",
)  # fmt: skip
HABIT = 4  # how many earlier checkpoints show what one consists of
ZIP = b"PK\3\4"
OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF"  # pickles, then raw numbers: does not show where it ends
LONGEST_HEADER = 100000000  # what the safetensors format allows


class Checkpoint:
    def __init__(self, path: str, mtime: float, size: int) -> None:
        self.path = path
        self.mtime = mtime
        self.size = size

    def same(self, other: "Optional[Checkpoint]") -> bool:
        return other is not None and (self.path, self.mtime, self.size) == (
            other.path,
            other.mtime,
            other.size,
        )


def newest(outputs: str, resume: "Rules") -> "Optional[Checkpoint]":
    """Return the newest valid checkpoint below ``outputs``, by the rules for resuming."""
    found = candidates(outputs, resume)
    return next((one for one in found if is_valid(one, found, resume)), None)


def is_valid(one: Checkpoint, all_of_them: "List[Checkpoint]", resume: "Rules") -> bool:
    """Return whether the checkpoint is whole, and so is what belongs to it. Whether a trainer saves
    a partner, and what a folder consists of, is learned from the other checkpoints."""
    if not is_whole(one.path) or lacks_files(one, all_of_them):
        return False
    partner = partner_of(one.path, resume)
    return partner is None or is_whole(partner) or not any_partner(all_of_them, resume)


def lacks_files(one: Checkpoint, all_of_them: "List[Checkpoint]") -> bool:
    """Return whether a folder lacks files that most of the ones before it have. A trainer that is
    between two files, or was killed there, leaves each of them whole."""
    if not os.path.isdir(one.path):
        return False
    beside = by_folder(all_of_them)[os.path.dirname(one.path)]
    before = [parts_of(other.path) for other in beside if other.mtime < one.mtime][:HABIT]
    usual = Counter(part for parts in before for part in parts)
    missing = set(usual) - parts_of(one.path)
    return any(usual[part] * 2 > len(before) for part in missing)


def parts_of(folder: str) -> "Set[str]":
    """Return the names of the files that hold the content, with # for numbers, which differ by step
    and rank."""
    inside = [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names]
    content = [os.path.relpath(path, folder) for path in inside if path.endswith(CONTENT)]
    return {re.sub(r"\d+", "#", path) for path in content if not UNFINISHED.search(path)}


def any_partner(found: "List[Checkpoint]", resume: "Rules") -> bool:
    return any(os.path.exists(partner_of(one.path, resume) or "") for one in found)


def candidates(outputs: str, resume: "Rules") -> "List[Checkpoint]":
    """Return everything that matches, newest first.

    Order is by time or, if ``number`` says how far a checkpoint is, by that number within a folder;
    the folder written to last comes first.
    """
    pattern, number = resume.get("checkpoint"), resume.get("number")
    if not pattern:
        return []
    found = []
    for path in glob.iglob(os.path.join(glob.escape(outputs), pattern), recursive=True):
        if is_unfinished(os.path.relpath(path, outputs)):
            continue
        try:
            one = look_at(path)
        except OSError:  # a dangling link, or removed by the trainer's own clean-up
            continue
        if not is_given(one, resume):
            found.append(one)
    by_time = sorted(found, key=lambda one: (one.mtime, natural(one.path)), reverse=True)
    return by_number(by_time, number) if number else by_time


def is_given(one: Checkpoint, resume: "Rules") -> bool:
    """Return whether this is the unchanged copy of another run's checkpoint, put where the trainer
    finds it (see ``given``)."""
    given = resume.get("given")
    if not given or os.path.normpath(one.path) != given["placed"]:
        return False
    try:
        original = look_at(given["path"])
    except OSError:
        return True  # not a checkpoint of this run, whatever became of the original
    return (one.mtime, one.size) == (original.mtime, original.size)


def by_number(by_time: "List[Checkpoint]", number: str) -> "List[Checkpoint]":
    def how_far(one: Checkpoint) -> int:
        far = number_of(one.path, number)
        return -1 if far is None else far

    # Sorting is stable: of two with the same number, the newer one comes first.
    runs = by_folder(by_time).values()
    return [one for run in runs for one in sorted(run, key=how_far, reverse=True)]


def by_folder(found: "List[Checkpoint]") -> "Dict[str, List[Checkpoint]]":
    """Group the checkpoints by folder, in the order of each folder's first one."""
    folders = OrderedDict()  # type: Dict[str, List[Checkpoint]]
    for one in found:
        folders.setdefault(os.path.dirname(one.path), []).append(one)
    return folders


def surplus(ordered: "List[Checkpoint]", resume: "Rules") -> "List[Checkpoint]":
    """Return the checkpoints beyond the ``keep`` that stay.

    The newest valid one counts first; what is newer may still be being written. If nothing shows
    whether that one was written to its end, one more stays.
    """
    for position, one in enumerate(ordered):
        if is_valid(one, ordered, resume):
            more = 0 if tells_its_end(one.path) else 1
            return ordered[position + max(resume["keep"] or 0, 1) + more :]
    return []


def prune(outputs: str, resume: "Rules") -> None:
    """Remove checkpoints that are too old, but never through a link that leads out of the
    outputs."""
    if not resume.get("keep"):
        return
    for one in surplus(candidates(outputs, resume), resume):
        if not is_inside(outputs, one.path):
            continue
        if os.path.isdir(one.path) and not os.path.islink(one.path):
            files.remove_tree(one.path)
        else:
            files.remove(one.path)
        partner = partner_of(one.path, resume)
        if partner:
            files.remove(partner)


def is_inside(outputs: str, path: str) -> bool:
    """Return whether no link leads this path out of the outputs."""
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(outputs), ""))


def is_unfinished(path: str) -> bool:
    """Return whether the path looks unfinished, by its name or that of a folder it lies in."""
    folders, name = os.path.split(path)
    if name.startswith(".") or UNFINISHED.search(name):
        return True
    return any(UNFINISHED_FOLDER.search(folder) for folder in folders.split(os.sep))


def look_at(path: str) -> Checkpoint:
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return Checkpoint(path, status.st_mtime, status.st_size)
    inside = [os.stat(one) for one in files_in(path)]
    times = [one.st_mtime for one in inside] or [status.st_mtime]
    return Checkpoint(path, max(times), sum(one.st_size for one in inside))


def files_in(folder: str) -> "Iterator[str]":
    """Yield the files of a checkpoint that is a folder, without what a killed save left there."""
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            if os.path.isfile(path) and not is_unfinished(os.path.relpath(path, folder)):
                yield path


def natural(path: str) -> "List[Tuple[int, str]]":
    """Return a sort key that puts model_1000 after model_999."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path)
    ]


def is_whole(path: str) -> bool:
    try:
        if os.path.isdir(path):
            return is_whole_folder(path)
        return os.path.isfile(path) and is_whole_file(path)
    except OSError:
        return False


def tells_its_end(path: str) -> bool:
    """Return whether the format shows its end, so that a whole file cannot be half of a longer
    one."""
    try:
        with open(path, "rb") as file:
            return path.endswith((".json", ".safetensors")) or file.read(4) == ZIP
    except OSError:  # a folder
        return False


def is_whole_folder(path: str) -> bool:
    """Return whether all files in the folder are whole. An empty file may mark that something is
    finished; empty content is never whole."""
    some = False
    for one in files_in(path):
        if os.path.getsize(one) == 0 and not one.endswith(CONTENT):
            continue
        if not is_whole_file(one):
            return False
        some = True
    return some


def is_whole_file(path: str) -> bool:
    with open(path, "rb") as file:
        head = file.read(8)
    if not head:
        return False
    if path.endswith(".safetensors"):
        return is_whole_safetensors(path, head)
    if path.endswith(".json"):
        return is_whole_json(path)
    if ZIP.startswith(head[:4]):
        return is_whole_zip(path)
    if head[0] == 0x80 and head[1:2] <= b"\5" and head != OLD_TORCH:
        return is_whole_pickle(path)
    return True


def is_whole_zip(path: str) -> bool:
    """Return whether a zip file (torch.save, numpy.savez, stable-baselines3) is whole.

    A zip's directory comes last. If the file was cut off behind a zip inside it (stable-baselines3
    stores those of torch in its own), the inner directory is found instead; then what it lists does
    not begin where the file does.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return any(one.header_offset == 0 for one in archive.infolist())
    except (zipfile.BadZipFile, ValueError, EOFError, struct.error, NotImplementedError):
        return False


def is_whole_safetensors(path: str, head: bytes) -> bool:
    if len(head) < 8:
        return False
    (length,) = struct.unpack("<Q", head)
    try:
        with open(path, "rb") as file:
            file.seek(8)
            header = json.loads(file.read(min(length, LONGEST_HEADER)).decode("utf-8"))
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        return bool(os.path.getsize(path) == 8 + length + max(ends + [0]))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return False


def is_whole_json(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            json.loads(file.read())  # bytes: in whichever UTF it is
    except (ValueError, RecursionError):
        return False
    return True


def is_whole_pickle(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"."
