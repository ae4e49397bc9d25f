"""Calls programs of this machine as they are, such as docker and podman."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, NamedTuple

from dray import tracing

PATIENCE = 10.0  # seconds for a program to end once it is asked to


class Ended(NamedTuple):
    code: int
    output: str
    errors: str


def ask(argv: Sequence[str], patience: float | None = None) -> Ended:
    """Run a program to its end, or for so many seconds."""
    tracing.trace_program(argv)
    try:
        ended = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return Ended(-1, "", f"it did not end within {patience:g} s")
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def show(argv: Sequence[str]) -> int:
    """Run a program with its output on stderr, for people to watch. Return its exit code."""
    tracing.trace_program(argv)
    return subprocess.run(argv, stdout=sys.stderr.fileno(), check=False).returncode


class Writer:
    """A program whose output is read while it writes."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        assert process.stdout is not None
        self.output: IO[bytes] = process.stdout
        self._process = process
        self._said = said

    def failure(self) -> str | None:
        """Return what the program printed if it has failed by itself; asked if its output ends too
        early."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # it is still writing
            return None
        self._said.seek(0)
        return self._said.read().decode(errors="replace") if code else None


@contextmanager
def writing(argv: Sequence[str]) -> Iterator[Writer]:
    """Start a program, and end it when its reader has enough."""
    tracing.trace_program(argv)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
        )
        writer = Writer(process, said)
        try:
            yield writer
        finally:
            writer.output.close()
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
