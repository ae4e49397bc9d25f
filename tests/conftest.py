"""What every suite stands on: an isolated dray, the real command line, and no stray processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from dray.node.processes.process import parents
from dray.programs import shipping
from tests.rigs.containers import TRAIN, Apptainer, Podman
from tests.rigs.host import Host, OrdinaryUser, OtherDebian
from tests.rigs.kubernetes.cluster import Kubernetes, Namespace, Unavailable
from tests.rigs.link import Link
from tests.rigs.pbs import Pbs
from tests.rigs.ray import Ray
from tests.rigs.slurm import Slurm
from tests.rigs.ssh import Sshd


class Dray:
    """The real program, as a user starts it, in an isolated home and project."""

    def __init__(self, home: Path, project: Path) -> None:
        self.home = home
        self.project = project
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(home / "user"),
            "DRAY_HOME": str(home / "dray"),
            "LANG": "C.UTF-8",
        }
        self.jobs = home / "dray" / "local" / "jobs"
        (home / "user").mkdir()
        # As after a first command, but for the half a second that building it takes.
        node_side = shipping.app()
        shipping.keep(home / "dray/cache/node" / node_side.kept.name, node_side.content)

    def __call__(
        self, *arguments: str | bytes, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, "-m", "dray", *arguments],
            cwd=self.project,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=120,
            check=False,
        )
        if check and ended.returncode != 0:
            raise AssertionError(f"dray {arguments}: {ended.returncode}\n{ended.stderr}")
        return ended

    def never_used(self) -> Path:
        """Take away what the home has from the start: where dray's own files will be."""
        shutil.rmtree(self.home / "dray")
        return self.home / "dray"

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[str]:
        """A command that prints an address and serves it until Ctrl-C: the address."""
        process = subprocess.Popen(
            [sys.executable, "-m", "dray", *arguments],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            process.stdout.close()

    def job_names(self) -> list[str]:
        """The jobs that have a directory."""
        found = os.listdir(self.jobs) if self.jobs.is_dir() else []
        return sorted(name for name in found if not name.startswith("."))

    def interrupted(self, is_time: Callable[[], bool], *arguments: str) -> str:
        """Press Ctrl-C in a command once it is time: what it says on stderr."""
        process = subprocess.Popen(
            [sys.executable, "-m", "dray", *arguments],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(lambda: is_time() or process.poll() is not None)
        finally:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
        assert process.returncode == 130, said
        return said

    def run(self, *arguments: str, **env: str) -> str:
        """Submit and return the id."""
        return self("run", *arguments, **env).stdout.strip()

    def show(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("show", "--json", job).stdout)
        return found

    def wait(self, job: str) -> dict[str, Any]:
        self("wait", "--timeout", "100s", job, check=False)
        return self.show(job)

    def log(self, job: str) -> str:
        return self("logs", job).stdout

    def job_dir(self, job: str) -> Path:
        return self.jobs / job

    def use(self, programs: Path) -> None:
        """The programs in this folder come before all others."""
        self.env["PATH"] = f"{programs}:{self.env['PATH']}"

    def write(self, name: str, content: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def configure(self, content: str) -> Path:
        """Write the user's own config file."""
        path = Path(self.env["DRAY_HOME"], "config.toml")
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(content)
        return path

    def processes(self) -> list[int]:
        """Everything still running that belongs to this home: keepers, supervisors, commands."""
        mark = os.fsencode(self.home)
        found = []
        for pid in parents():
            try:
                about = Path(f"/proc/{pid}/environ").read_bytes()
                about += Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if mark in about and pid != os.getpid():
                found.append(pid)
        return found

    def close_connections(self) -> None:
        """End the processes that wait for further commands, and would stay for a while."""
        for pid in self.processes():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"dray.transport.standing" in words or b"dray.cli.warm_server" in words:
                    os.kill(pid, signal.SIGTERM)

    def nothing_runs(self) -> bool:
        """Closes connections as well: the last command may have started one this moment."""
        self.close_connections()
        return not self.processes()


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What the condition gives once it is true; fails if it never is. One that takes its time is
    asked less often: what it waits for needs the machine as well."""
    until = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        assert now < until, "waited in vain"
        time.sleep(max(0.02, now - asked))


def environment(suite: str) -> Path:
    """The programs of the environment that a suite has of its own: tests/SUITE/requirements.txt."""
    words = [Path(__file__).parent / "rigs" / "environment", sys.executable, suite]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip()) / "bin"


class Hpc:
    """A login node that is reached over SSH, with Slurm behind it, which speaks PBS too."""

    def __init__(
        self,
        folder: Path,
        host: Host,
        *,
        accounting: bool = False,
        settings: Sequence[str] = (),
    ) -> None:
        self.host = host
        self.slurm = Slurm(folder / "slurm", host=host, accounting=accounting, settings=settings)
        self.pbs = Pbs(self.slurm)
        # A home of its own: what the user's shell does at login is not the tests' business.
        self.home = folder / "home"
        # What a test adds to the programs of the login node and of the nodes.
        self.bin = folder / "bin"
        seen = {
            "SLURM_CONF": str(self.slurm.conf),
            "PATH": f"{self.bin}:{self.pbs.path}",
            "HOME": str(self.home),
        }
        self.sshd = Sshd(folder / "ssh", seen, host)
        self.sockets = folder / "s"

    def start(self) -> None:
        self.sockets.mkdir()
        self.home.mkdir()
        self.bin.mkdir()
        # A batch job's login shell forgets the PATH that it was handed.
        (self.home / ".bash_profile").write_text(f"export PATH={self.bin}:$PATH\n")
        self.host.hand_over(self.home)
        self.slurm.start()
        self.pbs.start()
        self.sshd.start()

    def stop(self) -> None:
        for socket in self.sockets.glob("dray-*/*"):
            words = ["/usr/bin/ssh", "-o", f"ControlPath={socket}", "-O", "exit", "hpc"]
            subprocess.run(words, capture_output=True, check=False)
        self.sshd.stop()
        self.slurm.stop()

    def offer(self, dray: Dray, **settings: object) -> None:
        """Make it known to this dray as the cluster 'hpc'."""
        scratch = [f"export SLURM_TMPDIR={self.slurm.scratch}"]
        self._offer(dray, "hpc", {"kind": "slurm", "setup": scratch, **settings})

    def offer_pbs(self, dray: Dray, **settings: object) -> None:
        """Make it known to this dray as the cluster 'pbs', which dray takes for Torque."""
        values = {"kind": "pbs", "dialect": "torque", "setup": self.pbs.setup}
        self._offer(dray, "pbs", {**values, **settings})

    def offer_box(self, dray: Dray, **settings: object) -> None:
        """Make its login node known to this dray as a machine without a scheduler, 'box'."""
        self._offer(dray, "box", {"kind": "ssh", **settings})

    def _offer(self, dray: Dray, name: str, settings: dict[str, object]) -> None:
        root = self.host.folder(dray.home / "hpc-root")
        # A job sweeps what killed ones of the same root have left; each test has a root of its own.
        for left in () if root.exists() else self.slurm.scratch.glob("dray-work-*"):
            shutil.rmtree(left, ignore_errors=True)
        values = {"host": "hpc", "root": str(root), **settings}
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        config = dray.home / "dray/config.toml"
        config.parent.mkdir(mode=0o700, exist_ok=True)
        config.write_text("\n".join([f"[clusters.{name}]", *lines, ""]))
        dray.env["PATH"] = f"{self.sshd.bin}:{dray.env['PATH']}"
        dray.env["XDG_RUNTIME_DIR"] = str(self.sockets)
        dray.jobs = root / "jobs"


class Pods:
    """A namespace of a Kubernetes cluster, as a user of dray has it."""

    def __init__(self, cluster: Kubernetes, namespace: Namespace, sockets: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.config = cluster.kubeconfig(namespace)
        self.sockets = sockets
        sockets.mkdir(mode=0o700, exist_ok=True)

    def offer(self, dray: Dray, **settings: object) -> None:
        """Make it known to this dray as the cluster 'k8s'."""
        never = {"name": "job", "imagePullPolicy": "Never"}
        values = {
            "kind": "kubernetes",
            "kubeconfig": str(self.config),
            "namespace": self.namespace.name,
            # Tests talk with their jobs through files of their own folder, too.
            "volumes": [f"pvc:{self.namespace.claim}:/home/me", f"host:{dray.home}:{dray.home}"],
            "image": "registry.local/shell:1",
            "agent_image": "registry.local/python:1",
            "patch": json.dumps({"containers": [never]}),
            **settings,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        config = dray.home / "dray/config.toml"
        config.parent.mkdir(mode=0o700, exist_ok=True)
        config.write_text("\n".join(["[clusters.k8s]", *lines, ""]))
        dray.env["PATH"] = f"{self.cluster.bin}:{dray.env['PATH']}"
        dray.env["XDG_RUNTIME_DIR"] = str(self.sockets)
        dray.jobs = self.namespace.volume / "dray/jobs"


class RayCluster:
    """A Ray cluster, as a user of dray has it: by its address alone."""

    def __init__(self, rig: Ray, sockets: Path) -> None:
        self.rig = rig
        self.sockets = sockets
        sockets.mkdir(mode=0o700, exist_ok=True)

    def offer(self, dray: Dray, **settings: object) -> None:
        """Make it known to this dray as the cluster 'ray'."""
        self.rig.require_nodes()
        values = {
            "kind": "ray",
            "address": self.rig.address,
            "python": self.rig.python,
            "root": str(dray.home / "ray"),
            **settings,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value]
        dray.configure("\n".join(["[clusters.ray]", *lines, ""]))
        dray.env["XDG_RUNTIME_DIR"] = str(self.sockets)
        dray.jobs = dray.home / "ray/jobs"


# How long an example takes says more of the machine than of the code. Other examples are tried each
# time, also where CI is set.
settings.register_profile("dray", settings.get_profile("default"), deadline=None)
settings.load_profile("dray")


def pytest_configure() -> None:
    """A program that is started by one that ignores a signal (below nohup, or behind a shell's &)
    ignores it, too; after one that catches it, it has the default, as under a user's hands."""
    for one in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(one) is signal.SIG_IGN:
            signal.signal(one, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slurm-root", help="run Slurm and sshd in this root file system", type=Path)
    parser.addoption("--all-points", help="tests/faults: not only a sample", action="store_true")
    parser.addoption("--point", help="tests/faults: only this point or power cut")


@pytest.fixture(scope="session")
def rig_folder() -> Iterator[Path]:
    # A short path: sockets must have one, and munge wants no open folder above its own.
    folder = Path(tempfile.mkdtemp(prefix="dr", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster_host(
    request: pytest.FixtureRequest, rig_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Host:
    root = request.config.getoption("--slurm-root")
    shared = [rig_folder, tmp_path_factory.getbasetemp()]
    return OtherDebian(root, shared) if root else Host()


@pytest.fixture(scope="session")
def hpc(cluster_host: Host, rig_folder: Path) -> Iterator[Hpc]:
    yield from started(rig_folder / "hpc", cluster_host)


@pytest.fixture(scope="session")
def ordinary_hpc(request: pytest.FixtureRequest, rig_folder: Path) -> Iterator[Hpc]:
    """A cluster where nothing is done by root."""
    if os.getuid() != 0:
        yield request.getfixturevalue("hpc")
    else:
        yield from started(rig_folder / "user", OrdinaryUser(rig_folder / "home"))


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Kubernetes]:
    """A real cluster of two nodes; every process that runs tests has one of its own."""
    try:
        cluster = Kubernetes()
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A real Ray cluster, a head and two more nodes; needs root, for a network of its own."""
    folder = Path(tempfile.mkdtemp(prefix="dray-"))  # short: Ray has sockets below it
    rig = Ray(folder, environment("ray"))
    try:
        rig.start(workers=2)
        yield RayCluster(rig, folder / "sockets")
    finally:
        rig.stop()


@pytest.fixture(scope="session")
def pods(kubernetes: Kubernetes, rig_folder: Path) -> Pods:
    """A namespace of that cluster, for all tests that need no other."""
    return Pods(kubernetes, kubernetes.namespace(), rig_folder / "k8s")


@pytest.fixture
def namespace(kubernetes: Kubernetes) -> Iterator[Namespace]:
    """A namespace of that cluster, for one test."""
    made = kubernetes.namespace()
    yield made
    kubernetes.remove(made)


def started(
    folder: Path, host: Host, *, accounting: bool = False, settings: Sequence[str] = ()
) -> Iterator[Hpc]:
    folder.mkdir()
    cluster = Hpc(folder, host, accounting=accounting, settings=settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def podman(rig_folder: Path) -> Iterator[Podman]:
    """The laptop's engine, with the base image in it."""
    engine = Podman(rig_folder / "podman")
    engine.make_base()
    yield engine
    engine.remove()


@pytest.fixture(scope="session")
def train_image(podman: Podman) -> str:
    """The name of a small image, in podman, of three layers."""
    podman.make_train(TRAIN)
    return TRAIN


@pytest.fixture(scope="session")
def apptainer(rig_folder: Path) -> Apptainer:
    return Apptainer(rig_folder / "apptainer")


@pytest.fixture(scope="session")
def train_sif(podman: Podman, train_image: str, apptainer: Apptainer) -> Path:
    """The same image as Apptainer runs it, for tests that make none."""
    return apptainer.make_sif(podman, train_image)


@pytest.fixture
def apptainer_on_hpc(hpc: Hpc, apptainer: Apptainer) -> Iterator[Hpc]:
    """The cluster, with Apptainer on its login node and its nodes while the test runs."""
    apptainer.offer_in(hpc.bin)
    yield hpc
    (hpc.bin / "apptainer").unlink()


@pytest.fixture
def link(hpc: Hpc) -> Iterator[Link]:
    """The way to the login node leads over a link that can fail."""
    relay = Link(hpc.sshd.port)
    hpc.sshd.write_client_config(relay.port)
    yield relay
    hpc.sshd.write_client_config(hpc.sshd.port)
    relay.close()


@pytest.fixture
def dray(tmp_path: Path) -> Iterator[Dray]:
    project = tmp_path / "project"
    project.mkdir()
    program = Dray(tmp_path, project)
    yield program
    try:
        wait_for(program.nothing_runs, 10)
    except AssertionError:
        left = {pid: _describe(pid) for pid in program.processes()}
        for pid in left:
            os.kill(pid, 9)
        pytest.fail(f"processes left behind: {left}")


def _describe(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "gone"
