"""Where the programs of a cluster run: here as they are, as an ordinary user, in another Debian."""

from __future__ import annotations

import getpass
import os
import shutil
import stat
from pathlib import Path

FUSE = Path("/dev/fuse")
SBIN = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}


class Host:
    """This machine, as the user who runs the tests."""

    root = Path("/")

    def __init__(self) -> None:
        self.user = getpass.getuser()
        self.env = {**os.environ, **SBIN}

    def words(self, *words: str) -> list[str]:
        """The command that runs ``words`` there."""
        return list(words)

    def hand_over(self, folder: Path) -> None:
        """What lies in the folder belongs to that user."""

    def folder(self, path: Path) -> Path:
        """A place for that user's files, named after this one."""
        return path


def with_mounts(mounts: list[str], words: list[str]) -> list[str]:
    """Mounts that only this command and its children see: they end with them."""
    script = "\n".join(["set -eu", *(f"mount {mount}" for mount in mounts), 'exec "$@"'])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *words]


class OtherDebian(Host):
    """A root file system made by ``tests/rigs/chroot``; ``shared`` folders are there too."""

    def __init__(self, root: Path, shared: list[Path]) -> None:
        super().__init__()
        self.root = root
        shutil.copy("/etc/hosts", root / "etc/hosts")
        self.mounts = [f"--rbind /dev {root}/dev", f"-t proc proc {root}/proc"]
        for folder in shared:
            (root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
            self.mounts.append(f"--bind {folder} {root}{folder}")

    def words(self, *words: str) -> list[str]:
        return with_mounts(self.mounts, ["chroot", str(self.root), *words])


def everybodys_fuse(folder: Path) -> Path:
    """The device that mounts an image, open to all as udev has it: without udev it is root's."""
    device = folder / "fuse"
    os.mknod(device, stat.S_IFCHR, FUSE.stat().st_rdev)
    device.chmod(0o666)
    return device


class OrdinaryUser(Host):
    """An account that only the programs started here know of; needs root."""

    NUMBER = 54321

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.user = "trainer"
        self.home = home
        home.mkdir()
        self.mounts = []
        for name, line in (
            ("passwd", f"{self.user}:*:{self.NUMBER}:{self.NUMBER}::{home}:/bin/bash"),
            ("group", f"{self.user}:*:{self.NUMBER}:"),
        ):
            known = Path("/etc", name).read_text()
            (home / name).write_text(f"{known}{line}\n")
            self.mounts.append(f"--bind {home}/{name} /etc/{name}")
        if FUSE.exists():
            self.mounts.append(f"--bind {everybodys_fuse(home)} {FUSE}")
        self.env |= {"HOME": str(home), "USER": self.user, "LOGNAME": self.user}
        self.hand_over(home)

    def words(self, *words: str) -> list[str]:
        number = str(self.NUMBER)
        drop = ["setpriv", "--reuid", number, "--regid", number, "--clear-groups"]
        return with_mounts(self.mounts, [*drop, *words])

    def hand_over(self, folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.NUMBER, self.NUMBER, follow_symlinks=False)

    def folder(self, path: Path) -> Path:
        return self.home / path.relative_to("/")
