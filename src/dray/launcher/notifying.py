"""Sends messages about jobs from this machine: decides where they go, and sends those that the
cluster could not send."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from dray.clusters.protocol import Cluster, Unsent
from dray.config import loading as configuration
from dray.config.loading import Config
from dray.config.secrets import resolve as secret_values
from dray.errors import ClusterError, UsageError
from dray.job.model import JobView, Private
from dray.job.options.other import NOTIFY_LONG_WAIT, NOTIFY_ON
from dray.node.formats import files
from dray.node.jobs.arrays import split
from dray.node.notifications import notify
from dray.reporter import Reporter
from dray.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dray.node.formats.records import Notice, NoticeSettings, Status

ON, LONG_WAIT = NOTIFY_ON.initial, NOTIFY_LONG_WAIT.initial
MOST_AT_ONCE = 20  # messages that one look sends from here
PATIENCE = 5.0  # seconds after which it begins to send no further one
LOCK = "notifying.lock"
DESKTOP_PATIENCE = 1.0  # seconds after which jobs are written down, and nothing is shown of them
QUIET = "submitted with --no-notify"
ASKED = "submitted with --notify"
TOLD = {True: "told of its end", False: "told of its start"}  # whatever the cluster calls that


# -- pure ---------------------------------------------------------------------------------------


def channels(settings: Mapping[str, Any]) -> list[str]:
    """Return the channels that a cluster can send by."""
    return [name for name in notify.CHANNELS if settings.get(name)]


def rules(settings: Mapping[str, Any], wanted: bool | None) -> NoticeSettings:
    """Return when to send a message. A job that was submitted with --notify is reported even if it
    ends quickly."""
    return {
        "on": list(settings.get("on", ON)),
        "after": 0.0 if wanted else settings.get("after", 0.0),
        "long_wait": settings.get("long_wait", LONG_WAIT),
    }


def facts_of(view: JobView, event: str) -> Notice:
    """Return what a message says of a job that was seen from here."""
    status: Status = {
        "id": view.id,
        "job": {"name": view.spec.name, "created": view.spec.created},
        "state": str(view.state),
        "reason": view.reason,
        "ended": view.ended,
        "attempts": [one.to_dict() for one in view.attempts],
    }
    return notify.facts_of(event, status, view.cluster)


def facts_of_array(array: str, views: Sequence[JobView]) -> Notice:
    spec = views[0].spec
    ended = max((one.ended or 0.0 for one in views), default=0.0)
    return notify.facts_of_array(
        array,
        [str(one.state) for one in views],
        {"name": spec.name, "created": spec.created},
        {"cluster": views[0].cluster, "ended": ended or None},
    )


def since_resumed(events: Sequence[str]) -> Sequence[str]:
    """Return the events of a job since it began, or was resumed last."""
    last = max((index for index, what in enumerate(events) if what == "resumed"), default=-1)
    return events[last + 1 :]


def summary(views: Sequence[JobView]) -> tuple[str, str]:
    """Return a title and a text for jobs that were seen to end at the same time."""
    if len(views) == 1:
        facts = facts_of(views[0], notify.end_event(str(views[0].state)))
        return notify.title(facts), notify.text(facts)
    counts = Counter(str(one.state) for one in views)
    told = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    return f"{len(views)} jobs have ended", f"{told}: {views[0].id} …"


# -- acting -------------------------------------------------------------------------------------


class Notifier:
    def __init__(self, config: Config, store: Store, reporter: Reporter) -> None:
        self.config = config
        self.store = store
        self.reporter = reporter

    def send_left(self, cluster: Cluster) -> None:
        """Send the messages that the cluster could not send, of jobs that were submitted from
        here."""
        until, tried = time.monotonic() + PATIENCE, 0
        for message in cluster.queue.unsent():
            if tried == MOST_AT_ONCE or time.monotonic() > until:
                break  # the others wait for the next look
            views = self._jobs_of(message, cluster.name)
            if not views:
                continue
            tried += 1
            with self._alone() as is_alone:
                if not is_alone:
                    break
                self._send_one(message, views, cluster)

    @contextmanager
    def _alone(self, seconds: float = 0.0) -> Iterator[bool]:
        """Yield whether no other process is sending, after waiting for at most this time. The other
        one may be suspended, so it is not waited for any longer."""
        files.make_folder(str(self.config.home.data))
        lock = files.Lock(str(self.config.home.data / LOCK))
        until = time.monotonic() + seconds
        while not (taken := lock.take(wait=False)) and time.monotonic() < until:
            time.sleep(0.05)
        try:
            yield taken
        finally:
            if taken:
                lock.__exit__()

    def _jobs_of(self, message: Unsent, cluster: str) -> list[JobView]:
        """Return the jobs that a message is about; none where one of them was not submitted from
        here to this cluster, as a cluster has no say in what else is sent from this machine."""
        ids = self.store.in_array(message.id) or [message.id]
        views = [view for one in ids if self.store.is_own(one) and (view := self.store.view(one))]
        is_theirs = len(views) == len(ids) and all(one.cluster == cluster for one in views)
        if not is_theirs or not message.channels or self._is_told_with_others(message.id):
            return []
        return views

    def _is_told_with_others(self, name: str) -> bool:
        """Return whether the job is part of an array's message: it has none of its own until it is
        resumed."""
        place = split(name)
        if place is None or len(self.store.in_array(place[0])) < 2:
            return False
        return "resumed" not in [what for _, what in self.store.events(name)]

    def _send_one(self, message: Unsent, views: Sequence[JobView], cluster: Cluster) -> None:
        if message.over and any(one.state.active for one in views):
            return  # as far as is known here
        facts = self._facts(message, views)
        events = [what for _, what in self.store.events(views[0].id)]
        is_due = TOLD[message.over] not in since_resumed(events) and QUIET not in events
        is_due = is_due and self._is_wanted(message, views, facts, ASKED in events)
        if is_due and not self._send(message, views[0].id, facts):
            return
        with suppress(ClusterError, OSError):  # the next look asks again, and sends nothing again
            cluster.queue.settle(message)

    def _facts(self, message: Unsent, views: Sequence[JobView]) -> Notice:
        if not message.over:
            return facts_of(views[0], notify.STARTED)
        if views[0].id != message.id:
            return facts_of_array(message.id, views)
        return facts_of(views[0], notify.end_event(str(views[0].state)))

    def _is_wanted(
        self, message: Unsent, views: Sequence[JobView], facts: Notice, asked: bool
    ) -> bool:
        """Decide by the settings of this machine, whatever the cluster makes of them. ``asked``
        says whether the job was submitted with --notify."""
        settings, now = rules(self.config.notify, asked), time.time()
        spec, attempts = views[0].spec, views[0].attempts
        if message.over:
            age = now - spec.created
            elapsed = age if facts["elapsed"] is None else min(facts["elapsed"], age)
            return notify.wanted_end(settings, {**facts, "elapsed": elapsed}) is not None
        started = attempts[0].started if attempts else None
        if started is None or views[0].id != message.id:
            return False
        return notify.waited_long(settings, spec.to_dict(), min(started, now))

    def _send(self, message: Unsent, job_id: str, facts: Notice) -> bool:
        """Send the message; return whether that was tried, or never can be. If not, a later
        command, perhaps from another shell, may send it."""
        from dray.node.notifications import sending  # only here

        wanted = [one for one in channels(self.config.notify) if one in message.channels]
        try:
            to = addresses(self.config.notify, wanted)
        except UsageError as error:
            self.reporter.say(f"the message about {message.id} is not sent yet: {error.message}")
            return False
        told = sending.send_all(to, {**facts, "sent_by": "laptop"}) if to else {}
        if to:
            self.store.add_event(TOLD[message.over], job_id)
        missing = dict.fromkeys(sorted(set(message.channels) - set(to)), "it is not set here")
        failed = {**{name: why for name, why in told.items() if why}, **missing}
        if failed:
            why = ", ".join(f"{name}: {reason}" for name, reason in failed.items())
            self.reporter.say(f"the message about {message.id} could not be sent ({why})")
        return True

    # -- on the desktop

    def save(self, views: Sequence[JobView]) -> None:
        """Save what was seen, and show which of our jobs have ended; one process alone shows it."""
        if not self.config.notify.get("desktop") or all(one.state.active for one in views):
            self.store.save(views)
            return
        with self._alone(DESKTOP_PATIENCE) as is_alone:
            before = [self.store.view(one.id) for one in views]
            self.store.save(views)
            was_active = {one.id for one in before if one is not None and one.state.active}
        news = [one for one in views if one.id in was_active and self._is_news(one)]
        if news and is_alone:
            self._show(news)

    def _is_news(self, view: JobView) -> bool:
        """Return whether the end of this job is to be shown; of an array, only that of its last job
        is."""
        told = self.config.notify.get("on", ON)
        if view.state.active or notify.end_event(str(view.state)) not in told:
            return False
        after = view.spec.created + self.config.notify.get("after", 0.0)
        if not self.store.is_own(view.id) or (view.ended or time.time()) < after:
            return False
        if QUIET in [what for _, what in self.store.events(view.id)]:
            return False
        place = split(view.id)
        others = self.store.in_array(place[0]) if place else []
        return not any(one.state.active for other in others if (one := self.store.view(other)))

    def _show(self, views: Sequence[JobView]) -> None:
        from dray.programs import desktop  # only here

        problem = desktop.show(*summary(views))
        if problem:
            self.reporter.say(f"no notification could be shown: {problem}")


def private_settings(
    config: Config, cluster: str, wanted: bool | None, jobs: int = 0
) -> dict[str, Any]:
    """Return the notification settings that are sent with a job; empty where nobody is notified."""
    names = channels(config.notify)
    if wanted and not names and not config.notify.get("desktop"):
        raise UsageError(
            "nobody is to be notified: there is no [notify] in your config.toml",
            hint=f"Add one to {config.home.config_file}: see docs/how-to/get-notified.md.",
        )
    if wanted is False or not names:
        return {}
    found = {"to": addresses(config.notify, names), "cluster": cluster}
    return {**found, **rules(config.notify, wanted), **({"jobs": jobs} if jobs > 1 else {})}


def private_values(secrets: Sequence[str], settings: Mapping[str, Any]) -> Private:
    """Return what is sent with a job: its secrets' values, and who is notified."""
    return Private(secret_values(secrets, configuration.environment()), settings)


