"""The folder through which the accounts of one machine tell each other what their jobs hold.

    <share>/<uid>-<random>/tickets/<time>-<job>  a job that waits: what it asks for
    <share>/<uid>-<random>/grants/<job>          a job that runs: what it was given
    <share>/<uid>-<random>/lock                  the account's own; nobody else can open it

An account writes to its own folder only, and reads the others'. A file counts if it belongs to the
account whose folder it is in, and while a process of that account holds its lock. All else that
lies there is ignored. So is what others could write to: dray makes nothing of that sort, and a
folder of somebody's that others can write to can be moved here by them, with what they put into it.

The lock is a record lock of the open file (F_OFD_SETLK). Whoever can read a file can flock it, and
could make a dead job look alive; a record lock for writing takes a file that is open for writing,
which only its owner can have.
"""

import collections
import errno
import fcntl
import itertools
import os
import re
import stat
import struct
import time

from ..formats import bootstrap, files, mounts, shapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union  # noqa: F401

    from ..formats.records import Granted, ShareFacts, Wish

GET_LOCK, SET_LOCK = 36, 37  # F_OFD_…: Python names them from 3.9 on
FLOCK = "hhqqi"  # struct flock: type, whence, start, length, pid
READABLE_FILE = 0o644
READABLE_FOLDER = 0o755
OTHERS_WRITE = 0o022
FOLDER = re.compile(r"([0-9]{1,10})-[0-9a-f]{12}$")
LARGEST = 4096  # bytes of a ticket or a grant
# Of one other account; no account has as many in earnest.
MOST_FOLDERS = 4
MOST_FILES = 1000
MOST_NAMES = 10000  # among which they are looked for
MOST_GPUS = 1024
SHORTEST_NAP, LONGEST_NAP = 0.05, 1.0  # seconds between two looks at the one ahead
ODD = files.NO_FILE + (errno.EAGAIN,)  # EAGAIN: its owner holds a lease on it

# ``order`` is the time at which it came, by the clock of the kernel: nobody can set it back.
Entry = collections.namedtuple("Entry", "uid job order path record")


# -- whether the folder is fit for it -----------------------------------------------------------


def problem_of(share: str) -> str:
    """Return why this folder cannot be shared, and what to do, or ''."""
    import shlex  # only where something is submitted

    make = "sudo install -d -m 1777 {}".format(shlex.quote(share))
    try:
        about = os.lstat(share)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        return "{}: {}. Make it once, for all accounts: {}".format(share, reason, make)
    real = os.path.realpath(share)
    if real != share:
        return "{} is reached through a link: set share to {}".format(share, real)
    if not stat.S_ISDIR(about.st_mode):
        return "{} is not a folder. Make one: {}".format(share, make)
    kind = mounts.file_system(share, [one[:2] for one in mounts.read_mounts()])
    if kind in mounts.OVER_THE_NETWORK:
        return "{} is on {}: choose a folder on a disk of this machine".format(share, kind)
    found = replaceable(share, about) or open_to_removal(share, about, make)
    if found:
        return found
    try:
        return "" if works_in(share) else "{}: its files cannot be locked".format(share)
    except OSError as error:
        return "{}: {}".format(share, os.strerror(error.errno or 0))


def facts(share: str) -> "ShareFacts":
    """Return what ``dray doctor`` reports about the folder."""
    problem = problem_of(share)
    owner = "" if problem else bootstrap.name_of(os.stat(share).st_uid)
    return {"problem": problem, "owner": owner}


def replaceable(share: str, about: os.stat_result) -> str:
    """Return which folder above lets somebody put another one in place of this one, or ''."""
    trusted = (0, os.geteuid(), about.st_uid)
    above = os.path.dirname(share)
    while True:
        status = os.lstat(above)
        if status.st_uid not in trusted:
            owner = bootstrap.name_of(status.st_uid)
            return "{} could be replaced: {} belongs to {}".format(share, above, owner)
        if status.st_mode & OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
            why = "{} can be written to by others (chmod go-w)".format(above)
            return "{} could be replaced: {}".format(share, why)
        if above == "/":
            return ""
        above = os.path.dirname(above)


