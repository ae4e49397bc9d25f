"""A real registry of images (Debian's docker-registry), on this machine's loopback."""

from __future__ import annotations

import ctypes
import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rigs.kubernetes.pki import Pki
from tests.rigs.processes import free_ports, until

USER, PASSWORD = "trainer", "pass word"


class Registry:
    """``is_private``: whether one has to log in, as USER with PASSWORD. ``pki``: the authority that
    signs its certificate; without one it speaks plain HTTP. It may be started elsewhere, by its
    ``words``, where it then listens on ``name``."""

    def __init__(
        self,
        folder: Path,
        *,
        is_private: bool = False,
        pki: Pki | None = None,
        name: str = "",
    ) -> None:
        self.folder = folder
        self.name = name or f"127.0.0.1:{free_ports(1)[0]}"
        self.pki = pki
        self.is_private = is_private
        folder.mkdir()
        (folder / "config.yml").write_text(json.dumps(self._settings()))
        self.words = ["docker-registry", "serve", str(folder / "config.yml")]

    def start(self) -> None:
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log)
        until(self._answers)

    def _settings(self) -> dict[str, Any]:
        http: dict[str, Any] = {"addr": self.name}
        settings: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(self.folder / "storage")}},
            "http": http,
        }
        if self.pki is not None:
            self.pki.issue("registry", "registry", hosts=("127.0.0.1", self.name.split(":")[0]))
            paths = {"certificate": "registry.crt", "key": "registry.key"}
            http["tls"] = {name: str(self.pki.folder / path) for name, path in paths.items()}
        if self.is_private:
            accounts = self.folder / "htpasswd"
            accounts.write_text(f"{USER}:{hashed(PASSWORD)}\n")
            settings["auth"] = {"htpasswd": {"realm": "tests", "path": str(accounts)}}
        return settings

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError((self.folder / "log").read_text())
        try:
            self.get("/v2/")
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            return False
        return True

    def get(self, path: str) -> Mapping[str, Any]:
        """What it says to somebody who has not logged in."""
        scheme = "https" if self.pki else "http"
        context = ssl.create_default_context(cafile=self.pki.ca) if self.pki else None
        with urllib.request.urlopen(f"{scheme}://{self.name}{path}", context=context) as answer:
            found: Mapping[str, Any] = json.load(answer)
            return found

    def has(self, repository: str, digest: str) -> bool:
        """Return whether it has stored this image."""
        stored = self.folder / "storage/docker/registry/v2/repositories" / repository
        kind, _, number = digest.partition(":")
        return (stored / "_manifests/revisions" / kind / number).is_dir()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def hashed(password: str) -> str:
    """Hash a password as a registry wants it: with bcrypt, which only the C library has here."""
    library = ctypes.CDLL("libcrypt.so.1")
    library.crypt.restype = ctypes.c_char_p
    salt = b"$2b$05$" + os.urandom(11).hex().encode()
    found: bytes = library.crypt(password.encode(), salt)
    return found.decode()
