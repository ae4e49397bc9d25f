"""A job's outputs as they are listed and sent: see dray.landing for the other end."""

import os
import stat

from ..code.packs import CHUNK
from ..formats import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Optional, Tuple  # noqa: F401

    from ..formats.records import AppendedPart, OutputFile

MOST_APPENDED = 4 << 20  # bytes that are read at once


def listing(top: str, is_chosen: "Callable[[str], bool]") -> "List[OutputFile]":
    """Describe the files and links below ``top`` that are chosen by their path."""
    found = []  # type: List[OutputFile]
    for path in files.files_below(top):
        if is_chosen(os.path.relpath(path, top)):
            found += described(top, path)
    return found


def described(top: str, path: str) -> "List[OutputFile]":
    """None where it cannot be copied, or was removed by the trainer this moment."""
    try:
        record = describe_file(top, path)
    except OSError:
        return []
    return [record] if record is not None else []


def describe_file(top: str, path: str) -> "Optional[OutputFile]":
    """None for a folder; or for a socket or pipe, which cannot be copied."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
        return None
    link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
    return {
        "path": os.path.relpath(path, top),
        "size": 0 if link is not None else status.st_size,
        "mtime": status.st_mtime_ns,
        "mode": status.st_mode & 0o777,
        "link": link,
    }


def appended(
    top: str, is_chosen: "Callable[[str], bool]", known: "Dict[str, int]"
) -> "Tuple[List[AppendedPart], List[bytes]]":
    """Read what was written to the chosen files behind the lengths that are known of them; where
    that is much, a part of it. A file that is shorter than it was begins anew."""
    most = MOST_APPENDED
    found = []  # type: List[AppendedPart]
    pieces = []  # type: List[bytes]
    for path in sorted(files.files_below(top)):
        name = os.path.relpath(path, top)
        if not most or not is_chosen(name):
            continue
        try:
            begin, piece = read_behind(path, known.get(name, 0), most)
        except OSError:  # unreadable, or removed by the trainer this moment
            continue
        if piece:
            found.append({"path": name, "offset": begin, "length": len(piece)})
            pieces.append(piece)
            most -= len(piece)
    return found, pieces


def read_behind(path: str, offset: int, most: int) -> "Tuple[int, bytes]":
    with files.open_regular(path) as file:
        begin = offset if offset <= os.fstat(file.fileno()).st_size else 0
        file.seek(begin)
        return begin, file.read(most)


def length(wanted: "List[OutputFile]") -> int:
    """How many bytes ``contents`` yields for these files."""
    return sum(record["size"] + 1 for record in wanted if record["link"] is None)


def contents(top: str, wanted: "List[OutputFile]") -> "Iterator[bytes]":
    """Exactly as many bytes as were promised, and one that says whether they are the file's."""
    for record in wanted:
        if record["link"] is not None:
            continue
        left = record["size"]
        try:
            with files.open_regular(os.path.join(top, record["path"])) as file:
                while left:
                    piece = file.read(min(left, CHUNK))
                    if not piece:
                        break  # it shrank meanwhile
                    left -= len(piece)
                    yield piece
        except OSError:  # unreadable, or removed by the trainer this moment
            pass
        whole = left == 0
        while left:
            piece = b"\0" * min(left, CHUNK)
            left -= len(piece)
            yield piece
        yield b"\1" if whole else b"\0"
