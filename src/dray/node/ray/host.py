"""What an actor of Ray's does on a node: it starts the program that makes attempts there and, where
the node does not see the root, cares for the folder that stands in for it.

This module is sent to the nodes as it is: it imports nothing of dray's. What it says of files may
have been made up by the job, which can write to all of them.
"""

import errno
import fcntl
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple  # noqa: F401

    Row = Tuple[str, str, int, int, int, str]  # path, kind, size, time, number, where a link leads
    Piece = Tuple[
        str, int, bytes, int, int, bool
    ]  # path, offset, bytes, mode, time, is it the last
    Wanted = Tuple[str, int, int]  # path, offset, bytes at most
    Stamp = Tuple[int, int, int]  # size, time, number

MOST_ROWS = 200000  # of a listing; beyond that, nobody can tell what is gone
SEEN_WITHIN = 3.0  # seconds: a file server may show what is new a moment later
OLD = 86400.0  # seconds after which what a killed actor has left is taken away
PROBE = 1 << 16
PROGRAM_SECONDS = 45.0
TURNS, LOCK = "turns", "lock"
ASIDE = "gone-"  # begins the name of a folder that is being removed
MOST_JOINS = 1000  # tries to keep a folder that others take away
LATEST = 2**63 - 1  # of times, in nanoseconds
SHARED = ("node", "packs", "snapshots")  # of all turns on this node: code, which never changes


