"""Makes sure that a job's notices are sent: once for the job, not once for each attempt.

    <root>/jobs/<id>/notify.json   where to send what, and what was sent; gone once all is sent
    <root>/notify/<id>             locked by the sender; stays if sending has failed

The node sends once the job's end is on disk. What it could not send is found by the next process
that looks at the jobs, on the login node and then on the laptop. A sender holds the lock and
records what was sent before it releases it. So nothing is sent twice, unless the sender is killed,
or the answer lost, after the other side has accepted the notice: twice is better than never. Each
notice is tried a few times over a few days, and then dropped, together with its address.

An array has one notice: the job that ends last sends it.
"""

import itertools
import os
import time

from ..formats import files, shapes
from ..formats.messages import print_message
from ..jobs import arrays, states
from ..jobs.arrays import ArrayDir
from ..jobs.jobdir import JobDir
from . import notify, sending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple  # noqa: F401

    from ..formats.records import (  # noqa: F401
        ArrayEnd,
        Description,
        End,
        Notice,
        NoticeSettings,
        Status,
        UnsentNotice,
    )

FOLDER = "notify"
LONGEST_PLACE = 300  # bytes
LARGEST = 1 << 16  # bytes of a job's settings
MOST_TRIES = 5
PAUSE = 600.0  # seconds between two tries
TOO_OLD = 3 * 86400.0  # seconds after which a notice is no longer of use
MOST_AT_ONCE = 1000  # notices that one look handles
LOOK_PATIENCE = 5.0  # seconds that sending may add to one look
NODE, LOGIN, LAPTOP = "node", "login node", "laptop"


# -- the job's settings ---------------------------------------------------------------------------


def read(job_dir: JobDir) -> "Optional[NoticeSettings]":
    """Read which notices go where; None if there are none, or the file is damaged."""
    found = files.read_record(job_dir.notify, LARGEST) or {}
    is_usable = shapes.fits(found, dict(notify.SETTINGS, end=is_end), ("to", "on"))
    read = dict({"left": {}, "tries": 0, "cluster": ""}, **found)  # type: Any
    settings = read  # type: NoticeSettings
    return settings if is_usable else None


def is_end(value: "Any") -> bool:
    return shapes.is_record(value) and shapes.fits(value, shapes.END, ("state",))


def is_wanted(job_dir: JobDir) -> bool:
    """Return whether any notice is wanted. A quick check."""
    return files.exists(job_dir.notify)


def name_of(job_dir: JobDir, settings: "NoticeSettings") -> str:
    """Return the name of the claim. The jobs of an array share one."""
    place = arrays.split(job_dir.id) if settings.get("jobs") else None
    return place[0] if place else job_dir.id


# -- who sends ------------------------------------------------------------------------------------


class Claim(files.Lock):
    """A lock held by whoever sends. Its file says where the settings are, and stays until
    everything is sent."""

    def __init__(self, job_dir: JobDir, name: str) -> None:
        folder = os.path.join(job_dir.root, FOLDER)
        files.make_folder(folder, durable=False)
        files.Lock.__init__(self, os.path.join(folder, name))
        self.place = os.path.relpath(job_dir.path, job_dir.root)

    def take(self, wait: bool = False) -> bool:
        """Take the claim if it is free, or wait for as long as sending may take."""
        until = time.monotonic() + (sending.PATIENCE + 2.0 if wait else 0.0)
        while not files.Lock.take(self, wait=False):
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, self.place.encode("utf-8", "surrogateescape"), 0)
        return True

    def settle(self) -> None:
        """Delete the claim: nothing is left to send."""
        files.discard(self.path)


def pending(root: str) -> "Iterator[Tuple[str, Optional[JobDir]]]":
    """Yield the names of claims that were left or are held, with the directory that has the
    settings."""
    folder = os.path.join(root, FOLDER)
    for name in files.names_in(folder):
        if not name.endswith((".lease", ".new", ".old", ".tmp")) and shapes.is_id(name):
            content = files.read_piece(os.path.join(folder, name), 0, LONGEST_PLACE)[1]
            yield name, directory(root, content.decode("utf-8", "replace"))


