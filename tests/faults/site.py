"""One life's surroundings: a dray of its own, the shim around it, a journal out of its reach."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import Dray
from tests.faults.shim import Shim
from tests.rigs.inbox import Inbox

SECRET = "fault-s3cr3t"  # as trainer.py expects it
TRAINER = Path(__file__).parent / "trainer.py"
DAYS = 2 * 86400.0
PATIENCE = 90.0  # seconds for a job that is to end
AGENT = b"\0agent\0"  # among the words of its process


@dataclass
class Said:
    """What a command of dray's said, and how it ended."""

    verb: str
    code: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        return self.code < 0


@dataclass
class Site:
    folder: Path
    is_deadly: bool = False  # a process is killed here
    said: list[Said] = field(default_factory=list)
    at_end: list[Callable[[], None]] = field(default_factory=list)  # what is to be closed

    def __post_init__(self) -> None:
        self.home, project = self.folder / "home", self.folder / "project"
        self.outside = self.folder / "outside"
        for folder in (self.home, project, self.outside):
            folder.mkdir(parents=True)
        self.dray = Dray(self.home, project)
        self.dray.never_used()  # a life begins with the first command
        self.dray.env["SEKRET"] = SECRET
        self.dray.write("code.py", "x = 1\n")
        self.inbox = Inbox()
        self.tells = False  # whether the ends of jobs are told
        self.dray.env["HOOK"] = f"{self.inbox.url}/{SECRET}"
        self.journal_file = self.outside / "journal"
        # dray's own folders, those of a cluster, and those of its nodes; not the user's home.
        self.roots = [self.home / name for name in ("dray", "hpc-root", "scratch")]
        self.shim = Shim(self.folder / "shim", self.roots)

    def ask_for_messages(self) -> None:
        """Have every end told; to be called once the cluster is in the config file."""
        config = self.home / "dray/config.toml"
        before = config.read_text() if config.exists() else ""
        self.tells = True
        self.dray.configure(f'{before}[notify]\nwebhook = "HOOK"\non = ["done"]\n')

    def told(self) -> list[str]:
        """The jobs whose end was told, once for each message."""
        return [one.json["id"] for one in self.inbox.received]

    def __call__(self, verb: str, *arguments: str, shimmed: bool = False) -> Said:
        env = {}
        if shimmed:
            self.shim.enter(verb)
            env = self.shim.env(verb)
        try:
            ended = self.dray(verb, *arguments, check=False, **env)
        finally:
            self.shim.enter("looking")
        said = Said(verb, ended.returncode, ended.stdout, ended.stderr)
        self.said.append(said)
        return said

    def rows(self) -> dict[str, dict[str, Any]]:
        """What ``dray ps`` lists."""
        listed = self("ps", "--all", "--json")
        return {row["id"]: row for row in json.loads(listed.out)} if listed.code == 0 else {}

    def journal(self, before: int | None = None) -> list[list[str]]:
        """What the command wrote about itself: lines of words, what, attempt, time, more. With a
        time, only what it had written by then."""
        if not self.journal_file.exists():
            return []
        lines = [line.split() for line in self.journal_file.read_text().splitlines()]
        return [line for line in lines if before is None or int(line[2]) <= before]

    def journal_words(self) -> list[str]:
        return [line[0] for line in self.journal()]

    def settle(self) -> dict[str, dict[str, Any]]:
        """Look as a user does, until nothing goes on any more."""
        until = time.monotonic() + PATIENCE
        while True:
            self.becomes_quiet(until - time.monotonic())
            rows = self.rows()
            active = any(row["state"] in ("queued", "running") for row in rows.values())
            if not active or time.monotonic() > until:
                return rows
            time.sleep(0.1)

    def becomes_quiet(self, seconds: float = 10.0) -> bool:
        until = time.monotonic() + seconds
        while not self.is_quiet():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def is_quiet(self) -> bool:
        """Whether nothing of dray's or of the job's runs here, but what waits for commands."""
        return not [pid for pid in self.dray.processes() if not is_waiting(pid)]

    def hang_up(self) -> None:
        """Close the connections, and wait for their agents, which may have something to do after
        an answer: what they are at is not what is left behind."""
        self.dray.close_connections()
        until = time.monotonic() + PATIENCE
        while any(AGENT in words_of(pid) for pid in self.dray.processes()):
            if time.monotonic() > until:
                break
            time.sleep(0.05)

    def leftover_secrets(self) -> list[str]:
        words = ["grep", "-rlaF", SECRET, *map(str, self.existing_roots())]
        found = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout
        return [str(Path(path).relative_to(self.home)) for path in found.splitlines()]

    def existing_roots(self) -> list[Path]:
        return [root for root in self.roots if root.exists()]

    def tree(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.home))
            for root in self.existing_roots()
            for path in root.rglob("*")
        )

    def age(self) -> None:
        """Let days pass, by the times of the files and by what the store says of submissions."""
        for root in self.existing_roots():
            for path in [root, *root.rglob("*")]:
                with suppress(FileNotFoundError):
                    then = path.lstat().st_mtime - DAYS
                    os.utime(path, (then, then), follow_symlinks=False)
        store = self.home / "dray/store.db"
        with suppress(sqlite3.Error), closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("UPDATE jobs SET created = created - ?", (DAYS,))


def is_waiting(pid: int) -> bool:
    """A connection that is kept open, and all that belongs to it, or a warm process."""
    words = words_of(pid)
    marks = (b"dray.transport.standing", b"dray.cli.warm_server", AGENT, b"\0proxy\0")
    is_ssh = words.startswith((b"ssh", b"/usr/bin/ssh"))
    return not words or is_ssh or any(mark in words for mark in marks)


def words_of(pid: int) -> bytes:
    """The words of a process; none of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
