"""What is different when the warm process carries out a command for the user's own process.

The warm process has the user's arguments, folder, variables and open files, but not the terminal
(nobody can type a password into it), nor the limits and the priority that a job on this machine
would inherit. A command that needs those is given back, before anything has been done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

keep_warm = False  # a cluster is remote: a warm process is worth having for the next command
_can_give_back = False
_postponed: list[Callable[[], None]] | None = None
_ends: list[Callable[[], None]] | None = None


class NeedsTerminal(Exception):
    """The user's own process has to do this. Nothing has been done yet."""


def enter() -> None:
    global _can_give_back, _postponed
    _can_give_back, _postponed = True, []


def require_foreground() -> None:
    if _can_give_back:
        raise NeedsTerminal


def commit() -> None:
    """Rule out giving the command back from here on."""
    global _can_give_back
    _can_give_back = False


def remember_ends() -> None:
    """Say that this process will call ``end``, and then leave without taking itself apart."""
    global _ends
    _ends = []


def at_end(act: Callable[[], None]) -> None:
    """Register what an ordinary process does by itself when it ends."""
    if _postponed is not None:
        _postponed.append(act)
    elif _ends is not None:
        _ends.append(act)


def end() -> None:
    """Do it; what goes wrong then would be ignored at the end of an ordinary process, too."""
    for act in _ends or ():
        with suppress(Exception):
            act()


def after_reply(act: Callable[[], None]) -> None:
    """Run something that only helps the next command: in the background, only once the user has the
    answer."""
    if _postponed is None:
        act()
    else:
        _postponed.append(act)


def finish() -> None:
    for act in _postponed or ():
        act()
