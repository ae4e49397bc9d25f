"""A machine without a scheduler that several people log in to; needs root.

Its accounts are known only to the programs that are started in its namespace, and its sshd lets
each of them in under a name of its own: ``ssh box-lena``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rigs.host import Host, with_mounts
from tests.rigs.ssh import Sshd

if TYPE_CHECKING:
    from tests.conftest import Dray

ACCOUNTS = {"lena": 54341, "mara": 54342}


class Accounts(Host):
    """This machine with a few accounts more; root starts what runs here."""

    def __init__(self, homes: Path) -> None:
        super().__init__()
        homes.mkdir()
        self.mounts = []
        for name, line in (("passwd", "{0}:*:{1}:{1}::{2}/{0}:/bin/bash"), ("group", "{0}:*:{1}:")):
            known = Path("/etc", name).read_text()
            more = [line.format(*account, homes) for account in ACCOUNTS.items()]
            (homes / name).write_text("\n".join([known.rstrip("\n"), *more, ""]))
            self.mounts.append(f"--bind {homes}/{name} /etc/{name}")
        for name, number in ACCOUNTS.items():
            (homes / name).mkdir(mode=0o700)
            os.chown(homes / name, number, number)

    def words(self, *words: str) -> list[str]:
        return with_mounts(self.mounts, list(words))


class BoxSshd(Sshd):
    def write_client_config(self, port: int) -> None:
        lines = []
        for name in ACCOUNTS:
            lines += [
                f"Host box-{name}",
                "  HostName 127.0.0.1",
                f"  Port {port}",
                f"  User {name}",
                f"  IdentityFile {self.folder}/id",
                "  IdentitiesOnly yes",
                "  HostKeyAlias hpc",
                f"  UserKnownHostsFile {self.folder}/known_hosts",
                "  StrictHostKeyChecking yes",
            ]
        self._write("ssh_config", *lines)


class Box:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.homes = folder / "homes"
        self.sshd = BoxSshd(folder / "ssh", {"PATH": "/usr/bin:/bin"}, Accounts(self.homes))
        self.sockets = folder / "s"
        self.share = folder / "share"

    def start(self) -> None:
        self.sockets.mkdir()
        subprocess.run(["install", "-d", "-m", "1777", str(self.share)], check=True)
        self.sshd.start()

    def stop(self) -> None:
        for socket in self.sockets.glob("dray-*/*"):
            words = ["/usr/bin/ssh", "-o", f"ControlPath={socket}", "-O", "exit", "box"]
            subprocess.run(words, capture_output=True, check=False)
        self.sshd.stop()

    def offer(self, dray: Dray, account: str, **settings: object) -> None:
        """Make it known to this dray as the cluster 'box', which it reaches under this account."""
        root = self.homes / account / "dray"
        shutil.rmtree(root, ignore_errors=True)
        values = {"kind": "ssh", "host": f"box-{account}", "root": str(root), "gpus": 2, **settings}
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        dray.configure("\n".join(["[clusters.box]", *lines, ""]))
        dray.env["PATH"] = f"{self.sshd.bin}:{dray.env['PATH']}"
        dray.env["XDG_RUNTIME_DIR"] = str(self.sockets)
        dray.jobs = root / "jobs"
