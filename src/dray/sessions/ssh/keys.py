"""Keys that are made for one job, on this machine: the server's own, and the one it lets in.

Both are made here, so that the server's is known before anybody connects. ssh is told of it in a
``known_hosts`` of dray's own, and of the account there in ``users``; both are written from what is
in the jobs' folders.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dray import plain_files
from dray.errors import Refused
from dray.home import Home
from dray.node.formats import files
from dray.programs import calling
from dray.records import NamedTuple
from dray.sessions.ssh.names import Target, find

KEY, HOST_KEY, USER = "key", "host_key", "user"
# Of Linux accounts and those of directories. It goes into a file of ssh's, and means nothing else.
USER_NAME = re.compile(
    r"(?:[A-Za-z0-9_.][A-Za-z0-9_.-]{0,50}\\)?[A-Za-z0-9_.][A-Za-z0-9_.@+$-]{0,99}"
)
LONGEST = 4096  # bytes of a key's file


class Pair(NamedTuple):
    """What the server is sent: its own key, and the one that it lets in."""

    host_key: str
    authorized: str


class Keys:
    def __init__(self, home: Home) -> None:
        self.folder = home.data / "ssh"
        self.jobs = self.folder / "jobs"
        self.known_hosts = self.folder / "known_hosts"
        self.users = self.folder / "users"

    def lock(self) -> files.Lock:
        files.make_folder(str(self.jobs))
        return files.Lock(str(self.folder / "lock"))

    def of(self, target: Target, is_over: Callable[[str], bool]) -> Pair:
        """Return the keys for a job, and make them where there are none. ``is_over`` tells which
        jobs need theirs no more."""
        place = self.jobs / target.name
        if not place.is_dir() or not self.known_hosts.is_file():
            with self.lock():
                if not place.is_dir():
                    self._sweep(is_over)
                    make(place, target.name)
                self._write_lists()
        return Pair(read(place / HOST_KEY), public(place / f"{KEY}.pub"))

    def user_of(self, target: Target) -> str:
        """Return the account that the job runs as there; '' where it is not known."""
        with suppress(OSError):
            return checked_user(read(self.jobs / target.name / USER))
        return ""

    def remember_user(self, target: Target, user: str) -> None:
        with self.lock():
            files.write_bytes(str(self.jobs / target.name / USER), user.encode(), durable=False)
            self._write_lists()

    def forget(self, *ids: str) -> None:
        """Remove the keys of these jobs."""
        if any(one.job in ids for one in self._targets()):
            with self.lock():
                self._sweep(lambda job: job in ids)
                self._write_lists()

    def _targets(self) -> list[Target]:
        found = map(find, sorted(names_in(self.jobs)))
        return [one for one in found if one is not None]

    def _sweep(self, is_over: Callable[[str], bool]) -> None:
        """Remove keys, and what a killed process has left half made."""
        over = [one.name for one in self._targets() if is_over(one.job)]
        for name in (*over, *(one for one in names_in(self.jobs) if one.startswith("."))):
            shutil.rmtree(self.jobs / name)

    def _write_lists(self) -> None:
        hosts, users = [], []
        for one in self._targets():
            hosts.append(f"{one.name} {public(self.jobs / one.name / f'{HOST_KEY}.pub')}\n")
            user = self.user_of(one)
            if user:
                users.append(f"Host {one.name}\n    User {user}\n")
        for path, lines in ((self.known_hosts, hosts), (self.users, users)):
            files.write_bytes(str(path), "".join(lines).encode(), durable=False)


def names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def make(place: Path, name: str) -> None:
    """Make the keys of a job; they are there as a whole, or not at all."""
    new = place.with_name(f".{name}.{os.urandom(4).hex()}")
    new.mkdir(mode=0o700)
    try:
        for key in (KEY, HOST_KEY):
            make_key(new / key, name)
        new.rename(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def make_key(path: Path, name: str) -> None:
    words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path))
    try:
        ended = calling.ask(words)
    except FileNotFoundError:
        raise Refused(
            "ssh-keygen is not there, and without it no key can be made",
            hint="Install OpenSSH's client; dray shell and dray exec do without.",
        ) from None
    if ended.code:
        raise Refused(f"ssh-keygen has made no key: {ended.errors.strip()}")
    os.chmod(f"{path}.pub", files.PRIVATE_FILE)


def read(path: Path) -> str:
    return plain_files.read(path, LONGEST)[0].decode()


def public(path: Path) -> str:
    """Read a public key, without what is said about it."""
    return " ".join(read(path).split()[:2])


def checked_user(text: str) -> str:
    """Return the name of an account; '' for anything else."""
    return text if USER_NAME.fullmatch(text) else ""
