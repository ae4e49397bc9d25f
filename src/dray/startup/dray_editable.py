"""Puts the job's own tree in the place of editable installs of the same project.

An editable install (``pip install -e``) is a path in a ``.pth`` file, or an import hook with a
table of paths. Either way it leads to a checkout: to the one that the job was submitted from, which
may have been edited since, or to an older clone on the cluster. If the job's tree has the same
project, its path is put there instead:

- below the folder that the job was submitted from: the same place below the job's tree;
- elsewhere: the place in the job's tree that is packaged (``pyproject.toml``, ``setup.cfg``,
  ``setup.py``) under the same name as the nearest packaged folder. The last parts of its path, or
  none, must lead there. Folders that others can write to end the search.

Everything else stays as it is. So does what the job's tree lacks because git ignores it: modules
that were compiled or generated in place are found where they were built, after everything else.

What was replaced is written to a file in the job's tree, which the supervisor copies to the log:
the program's own output is not ours to write to.
"""

import os
import re
import stat
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Iterable, List, Optional, Tuple  # noqa: F401

NOTES = ".dray-imports"  # the same as in dray.node.code.worktree
MOST_NOTES = 16 * 1024  # bytes
MOST_READ = 256 * 1024  # characters of a file that says how a project is packaged
DEEPEST = 8  # folders between a package and the folder that is packaged
STRICT = "__editable__."  # how setuptools begins the name of a folder of links
# Metadata of such installs lies beside the code, and is looked for on sys.path.
BARE_INSTALLS = ("easy-install.pth", "conda.pth")
TABLES = ("[project]", "[tool.poetry]")  # of pyproject.toml: where the name is
PACKAGED_BY = (
    ("pyproject.toml", r"(?m)^name\s*=\s*[\"']([^\"']+)"),
    ("setup.cfg", r"(?m)^name\s*=\s*(\S+)"),
    ("setup.py", r"\bname\s*=\s*[\"']([^\"']+)"),
)


def use_own_code(entries: "List[str]", finders: "List[ModuleType]") -> None:
    """Replace what leads to another copy of the job's code.

    ``entries``: paths that ``.pth`` files have put on sys.path. ``finders``: the modules of
    setuptools' import hooks.
    """
    tree = Tree(os.environ["DRAY_CODE"], os.environ.get("DRAY_PROJECT", ""))
    rest = Lacking(tree)
    for entry in entries:
        rest.take(replace_entry(tree, entry))
    for module in finders:
        rest.take(replace_mapping(tree, getattr(module, "MAPPING", {})))
        rest.take(replace_namespaces(tree, getattr(module, "NAMESPACES", {})))


class Tree:
    """The job's own tree, and the folder it was taken from ("" on another machine)."""

    def __init__(self, path: str, project: str) -> None:
        self.path = os.path.realpath(path)
        self.project = os.path.realpath(project) if project else ""

    def counterpart(self, live: str) -> str:
        """Return the path in the tree of what is installed from ``live``; "" if that is in the tree
        itself, or belongs to another project."""
        live = os.path.realpath(live)
        if is_below(live, self.path):
            return ""
        if self.project and is_below(live, self.project):
            own = os.path.join(self.path, os.path.relpath(live, self.project))
        else:
            own = self._in_same_project(live)
        return os.path.normpath(own) if own else ""

    def _in_same_project(self, live: str) -> str:
        folder = live
        for _ in range(DEEPEST):
            name = packaged_as(folder)
            if name:
                place = self._place_of(folder, name)
                return os.path.join(place, os.path.relpath(live, folder)) if place else ""
            folder = os.path.dirname(folder)
            if others_write(folder):
                break
        return ""

    def _place_of(self, folder: str, name: str) -> str:
        parts = folder.strip("/").split("/")
        for start in range(len(parts) + 1):
            place = os.path.join(self.path, *parts[start:])
            if packaged_as(place) == name:
                return place
        return ""

    def report(self, text: str) -> None:
        """Write a line for the supervisor, once for all processes of the job."""
        line = text.encode("utf-8", "replace").replace(b"\n", b"?") + b"\n"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(os.path.join(self.path, NOTES), flags, 0o600), "rb+", 0) as file:
                known = file.read(MOST_NOTES) or b""
                if line not in known and len(known) + len(line) <= MOST_NOTES:
                    file.write(line)
        except OSError:  # a full disk, for instance: the imports are right all the same
            pass


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def others_write(folder: str) -> bool:
    """Return whether other users can put files there, as into /tmp. A folder of ours that a umask
    of 002 has opened to our own group does not count."""
    try:
        about = os.stat(folder)
    except OSError:
        return True
    ours = (about.st_uid, about.st_gid) == (os.getuid(), os.getgid())
    return bool(about.st_mode & (stat.S_IWOTH if ours else stat.S_IWGRP | stat.S_IWOTH))


