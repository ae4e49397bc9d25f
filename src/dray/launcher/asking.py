"""Asks several clusters side by side, so that one that hangs does not delay the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from dray.clusters.protocol import Cluster
from dray.errors import LoginNeeded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue import SimpleQueue
    from typing import NoReturn, TypeVar

    T = TypeVar("T")
    Answer = Callable[[], T]  # returns what the cluster has answered, or raises why it has not
    Take = Callable[[Cluster, Answer[T]], None]


def ask_each(clusters: Sequence[Cluster], question: Callable[[Cluster], T], take: Take[T]) -> None:
    """Ask every cluster, and pass each answer to ``take`` when it comes.

    Threads only ask: ``take`` is called in the caller's own thread, where the store may be used.
    Only one login at a time can ask the user for a password, so clusters that need one are asked
    again at the end, one after another. Whatever ends the caller, such as Ctrl-C, ends all."""
    away = [one for one in clusters if not one.capabilities.is_local]
    if len(away) < 2:
        for one in clusters:
            take(one, partial(question, one))
        return
    here = [one for one in clusters if one.capabilities.is_local]
    asked_again = _ask_at_once(away, here, question, take)
    for one in asked_again:
        take(one, partial(question, one))


def _ask_at_once(
    away: Sequence[Cluster],
    here: Sequence[Cluster],
    question: Callable[[Cluster], T],
    take: Take[T],
) -> list[Cluster]:
    """Ask without a terminal; return the clusters that need a password."""
    from queue import SimpleQueue  # not for a listing of one cluster's jobs
    from threading import Thread

    answers: SimpleQueue[tuple[Cluster, Answer[T], BaseException | None]] = SimpleQueue()
    pending, left = list(away), []
    try:
        for one in away:
            one.may_ask = False
            Thread(target=_ask, args=(one, question, answers), daemon=True).start()
        for one in here:
            take(one, partial(question, one))
        while pending:
            cluster, answer, error = answers.get()
            pending.remove(cluster)
            if isinstance(error, LoginNeeded):
                left.append(cluster)
            else:
                take(cluster, answer)
    finally:
        for one in pending:
            one.hang_up()
        for one in away:
            one.may_ask = True
    return left


def _ask(
    cluster: Cluster,
    question: Callable[[Cluster], T],
    answers: SimpleQueue[tuple[Cluster, Answer[T], BaseException | None]],
) -> None:
    try:
        found = question(cluster)
    except BaseException as error:
        answers.put((cluster, partial(_raise, error), error))
    else:
        answers.put((cluster, lambda: found, None))


def _raise(error: BaseException) -> NoReturn:
    raise error
