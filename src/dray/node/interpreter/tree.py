"""Makes copies of the running Python below a root, finds them again, and removes old ones.

What is promised: a tree appears whole or not at all, has run once where it was made, and had found
all that it runs in itself. It is named after the files that it was copied from, so another library
makes another tree, and any number of agents may make the same one at once. Everybody may read it,
and only its owner may write.

What is not promised: that it still holds what was written. Jobs of the same user can change it, as
they can change everything else below the root; it is not read again before it is used. A changed
standard library is noticed together with another program, version or library only. Nor does it run
under an LD_PRELOAD of an image whose C library is newer or of another kind: its loader obeys that
variable, and nothing can be said to it before.
"""

import importlib.util
import io
import json
import marshal
import os
import pkgutil
import subprocess
import sys
import time

from ..formats import bootstrap, files, interpreters
from .elf import Elf
from .plan import FORMAT, CannotCarry, Plan, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Set  # noqa: F401

    from ..formats.records import MadeFrom, Survey  # noqa: F401

FOLDER = "python"  # below a root
TEMPORARY = ".tmp"
PROGRAM_MODE, FILE_MODE, FOLDER_MODE = 0o755, 0o644, 0o755
ABANDONED = 3600.0  # seconds: longer than it takes to make one, and than clocks differ
PATIENCE = 600.0  # seconds: a helper may have a small part of a processor, and a slow volume
DATE = (2020, 1, 1, 0, 0, 0)
LANDMARK = b"# Python looks for this file. The standard library is in the archive.\n"


def carry(root: str) -> str:
    """Return the tree below ``root`` that holds a copy of this Python; make it if there is none."""
    place = os.path.join(root, FOLDER)
    own = interpreters.own_tree()
    if own is not None:
        return keep_own(own, place)
    files.make_folder(place)
    bootstrap.check_folder(place)
    os.chmod(place, FOLDER_MODE)
    sweep(place)
    executable = os.path.realpath("/proc/self/exe")
    return find(place, executable) or make(place, executable)


def sweep(place: str) -> None:
    """Remove what killed makers have left, which may be large."""
    for name in files.names_in(place):
        path = os.path.join(place, name)
        if name.endswith(TEMPORARY) and is_older(path, time.time() - ABANDONED):
            files.remove_tree(path)


def keep_own(tree: str, place: str) -> str:
    if not os.path.isdir(place) or not os.path.samefile(os.path.dirname(tree), place):
        raise CannotCarry(
            "{} is a copy itself: start the agent with the Python of its image".format(tree)
        )
    return tree


def find(place: str, executable: str) -> "Optional[str]":
    """Return the tree that was made from this Python, as far as sizes and times tell."""
    for name in trees_in(place):
        tree = os.path.join(place, name)
        record = files.read_record(os.path.join(tree, interpreters.RECORD)) or {}
        paths = record.get("files")
        if isinstance(paths, dict) and record == record_of(executable, paths):
            bootstrap.check_folder(tree)
            os.utime(tree, None)  # it is in use: see remove_unused
            return tree
    return None


def trees_in(place: str) -> "List[str]":
    prefix = os.uname().machine + "-"
    names = files.names_in(place)
    return [name for name in names if name.startswith(prefix) and not name.endswith(TEMPORARY)]


def record_of(executable: str, paths: "Iterable[str]") -> "MadeFrom":
    stamps = {path: stamp_of(path) for path in paths}
    return {"format": FORMAT, "version": sys.version, "program": executable, "files": stamps}


def stamp_of(path: str) -> "Optional[List[int]]":
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a path that none can be
        return None
    return [status.st_size, status.st_mtime_ns]


# -- making --------------------------------------------------------------------------------------


def make(place: str, executable: str) -> str:
    env = {name: os.environ[name] for name in os.environ if name != "LD_PRELOAD"}
    facts = survey_of([executable], env)
    plan = Plan(executable, facts)
    record = record_of(executable, [source for _, source in plan.programs])
    tree = os.path.join(place, plan.name(os.uname().machine))
    if files.exists(tree):  # of files that were the same, but older or elsewhere
        bootstrap.check_folder(tree)
        files.write_json(os.path.join(tree, interpreters.RECORD), record)
        return tree
    temporary = "{}.{}{}".format(tree, os.urandom(6).hex(), TEMPORARY)
    try:
        write_tree(temporary, plan, record)
        check(temporary, facts)
        put_in_place(temporary, tree)
    finally:
        files.remove_tree(temporary)
    return tree


