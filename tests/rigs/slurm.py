"""A real Slurm: munged, slurmctld and several slurmd as nodes of one machine, with fake GPUs."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.rigs.accounting import Accounting
from tests.rigs.host import Host
from tests.rigs.processes import end_by_pid_file, free_ports, until

PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
NO_ACCOUNTING = ["AccountingStorageType=accounting_storage/none"]


class Slurm:
    def __init__(
        self,
        folder: Path,
        nodes: int = 2,
        cpus: int = 8,
        gpus: int = 2,
        host: Host | None = None,
        accounting: bool = False,
        settings: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.host = host or Host()
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.cpus = cpus
        self.gpus = gpus
        self.conf = folder / "slurm.conf"
        self.munge_socket = folder / "run/munge.socket"
        self.accounting = (
            Accounting(folder / "accounting", self.munge_socket, PLUGINS, self.host)
            if accounting
            else None
        )
        self.env = {**self.host.env, "SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        spools = [f"spool/{node}" for node in self.nodes]
        for name in ("run", "log", "state", "munge", "dev", "scratch", *spools):
            (self.folder / name).mkdir(parents=True, mode=0o755)
        (self.folder / "munge").chmod(0o700)
        (self.folder / "munge/key").write_bytes(os.urandom(128))
        (self.folder / "munge/key").chmod(0o600)
        self._write_conf()
        if self.accounting:
            self.accounting.write_conf()
        self.host.hand_over(self.folder)
        self._start_munge()
        if self.accounting:
            self.accounting.start()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        until(self._is_up)

    def _start_munge(self) -> None:
        run, munge = self.folder / "run", self.folder / "munge"
        self.call(
            "munged",
            "--force",
            f"--key-file={munge}/key",
            f"--socket={self.munge_socket}",
            f"--pid-file={run}/munged.pid",
            f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        )

    def _write_conf(self) -> None:
        host, user = socket.gethostname().split(".")[0], self.host.user
        control, *ports = free_ports(1 + len(self.nodes))
        for number in range(self.gpus):
            (self.folder / f"dev/nvidia{number}").symlink_to("/dev/null")
        names = ",".join(self.nodes)
        device = f"{self.folder}/dev/nvidia[0-{self.gpus - 1}]"
        (self.folder / "gres.conf").write_text(
            f"NodeName={names} Name=gpu Type=a100 File={device}\n"
        )
        (self.folder / "cgroup.conf").write_text(cgroup_conf(self.version()))
        shape = f"CPUs={self.cpus} CoresPerSocket={self.cpus} RealMemory=16000"
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={control}",
            # A requeued job waits until its old credential has expired.
            f"AuthInfo=socket={self.munge_socket},cred_expire=5",
            "AuthType=auth/munge",
            "CredType=cred/munge",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool/%n",
            f"SlurmctldPidFile={self.folder}/run/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/run/slurmd.%n.pid",
            f"SlurmctldLogFile={self.folder}/log/slurmctld.log",
            f"SlurmdLogFile={self.folder}/log/slurmd.%n.log",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "JobAcctGatherType=jobacct_gather/none",
            *(self.accounting.settings() if self.accounting else NO_ACCOUNTING),
            "ReturnToService=2",
            "SlurmdParameters=config_overrides",
            "SlurmdTimeout=8",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            "JobRequeue=1",
            "KillWait=5",
            "MaxJobCount=50000",
            "GresTypes=gpu",
            f"PluginDir={PLUGINS}",
            *self.settings,
            f"NodeName=DEFAULT {shape} Gres=gpu:a100:{self.gpus} State=UNKNOWN",
            *(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
                for node, port in zip(self.nodes, ports, strict=True)
            ),
            f"PartitionName=DEFAULT Nodes={names} DefMemPerCPU=100 State=UP",
            "PartitionName=gpu Default=YES DefaultTime=01:00:00 PriorityTier=10 PreemptMode=OFF",
            "PartitionName=urgent PriorityTier=20 PreemptMode=OFF",
            "PartitionName=scavenge PriorityTier=1 PreemptMode=REQUEUE GraceTime=0",
            "PartitionName=cheap PriorityTier=1 PreemptMode=CANCEL GraceTime=0",
        ]
        self.conf.write_text("\n".join(lines) + "\n")

    def start_controller(self) -> None:
        self.call("slurmctld")

    def start_node(self, node: str) -> None:
        self.call("slurmd", "-N", node)

    def _is_up(self) -> bool:
        try:
            idle = self.call("sinfo", "-h", "-N", "-p", "gpu", "-t", "idle", "-o", "%N")
        except subprocess.CalledProcessError:
            return False
        return sorted(set(idle.split())) == self.nodes

    def call(self, *words: str) -> str:
        """A command of Slurm's, on the login node."""
        log = (self.folder / "log/commands.log").open("ab")
        with log:
            return subprocess.run(
                self.host.words(*words),
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                check=True,
            ).stdout

    def version(self) -> tuple[int, int]:
        found = re.search(r"(\d+)\.(\d+)", self.call("slurmctld", "-V"))
        assert found
        return int(found[1]), int(found[2])

    @property
    def scratch(self) -> Path:
        """The nodes' own disk, for jobs that are told of it."""
        return self.folder / "scratch"

    def stop(self) -> None:
        with suppress(subprocess.CalledProcessError, TimeoutError):
            self.call("scancel", "--user", self.host.user)
            until(lambda: not self.call("squeue", "-h").strip(), 20)
        run = self.folder / "run"
        for path in (*run.glob("slurmd.*.pid"), run / "slurmctld.pid", run / "munged.pid"):
            end_by_pid_file(path)
            if self.accounting and path.name == "slurmctld.pid":
                self.accounting.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def cgroup_conf(version: tuple[int, int]) -> str:
    """slurmd loads a cgroup plugin even where nothing uses it, and wants it named."""
    if version < (21, 8):
        return ""
    return f"CgroupPlugin={'cgroup/v1' if version < (23, 2) else 'disabled'}\n"
