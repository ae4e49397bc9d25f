"""Submits a batch.

A batch is known by its id alone: its jobs are called ``<batch>.<name>``, and those of an array in
it ``<batch>.<name>.<index>``, so every machine finds all of them wherever they are. What is written
down here is only a submission that is not complete: whoever repeats the same command goes on with
it, under the same ids, and what has been submitted is not submitted again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from dray import background
from dray.clusters.protocol import Cluster
from dray.config.batch_file import BatchFile, BatchJob
from dray.config.loading import Config
from dray.description import side_by_side
from dray.description.describing import fill_in, new_id
from dray.errors import ConfigError, DrayError
from dray.job.model import JobArray, JobSpec, Plan, Snapshot
from dray.job.quantities import show_count
from dray.launcher.batches.grouping import Group, Named, groups_of, in_order
from dray.launcher.batches.others import Others
from dray.launcher.batches.settings import dealt, settings_for
from dray.launcher.batches.together import as_one_job
from dray.launcher.context import Context
from dray.launcher.freezing import Freezer
from dray.launcher.intents import Intents
from dray.launcher.notifying import private_settings, private_values
from dray.launcher.pipelines import (
    NOTHING,
    Before,
    Pipelines,
    read_after,
    read_input,
    require_waiting,
)
from dray.launcher.running import Running
from dray.launcher.submission import Submission
from dray.node.formats import faults, files
from dray.node.jobs.arrays import fold
from dray.node.jobs.following import OK
from dray.records import NamedTuple, replace

FOLDER = "batches"  # of submissions that are not complete


class Work(NamedTuple):
    """What is submitted in one step, and where to."""

    group: Group
    context: Context
    cluster: Cluster
    work: JobSpec | JobArray
    before: Before = NOTHING  # jobs that are not of the batch

    @property
    def job(self) -> JobSpec:
        return self.work.common if isinstance(self.work, JobArray) else self.work

    @property
    def ids(self) -> list[str]:
        return self.work.ids if isinstance(self.work, JobArray) else [self.work.id]

    def with_job(self, job: JobSpec) -> Work:
        if isinstance(self.work, JobArray):
            return self._replace(work=self.work._replace(common=job))
        return self._replace(work=job)


class Planned(NamedTuple):
    """What would be submitted in one step, and for how many jobs."""

    plan: Plan
    commands: tuple[tuple[str, ...], ...]


class Submitted(NamedTuple):
    """A batch, and its jobs with their clusters."""

    id: str
    jobs: tuple[tuple[str, str], ...]


class Unfinished(NamedTuple):
    """A submission that is not complete."""

    id: str
    created: float
    is_new: bool = True


class Batching:
    def __init__(self, context: Context, allowed: Sequence[str] = ()) -> None:
        """Take the jobs of other projects that the user lets a file name."""
        self.context = context
        self.intents = Intents(context)
        self.others = Others(context, allowed)

    # -- planning

    def plan(self, file: BatchFile) -> tuple[list[Planned], Snapshot]:
        """Return exactly what ``submit`` would submit, without submitting it."""
        self.context.config.require_trust()
        works = self.works(file, Unfinished(new_id(file.name), time.time()))
        freezer = self._freezer(works)
        plans = []
        for one in works:
            one = one.with_job(planned(one))
            submission = self._submission(one, freezer)
            submission.freeze(only_look=True)
            plans.append(Planned(submission.plan(), commands_of(one.work)))
        return plans, freezer.take(only_look=True)

    def works(self, file: BatchFile, unfinished: Unfinished) -> list[Work]:
        """Describe all jobs of the batch, in the order in which they are submitted."""
        file = dealt(self.context.config, file)
        if file.together:
            file = as_one_job(file, self.context.config)
        groups = groups_of(file)
        named = Named(groups, unfinished.id)
        found: dict[str, Work] = {}
        for group in in_order(groups, named):
            with told_where(group.entry):
                found[group.name] = self._work(file, group, named, found, unfinished)
        return list(found.values())

    def _work(
        self,
        file: BatchFile,
        group: Group,
        named: Named,
        earlier: Mapping[str, Work],
        unfinished: Unfinished,
    ) -> Work:
        config = settings_for(self.context.config, file, group.entry)
        context = self.context.with_settings(config)
        cluster = context.cluster(config.on)
        commands = commands_in(group, config)
        job = Running(context).describe(commands[0], unfinished.created)
        job = replace(job, id=f"{unfinished.id}.{group.name}", name=group.name)
        cluster.check(job)
        require_size(group, cluster)
        after, inputs, before = self._befores(group, named, earlier, cluster)
        job = replace(job, after=after, inputs=inputs)
        require_waiting(job, job.after, cluster)
        work: JobSpec | JobArray = job
        if group.is_array:
            work = JobArray(job, tuple(fill_in(one, config).command for one in commands))
        return Work(group, context, cluster, work, before)

    def _befores(
        self, group: Group, named: Named, earlier: Mapping[str, Work], cluster: Cluster
    ) -> tuple[dict[str, str], dict[str, Mapping[str, str]], Before]:
        """Return what the jobs take from others of the batch, and what from elsewhere."""
        entry = group.entry
        after: dict[str, str] = {}
        inputs: dict[str, Mapping[str, str]] = {}
        others, foreign = [], {}
        for text in entry.after:
            reference, when = read_after(text)
            if named.group(reference) is None:
                others.append(text)
                continue
            self._require_same_place(group, named, reference, earlier, cluster)
            after.update(dict.fromkeys(fold(named.ids(reference, entry)), when))
        for name, text in Before.of((), entry.inputs).inputs.items():
            reference, path = read_input(name, text)
            if named.group(reference) is None:
                foreign[name] = text
                continue
            self._require_same_place(group, named, reference, earlier, cluster)
            ids = named.ids(reference, entry)
            if len(ids) > 1:
                raise entry.mistake(
                    f"inputs: {reference} has {len(ids)} jobs, and an input is of one",
                    hint=f"Name one of them: {reference}.0",
                )
            told = f"{ids[0]}:{path}" if path else ids[0]
            inputs[name] = {"job": ids[0], "path": path, "told": told}
            after.setdefault(ids[0], OK)
        for text in [*others, *foreign.values()]:
            self.others.require_allowed(entry, text.partition(":")[0], list(named.groups))
        return after, inputs, Before(tuple(others), foreign)

    def _require_same_place(
        self,
        group: Group,
        named: Named,
        reference: str,
        earlier: Mapping[str, Work],
        cluster: Cluster,
    ) -> None:
        found = named.group(reference)
        assert found is not None
        other = earlier[found.name].cluster
        if other.files.path() != cluster.files.path():
            raise group.entry.mistake(
                f"{reference} runs on {other.name}, and a job on {cluster.name} cannot wait for it",
                hint="Let both run on one cluster.",
            )

    def _freezer(self, works: Sequence[Work]) -> Freezer:
        outputs = dict.fromkeys(path for one in works for path in one.job.outputs)
        return Freezer(self.context, self.context.config.project, tuple(outputs))

    def _submission(
        self, one: Work, freezer: Freezer, given: Sequence[Snapshot] = ()
    ) -> Submission:
        running = Running(one.context)
        number = len(one.ids)
        settings = private_settings(one.context.config, one.cluster.name, None, number)
        private = private_values(one.job.secrets, settings)
        images = lambda: running.images  # noqa: E731
        return Submission(one.context, images, one.cluster, one.work, private, freezer, given)

    # -- submitting

    def submit(self, file: BatchFile) -> Submitted:
        """Submit all jobs, and return their ids. What an earlier call of the same could not
        complete is gone on with."""
        background.require_foreground()
        self.context.config.require_trust()
        with self._alone(file) as place:
            unfinished = self._unfinished(file, place)
            works = self.works(file, unfinished)
            for one in works:
                if not self._is_submitted(one):
                    planned(one)  # what is wrong with one is said before another is submitted
            if unfinished.is_new:
                files.write_json(place, {"id": unfinished.id, "created": unfinished.created})
            else:
                self.context.reporter.say(f"going on with {unfinished.id}, which was cut short")
            self._send_all(works, unfinished.id)
            files.discard(place)
        jobs = tuple((job_id, one.cluster.name) for one in works for job_id in one.ids)
        return Submitted(unfinished.id, jobs)

    @contextmanager
    def _alone(self, file: BatchFile) -> Iterator[str]:
        """Hold the lock of this very batch; yield where its submission is written down."""
        import hashlib  # with OpenSSL: only here

        config = self.context.config
        told = f"{config.project}\0{config.folder}\0{config.flags.get('job.on', '')}\0".encode()
        folder = str(config.home.data / FOLDER)
        files.make_folder(folder)
        place = f"{folder}/{hashlib.sha256(told + file.content).hexdigest()[:40]}"
        with files.Lock(f"{place}.lock") as lock:
            try:
                yield place
            finally:
                files.remove(lock.path)

    def _unfinished(self, file: BatchFile, place: str) -> Unfinished:
        found = files.read_record(place) or {}
        name, created = found.get("id"), found.get("created")
        if isinstance(name, str) and isinstance(created, float):
            return Unfinished(name, created, is_new=False)
        store, letters = self.context.open_store(), 4
        while True:
            unfinished = Unfinished(new_id(file.name, letters), time.time())
            if not store.matching(unfinished.id):
                return unfinished
            letters += 1

    def _send_all(self, works: Sequence[Work], batch: str) -> None:
        """Register every job before the first is sent; then send them, one group after another."""
        store = self.context.open_store()
        left = [one for one in works if not self._is_submitted(one)]
        freezer = self._freezer(works)
        with ExitStack() as locks:
            for one in left:
                locks.enter_context(self.intents.held(one.ids[0]))
            for one in left:
                self._register(one, freezer)
            faults.reach("run:intent-stored")
            while left:
                try:
                    self._send(left[0], freezer)
                except BaseException as error:
                    store.remove(*(job_id for one in left[1:] for job_id in one.ids))
                    self._tell_what_is_left(works, left, batch, error)
                    raise
                left.pop(0)

    def _is_submitted(self, one: Work) -> bool:
        store = self.context.open_store()
        return store.view(one.ids[-1]) is not None and store.intent_age(one.ids[-1]) is None

    def _register(self, one: Work, freezer: Freezer) -> None:
        store = self.context.open_store()
        if store.intent_age(one.ids[-1]) is not None:
            return  # by the call that was cut short
        if not self._submission(one, freezer).add_intent(goes_on=True):
            raise ConfigError(f"another job has the id {one.job.id}", hint="Try again.")

    def _send(self, one: Work, freezer: Freezer) -> None:
        for note in one.job.notes:
            self.context.say_once(note)
        with ExitStack() as stack:
            stack.enter_context(self.intents.settled(one.ids, one.cluster))
            bound = Pipelines(one.context).bound(one.job, one.before, one.cluster)
            job, given = stack.enter_context(bound)
            submission = self._submission(one.with_job(job), freezer, given)
            stack.enter_context(one.cluster.queue.prepared())
            submission.hand_over()
        submission.record()

    def _tell_what_is_left(
        self, works: Sequence[Work], left: Sequence[Work], batch: str, error: BaseException
    ) -> None:
        sent = sum(len(one.ids) for one in works) - sum(len(one.ids) for one in left)
        sent += self._number_sent_of(left[0])
        if not isinstance(error, DrayError | OSError | KeyboardInterrupt) or not sent:
            return
        self.context.reporter.say(
            f"{show_count(sent, 'job')} of {batch} {'is' if sent == 1 else 'are'} submitted, the "
            "others are not: the same command again goes on with them, "
            f"dray stop {batch} ends what is there"
        )

    def _number_sent_of(self, one: Work) -> int:
        """Return how many jobs of an array were submitted before it was cut in the middle. All
        that are still known may be those of a cluster that does not answer: that is told
        already."""
        if not isinstance(one.work, JobArray):
            return 0
        known = len(self.context.open_store().in_array(one.job.id))
        return known if known < len(one.ids) else 0


def planned(one: Work) -> JobSpec:
    """Return the job with what it takes from jobs outside of the batch."""
    with told_where(one.group.entry):
        return Pipelines(one.context).planned(one.job, one.before, one.cluster)


def commands_of(work: JobSpec | JobArray) -> tuple[tuple[str, ...], ...]:
    return work.commands if isinstance(work, JobArray) else (work.command,)


def commands_in(group: Group, config: Config) -> list[tuple[str, ...]]:
    """Return the command of each job, where several share one as well."""
    share = group.entry.share
    if share == 1:
        return [one[0] for one in group.jobs]
    if config.job.get("job.recipe"):
        raise group.entry.mistake(
            "share: a recipe starts one trainer, and not several side by side",
            hint='Write the whole command, and leave the recipe out: recipe = ""',
        )
    python = config.job.get("job.python", ())
    return [side_by_side.shared(one, python, at * share) for at, one in enumerate(group.jobs)]


def require_size(group: Group, cluster: Cluster) -> None:
    most = cluster.queue.array_size
    if len(group.jobs) > most:
        raise group.entry.mistake(
            f"{len(group.jobs)} jobs, and {cluster.name} takes {most} at once",
            hint="Divide them among several [[jobs]], each with a name.",
        )


@contextmanager
def told_where(entry: BatchJob) -> Iterator[None]:
    """Say of which job of the file an error tells."""
    try:
        yield
    except DrayError as error:
        if not error.message.startswith(entry.where.rpartition(":")[0]):
            error.message = f"{entry.where}: {error.message}"
        raise
