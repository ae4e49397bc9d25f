"""What a container runtime must declare and do: one subclass of Runtime, one file.

The laptop asks by the same values where an image is made ready, and what is written into a
description. So nothing outside a runtime's own file asks which one it is.
"""

# ruff: noqa: ARG002, ARG003 (a default has no use for what others need)

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Tuple

    from ..formats.records import Container

SHELL = ["/bin/sh", "-s"]  # what is started in a container, and reads what to become
ANSWER = 20.0  # seconds that a program has to tell about itself


class Bind:
    """A file or folder of the node, and its path inside the container."""

    def __init__(self, source: str, target: str, read_only: bool = False) -> None:
        self.source = source
        self.target = target
        self.read_only = read_only


class Start:
    """Everything that the call of a runtime is made from. ``wanted`` is the job's container,
    ``folder`` this rank's own, ``home`` its source and target, ``gpus`` the vendor: nvidia, amd or
    ''."""

    def __init__(
        self,
        wanted: "Container",
        image: str,
        binds: "List[Bind]",
        folder: str,
        home: "Tuple[str, str]",
        gpus: str,
    ) -> None:
        self.wanted = wanted
        self.image = image
        self.binds = binds
        self.folder = folder
        self.home = home
        self.gpus = gpus


class Runtime:
    """A runtime as it was found on a machine. Its class holds what is true of it everywhere."""

    names = ()  # type: Tuple[str, ...]  # its programs, the first one preferred
    title = ""
    format = ""  # the ending of its image files, without the dot
    endings = ()  # type: Tuple[str, ...]  # those it is known by
    converts_layers = True  # makes an image from layers; otherwise only from a registry or engine
    uses_fakeroot = False  # builds of it can use numbers of other users (/etc/subuid)
    version_flag = "--version"
    separators = ""  # a pattern: what a path that is bound must not have in it
    advice = ""  # where an image cannot be made ready, by this runtime
    advice_for_layers = ""  # the same, for an image that is no registry's

    def __init__(self, name: str, program: str) -> None:
        self.name = name
        self.program = program

    # -- starting a container ---------------------------------------------------------------------

    def refusal(self, wanted: "Container") -> str:
        """Return why it cannot run what the job wants, or ''."""
        return ""

    def inspect(self, wanted: "Container") -> None:
        """Ask the program for what ``argv`` depends on."""

    def argv(self, start: Start) -> "List[str]":
        """Return the call that starts the container's shell."""
        raise NotImplementedError

    def files(self, folder: str) -> "Dict[str, bytes]":
        """Return the files that have to lie in a rank's folder before it starts."""
        return {}

    def environment(self, gpus: str) -> "Dict[str, str]":
        """Return the variables that the runtime itself goes by."""
        return {}

    def has_own_pids(self, wanted: "Container") -> bool:
        """Return whether the container has a process namespace of its own: the runtime then ends
        what is left there, and turns a signal into an exit code."""
        return False

    def is_setuid(self) -> bool:
        """Return whether it is installed with a starter that has root's privilege."""
        return False

    def version(self) -> str:
        """Ask the program for its version."""
        return version_of(self.program, self.version_flag)

    # -- images -----------------------------------------------------------------------------------

    @classmethod
    def can_run(cls, image: str) -> bool:
        """Return whether an image file can be run, by its name."""
        return True

    @classmethod
    def objection(cls, image: str) -> str:
        """Return why this file or folder cannot be run, or ''."""
        return ""

    @classmethod
    def recognizes(cls, head: bytes) -> bool:
        """Return whether a file that begins like this is an image of its format."""
        raise NotImplementedError

    @classmethod
    def architecture(cls, head: bytes) -> str:
        """Return what the image was built for, if the file's beginning shows it."""
        return ""

    @classmethod
    def engine_reference(cls, engine: str, name: str) -> str:
        """Return its name for an image of docker or podman; '' where it reads layers."""
        return ""

    @classmethod
    def conversion(
        cls, program: str, reference: str, target: str, scratch: str
    ) -> "Tuple[List[str], Dict[str, str]]":
        """Return the call that makes an image file, and its variables."""
        raise NotImplementedError


def in_order(binds: "Iterable[Bind]") -> "List[Bind]":
    """Sort binds: of two for the same target the later one counts, and a folder comes before what
    is bound below it."""
    by_target = {bind.target.rstrip("/") or "/": bind for bind in binds}
    return sorted(by_target.values(), key=lambda bind: bind.target.rstrip("/").count("/"))


def unusable_path(runtime: Runtime, binds: "List[Bind]") -> str:
    """Find a path that the runtime would take apart, if there is one."""
    paths = [path for bind in binds for path in (bind.source, bind.target)]
    return next((path for path in paths if re.search(runtime.separators, path)), "")


def version_of(program: str, flag: str = "--version") -> str:
    """Ask a program for its version."""
    words = output_of([program, flag]).split()
    return words[-1] if words else "unknown"


def output_of(argv: "List[str]") -> str:
    """Run a program that describes itself; return '' where it cannot be run."""
    import subprocess  # the laptop reads the declared values alone

    try:
        found = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=ANSWER, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.decode("utf-8", "replace").strip()
