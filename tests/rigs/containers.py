"""Real podman and docker as laptops have them, real Apptainer as a cluster has it, small images.

Each offers its program under its own name in a folder, ``bin``, for somebody's PATH.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.rigs.processes import until

HERE = Path(__file__).parent

BASE = "localhost/dray-base:1"
TRAIN = "localhost/dray-train:1"
TRAINER = """\
import os, sys
print("training", os.getuid(), *sys.argv[1:])
"""
# Three layers: the root file system, something that is installed, and the program.
DOCKERFILE = f"""\
FROM {BASE}
RUN mkdir -p /opt/train && python3 -c "print(list(range(20000)))" > /opt/train/library
ENV TRAIN_HOME=/opt/train
COPY train.py /opt/train/train.py
WORKDIR /opt/train
CMD ["python3", "/opt/train/train.py"]
"""

# No cgroups, no network of its own, no limits above those of the tests: what a sandbox allows.
CONTAINERS = """\
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
tmp_dir = "{folder}/tmp"
[containers]
cgroups = "disabled"
netns = "host"
default_ulimits = ["nofile=8192:8192", "nproc=4096:4096"]
log_driver = "k8s-file"
"""
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
# crun refuses to work where cgroup2 is mounted next to cgroup1: it does not get to see it.
PODMAN = """\
#!/bin/sh
export CONTAINERS_CONF={folder}/containers.conf CONTAINERS_STORAGE_CONF={folder}/storage.conf
export CONTAINERS_REGISTRIES_CONF={folder}/registries.conf
[ "$(id -u)" = 0 ] || exec {podman} "$@"
exec unshare --mount --propagation private sh -c '
    umount /sys/fs/cgroup/unified 2>/dev/null
    exec {podman} "$@"' podman "$@"
"""


class Podman:
    """An engine with a storage of its own, in which only the images made here are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        (folder / "containers.conf").write_text(CONTAINERS.format(folder=folder))
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
        (folder / "registries.conf").write_text("")
        program = self.bin / "podman"
        program.write_text(PODMAN.format(folder=folder, podman=shutil.which("podman")))
        program.chmod(0o755)

    def __call__(self, *words: str) -> str:
        """What the command prints."""
        return called([str(self.bin / "podman"), *words])

    def build(self, name: str, files: Mapping[str, str]) -> str:
        """Its id, without ``sha256:``; the same files make the same image, whenever."""
        context = self.folder / "context"
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir()
        for path, content in files.items():
            (context / path).write_text(content)
        return self._build(name, context)

    def _build(self, name: str, context: Path) -> str:
        return self("build", "--quiet", "--timestamp", "0", "--tag", name, str(context)).strip()

    def make_base(self) -> str:
        context = self.folder / "base"
        context.mkdir()
        tar = Path(called([str(HERE / "base-image")]).strip())
        shutil.copy(tar, context / "base.tar")
        (context / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
        try:
            return self._build(BASE, context)
        finally:
            shutil.rmtree(context)

    def make_train(self, name: str = TRAIN, trainer: str = TRAINER) -> str:
        """The image of a training; with another trainer, only its top layer is another."""
        return self.build(name, {"Dockerfile": DOCKERFILE, "train.py": trainer})

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


DOCKER = """\
#!/bin/sh
exec {home}/usr/bin/docker --host unix://{folder}/socket "$@"
"""


class Docker:
    """A daemon of its own, without networks, in namespaces that end with it; needs root.
    ``containerd``: it keeps images as newer ones do by default."""

    def __init__(self, folder: Path, *, containerd: bool) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.home = Path(called([str(HERE / "docker")]).strip())
        program = self.bin / "docker"
        program.write_text(DOCKER.format(home=self.home, folder=folder))
        program.chmod(0o755)
        features = {"features": {"containerd-snapshotter": containerd}}
        (folder / "daemon.json").write_text(json.dumps(features))

    def start(self) -> None:
        words = ["unshare", "--mount", "--net", "--propagation", "private", "dockerd"]
        for name in ("data-root", "exec-root", "pidfile"):
            words += [f"--{name}", str(self.folder / name)]
        words += ["--host", f"unix://{self.folder}/socket", "--bridge", "none"]
        words += [f"--{name}=false" for name in ("iptables", "ip6tables", "ip-forward", "ip-masq")]
        words += ["--config-file", str(self.folder / "daemon.json")]
        path = f"{self.home}/usr/sbin:{self.home}/usr/bin:{os.environ['PATH']}"
        with (self.folder / "log").open("wb") as log:
            env = {**os.environ, "PATH": path}
            self.daemon = subprocess.Popen(words, env=env, stdout=log, stderr=log)
        until((self.folder / "socket").exists)

    def __call__(self, *words: str) -> str:
        return called([str(self.bin / "docker"), *words])

    def stop(self) -> None:
        self.daemon.terminate()
        self.daemon.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)


class Apptainer:
    def __init__(self, folder: Path) -> None:
        own = shutil.which("apptainer")
        self.program = Path(own or f"{called([str(HERE / 'apptainer')]).strip()}/usr/bin/apptainer")
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.offer_in(self.bin)

    def offer_in(self, folder: Path) -> None:
        (folder / "apptainer").symlink_to(self.program)

    def __call__(self, *words: str) -> str:
        env = {**os.environ, "HOME": str(self.folder), "APPTAINER_TMPDIR": str(self.folder)}
        return called([str(self.bin / "apptainer"), *words], env)

    def make_sif(self, podman: Podman, name: str) -> Path:
        """The image as one file; kept, since it takes seconds to make."""
        number = podman("image", "inspect", "--format", "{{.Id}}", name).strip()
        kept = Path(called([str(HERE / "kept")]).strip())
        sif = kept / f"{number}-{self._version()}.sif"
        if not sif.exists():
            archive = self.folder / "image.tar"
            podman("save", "--quiet", "--output", str(archive), name)
            new = kept / f".{os.getpid()}.sif"
            self("build", "--force", str(new), f"docker-archive:{archive}")
            new.rename(sif)
            archive.unlink()
        return sif

    def _version(self) -> str:
        return hashlib.sha256(os.fsencode(self.program)).hexdigest()[:8]


def all_programs_but(folder: Path, *names: str) -> Path:
    """A folder for the PATH of a machine that lacks some programs."""
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name not in names:
            (folder / program.name).symlink_to(program)
    return folder


def called(words: list[str], env: Mapping[str, str] | None = None) -> str:
    ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, f"{words}: {ended.returncode}\n{ended.stderr}"
    return ended.stdout
