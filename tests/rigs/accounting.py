"""Slurm's books: slurmdbd, and a MariaDB that nobody else knows of."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from tests.rigs.host import Host
from tests.rigs.processes import end_by_pid_file, free_ports, until


class Accounting:
    def __init__(self, folder: Path, munge_socket: Path, plugins: str, host: Host) -> None:
        self.folder = folder
        self.munge_socket = munge_socket
        self.plugins = plugins
        self.host = host
        self.database: subprocess.Popen[bytes] | None = None
        self.database_port, self.port = free_ports(2)
        self.env = {**host.env, "SLURM_CONF": str(folder.parent / "slurm.conf")}

    def settings(self) -> list[str]:
        """What slurm.conf says of it."""
        return [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self.port}",
            f"AccountingStoragePass={self.munge_socket}",
        ]

    def write_conf(self) -> None:
        self.folder.mkdir()
        lines = [
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.munge_socket}",
            f"DbdHost={socket.gethostname().split('.')[0]}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={self.port}",
            f"SlurmUser={self.host.user}",
            f"PidFile={self.folder}/slurmdbd.pid",
            f"LogFile={self.folder}/slurmdbd.log",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={self.database_port}",
            "StorageUser=slurm",
            "StoragePass=slurm",
            "StorageLoc=books",
            f"PluginDir={self.plugins}",
        ]
        conf = self.folder.parent / "slurmdbd.conf"  # Slurm looks for it beside slurm.conf
        conf.write_text("\n".join(lines) + "\n")
        conf.chmod(0o600)

    def start(self) -> None:
        self._start_database()
        self._run("slurmdbd")
        until(lambda: self._succeeds("sacctmgr", "-n", "show", "cluster"))
        self._run("sacctmgr", "-i", "add", "cluster", "test")

    def _start_database(self) -> None:
        data, door = f"--datadir={self.folder}/data", f"--socket={self.folder}/door"
        user = f"--user={self.host.user}"
        plain = "--auth-root-authentication-method=normal"
        self._run("mariadb-install-db", "--no-defaults", "--skip-test-db", plain, user, data)
        with (self.folder / "mariadbd.log").open("ab") as log:
            self.database = subprocess.Popen(
                self.host.words(
                    "mariadbd",
                    "--no-defaults",
                    "--bind-address=127.0.0.1",
                    "--innodb-flush-log-at-trx-commit=0",
                    f"--port={self.database_port}",
                    user,
                    data,
                    door,
                ),
                env=self.env,
                stdout=log,
                stderr=log,
            )
        client = ("mariadb", "--no-defaults", "--user=root", door, "--execute")
        until(lambda: self._succeeds(*client, "select 1"))
        account = "slurm@'127.0.0.1'"
        self._run(*client, f"create user {account} identified by 'slurm'")
        self._run(*client, f"create database books; grant all on books.* to {account}")

    def _run(self, *words: str) -> None:
        with (self.folder / "commands.log").open("ab") as log:
            subprocess.run(
                self.host.words(*words), env=self.env, stdout=log, stderr=log, check=True
            )

    def _succeeds(self, *words: str) -> bool:
        try:
            self._run(*words)
        except subprocess.CalledProcessError:
            return False
        return True

    def stop(self) -> None:
        end_by_pid_file(self.folder / "slurmdbd.pid")
        if self.database:
            self.database.terminate()
            self.database.wait(30)
