"""Enroot: NVIDIA's runtime, which Pyxis uses, too."""

import os

from .runtime import SHELL, Bind, Runtime, in_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ..formats.records import Container
    from .runtime import Start

RC = b'exec "$@"\n'  # instead of the image's own entry point


class Enroot(Runtime):
    names = ("enroot",)
    title = "Enroot"
    format = "sqsh"
    endings = (".sqsh", ".squashfs")
    converts_layers = False
    version_flag = "version"
    separators = r"[:\s]"
    advice = (
        "Install apptainer on this machine, or name the module that has it on the cluster "
        "(setting modules), or give a .sif file."
    )
    advice_for_layers = (
        "Enroot makes its images from a registry (docker://NAME) or on this machine: install "
        "enroot here, or give a .sqsh file."
    )

    def refusal(self, wanted: "Container") -> str:
        return "Enroot has no containall: leave it out" if wanted["containall"] else ""

    def argv(self, start: "Start") -> "List[str]":
        argv = [self.program, "start"]
        if start.wanted["writable"] != "no":  # in memory: Enroot has no other way
            argv += ["--rw"]
        argv += ["--rc", rc_of(start.folder)]
        for name in sorted(gpu_variables(start.gpus)):
            argv += ["--env", name]
        for bind in in_order(start.binds + [Bind(*start.home)]):
            mode = "ro" if bind.read_only else "rw"
            fields = [bind.source, bind.target, "none", "x-create=auto,rbind," + mode]
            argv += ["--mount", ":".join(fields)]
        return argv + [start.image] + SHELL

    def files(self, folder: str) -> "Dict[str, bytes]":
        return {rc_of(folder): RC}

    def environment(self, gpus: str) -> "Dict[str, str]":
        # The home is bound like everything else.
        return dict(gpu_variables(gpus), ENROOT_MOUNT_HOME="")

    @classmethod
    def can_run(cls, image: str) -> bool:
        return image.endswith(".sqsh")

    @classmethod
    def objection(cls, image: str) -> str:
        if os.path.isfile(image) and image.endswith(".sqsh"):
            return ""
        message = "Enroot runs .sqsh files, and {} is none: set container = 'apptainer'"
        return message.format(image)

    @classmethod
    def recognizes(cls, head: bytes) -> bool:
        return head.startswith(b"hsqs")

    @classmethod
    def engine_reference(cls, engine: str, name: str) -> str:
        return "{}://{}".format("dockerd" if engine == "docker" else engine, name)

    @classmethod
    def conversion(
        cls, program: str, reference: str, target: str, scratch: str
    ) -> "Tuple[List[str], Dict[str, str]]":
        """Return the call that imports an image from a registry or an engine. Enroot does not
        overwrite a file."""
        variables = {"ENROOT_TEMP_PATH": scratch, "ENROOT_CACHE_PATH": scratch}
        argv = [program, "import", "--output", target, registry_reference(reference)]
        return argv, variables


def rc_of(folder: str) -> str:
    return os.path.join(folder, "rc")


def gpu_variables(gpus: str) -> "Dict[str, str]":
    """Return the variables for its GPU hook, whatever the image says."""
    if gpus == "nvidia":
        return {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
    return {"NVIDIA_VISIBLE_DEVICES": "void"}


def registry_reference(reference: str) -> str:
    """Put a # behind the registry, as Enroot spells it:
    docker://images.example.org#lab/train:2.1"""
    scheme, _, name = reference.partition("://")
    host, slash, rest = name.partition("/")
    if scheme == "docker" and slash and ("." in host or ":" in host or host == "localhost"):
        return "docker://{}#{}".format(host, rest)
    return reference