def directory(root: str, place: str) -> "Optional[JobDir]":
    """Return the directory that a claim's file names, if it is one of ours."""
    kind, _, name = place.partition("/")
    if kind not in ("jobs", "arrays") or not shapes.is_id(name):
        return None
    return ArrayDir(root, name) if kind == "arrays" else JobDir(os.path.join(root, kind, name))


# -- on the node ----------------------------------------------------------------------------------


def at_end(job_dir: JobDir) -> None:
    """Send the notice of the end that was recorded. No failure of it may hurt the job."""
    try:
        if is_wanted(job_dir):
            deliver_end(job_dir, NODE)
    except Exception as error:
        print_message("the notice of the job's end could not be sent: {!r}".format(error))


def at_start(job_dir: JobDir, job: "Description") -> None:
    """Send the notice of the first attempt if the job has waited for long. Nothing waits for it."""
    try:
        settings = read(job_dir) if is_wanted(job_dir) else None
        if settings is not None and notify.waited_long(settings, job, time.time()):
            in_background(lambda: deliver_start(job_dir, NODE))
    except Exception as error:
        print_message("the notice of the job's start could not be sent: {!r}".format(error))


def in_background(act: "Callable[[], Any]") -> None:
    """Run ``act`` in a process that is neither our child nor the command's."""
    pid = os.fork()
    if pid > 0:
        os.waitpid(pid, 0)
        return
    try:
        if os.fork() == 0:
            os.setsid()
            os.closerange(3, 1024)  # among them locks, which would outlive their holder
            act()
    finally:
        os._exit(0)


# -- by whoever looks -----------------------------------------------------------------------------


def look(
    root: str, over: "Iterable[Status]", sent_by: str, seconds: float = LOOK_PATIENCE
) -> "List[UnsentNotice]":
    """Send what the nodes could not send; return what is still unsent. ``over``: the status of jobs
    that nobody runs any more."""
    try:
        for status in over:
            job_dir = JobDir(os.path.join(root, "jobs", status["id"]))
            if is_wanted(job_dir):
                remember_end(job_dir, status)
        claims = list(itertools.islice(pending(root), MOST_AT_ONCE))
    except OSError:  # a full disk, say: the next look tries again
        return []
    until = time.monotonic() + seconds
    unsent = []
    for name, found in claims:
        try:
            left = try_again(root, name, found, sent_by, until - time.monotonic())
        except Exception:  # one that is damaged must not hide the others
            continue
        if left is not None:
            unsent.append(left)
    return unsent


def remember_end(job_dir: JobDir, status: "Status") -> None:
    """Record the end of a job that fell silent, and that a notice is due."""
    settings = read(job_dir)
    if settings is None:
        files.discard(job_dir.notify)
        return
    end = {"state": status.get("state") or "", "reason": status.get("reason") or ""}  # type: End
    end["time"] = status.get("ended") or time.time()
    add_end(job_dir, settings, end)


def array_is_over(array: ArrayDir) -> None:
    """Record that the queue has none of the array's jobs any more: those that have not started
    never will."""
    settings = read(array) if is_wanted(array) else None
    if settings is not None:
        add_end(array, settings, {"state": "lost", "reason": "", "time": time.time()})


def add_end(job_dir: JobDir, settings: "NoticeSettings", end: "End") -> None:
    """Record the end, and leave the claim's file: whoever goes through the claims sends the
    notice."""
    claim = Claim(job_dir, name_of(job_dir, settings))
    if not claim.take():
        return
    try:
        now = read(job_dir)  # another process may have sent it in the meantime
        if now is not None and job_dir.ended() is None and not now.get("end"):
            now["end"] = end
            files.write_json(job_dir.notify, now)
    finally:
        claim.__exit__()