class Host:
    def __init__(self) -> None:
        self.process = None  # type: Any
        self.base = ""  # what all turns of a driver's root have in common on this node
        self.root = ""  # what stands in for the root in this turn
        self.locks = []  # type: List[int]

    def address(self) -> str:
        import ray

        return str(ray.util.get_node_ip_address())

    def sees(self, path: str, content: bytes) -> bool:
        """Return whether this file is here, with this content."""
        until = time.monotonic() + (SEEN_WITHIN if os.path.isdir(os.path.dirname(path)) else 0.0)
        while True:
            try:
                with open(path, "rb") as file:
                    if file.read(1000) == content:
                        return True
            except OSError:
                pass
            if time.monotonic() > until:
                return False
            time.sleep(0.2)

    # -- the program ------------------------------------------------------------------------------

    def run(self, words: "List[str]", variables: "Dict[str, str]", log: str) -> int:
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                words,
                env=dict(os.environ, PATH=path_with_python(), **variables),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        return int(self.process.wait())

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()

    # -- the folder that stands in for the root ---------------------------------------------------

    def scratch(self) -> str:
        return os.path.realpath(tempfile.gettempdir())

    def open(self, folder: str, name: str, turn: str) -> str:
        """Make the folder that stands in for the root in this turn, and return its path. ``name``
        is that of the root; ``folder`` is where others may write, too. All that is below is private
        by it: the umask stays the one that the job is to have."""
        top = os.path.join(folder, "dray-ray-{}".format(os.getuid()))
        make_private(top)
        self._sweep(top, OLD)
        base = os.path.join(top, name)
        self._join(base)
        self.base = base
        turns = os.path.join(self.base, TURNS)
        make_private(turns)
        self._sweep(turns, 0.0)
        root = os.path.join(turns, turn)
        self._join(root)
        self.root = root
        for one in SHARED:
            make_private(os.path.join(self.base, one))
            os.symlink(os.path.join(self.base, one), os.path.join(self.root, one))
        return self.root

    def _join(self, folder: str) -> None:
        """Make a folder, and keep it: nobody takes it away while its lock is held."""
        path = os.path.join(folder, LOCK)
        for _ in range(MOST_JOINS):
            try:
                make_private(folder)
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:
                continue  # it was taken away this moment
            fcntl.flock(fd, fcntl.LOCK_SH)
            if is_at(fd, path):
                self.locks.append(fd)
                return
            os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "it is taken away again and again", folder)

    def _sweep(self, top: str, age: float) -> None:
        """Take away what killed actors have left."""
        for name in os.listdir(top):
            folder = os.path.join(top, name)
            try:
                if name.startswith(ASIDE):
                    remove_tree(folder)
                elif time.time() - os.lstat(folder).st_mtime >= age:
                    take_away(folder)
            except OSError:
                pass

    def close(self, keep: bool) -> None:
        """Take the turn's folder away and, unless another turn may follow, all that is there."""
        for folder in [self.root] if keep else [self.root, self.base]:
            if folder:
                os.close(self.locks.pop())
                take_away(folder)

    def leave(self, without: "List[str]") -> str:
        """Put the turn's folder aside, without some files: not all of it has come home. It stays
        there until it is old. Return its path."""
        for path in without:
            if os.path.lexists(path):
                os.unlink(path)
        kept = os.path.join(os.path.dirname(self.base), "kept-" + os.path.basename(self.root))
        os.rename(self.root, kept)
        os.utime(kept)  # its age counts from now on
        os.close(self.locks.pop())
        self.root = ""
        return kept

    def hold(self, path: str) -> None:
        """Hold the lock of a job, so that nobody on this node leads it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        self.locks.insert(0, fd)

    # -- files ------------------------------------------------------------------------------------

    def lacks(self, wanted: "List[Tuple[str, int]]") -> "List[str]":
        """Return which of these files, with their sizes, are not here yet."""
        return [path for path, size in wanted if size_of(path) != size]

    def put(self, pieces: "List[Piece]") -> "Dict[str, Stamp]":
        """Write pieces of files, which appear whole once their last piece has come; return the
        stamps of these."""
        whole = {}  # type: Dict[str, Stamp]
        for path, offset, content, mode, changed, is_last in pieces:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            new = "{}.coming-{}".format(path, os.path.basename(self.root))
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (0 if offset else os.O_TRUNC)
            fd = os.open(new, flags, mode)
            try:
                write_at(fd, content, offset)
                if is_last:
                    os.utime(fd, ns=(changed, changed))
                    whole[path] = stamp_of(fd)
            finally:
                os.close(fd)
            if is_last:
                os.replace(new, path)
        return whole

    def make(self, folders: "List[str]", links: "List[Tuple[str, str]]") -> None:
        for folder in folders:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        for path, target in links:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.symlink(target, path)

    def append(self, path: str, content: bytes) -> None:
        """Append to a file that is there."""
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def list(self, tops: "List[str]") -> "Tuple[float, List[Row]]":
        """List what is below these folders and files, by paths below the stand-in, and tell the
        time. Raises OSError where that cannot be told: nothing is not the same."""
        found = []  # type: List[Row]
        for top in tops:
            path = os.path.join(self.root, top)
            try:
                about = os.lstat(path)
            except FileNotFoundError:
                continue
            self._row(found, top, path, about)
            if stat.S_ISDIR(about.st_mode):
                self._walk(found, top)
        return time.time(), found

    def _walk(self, found: "List[Row]", top: str) -> None:
        folders = [top]
        while folders and len(found) < MOST_ROWS:
            folder = folders.pop()
            try:
                with os.scandir(os.path.join(self.root, folder)) as listed:
                    entries = list(listed)
            except OSError as error:
                self._pass_over(found, folder, error)
                continue
            for entry in entries:
                path = os.path.join(folder, entry.name)
                try:
                    about = entry.stat(follow_symlinks=False)
                except OSError as error:
                    self._pass_over(found, path, error)
                    continue
                self._row(found, path, entry.path, about)
                if stat.S_ISDIR(about.st_mode):
                    folders.append(path)

    def _pass_over(self, found: "List[Row]", path: str, error: OSError) -> None:
        """Take note of what cannot be listed: one such folder must not hold up all others. What
        may pass is raised."""
        if error.errno in UNLISTED:
            found.append((path, CLOSED, 0, 0, 0, ""))
        elif error.errno not in GONE:
            raise error

    def _row(self, found: "List[Row]", path: str, whole: str, about: "os.stat_result") -> None:
        kind = KINDS.get(stat.S_IFMT(about.st_mode))
        if kind is None:  # a socket, or a pipe
            return
        target = ""
        if kind == "l":
            try:
                target = os.readlink(whole)
            except OSError:
                return
        if kind == "f" and about.st_mode & 0o100:
            kind = "x"
        found.append((path, kind, about.st_size, time_of(about), about.st_ino, target))

    def read(self, wanted: "List[Wanted]") -> "List[Optional[Tuple[bytes, Stamp]]]":
        """Read pieces of files; None for one that is not there any more."""
        found = []  # type: List[Optional[Tuple[bytes, Stamp]]]
        for path, offset, most in wanted:
            try:
                fd = os.open(os.path.join(self.root, path), READING)
            except OSError as error:
                if error.errno not in GONE:
                    raise
                found.append(None)
                continue
            try:
                content = read_at(fd, offset, most)
                found.append((content, stamp_of(fd)))
            finally:
                os.close(fd)
        return found

    def probe(self, path: str, size: int, whole: bool) -> bytes:
        """Return a digest of the first ``size`` bytes of a file: of both ends, or of all."""
        try:
            fd = os.open(os.path.join(self.root, path), READING)
        except OSError:
            return b""
        try:
            return digest(fd, size, whole)
        finally:
            os.close(fd)


def path_with_python() -> str:
    """Return where a job's programs are looked for: where Ray's are, and beside the Python that it
    runs in. Who starts Ray by a login shell, as KubeRay does, has lost the image's own PATH."""
    own, known = os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)
    return known if own in known.split(os.pathsep) else os.pathsep.join([own, known])


