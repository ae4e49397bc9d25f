"""What differs where a command is carried out in the background, for a user's own process.

Such a process has the user's arguments, folder, variables and open files, but not the terminal
(nobody can type a password into it), nor the limits and the priority that a job on this machine
would inherit. What needs those is given back, before anything has been done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

wanted = False  # a cluster is far away: it is worth it to have a process ready for the next command
_can_give_back = False
_postponed: list[Callable[[], None]] | None = None
_ends: list[Callable[[], None]] | None = None


class GivenBack(Exception):
    """The user's own process has to do this; nothing has been done yet."""


def enter() -> None:
    global _can_give_back, _postponed
    _can_give_back, _postponed = True, []


def require_foreground() -> None:
    if _can_give_back:
        raise GivenBack


def go_ahead() -> None:
    """From here on there is no way back."""
    global _can_give_back
    _can_give_back = False


def remember_ends() -> None:
    """Say that this process will call ``end``, and then leave without taking itself apart."""
    global _ends
    _ends = []


def at_end(act: Callable[[], None]) -> None:
    """Do what the end of an ordinary process does by itself."""
    if _postponed is not None:
        _postponed.append(act)
    elif _ends is not None:
        _ends.append(act)


def end() -> None:
    """Do it; what goes wrong then would be ignored at the end of an ordinary process, too."""
    for act in _ends or ():
        with suppress(Exception):
            act()


def later(act: Callable[[], None]) -> None:
    """Something that only helps the next command: in the background it is done when the user has
    got the answer."""
    if _postponed is None:
        act()
    else:
        _postponed.append(act)


def finish() -> None:
    for act in _postponed or ():
        act()