def open_to_removal(share: str, about: os.stat_result, make: str) -> str:
    if about.st_mode & OTHERS_WRITE and not about.st_mode & stat.S_ISVTX:
        return "{}: accounts could remove each other's files there (chmod +t {})".format(
            share, share
        )
    if not os.access(share, os.R_OK | os.W_OK | os.X_OK):
        return "{}: your account cannot write to it. It should be as this makes it: {}".format(
            share, make
        )
    return ""


def works_in(share: str) -> bool:
    """Return whether a lock that is held there is seen."""
    path = os.path.join(share, ".probe-" + os.urandom(6).hex())
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, files.PRIVATE_FILE)
    try:
        hold(held)
        looking = os.open(path, os.O_RDONLY)
        try:
            return is_held(looking)
        finally:
            os.close(looking)
    except OSError as error:
        if error.errno not in files.LOCKS_REFUSED + (errno.EINVAL,):  # EINVAL: before Linux 3.15
            raise
        return False
    finally:
        os.close(held)
        files.discard(path)


# -- locks --------------------------------------------------------------------------------------


def hold(fd: int) -> None:
    """Hold the lock for as long as the file is open here or in a child."""
    fcntl.fcntl(fd, SET_LOCK, struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))


def is_held(fd: int) -> bool:
    """Return whether somebody who can write to the file holds its lock. Readers' locks, which
    anybody can take, do not count."""
    answer = fcntl.fcntl(fd, GET_LOCK, struct.pack(FLOCK, fcntl.F_RDLCK, 0, 0, 0, 0))
    return bool(struct.unpack(FLOCK, answer)[0] != fcntl.F_UNLCK)


def wait_until_free(entry: Entry, most: float) -> None:
    """Sleep until the lock is given up, or the file is no longer there, or for so long: the order
    may have changed meanwhile. Sleeping on the lock itself would be quicker; but its owner could
    take the file away and keep the lock, and then somebody whom nobody sees would keep the others
    waiting."""
    fd = open_file(os.path.basename(entry.path), entry.uid, os.path.dirname(entry.path))
    if fd is None:
        return
    nap, until = SHORTEST_NAP, time.monotonic() + most
    try:
        while is_held(fd) and is_in_place(fd, entry.path) and time.monotonic() < until:
            time.sleep(nap)
            nap = min(nap * 1.1, LONGEST_NAP)
    finally:
        os.close(fd)


def is_in_place(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


# -- one's own files ----------------------------------------------------------------------------


def own_folder(share: str) -> str:
    """Return this account's folder. It is made if there is none, with what belongs in it."""
    uid = os.geteuid()
    found = [path for owner, path in folders(share) if owner == uid and is_whole(path)]
    new = os.path.join(share, "{}-{}".format(uid, os.urandom(6).hex()))
    own = min(found) if found else new
    for folder in [own] + parts_of(own):
        if not files.exists(folder):
            os.mkdir(folder, files.PRIVATE_FOLDER)
        if stat.S_IMODE(os.stat(folder).st_mode) != READABLE_FOLDER:
            os.chmod(folder, READABLE_FOLDER)
    return own


def parts_of(own: str) -> "List[str]":
    return [os.path.join(own, part) for part in ("tickets", "grants")]


def is_whole(own: str) -> bool:
    """Return whether nothing but this account's folders lies where those in it should."""
    parts = [part for part in parts_of(own) if files.exists(part)]
    return all(_is_folder_of(part, os.geteuid()) for part in parts)


def publish(folder: str, name: str, record: "Union[Wish, Granted]") -> int:
    """Put a file there that others can read. It is whole and locked as soon as it can be seen.
    Return it open: the lock lasts as long as that."""
    temporary = os.path.join(folder, "." + os.urandom(6).hex())
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, files.PRIVATE_FILE)
    try:
        hold(fd)
        os.write(fd, files.encode(record))
        os.fchmod(fd, READABLE_FILE)
        os.rename(temporary, os.path.join(folder, name))
    except BaseException:
        os.close(fd)
        files.discard(temporary)
        raise
    return fd


def dead_in(folder: str) -> "List[str]":
    """Return the names of one's own files there that no process holds any more."""
    found = []
    for name in files.all_names_in(folder):
        fd = open_file(name, os.geteuid(), folder)
        if fd is None:
            continue
        try:
            if not is_held(fd):
                found.append(name)
        finally:
            os.close(fd)
    return found