def look_around(python: str, sight: str, token: bytes) -> "Dict[str, Any]":
    """Tell what a job would find here: see ``inspection``."""
    code = "import ray, sys; print(ray.__version__, sys.version.split()[0])"
    imported, error = run_for([python, "-I", "-c", code])
    listed, _ = run_for(["nvidia-smi", "-L"])
    return {
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "devices": len([one for one in listed.splitlines() if one.startswith("GPU ")]),
        "versions": imported.split()[-2:],
        "complaint": error,
        "root": Host().sees(sight, token),
    }


def run_for(words: "List[str]") -> "Tuple[str, str]":
    """Return what a program prints, and why it failed."""
    try:
        ended = subprocess.run(
            words,
            env=dict(os.environ, PATH=path_with_python()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=PROGRAM_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)[:300]
    said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    why = (said or ["exit code {}".format(ended.returncode)])[-1][:300] if ended.returncode else ""
    return ended.stdout.decode("utf-8", "replace"), why


CLOSED = "closed"  # the kind of a row: a folder that nobody can list
UNLISTED = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
KINDS = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l"}
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
# What is not there any more, or not for us to read: one such file must not hold up all others.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM)


def make_private(folder: str) -> None:
    """Make a folder of this user's alone. Raises OSError where somebody else has one of that
    name."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        about = os.lstat(folder)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
            raise PermissionError(errno.EPERM, "it is not a private folder of ours", folder)


def take_away(folder: str) -> None:
    """Remove a folder, unless its lock is held. It is renamed while nobody can have it: who comes
    then makes a new one, and loses nothing to what is still being removed."""
    gone = os.path.join(os.path.dirname(folder), ASIDE + os.urandom(8).hex())
    # Made where it is not there: the job can have removed it.
    fd = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(fd, os.path.join(folder, LOCK)):
            return  # somebody else has taken it away
        os.rename(folder, gone)
    except BlockingIOError:
        return
    finally:
        os.close(fd)
    remove_tree(gone)


def is_at(fd: int, path: str) -> bool:
    """Return whether an open file is still the one of this path."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def remove_tree(top: str) -> None:
    """Remove a folder with all that is in it, as far as possible. Folders in it are moved up before
    they are emptied: so no depth is too deep, and no path too long."""
    new = os.path.join(top, os.urandom(8).hex())
    folders, moved = [top], 0
    while folders:
        folder = folders.pop()
        for entry in entries_of(folder):
            try:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                moved += 1
                folders.append("{}-{}".format(new, moved))
                os.rename(entry.path, folders[-1])
            except OSError:
                continue  # what can be removed besides is
        if folder != top:
            remove_folder(folder)
    remove_folder(top)


def entries_of(folder: str) -> "List[os.DirEntry[str]]":
    """List a folder that is to be emptied; nothing where that cannot be."""
    try:
        os.chmod(folder, 0o700)
        with os.scandir(folder) as listed:
            return list(listed)
    except OSError:
        return []


def remove_folder(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def stamp_of(fd: int) -> "Stamp":
    about = os.fstat(fd)
    return (about.st_size, time_of(about), about.st_ino)


def time_of(about: "os.stat_result") -> int:
    """Return when a file was changed, as each file system can keep it: a job can set any time."""
    return min(max(about.st_mtime_ns, 0), LATEST)


def write_at(fd: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(fd, view, offset)
        offset, view = offset + written, view[written:]


def read_at(fd: int, offset: int, most: int) -> bytes:
    found = []
    while most > 0:
        piece = os.pread(fd, min(most, 1 << 20), offset)
        if not piece:
            break
        found.append(piece)
        offset, most = offset + len(piece), most - len(piece)
    return b"".join(found)


def digest(fd: int, size: int, whole: bool) -> bytes:
    """Return a digest of the first ``size`` bytes: of both ends, or of all."""
    hasher = hashlib.blake2b(digest_size=20)
    hasher.update(str(size).encode())
    if not whole:
        hasher.update(read_at(fd, 0, min(size, PROBE)))
        start = max(size - PROBE, 0)
        hasher.update(read_at(fd, start, size - start))
        return hasher.digest()
    for offset in range(0, size, 1 << 20):
        hasher.update(read_at(fd, offset, min(1 << 20, size - offset)))
    return hasher.digest()
