"""What all verbs share: the settings, the clusters, the store, and the person at the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from types import MappingProxyType

from dray import background
from dray.clusters.protocol import Cluster
from dray.config.loading import Config
from dray.errors import ClusterError, DrayError, Refused, StorageError, from_os_error
from dray.job.model import JobView
from dray.launcher.asking import ask_each
from dray.reporter import Reporter
from dray.store import Damaged, Store, rebuilding, set_aside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dray.launcher.asking import Answer
    from dray.launcher.notifying import Notifier

# A cluster cannot be asked: it does not answer, has trouble with its disk, or its root cannot be
# trusted. That is no reason to say nothing of the others.
UNAVAILABLE = (ClusterError, StorageError, Refused, OSError)


class Context:
    """``clusters`` are those that exist already, such as a test's."""

    def __init__(
        self,
        config: Config,
        reporter: Reporter,
        clusters: Mapping[str, Cluster] = MappingProxyType({}),
    ) -> None:
        self.config = config
        self.reporter = reporter
        self._made = clusters
        self._clusters = dict(clusters)
        self._store: Store | None = None
        self._complaints: set[str] = set()

    def cluster(self, name: str) -> Cluster:
        if name not in self._clusters:
            from dray.clusters import registry  # with every option; not for a listing

            chosen = self.config.cluster(name)
            home = self.config.home
            self._clusters[name] = registry.make(
                chosen.kind, name, chosen.settings, home.data, home.cache
            )
        return self._clusters[name]

    def for_config(self, config: Config) -> Context:
        """Return the context of another folder's settings, with the same reporter."""
        return Context(config, self.reporter, self._made)

    def with_settings(self, config: Config) -> Context:
        """Return this context with other settings of jobs: one store, and one connection to each
        cluster, serve both."""
        self.open_store()
        other = copy(self)
        other.config = config
        return other

    # -- the store

    def open_store(self) -> Store:
        """Open the database of jobs, once. If it is new, or was damaged, it is filled from the
        jobs' own directories: every cluster is asked then."""
        if self._store is None:
            path = self.config.home.store
            try:
                store = Store(path)
            except Damaged as error:
                store = self._rebuild(path, error)
            else:
                background.at_end(store.close)
                if store.is_new:  # the first one here, or the last one was lost or moved away
                    self._fill(store)
            self._store = store
        return self._store

    def _rebuild(self, path: Path, error: Damaged) -> Store:
        with rebuilding(path):
            try:
                return Store(path)  # another dray has rebuilt it meanwhile
            except Damaged:
                aside = set_aside(path)
            store = Store(path)
            self._fill(store)
        self.reporter.say(
            f"{error.message}. It was moved to {aside} and rebuilt from the jobs' own directories: "
            f"{store.count()} found."
        )
        return store

    def _fill(self, store: Store) -> None:
        def take(cluster: Cluster, answer: Answer[list[JobView]]) -> None:
            with self._unlisted(cluster.name):
                store.save(unclaimed(store, answer()))

        clusters: list[Cluster] = []
        for name in self.config.clusters:
            with self._unlisted(name):
                clusters.append(self.cluster(name))
        ask_each(clusters, jobs_on, take)

    @contextmanager
    def _unlisted(self, name: str) -> Iterator[None]:
        """Warn that a cluster cannot be asked, and that its jobs are not known."""
        try:
            yield
        except UNAVAILABLE as error:
            self.reporter.say(
                f"jobs on {name} are not listed: {message_of(error)}. "
                f"dray ps --on {name} --all finds them once it answers."
            )

    # -- the person

    def notifier(self) -> Notifier:
        from dray.launcher.notifying import Notifier  # not where nothing is listed

        return Notifier(self.config, self.open_store(), self.reporter)

    def say_once(self, *messages: str) -> None:
        for message in messages:
            if message not in self._complaints:
                self.reporter.say(message)
            self._complaints.add(message)

    def keep(self, write: Callable[[], None]) -> None:
        """Save what was seen. If the disk is full, it is shown all the same."""
        try:
            write()
        except StorageError as error:
            self.say_once(error.message)


def jobs_on(cluster: Cluster) -> list[JobView]:
    """Ask a cluster for all of its jobs."""
    return list(cluster.queue.status(list(cluster.queue.ids())).jobs.values())


def unclaimed(store: Store, views: Iterable[JobView]) -> list[JobView]:
    """Drop jobs that are known as another cluster's; add what only the store knows of the
    others."""
    return [seen for view in views if (seen := store.as_seen(view)) is not None]


def message_of(error: DrayError | OSError) -> str:
    return (error if isinstance(error, DrayError) else from_os_error(error)).message