def packaged_as(folder: str) -> str:
    """Return the name that the folder is packaged under; if its files name none, their content; ""
    if it is not packaged."""
    texts = []
    for name, pattern in PACKAGED_BY:
        text = read(os.path.join(folder, name), (0, os.getuid()))
        texts.append(text)
        found = re.search(pattern, in_tables(text) if name.endswith(".toml") else text)
        if found:
            return re.sub(r"[-_.]+", "-", found.group(1)).lower()
    return "".join(texts)


def in_tables(text: str) -> str:
    """Return the lines of those tables that have a project's name."""
    lines = []
    inside = False
    for line in text.split("\n"):
        if line.startswith("["):
            inside = line.rstrip() in TABLES
        elif inside:
            lines.append(line)
    return "\n".join(lines)


def read(path: str, owners: "Tuple[int, ...]" = ()) -> str:
    """Return the text of a file if it belongs to one of ``owners`` (or to anyone, without any); ""
    if it is no file: a pipe would keep us waiting."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_at_once) as file:
            about = os.fstat(file.fileno())
            if stat.S_ISREG(about.st_mode) and (not owners or about.st_uid in owners):
                return file.read(MOST_READ)
    except OSError:
        pass
    return ""


def open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


# -- the kinds of editable installs ---------------------------------------------------------------


def replace_entry(tree: Tree, entry: str) -> "List[Tuple[str, str]]":
    """Replace a path of sys.path, if the job's tree has a counterpart: return (ours, theirs)."""
    live = source_of(entry)
    own = tree.counterpart(live)
    if not own or not os.path.isdir(own):
        return []
    kept = [entry] if has_metadata(entry) else []
    sys.path[:] = [own if one == entry else one for one in sys.path] + kept
    return [(own, live)]


def source_of(entry: str) -> str:
    """Return the folder of the code itself. A strict editable install of setuptools has links to
    it."""
    if not os.path.basename(entry).startswith(STRICT):
        return entry
    for folder, _, names in os.walk(entry):
        for link in (os.path.join(folder, name) for name in names):
            below = link[len(entry) :]
            target = os.path.realpath(link)
            if target != link and target.endswith(below):
                return target[: -len(below)]
    return entry


def has_metadata(entry: str) -> bool:
    """Return whether the install's metadata is beside its code, and nowhere else."""
    if not any(name.endswith(".egg-info") for name in os.listdir(entry)):
        return False
    texts = [read(os.path.join(site, name)) for site in sys.path for name in BARE_INSTALLS]
    return any(entry in text.splitlines() for text in texts)


def replace_mapping(tree: Tree, mapping: "Any") -> "List[Tuple[str, str]]":
    """Replace packages and modules, by their names."""
    pairs = []
    for name, live in list(mapping.items()):
        own = tree.counterpart(live)
        if own and kind_of(own) and kind_of(own) == kind_of(live):
            mapping[name] = own
            pairs.append((own, live))
    return pairs


def kind_of(path: str) -> str:
    if os.path.isfile(os.path.join(path, "__init__.py")):
        return "package"
    if os.path.isfile(path) or os.path.isfile(path + ".py"):
        return "module"
    return "namespace" if os.path.isdir(path) else ""


def replace_namespaces(tree: Tree, namespaces: "Any") -> "List[Tuple[str, str]]":
    """Replace folders of packages without an ``__init__.py``, of which each name may have
    several."""
    pairs = []
    for folders in namespaces.values():
        for position, live in enumerate(folders):
            own = tree.counterpart(live)
            if own and os.path.isdir(own):
                folders[position] = own
                pairs.append((own, live))
    return pairs


class Lacking:
    """Finds modules that the job's tree lacks beside those of the editable install.

    It comes after all other finders, and adds no folder to any package's path: what lists a
    package's modules sees those of the job's tree only.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.pairs = []  # type: List[Tuple[str, str]]

    def take(self, pairs: "List[Tuple[str, str]]") -> None:
        """Register these pairs, which have just been replaced: (ours, theirs)."""
        self.pairs += pairs
        if self.pairs and self not in sys.meta_path:
            sys.meta_path.append(self)
        said = "importing {} from the job's own code instead of the editable install {}"
        for own, live in pairs:
            place = os.path.relpath(own, self.tree.path)
            self.tree.report(said.format(os.path.basename(live) if place == "." else place, live))

    def find_spec(
        self,
        name: str,
        path: "Optional[Iterable[str]]" = None,
        target: "Any" = None,  # noqa: ARG002
    ) -> "Optional[ModuleSpec]":
        try:
            found = PathFinder.find_spec(name, self._beside(sys.path if path is None else path))
        except Exception:  # of a path that is none: it is simply not found, as without us
            return None
        if found is None or found.loader is None:
            return None
        said = "{} is not in the job's own code: imported from {}"
        self.tree.report(said.format(name, found.origin))
        return found

    def _beside(self, path: "Iterable[str]") -> "List[str]":
        """Return the folders of the install that belong to those of the tree."""
        return [
            live + folder[len(own) :]
            for folder in path
            for own, live in self.pairs
            if is_below(folder, own)
        ]
