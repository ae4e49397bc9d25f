"""Finds out which file systems are mounted, and on which one a path lies."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

OVER_THE_NETWORK = (
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.sshfs",
    "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs", "pvfs2", "smb3", "smbfs",
    "wekafs",
)  # fmt: skip
IN_MEMORY = ("ramfs", "tmpfs")


def file_system(path: str, mounts: "List[Tuple[str, str]]") -> str:
    """Return the kind of the file system that this path lies on."""
    path = os.path.realpath(path)
    below = [(len(place), kind) for place, kind in mounts if is_on(path, place)]
    return max(below)[1] if below else ""


def is_on(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def read_mounts() -> "List[Tuple[str, str, str]]":
    """Return the mount point, kind and options of each file system."""
    found = []
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            _, place, kind, options = line.split(" ")[:4]
            found.append((place.replace("\\040", " "), kind, options))
    return found
