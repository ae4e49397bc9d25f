"""Looks at the queues of clusters, and at what the user may use of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.clusters.protocol import Cluster
from dray.job.situation import Allowance, QueueEntry, QueueView
from dray.launcher.asking import ask_each
from dray.launcher.context import UNAVAILABLE, Context, message_of
from dray.node.schedulers import fair_order
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from dray.launcher.asking import Answer

    T = TypeVar("T")

MOST_ALIKE = 100  # jobs of one array


class FairOrder(NamedTuple):
    """A queue by the rule fair-gpu: see dray.node.schedulers.fair_order."""

    ranked: tuple[tuple[int, QueueEntry], ...]
    above: int  # how many of them the GPUs suffice for
    gpus: float
    yields: QueueEntry | None = None  # the last that runs, if a newcomer's first GPU needs one
    mail: tuple[str, ...] = ()  # to its owner


class Queued(NamedTuple):
    cluster: str
    view: QueueView
    fair: FairOrder | None = None


class Allowed(NamedTuple):
    cluster: str
    allowance: Allowance


class Queues:
    def __init__(self, context: Context) -> None:
        self.context = context

    def view(self, on: str | None) -> list[Queued]:
        """Return the queue of each cluster, or of one; those that do not answer are told of."""
        found = self._of_each(on, lambda cluster: cluster.situation.view())
        return [Queued(name, view, self._fair(name, view)) for name, view in found]

    def allowances(self, on: str | None) -> list[Allowed]:
        found = self._of_each(on, lambda cluster: cluster.situation.allowance())
        return [Allowed(name, allowance) for name, allowance in found]

    def _fair(self, name: str, view: QueueView) -> FairOrder | None:
        settings = self.context.config.cluster(name).settings
        return by_fair_gpu(view, name) if settings.get("order") == fair_order.NAME else None

    def _of_each(self, on: str | None, ask: Callable[[Cluster], T]) -> list[tuple[str, T]]:
        found: dict[str, T] = {}

        def take(cluster: Cluster, answer: Answer[T]) -> None:
            try:
                found[cluster.name] = answer()
            except UNAVAILABLE as error:
                if on is not None:
                    raise
                self.context.reporter.say(message_of(error))

        names = [on] if on is not None else list(self.context.config.clusters)
        ask_each([self.context.cluster(name) for name in names], ask, take)
        return [(name, found[name]) for name in names if name in found]


# -- pure ---------------------------------------------------------------------------------------


def by_fair_gpu(view: QueueView, cluster: str) -> FairOrder:
    """Order a queue by the rule, the jobs of an array one by one. What is held stands in nobody's
    way."""
    entries = [
        one._replace(jobs=1)
        for one in view.entries
        if one.gpus and not one.is_held
        for _ in range(min(one.jobs, MOST_ALIKE))
    ]
    jobs = [(one.owner, one.priority, one.submitted or 0.0, one.gpus) for one in entries]
    ranked = tuple((rank, entries[index]) for rank, index in fair_order.ranks(jobs))
    gpus = float(sum(pool.total for pool in view.pools))
    above = fair_order.fitting([one.gpus for _, one in ranked], gpus)
    order = FairOrder(ranked, above, gpus)
    running = [(rank, one) for rank, one in ranked if not one.is_waiting]
    is_full = sum(pool.free for pool in view.pools) < 1
    if not is_full or not running or running[-1][0] < 2:  # nobody has more than a first GPU
        return order
    last = running[-1][1]
    return order._replace(yields=last, mail=tuple(mail_to(last, cluster)))


def mail_to(entry: QueueEntry, cluster: str) -> Sequence[str]:
    return (
        f"To: {entry.owner}",
        f"Subject: your job {entry.number} on {cluster}",
        f"All GPUs of {cluster} are taken, and I would like to start my first job there.",
        f"By our rule your job {entry.number} is the last in the queue. May I end it, or would",
        "you, once it has saved a checkpoint?",
    )
