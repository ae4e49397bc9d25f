"""A machine of the cluster: namespaces of its own, in which nothing outlives its first process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.rigs.processes import until

HERE = Path(__file__).parent
KINDS = ("--mount", "--net", "--pid", "--uts", "--ipc")


class Machine:
    """Is switched on and off; its processes write to NAME.log in its folder."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        self.name = folder.name
        self.env = {**os.environ, "PATH": path}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._holder: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    @property
    def is_on(self) -> bool:
        return self._holder is not None

    @property
    def pid(self) -> int:
        """The first process, as this process sees it."""
        assert self._holder
        return child_of(self._holder.pid)

    def power_on(self) -> None:
        self.folder.mkdir(exist_ok=True)
        # Whoever dies closes its files: the machine ends with the tests, however they end.
        end, self._lifeline = os.pipe()
        first = [sys.executable, "-S", str(HERE / "init.py"), str(self.folder)]
        with (self.folder / "init.log").open("ab") as log:
            self._holder = subprocess.Popen(
                ["unshare", *KINDS, "--fork", "--mount-proc", "--propagation=private", *first],
                stdin=end,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        os.close(end)
        assert self._holder.stdout
        with self._holder.stdout as said:
            if said.readline() != b"ready\n":
                raise RuntimeError(f"{self.name} has no namespaces: {self.end_of_log('init')}")
        self.run("hostname", self.name)
        self.run("ip", "link", "set", "lo", "up")

    def power_off(self) -> None:
        """End everything at once, as when the power fails."""
        if self._holder is None:
            return
        os.kill(self.pid, signal.SIGKILL)
        self._holder.wait()
        self._holder = None
        os.close(self._lifeline)
        for process in self._processes.values():
            process.wait()
        self._processes = {}

    def words(self, *words: str) -> list[str]:
        """The command that runs ``words`` there."""
        return ["nsenter", f"--target={self.pid}", *KINDS, "--", *words]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self.words(*words),
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, name: str, *words: str, inherited: Iterable[int] = ()) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self.words(*words),
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=tuple(inherited),
                start_new_session=True,
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process itself: nsenter passes none on."""
        os.kill(child_of(self._processes[name].pid), number)

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        self._processes.pop(name).wait()

    def runs(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    def check(self, *names: str) -> None:
        """Raise with the end of its log if one of them has ended."""
        for name in names:
            if not self.runs(name):
                raise RuntimeError(f"{name} of {self.name} has ended:\n{self.end_of_log(name)}")

    def wait(self, name: str, condition: Callable[[], object], seconds: float = 120.0) -> None:
        """Wait for what a process is to bring about; raise with the end of its log otherwise."""
        try:
            until(condition, seconds)
        except TimeoutError as error:
            said = self.end_of_log(name)
            raise TimeoutError(f"{name} of {self.name} takes too long:\n{said}") from error

    def end_of_log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]


def child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not children:
        raise ProcessLookupError(f"process {pid} has no child")
    return int(children[0])
