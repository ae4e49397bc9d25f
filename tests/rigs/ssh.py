"""A private sshd as a login node, and the ssh that reaches it under a name."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.rigs.host import Host
from tests.rigs.processes import end_by_pid_file, free_ports, until


class Sshd:
    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        host: Host | None = None,
        *,
        forwards: bool = False,
    ) -> None:
        """``forwards``: whether it lets TCP through, which many login nodes do not."""
        self.folder = folder
        self.forwards = forwards
        self.host = host or Host()
        self.env = env  # what every session on the login node sees
        (self.port,) = free_ports(1)
        self.bin = folder / "bin"

    def start(self) -> None:
        self.bin.mkdir(parents=True)
        if self.host.user == "root":
            (self.host.root / "run/sshd").mkdir(exist_ok=True)
        for name in ("hostkey", "id"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(words, check=True)
        # A bash that takes itself for an inner one leaves the developer's own ~/.bashrc alone.
        session = {**self.env, "SHLVL": "1"}
        variables = " ".join(f'"{name}={value}"' for name, value in session.items())
        self._write(
            "sshd_config",
            f"ListenAddress 127.0.0.1:{self.port}",
            f"HostKey {self.folder}/hostkey",
            f"PidFile {self.folder}/sshd.pid",
            f"AuthorizedKeysFile {self.folder}/id.pub",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            f"AllowTcpForwarding {'yes' if self.forwards else 'no'}",
            f"SetEnv {variables}",
        )
        self.write_client_config(self.port)
        key = (self.folder / "hostkey.pub").read_text().split()[:2]
        self._write("known_hosts", f"hpc {' '.join(key)}")
        # OpenSSH finds ~ by the password file, not by HOME: a test's config is named instead.
        wrapper = self.bin / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.folder}/ssh_config "$@"\n')
        wrapper.chmod(0o755)
        self.host.hand_over(self.folder)
        words = ["/usr/sbin/sshd", "-f", f"{self.folder}/sshd_config", "-E", f"{self.folder}/log"]
        subprocess.run(self.host.words(*words), check=True)
        until((self.folder / "sshd.pid").exists)

    def write_client_config(self, port: int) -> None:
        self._write(
            "ssh_config",
            "Host hpc",
            "  HostName 127.0.0.1",
            f"  Port {port}",
            f"  User {self.host.user}",
            f"  IdentityFile {self.folder}/id",
            "  IdentitiesOnly yes",
            "  HostKeyAlias hpc",
            f"  UserKnownHostsFile {self.folder}/known_hosts",
            "  StrictHostKeyChecking yes",
        )

    def _write(self, name: str, *lines: str) -> None:
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def stop(self) -> None:
        end_by_pid_file(self.folder / "sshd.pid")
        shutil.rmtree(self.folder, ignore_errors=True)
