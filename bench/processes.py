"""Adds up the CPU time of everything that this process has started, daemons and their jobs too.

On a machine that others use, how long something takes says little about what it costs."""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path

from dray.node.processes.process import parents

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent has ended."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_seconds() -> float:
    """Return what was used so far by this process, and by all below it, ended or not."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    ended = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    spent = sum(one.ru_utime + one.ru_stime for one in ended)
    return spent + sum(map(used_by, below(os.getpid())))


def below(pid: int) -> list[int]:
    parent_of = parents()
    found = [pid]
    for one in found:
        found += [child for child, parent in parent_of.items() if parent == one]
    return found[1:]


def used_by(pid: int) -> float:
    """Return the CPU time of a living process, and of its children that it has waited for."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it has just ended
        return 0.0
    fields = told.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
