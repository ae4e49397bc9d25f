"""What a copy of a Python holds, and how it is named.

bin/python3                  the program
bin/ld.so                    the loader that the kernel would start for it
lib/                         every library, by the name that others know it by
lib/python3.11/lib-dynload/  extension modules
lib/python311.zip            the standard library: one file, because a volume may be far away
lib/python3.11/os.py         by which Python knows where it lies
certificates.pem             the certificate authorities that it trusts
made-from.json               the files that it was copied from, with their sizes and times
"""

import hashlib
import os

from ..formats import interpreters
from .elf import Elf, NotElf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

    from ..formats.records import Survey

FORMAT = 1  # another one makes other trees
DIGITS = 16  # of the hash in a tree's name
# Parts of a standard library that are for people at a screen, or for other packages.
UNWANTED_FOLDERS = (
    "__pycache__",
    "curses",
    "dbm",
    "dist-packages",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib-dynload",
    "lib2to3",
    "msilib",
    "pydoc_data",
    "site-packages",
    "sqlite3",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "venv",
)
UNWANTED_FILES = ("sitecustomize.py", "turtle.py", "usercustomize.py")


class CannotCarry(Exception):
    """This Python cannot be copied. Says why, and what to do."""


class Plan:
    """``programs`` and ``sources``: pairs of a path in the tree or the archive, and the file that
    is copied there. ``compiled``: the sources that are compiled, since the node side imports
    them."""

    def __init__(self, executable: str, facts: "Survey") -> None:
        self.programs = programs_of(executable, facts)
        self.archive = inside(facts["archive"], facts["prefix"])
        self.landmark = os.path.join(inside(facts["library"], facts["prefix"]), "os.py")
        self.sources = list(sources_in(facts["library"]))
        self.compiled = set(facts["imported"])
        self.certificates = facts["certificates"]

    def copied(self) -> "List[Tuple[str, str]]":
        """Return every file that decides how the tree is named."""
        certificates = [(interpreters.CERTIFICATES, self.certificates)] if self.certificates else []
        return self.programs + self.sources + certificates

    def name(self, machine: str) -> str:
        """Return the tree's name: what it is copied from decides it, not when or by whom."""
        digest = hashlib.sha256(str(FORMAT).encode())
        for target, source in sorted(self.copied()):
            digest.update(os.fsencode(target) + b"\0" + hashlib.sha256(read(source)).digest())
        return "{}-{}".format(machine, digest.hexdigest()[:DIGITS])


def programs_of(executable: str, facts: "Survey") -> "List[Tuple[str, str]]":
    loader = os.path.realpath(elf_of(executable).interpreter())
    if loader == "/" or not os.path.isfile(loader):
        raise CannotCarry("{} names no loader that is there".format(executable))
    found = [(interpreters.PROGRAM, executable), (interpreters.LOADER, loader)]
    found += [(inside(path, facts["prefix"]), path) for path in facts["extension_files"]]
    others = {os.path.realpath(path) for path in [executable, loader] + facts["extension_files"]}
    for path in facts["mapped"]:
        if os.path.realpath(path) not in others:
            name = elf_of(path).soname() or os.path.basename(path)
            found.append((os.path.join(interpreters.LIBRARIES, name), path))
    return found


def inside(path: str, prefix: str) -> str:
    """Return where a part of this Python lies below its prefix: in the tree it lies there too."""
    relative = os.path.relpath(path, prefix)
    if relative.startswith(os.pardir):
        raise CannotCarry(
            "{} does not lie below {}, so a copy of this Python would not find it".format(
                path, prefix
            )
        )
    return relative


def sources_in(library: str) -> "Iterator[Tuple[str, str]]":
    if not os.path.isfile(os.path.join(library, "os.py")):
        raise CannotCarry("{} does not hold the standard library as files".format(library))
    for folder, folders, names in os.walk(library):
        folders[:] = sorted(set(folders).difference(UNWANTED_FOLDERS))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith(".py") and name not in UNWANTED_FILES and os.path.isfile(path):
                yield os.path.relpath(path, library), path


def elf_of(path: str) -> Elf:
    try:
        return Elf(read(path))
    except NotElf as error:
        raise CannotCarry("{}: {}".format(path, error))


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