def addresses(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Return where to send, by channel; a URL is the value of a secret."""
    found = {}
    for name in names:
        value = settings[name]
        if name != notify.MAIL:
            value = address(name, value)
        found[name] = value
    return found


def address(channel: str, secret: str) -> str:
    try:
        found = secret_values([secret], configuration.environment())[secret]
    except UsageError as error:
        hint = f"{error.hint} Or submit with --no-notify."
        raise UsageError(f"[notify] {channel}: {error.message}", hint=hint) from error
    if not notify.is_address(channel, found):
        raise UsageError(
            f"[notify] {channel}: the value of the secret {secret} is not a URL",
            hint="It has to begin with https:// (or http://) and hold no spaces.",
        )
    return found


def notes(config: Config, wanted: bool | None) -> tuple[str, ...]:
    """Return what ``plan`` says of notifications."""
    names = channels(config.notify)
    if wanted is False or not names:
        return ()
    told = ", ".join(config.notify.get("on", ON))
    return (f"notify by {', '.join(names)} on {told}: the addresses go to notify.json",)


def test(config: Config) -> dict[str, str]:
    """Send one message from here by every channel; return why each failed, or ''."""
    from dray.node.notifications import sending
    from dray.programs import desktop

    now = time.time()
    status: Status = {
        "id": "dray-test",
        "job": {"name": "dray-test", "created": now},
        "state": "done",
        "reason": "this is only a test",
        "ended": now,
        "attempts": [],
    }
    facts = notify.facts_of(notify.DONE, status, "this machine")
    told: dict[str, str] = {}
    for name in channels(config.notify):
        try:
            to = addresses(config.notify, [name])
        except UsageError as error:
            told[name] = error.message
        else:
            told.update(sending.send_all(to, {**facts, "sent_by": "laptop"}))
    if config.notify.get("desktop"):
        told["desktop"] = desktop.show(notify.title(facts), notify.text(facts))
    return told