# -- everybody's files --------------------------------------------------------------------------


def tickets(share: str) -> "List[Entry]":
    """Return the jobs that wait, the next one first."""
    return sorted(_entries(share, "tickets", is_wish), key=lambda entry: entry.order)


def grants(share: str) -> "List[Entry]":
    """Return the jobs that run, with what they hold."""
    return list(_entries(share, "grants", is_grant))


def _entries(share: str, kind: str, fits: "Callable[[Any], bool]") -> "Iterator[Entry]":
    for uid, folder in folders(share):
        for entry in _entries_in(os.path.join(folder, kind), uid):
            if fits(entry.record) and shapes.is_id(entry.job):
                yield entry


def folders(share: str) -> "List[Tuple[int, str]]":
    """Return the accounts' folders, each with its account."""
    found = collections.defaultdict(list)  # type: Dict[int, List[str]]
    try:
        with os.scandir(share) as entries:
            for entry in entries:
                match = FOLDER.match(entry.name)
                if match and _is_folder_of(entry.path, int(match.group(1))):
                    found[int(match.group(1))].append(entry.path)
    except FileNotFoundError:
        pass
    return [(uid, path) for uid in sorted(found) for path in sorted(found[uid])[:MOST_FOLDERS]]


def _is_folder_of(path: str, uid: int) -> bool:
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and is_only_of(about, uid)


def is_only_of(about: os.stat_result, uid: int) -> bool:
    """Return whether it is this account's, and nobody else can write to it."""
    return about.st_uid == uid and not about.st_mode & OTHERS_WRITE


def _entries_in(path: str, uid: int) -> "Iterator[Entry]":
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in ODD:
            raise
        return
    try:
        if not is_only_of(os.fstat(folder), uid):
            return
        for name in _names_in(folder, bounded=uid != os.geteuid()):
            entry = _read(name, uid, folder, path)
            if entry is not None:
                yield entry
    finally:
        os.close(folder)


def _names_in(folder: int, bounded: bool) -> "List[str]":
    # Python 3.6 lists no open folder but by its path.
    with os.scandir("/proc/self/fd/{}".format(folder)) as entries:
        some = itertools.islice(entries, MOST_NAMES) if bounded else entries
        names = files.visible(entry.name for entry in some)
    return names[:MOST_FILES] if bounded else names


def _read(name: str, uid: int, folder: int, path: str) -> "Optional[Entry]":
    fd = open_file(name, uid, folder)
    if fd is None:
        return None
    try:
        about = os.fstat(fd)
        if about.st_size > LARGEST or not is_held(fd):
            return None
        record = files.decode(os.read(fd, LARGEST))
    finally:
        os.close(fd)
    job = name.partition("-")[2] if path.endswith("/tickets") else name
    return Entry(uid, job, (about.st_ctime_ns, uid, name), os.path.join(path, name), record)


def open_file(name: str, uid: int, folder: "Union[int, str]") -> "Optional[int]":
    """Open a plain file of this account; None if there is none. Never waits: not for a pipe, and
    not for who holds a lease on the file."""
    where = {"dir_fd": folder} if isinstance(folder, int) else {}
    path = name if isinstance(folder, int) else os.path.join(folder, name)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, **where)
    except OSError as error:
        if error.errno not in ODD:
            raise
        return None
    about = os.fstat(fd)
    if stat.S_ISREG(about.st_mode) and is_only_of(about, uid):
        return fd
    os.close(fd)
    return None


def is_wish(value: "Any") -> bool:
    """Return whether this is what a job can ask for."""
    return isinstance(value, dict) and all(
        is_amount(value.get(what)) or (what == "memory" and value.get(what) is None)
        for what in ("cpus", "gpus", "memory")
    )


def is_grant(value: "Any") -> bool:
    """Return whether this is what a job can be given."""
    return (
        isinstance(value, dict)
        and is_wish(dict(value, gpus=0))
        and is_amount(value.get("share"))
        and shapes.is_counts(value.get("gpus"))
        and len(value["gpus"]) <= MOST_GPUS
    )


def is_amount(value: "Any") -> bool:
    return shapes.is_number(value) and value >= 0  # less than nothing would make room for others