def survey_of(words: "List[str]", env: "Dict[str, str]") -> "Survey":
    """Have a Python tell what it consists of."""
    text = pkgutil.get_data(__package__, "survey.py") or b""
    try:
        ended = subprocess.run(
            words + ["-I", "-S", "-c", text.decode("ascii")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=env,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCarry("{} cannot be run: {}".format(words[0], error))
    if ended.returncode:
        said = ended.stderr.decode("utf-8", "replace").strip() or "nothing"
        raise CannotCarry("{} ended with {} and said: {}".format(words[-1], ended.returncode, said))
    told = json.loads(ended.stdout.decode("ascii"))  # type: Survey
    return told  # noqa: RET504 (this names its type)


def check(tree: str, facts: "Survey") -> None:
    """Run the copy, which must have all that the original has, and all of it in itself."""
    try:
        found = survey_of(interpreters.words(tree), {})
    except CannotCarry as error:
        raise CannotCarry(
            "the copy of this Python does not run (is its volume mounted with noexec?): {}".format(
                error
            )
        )
    below = os.path.join(os.path.realpath(tree), "")
    foreign = [path for path in found["mapped"] if not os.path.realpath(path).startswith(below)]
    if foreign:
        raise CannotCarry("the copy of this Python still needs {}".format(", ".join(foreign)))
    lacking = extensions_of(facts).difference(extensions_of(found))
    if lacking:
        raise CannotCarry("the copy of this Python has no {}".format(", ".join(sorted(lacking))))


def extensions_of(facts: "Survey") -> "Set[str]":
    return {os.path.basename(path) for path in facts["extension_files"]}


def put_in_place(temporary: str, tree: str) -> None:
    try:
        os.rename(temporary, tree)
    except OSError:
        if not os.path.isdir(tree):  # nobody else was quicker
            raise
    files.sync_folder(os.path.dirname(tree))


def write_tree(tree: str, plan: Plan, record: "MadeFrom") -> None:
    for target, source in plan.programs:
        write(os.path.join(tree, target), Elf(read(source)).without_search_paths(), PROGRAM_MODE)
    write(os.path.join(tree, plan.archive), archive_of(plan))
    write(os.path.join(tree, plan.landmark), LANDMARK)
    if plan.certificates:
        write(os.path.join(tree, interpreters.CERTIFICATES), read(plan.certificates))
    write(os.path.join(tree, interpreters.RECORD), files.encode(record))
    for folder, _, _ in os.walk(tree):
        os.chmod(folder, FOLDER_MODE)
        files.sync_folder(folder)


def write(path: str, content: bytes, mode: int = FILE_MODE) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())


def archive_of(plan: Plan) -> bytes:
    """Return the standard library as a zip file. It is not compressed, for a quick start."""
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, source in plan.sources:
            content = read(source)
            if source in plan.compiled:
                # Without the source beside it, nobody compares their times.
                name, content = name + "c", compiled(name, content)
            archive.writestr(zipfile.ZipInfo(name, DATE), content)
    return buffer.getvalue()


def compiled(name: str, source: bytes) -> bytes:
    """Return the content of a .pyc file."""
    code = compile(source, name, "exec", dont_inherit=True)
    # The time and size of the source, and before them flags since Python 3.7.
    header = bytes(12 if sys.version_info >= (3, 7) else 8)
    return importlib.util.MAGIC_NUMBER + header + marshal.dumps(code)


# -- removing ------------------------------------------------------------------------------------


def remove_unused(root: str, used: "Iterable[str]", before: float) -> "List[str]":
    """Remove trees of this architecture that no job needs, and that no agent has asked for since
    ``before``, by the file system's clock; what killed makers have left, too. Return what was
    removed.

    ``used``: the trees of all jobs that have not ended.
    """
    place = os.path.join(root, FOLDER)
    kept = {os.path.basename(tree) for tree in used}
    kept.add(os.path.basename(interpreters.own_tree() or ""))
    removed = []
    for name in files.names_in(place):
        path = os.path.join(place, name)
        if name not in kept and name.startswith(os.uname().machine) and is_older(path, before):
            remove(path)
            removed.append(path)
    return removed


def is_older(path: str, before: float) -> bool:
    try:
        return os.lstat(path).st_mtime < before
    except OSError:  # just removed
        return False


def remove(path: str) -> None:
    """Remove a tree; under another name, since half of it must not be found."""
    aside = path
    if not path.endswith(TEMPORARY):
        aside = "{}.{}{}".format(path, os.urandom(6).hex(), TEMPORARY)
        os.rename(path, aside)
    files.remove_tree(aside)