def try_again(
    root: str, name: str, job_dir: "Optional[JobDir]", sent_by: str, seconds: float
) -> "Optional[UnsentNotice]":
    """Try to send once more. Return what is left to send; None if nothing is."""
    settings = read(job_dir) if job_dir is not None else None
    if job_dir is None or settings is None:
        drop(root, name)  # the job is gone, or another process has sent it
        return None
    is_over = job_dir.ended() is not None or bool(settings.get("end"))
    if not is_over and not settings["left"].get(notify.STARTED):
        drop(root, name)  # it was resumed in the meantime
        return None
    rested = time.time() - (settings.get("looked") or 0.0) > PAUSE
    if rested and seconds > 0:
        deliver = deliver_end if is_over else deliver_start
        if not deliver(job_dir, sent_by, seconds):
            return None
    left = (read(job_dir) or settings)["left"]
    events = [one for one in sorted(left) if (one == notify.STARTED) != is_over]
    channels = left[events[0]] if events else sorted(settings["to"])
    return {"id": name, "over": is_over, "channels": channels}


def drop(root: str, name: str) -> None:
    """Delete a claim that nobody holds."""
    lock = files.Lock(os.path.join(root, FOLDER, name))
    if lock.take(wait=False):
        files.discard(lock.path)
        lock.__exit__()


def settle(root: str, name: str, is_over: bool) -> None:
    """Delete a claim whose notice the laptop has sent or given up."""
    for found, job_dir in pending(root):
        if found != name or job_dir is None:
            continue
        claim = Claim(job_dir, name)
        if claim.take():
            try:
                settings = read(job_dir)
                if settings is not None:
                    event = notify.DONE if is_over else notify.STARTED
                    finish(claim, job_dir, settings, event)
            finally:
                claim.__exit__()


# -- sending --------------------------------------------------------------------------------------


def deliver_start(job_dir: JobDir, sent_by: str, seconds: float = sending.PATIENCE) -> bool:
    """Whether something is left to be sent."""
    status = states.status(job_dir, True)
    if status is None:
        return False

    def facts(settings: "NoticeSettings") -> "Optional[Notice]":
        return notify.facts_of(notify.STARTED, status, settings["cluster"])

    return deliver(job_dir, facts, sent_by, seconds)


def deliver_end(job_dir: JobDir, sent_by: str, seconds: float = sending.PATIENCE) -> bool:
    """Send the notice of the end. Return whether anything is left to send."""

    def facts(settings: "NoticeSettings") -> "Optional[Notice]":
        if settings.get("jobs"):
            return array_facts(job_dir, settings)
        status = states.status(job_dir, True)
        if status is None:
            return None
        if settings.get("end"):
            end = settings["end"]
            status["state"], status["reason"] = end["state"], end.get("reason") or ""
            status["ended"] = end.get("time")
        return notify.facts_of(notify.end_event(status["state"]), status, settings["cluster"])

    return deliver(job_dir, facts, sent_by, seconds)


def deliver(
    job_dir: JobDir,
    facts_in: "Callable[[NoticeSettings], Optional[Notice]]",
    sent_by: str,
    seconds: float,
) -> bool:
    """Take the claim, and send what is left over the channels that are left. Return whether
    anything remains."""
    settings = read(job_dir)
    if settings is None:
        return False
    claim = Claim(job_dir, name_of(job_dir, settings))
    # The node waits: its start may still be being sent, and of the jobs of an array that end
    # together each has to see whether it was the last one.
    if not claim.take(wait=sent_by == NODE):
        return False  # somebody is sending it right now
    try:
        settings = read(job_dir)
        facts = facts_in(settings) if settings is not None else None
        if settings is None or facts is None:
            release(claim, job_dir, settings)
            return False
        facts["sent_by"] = sent_by
        return send_left(claim, job_dir, settings, facts, seconds)
    finally:
        claim.__exit__()


