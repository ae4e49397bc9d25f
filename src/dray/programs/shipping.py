"""Builds the node side and the trainers' library as one file, named by the SHA-256 of its bytes.

So anyone about to run it can check it by its name.
"""

from __future__ import annotations

import hashlib
import io
import marshal
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType

from dray.errors import StorageError
from dray.home import find_home
from dray.node.code.packs import hash_of
from dray.node.formats import bootstrap, files
from dray.records import NamedTuple

ENTRY = b"""import sys

from dray_node.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
# Of the file that goes along with a job, and meets a Python nobody knows. What that one
# cannot do, that of the next pod cannot either: see dray.node.schedulers.gathered.OWN_FAULT.
CAREFUL_ENTRY = b"""import sys

try:
    from dray_node.__main__ import main

    sys.exit(main(sys.argv[1:]))
except (ImportError, SyntaxError) as error:
    sys.stderr.write("dray needs Python 3.6 or newer with zlib, this is " + sys.version + "\\n")
    sys.stderr.write(str(error) + "\\n")
    sys.exit(12)
"""
# The second is for trainers, which find it by PYTHONPATH. Its parent has no __init__.py: such a
# namespace package gives way to any other dray that a trainer can import. The third is what every
# Python of a job starts with.
PACKAGES = {"dray_node": "node", "dray/training": "training", "dray_startup": "startup"}
NAMESPACE = "dray/"
EPOCH = (2020, 1, 1, 0, 0, 0)  # fixed, so that equal sources make equal files
# This version of marshal's format has no references to earlier objects: whether there is one
# depends on what else the process has imported.
PLAIN_MARSHAL = 2
DIGEST = 64  # hex digits of a SHA-256
NAMED_BY = 32  # how many of them are in the name
DAY = 86400.0
FORGET_AFTER = 30 * DAY  # seconds after which another version's file leaves the cache


class App(NamedTuple):
    name: str
    content: bytes
    kept: Path  # where it is kept between commands
    is_kept: bool


@cache
def sources() -> dict[str, bytes]:
    code = Path(__file__).parent.parent
    found = {
        f"{package}/{path.relative_to(code / folder).as_posix()}": path.read_bytes()
        for package, folder in PACKAGES.items()
        for path in sorted((code / folder).rglob("*.py"))
    }
    return {"__main__.py": ENTRY, **found}


@cache
def app() -> App:
    """Build the file, unless a kept one can be used. Nothing is written."""
    content = sources()
    everything = b"\0".join(key.encode() + b"\0" + value for key, value in content.items())
    kept = find_home().cache / "node" / hash_of(sys.version.encode() + everything)[:32]
    recalled = recall(kept)
    built = recalled or build(content)
    name = f"dray-node-{hashlib.sha256(built).hexdigest()[:NAMED_BY]}.pyz"
    return App(name, built, kept, recalled is not None)


def remember() -> None:
    """Keep the file for the next command, now that this one is about to use it."""
    files.sweep_temporaries(str(app().kept.parent), time.time() - DAY)
    if not app().is_kept:
        with suppress(OSError):  # then it is built again each time
            keep(app().kept, app().content)


def name() -> str:
    return app().name


def recall(path: Path) -> bytes | None:
    """Return what was kept, if it is whole and nobody else could have written it."""
    try:
        bootstrap.check_folder(str(path.parent))
        stored = path.read_bytes()
    except (OSError, bootstrap.Unsafe):
        return None
    digest, content = stored[:DIGEST], stored[DIGEST:]
    return content if hashlib.sha256(content).hexdigest().encode() == digest else None


def keep(path: Path, content: bytes) -> None:
    files.make_folder(str(path.parent))
    digest = hashlib.sha256(content).hexdigest().encode()
    files.write_bytes(str(path), digest + content, durable=False)
    for other in path.parent.iterdir():
        if other.stat().st_mtime < time.time() - FORGET_AFTER:
            other.unlink()


def build(content: dict[str, bytes]) -> bytes:
    """Build the zipapp: sources for any Python and, for a quick start, what this one compiles them
    to. Sources are compressed: a Python that needs them has more to do than to unpack them."""
    import zipfile  # rarely needed: the file is built once for each version

    buffer = io.BytesIO()
    archive = zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED)
    try:
        archive.writestr(zipfile.ZipInfo(NAMESPACE, EPOCH), b"")  # Python needs it named
        for name, source in content.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), source, zipfile.ZIP_DEFLATED)
            archive.writestr(zipfile.ZipInfo(f"{name}c", EPOCH), compiled(name, source))
        archive.close()
    except BaseException:
        archive.fp = None  # Ctrl-C inside an entry: closing would complain of that instead
        raise
    return buffer.getvalue()


@cache
def lean() -> bytes:
    """Build the same of sources alone, as small as can be: it goes along with a job."""
    import zipfile  # only for such jobs

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr(zipfile.ZipInfo(NAMESPACE, EPOCH), b"")
        for name, source in sources().items():
            is_entry = source is ENTRY  # which tells where the others cannot be unpacked
            content, way = (
                (CAREFUL_ENTRY, zipfile.ZIP_STORED) if is_entry else (source, zipfile.ZIP_DEFLATED)
            )
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, way, 9)
    return buffer.getvalue()


def compiled(name: str, source: bytes) -> bytes:
    """Return the content of a .pyc file of the kind that is never compared with its source
    again."""
    from importlib.util import MAGIC_NUMBER, source_hash

    code = compile(source, name, "exec", dont_inherit=True)
    unchecked_hash = (0b01).to_bytes(4, "little")
    return MAGIC_NUMBER + unchecked_hash + source_hash(source) + dumped(code)


def dumped(code: CodeType) -> bytes:
    try:
        return marshal.dumps(code, PLAIN_MARSHAL)
    except ValueError:  # a constant slice: Python 3.14 knows it only in its newest format
        return marshal.dumps(code)


def install(root: Path) -> Path:
    """Put the file below ``root``, unless it is already there and whole."""
    path = root / "node" / name()
    remember()
    try:
        if not bootstrap.is_ready(str(root), str(path), create=True):
            files.write_bytes(str(path), app().content)
    except bootstrap.Unsafe as error:
        raise StorageError(str(error)) from None
    return path
