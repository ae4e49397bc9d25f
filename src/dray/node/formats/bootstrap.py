"""dray: checks the agent's file on the login node, receives it where it is missing, and becomes it.

The laptop passes this text to the Python there, so that nothing in the root is run unchecked. It
passes through the quotes of any login shell: no backslash, no exclamation mark, and not long.
"""

import os
import stat
import sys

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def sign(word: bytes) -> bytes:
    """Return the mark that tells a word of dray from what a login shell prints."""
    return bytes([10, 1]) + b"dray-" + word + bytes([1, 10])


ANSWER, PRESENT, MISSING = sign(b"answer"), sign(b"present"), sign(b"missing")


class Unsafe(Exception):
    """Somebody else may have put it there."""


def check_folder(path: str, may_be_link: bool = False) -> None:
    status = os.stat(path) if may_be_link else os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise Unsafe("{} is not a folder: remove it".format(path))
    require_own(path, status)


def require_own(path: str, status: os.stat_result) -> None:
    if status.st_uid - os.geteuid():
        raise Unsafe(
            "{} belongs to {}, so nothing below it is run. Have it removed, "
            "or set another root for this cluster".format(path, name_of(status.st_uid))
        )
    if status.st_mode & OTHERS_WRITE:
        os.chmod(path, stat.S_IMODE(status.st_mode) & ~OTHERS_WRITE)


def name_of(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return "user {}".format(user)


def digest_of(path: str) -> str:
    return path.rsplit("-", 1)[1].split(".")[0]


def fits(content: bytes, path: str) -> bool:
    """Return whether this is the content that the file is named after."""
    import hashlib

    return hashlib.sha256(content).hexdigest().startswith(digest_of(path))


def is_whole(path: str) -> bool:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(status.st_mode):
        raise Unsafe("{} is not a plain file: remove it".format(path))
    require_own(path, status)
    try:
        with open(path, "rb") as file:
            return fits(file.read(), path)
    except OSError:
        return False


def is_ready(root: str, path: str, create: bool) -> bool:
    try:
        for folder in (root, os.path.dirname(path)):
            if create:
                make_folder(folder)
            check_folder(folder, may_be_link=folder == root)
    except FileNotFoundError:
        return False
    return is_whole(path)


def make_folder(path: str) -> None:
    if not os.path.isdir(path):
        make_folder(os.path.dirname(path))
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise


def receive(path: str, size: int) -> None:
    content = b""
    while len(content) < size:
        piece = os.read(0, size - len(content))
        if not piece:
            raise Unsafe("the agent was cut off on its way")
        content += piece
    if not fits(content, path):
        raise Unsafe("the agent came damaged: try again")
    write(path, content)


def write(path: str, content: bytes) -> None:
    temporary = "{}.{}.tmp".format(path, os.urandom(6).hex())
    try:
        with open(temporary, "xb") as file:
            os.chmod(temporary, 0o600)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise OSError(error.errno, error.strerror, path)


def say(word: bytes) -> None:
    sys.stdout.buffer.write(word)
    sys.stdout.buffer.flush()


def explain(error: Exception) -> None:
    import json

    family = "OSError" if isinstance(error, OSError) else "StorageError"
    errno = getattr(error, "errno", None)
    text = json.dumps({"error": str(error), "family": family, "errno": errno}).encode()
    say(ANSWER + "{} 0".format(len(text)).encode() + bytes([10]) + text)


def main(root: str, name: str, size: str, *words: str) -> int:
    """Become the agent; with a size, receive its file first if it is missing."""
    path = os.path.join(root, "node", name)
    try:
        ready = is_ready(root, path, create=int(size) > 0)
        if int(size) or not ready:
            say(PRESENT if ready else MISSING)
        if not ready:
            if not int(size):
                return 0
            receive(path, int(size))
    except (Unsafe, OSError) as error:
        explain(error)
        return 1
    sys.argv[:] = [path, *words]
    sys.path.insert(0, path)
    from dray_node.__main__ import main as start  # type: ignore[import-not-found]

    return int(start(list(words)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