def release(claim: Claim, job_dir: JobDir, settings: "Optional[NoticeSettings]") -> None:
    """Delete the claim: another process has sent the notice, or the last job of the array will.
    The settings are deleted too, unless they hold the end of a job that recorded none itself."""
    claim.settle()
    if settings is not None and not settings.get("end"):
        files.discard(job_dir.notify)


def send_left(
    claim: Claim, job_dir: JobDir, settings: "NoticeSettings", facts: "Notice", seconds: float
) -> bool:
    event = facts["event"]
    is_wanted_now = event == notify.STARTED or notify.wanted_end(settings, facts)
    channels = settings["left"].get(event, sorted(settings["to"])) if is_wanted_now else []
    to = {one: settings["to"][one] for one in channels if one in settings["to"]}
    results = sending.send_all(to, facts, min(seconds, sending.PATIENCE)) if to else {}
    failed = {one: results[one] for one in sorted(results) if results[one]}
    if facts["sent_by"] == NODE:  # elsewhere stdout carries an answer
        for channel in failed:
            print_message(
                "the notice by {} ({}) was not sent: {}".format(channel, event, failed[channel])
            )
    tries = settings["tries"] + 1
    too_old = facts["ended"] is not None and time.time() - facts["ended"] > TOO_OLD
    if not failed or tries >= MOST_TRIES or too_old:
        finish(claim, job_dir, settings, event)
        return False
    new = settings.copy()
    new["left"], new["tries"] = dict(settings["left"], **{event: sorted(failed)}), tries
    if event != notify.STARTED:  # an address that is no longer needed is deleted at once
        new["to"] = {one: settings["to"][one] for one in failed}
    if facts["sent_by"] != NODE:
        new["looked"] = time.time()
    files.write_json(job_dir.notify, new)
    return True


def finish(claim: Claim, job_dir: JobDir, settings: "NoticeSettings", event: str) -> None:
    """Record that nothing is left to send for this event; after the job's end, delete
    everything."""
    if event == notify.STARTED:
        files.write_json(job_dir.notify, dict(settings, left={event: []}, tries=0, looked=0.0))
    else:
        files.discard(job_dir.notify)
        for one in siblings(job_dir, settings):
            files.discard(one.notify)
    claim.settle()


# -- arrays ---------------------------------------------------------------------------------------


def siblings(job_dir: JobDir, settings: "NoticeSettings") -> "Iterable[JobDir]":
    """Yield the directories of an array that may hold its settings. Those after this job come
    first: they were submitted later, and so are less likely to have ended."""
    size = settings.get("jobs") or 0
    if not 0 < size <= arrays.MOST_JOBS:
        return
    name, own = arrays.split(job_dir.id) or (job_dir.id, 0)
    array = ArrayDir(job_dir.root, name)
    for index in list(range(own + 1, size)) + list(range(min(own + 1, size))):
        yield array.job_dir(index)
    yield array


def array_facts(job_dir: JobDir, settings: "NoticeSettings") -> "Optional[Notice]":
    """Return the facts of the whole array; None while one of its jobs has not ended."""
    name = name_of(job_dir, settings)
    array = ArrayDir(job_dir.root, name)
    gone = arrays.read_indices(array.removed)
    stopped = arrays.read_indices(array.stopped)
    is_over = isinstance(job_dir, ArrayDir)  # otherwise it would not have an end
    states, last, common = [], 0.0, None  # type: List[str], float, Optional[Description]
    for one in siblings(job_dir, settings):
        if isinstance(one, ArrayDir):
            continue
        index = (arrays.split(one.id) or ("", -1))[1]
        end = one.ended() or (read(one) or {}).get("end")
        if end is None and index in stopped and not files.exists(one.path):
            end = {"state": "stopped"}
        if end is None and is_over:
            end = {"state": "lost"}
        if end is None and index not in gone:
            return None
        if end is not None:
            states.append(end["state"])
            last = max(last, end.get("time") or 0.0)
            common = common or one.description()
    times = {"cluster": settings["cluster"], "ended": last or None}  # type: ArrayEnd
    return notify.facts_of_array(name, states, common or {}, times)
