"""Apptainer, and Singularity: the same program under its new and its old name."""

import os

from .runtime import SHELL, Runtime, in_order, output_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ..formats.records import Container
    from .runtime import Start

MACHINES = {b"02": "amd64", b"04": "arm64"}  # in a SIF's header
SQUASHFS = b"hsqs"  # it starts these, too


class Apptainer(Runtime):
    names = ("apptainer", "singularity")
    title = "Apptainer"
    format = "sif"
    endings = (".sif", ".simg")
    uses_fakeroot = True
    separators = r"[:,]"
    advice = (
        "Install apptainer on this machine, or name the module that has it on the cluster "
        "(setting modules), or give a .sif file."
    )

    def __init__(self, name: str, program: str, setuid: bool = False) -> None:
        super().__init__(name, program)
        self.setuid = setuid

    def inspect(self, wanted: "Container") -> None:
        if wanted["writable"] == "overlay":
            self.setuid = self.is_setuid()

    def argv(self, start: "Start") -> "List[str]":
        """Return the call that starts the container's shell. Singularity had these flags first, so
        it is called in the same way."""
        wanted = start.wanted
        argv = [self.program, "--quiet", "exec", "--cleanenv"]
        if wanted["containall"]:
            argv += ["--containall"]
        else:  # all devices: a network card of MPI's or NCCL's, and /dev/shm between the ranks
            argv += ["--contain", "--bind", "/dev"]
        argv += {"nvidia": ["--nv"], "amd": ["--rocm"]}.get(start.gpus, [])
        if wanted["writable"] == "tmpfs":
            argv += ["--writable-tmpfs"]
        elif wanted["writable"] == "overlay":
            # A setuid Apptainer lays no folder over an image, unless it does without its privilege.
            argv += ["--userns"] if self.setuid else []
            argv += ["--overlay", os.path.join(start.folder, "overlay")]
        argv += ["--home", ":".join(start.home), "--pwd", "/"]
        for bind in in_order(start.binds):
            mode = ":ro" if bind.read_only else ""
            argv += ["--bind", "{}:{}{}".format(bind.source, bind.target, mode)]
        return argv + [start.image] + SHELL

    def has_own_pids(self, wanted: "Container") -> bool:
        return bool(wanted["containall"])

    def is_setuid(self) -> bool:
        for line in output_of([self.program, "buildcfg"]).splitlines():
            name, _, value = line.partition("=")
            if name.endswith("_SUID_INSTALL"):
                return value == "1"
            if name == "SINGULARITY_LIBEXECDIR":  # of Singularity, which does not say it outright
                return os.path.exists(os.path.join(value, "singularity/bin/starter-suid"))
        return False

    @classmethod
    def recognizes(cls, head: bytes) -> bool:
        return head[32:41] == b"SIF_MAGIC" or head.startswith(SQUASHFS)

    @classmethod
    def architecture(cls, head: bytes) -> str:
        return "" if head.startswith(SQUASHFS) else MACHINES.get(head[45:47], "")

    @classmethod
    def conversion(
        cls, program: str, reference: str, target: str, scratch: str
    ) -> "Tuple[List[str], Dict[str, str]]":
        argv = [program, "build", "--disable-cache", "--force"]
        argv += squash_flags(output_of([program, "build", "--help"]))
        variables = {name.upper() + "_TMPDIR": scratch for name in cls.names}
        return argv + [target, reference], variables


def squash_flags(help_text: str) -> "List[str]":
    """Return flags that compress quickly: three to six times as fast as Apptainer's default, for a
    tenth more on disk, and with no more processors than the job was given. Old versions do not have
    them."""
    if "--mksquashfs-args" not in help_text:
        return []
    processors = len(os.sched_getaffinity(0))
    how = "-comp gzip -Xcompression-level 1 -mem 1G -processors {}".format(processors)
    return ["--mksquashfs-args", how]
