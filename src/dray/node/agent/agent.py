"""The agent: what the laptop talks to on a login node. It answers until its input ends."""

import hashlib
import json
import os
import stat
import sys
import time
import traceback

from ..attempt import outcomes
from ..checkpoints import giving, origin, selecting
from ..code import pack_store, packs
from ..formats import files, leases, shapes
from ..formats.pace import HEARTBEAT
from ..formats.wire import HEAD_LIMIT, MARK, Refusal, read_head
from ..jobs import arrays, jobdir, log_times, staging
from ..jobs.arrays import ArrayDir
from ..jobs.jobdir import JobDir
from ..metrics import sources
from ..notifications import notices
from ..schedulers import scheduler
from ..schedulers.scheduler import NoAnswer, Scheduler, SchedulerError
from . import image_requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple  # noqa: F401

    from ..jobs.policy import Decision

    Record = Dict[str, Any]

LOG_PIECE = 1 << 20
FACTS_AGE = 3600.0  # seconds after which it is asked anew what the cluster has
LAST_WORDS = 4096  # bytes at the end of a batch job's log in which its last line is looked for
QUEUE_AGE = 2.0  # seconds for which one look at the queue serves everybody
ENDING = 90.0  # seconds for which a batch job is given to end
LATE = 60.0  # seconds after which a job that should have begun is not about to
ENDING_LOOK = 2.0  # seconds between two looks whether it has
QUEUE = {"time": shapes.is_number, "asked": shapes.is_number, "text": shapes.is_text}


class Agent:
    def __init__(self, root: str, batch: Scheduler, stdin: "BinaryIO", stdout: "BinaryIO") -> None:
        self.root = root
        files.Lock.leased = leases.are_needed(root)
        self.scheduler = batch
        self.asked = 0.0  # when the scheduler was asked for the queue that we know
        self.stdin = stdin
        self.stdout = stdout
        self.payload = 0
        self.over = []  # type: List[Record]  # of jobs that this look has found ended

    def serve(self) -> bool:
        """Answer one request; False where there is none left. What goes wrong is an answer too."""
        request = self.next_request()
        if request is None:
            return False
        try:
            answer = VERBS[request["verb"]](self, request)
        except Refusal as error:
            answer = {"error": str(error), "family": error.family}
        except NoAnswer as error:
            answer = {"error": str(error), "family": "NoAnswer"}
        except SchedulerError as error:
            answer = {"error": str(error), "family": "ClusterError"}
        except OSError as error:
            answer = {"error": str(error), "family": "OSError", "errno": error.errno}
        except Exception:
            answer = {"error": traceback.format_exc(), "family": "ClusterError"}
        self.skip_payload()
        afterwards = answer.pop("afterwards", None)
        pieces = answer.pop("pieces", ())
        self.send(answer)
        for piece in pieces:
            self.stdout.write(piece)
        self.stdout.flush()
        if afterwards is not None:
            afterwards()
        return True

    def next_request(self) -> "Optional[Record]":
        """None at the end, and where what comes is not a request: nothing behind it can be one."""
        lengths = read_head(self.stdin.readline(HEAD_LIMIT))
        if lengths is None:
            return None
        try:
            request = json.loads(self.stdin.read(lengths[0]).decode("ascii"))
        except (ValueError, RecursionError):
            return None
        self.payload = lengths[1]
        return request if isinstance(request, dict) else None

    def skip_payload(self) -> None:
        """What a refused request brought along must not be taken for the next request."""
        while self.payload:
            piece = self.stdin.read(min(self.payload, packs.CHUNK))
            self.payload = self.payload - len(piece) if piece else 0

    def send(self, answer: "Record") -> None:
        text = json.dumps(answer).encode("ascii")
        self.stdout.write(MARK + b"%d %d\n" % (len(text), answer.get("payload", 0)) + text)
        self.stdout.flush()

    def job(self, job_id: str) -> JobDir:
        return JobDir(os.path.join(self.root, "jobs", checked_id(job_id)))

    def array(self, name: str) -> ArrayDir:
        return ArrayDir(self.root, checked_id(name))

    def own_directory(self, job_id: str) -> JobDir:
        """For what is to be written; a job of an array may not have had one so far."""
        place = arrays.split(job_id)
        if place is None:
            return self.job(job_id)
        return self.array(place[0]).make_job(place[1])

    def receive(self, path: str, digest: str = "") -> None:
        """The request's payload, as a file that appears whole; with a SHA-256, only if it fits."""
        temporary = "{}.{}.tmp".format(path, os.urandom(6).hex())
        check = hashlib.sha256()
        try:
            with open(temporary, "wb") as file:
                os.fchmod(file.fileno(), files.PRIVATE_FILE)
                while self.payload:
                    piece = self.stdin.read(min(self.payload, packs.CHUNK))
                    if not piece:
                        raise Refusal("ClusterError", "the upload was cut off")
                    self.payload -= len(piece)
                    if digest:
                        check.update(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            if digest and check.hexdigest() != digest:
                raise Refusal("Damaged", "a part of the image came damaged")
            os.replace(temporary, path)
        finally:
            files.remove(temporary)

    # -- the job's files and the scheduler's queue together -------------------------------------

    def queue(self) -> "Dict[str, Record]":
        """One question to the scheduler for everybody who asks within a few seconds."""
        cache = os.path.join(self.root, "queue.json")
        with files.Lock(cache + ".lock"):
            known = files.read_record(cache) or {}
            if not shapes.fits(known, QUEUE, QUEUE) or not is_young(known["time"], QUEUE_AGE):
                os.utime(cache + ".lock")
                asked = os.stat(cache + ".lock").st_mtime
                text = self.scheduler.read_queue()
                known = {"time": time.time(), "asked": asked, "text": text}
                try:
                    files.write_json(cache, known, durable=False)
                except OSError:  # a full disk: the next one asks again
                    pass
        self.asked = known["asked"]
        return self.scheduler.parse_queue(known["text"])

    def submitted_since(self, job_dir: JobDir) -> bool:
        """Whether the queue that we know may be too old to hold the job: by the clock of the file
        system, as the laptop's agents may be on several login nodes."""
        for path in (job_dir.scheduler, job_dir.secrets):
            try:
                if os.lstat(path).st_mtime >= self.asked:
                    return True
            except OSError:
                pass
        return False

    def forget_queue(self) -> None:
        """Not while somebody asks: what they were about to write down would be old already."""
        cache = os.path.join(self.root, "queue.json")
        try:
            with files.Lock(cache + ".lock"):
                files.remove(cache)
        except OSError:  # a full disk; it is forgotten in a moment anyway
            pass

    def already_queued(
        self, job_id: str, states: "Tuple[str, ...]" = ("waiting", "running")
    ) -> "Optional[str]":
        """An earlier agent may have been cut off between the submission and writing down the
        answer. A batch job that is ending is not what was submitted."""
        for queued in self.batch_jobs_of(job_id):
            if queued["state"] in states:
                return str(queued["id"])
        return None

    def batch_jobs_of(self, job_id: str) -> "List[Record]":
        """The rows of a job, or of an array's jobs, in the queue as it is now."""
        queue = self.scheduler.queue()
        return [queue[name] for name in queue if name == job_id or name.startswith(job_id + ".")]


def checked_id(job_id: "Any") -> str:
    """What cannot be the name of a directory of ours would lead elsewhere."""
    if not shapes.is_id(job_id):
        raise Refusal("Refused", "this is no job's id: {!r}".format(job_id)[:300])
    return str(job_id)


def named(request: "Record") -> "List[str]":
    """The ids that a request names, one by one."""
    try:
        return [checked_id(one) for one in arrays.unfold(request["ids"])]
    except ValueError as error:
        raise Refusal("Refused", str(error))


def is_young(moment: float, age: float) -> bool:
    return 0 <= time.time() - moment < age


def submit(agent: Agent, request: "Record") -> "Record":
    """Store the code, write the job (or the array) down, hand it to the scheduler: exactly once."""
    record = request["job"]
    job_dir = agent.job(record["id"])
    if request.get("array"):
        job_dir = agent.array(record["id"])
    missing = stage(agent, request)
    if missing:
        return {"missing": missing}
    after = image_requests.awaited(agent, request)
    with Submission(job_dir) as lock:
        number = None
        known = files.read_record(job_dir.job, jobdir.LARGEST_WITH_COMMANDS) or {}
        if not files.exists(job_dir.job):
            fill = taking(agent, request) if record.get("origin") else None
            arrays.write_directory(job_dir, *contents_of(agent, request), fill=fill)
        elif known.get("created") != record["created"]:
            raise Refusal("Refused", "another job has the id {}: try again".format(job_dir.id))
        else:  # an earlier answer was lost: it may be queued already
            number = job_dir.known_number() or agent.already_queued(job_dir.id)
            if number is None:  # its secrets may have been swept, as those of a lost job
                arrays.rewrite(job_dir, *contents_of(agent, request))
        if number is None:
            try:
                number = hand_over(agent, job_dir, lock, after, request)
            except NoAnswer:
                raise  # the job may be queued: a retry will find it
            except SchedulerError:
                staging.remove(job_dir.path)
                raise
    agent.forget_queue()
    return dict(news_of_this_place(agent, request), scheduler_id=number)


def contents_of(agent: Agent, request: "Record") -> "Tuple[Dict[str, bytes], Optional[str]]":
    """The files of the job's directory, and the snapshot that it holds on to."""
    contents = {}
    for name, text in request["files"].items():
        text = text.replace("@ROOT@", agent.root) if name.endswith(".sh") else text
        contents[name] = text.encode("utf-8", "surrogateescape")
    snapshot = request["job"]["snapshot"]
    return contents, os.path.join(agent.root, "snapshots", snapshot) if snapshot else None


def taking(agent: Agent, request: "Record") -> "Callable[[str], None]":
    """Return what puts the checkpoint that a job begins from into its directory."""
    job = json.loads(request["files"]["job.json"])

    def take(folder: str) -> None:
        try:
            giving.take(agent.root, job, folder)
        except origin.NothingToGoOnFrom as error:
            raise Refusal("Refused", str(error))

    return take


def bring(agent: Agent, request: "Record") -> "Record":
    """Take in files that are no code, as a snapshot; say what of it is still missing."""
    return {"missing": stage(agent, request)}


def hand_over(
    agent: Agent, job_dir: JobDir, lock: files.Lock, after: str, request: "Record"
) -> str:
    """Start the plan's command; NoAnswer where the job may have been queued, SchedulerError where
    it was not."""
    before = job_dir.known_number()
    words = [str(one) for one in request.get("command") or ()][:-1]  # the last one is the script
    try:
        number = agent.scheduler.submit(job_dir.script, after, (lock.fd,), words)
    except NoAnswer:
        raise
    except SchedulerError as error:
        number = queued_all_the_same(agent, job_dir, before, error)
    job_dir.remember_number(number)
    try:
        os.utime(job_dir.secrets)  # they are as new as the submission: see drop_secrets
    except OSError:
        pass
    return number


def queued_all_the_same(
    agent: Agent, job_dir: JobDir, before: "Optional[str]", error: SchedulerError
) -> str:
    """The number of a batch job that is queued although its submission ended with an error: a
    controller that is slow to answer may have taken it. One that was quick has left the queue, and
    its attempt has written its number down."""
    try:
        queued = agent.already_queued(job_dir.id)
    except SchedulerError as silence:
        raise NoAnswer("{}; whether it is queued is unknown: {}".format(error, silence))
    for number in (queued, job_dir.known_number()):
        if number is not None and number != before:
            return number
    raise error


class Submission(files.Lock):
    """Held while a job is handed to the scheduler, by its command too: if we are killed, a retry
    waits for that, and finds the job instead of submitting it again."""

    outlived = True

    def __init__(self, job_dir: JobDir) -> None:
        files.make_folder(os.path.join(job_dir.root, "jobs"))
        files.make_folder(os.path.dirname(job_dir.path))
        files.Lock.__init__(self, submission_lock(job_dir))

    def __exit__(self, *details: object) -> None:
        files.discard(self.path)
        files.Lock.__exit__(self, *details)


def submission_lock(job_dir: JobDir) -> str:
    return os.path.join(os.path.dirname(job_dir.path), staging.LOCK + job_dir.id)


def being_submitted(job_dir: JobDir) -> bool:
    return files.is_locked(submission_lock(job_dir))


def stage(agent: Agent, request: "Record") -> "List[str]":
    """Take in the pack, if there is one; return what the snapshot still lacks."""
    store = packs.Packs(agent.root)
    pack_store.make(store)
    if agent.payload:
        path = os.path.join(store.packs, request["pack"])
        agent.receive(path)
        store.read_index(request["pack"])
        files.remove(store.mark(request["pack"]))
    snapshot = request["job"]["snapshot"]
    if not snapshot or "manifest" not in request:
        return []
    change = request["manifest"]
    with files.Lock(pack_store.lock_of(store)):
        names, manifest = read_manifest(store, change)
        needed = pack_store.packs_after(store, names, middle_of(change), request["pack"])
        return pack_store.enlist(store, snapshot, manifest, needed)


def read_manifest(store: packs.Packs, change: "Record") -> "Tuple[List[str], bytes]":
    """A manifest comes as what differs from one that lies here already, in these packs."""
    names, base = [], b""  # type: List[str], bytes
    if change["base"]:
        try:
            names, base = store.read_snapshot(change["base"])
        except packs.Damaged:
            raise Refusal("BaseMissing", "the snapshot that this one builds on is not here")
    return names, base[: change["head"]] + middle_of(change) + base[len(base) - change["tail"] :]


def middle_of(change: "Record") -> bytes:
    return bytes(change["middle"].encode("utf-8", "surrogateescape"))


def status(agent: Agent, request: "Record") -> "Record":
    """All that is known of the jobs. With ``brief``, those that wait and have made no attempt are
    only named, together with others that wait for the same reason."""
    queued = agent.queue()
    agent.over = []
    have_directory = set(look_through(agent, "jobs", thoroughly=False))
    look_through(agent, "arrays", thoroughly=False)
    found = []
    seen = {}  # type: Dict[str, ArrayDir]
    waiting = {}  # type: Dict[Tuple[str, str], List[str]]
    for job_id in named(request):
        row = queued.get(job_id)
        has_directory = job_id in have_directory
        try:
            if row and request.get("brief") and only_waits(agent, job_id, row, has_directory):
                waiting.setdefault((row["why"], row["start"]), []).append(job_id)
                continue
            if has_directory:
                note_array(agent, seen, job_id)
                record = status_of(agent, agent.job(job_id), row)
            else:
                record = status_in_array(agent, seen, job_id, row)
        except Exception as error:  # the files of one job must not hide all others
            record = jobdir.unreadable(job_id, state_in_queue(row), error)
        if record is not None:
            found.append(record)
    for array in seen.values():
        if not any(name.startswith(array.id + ".") for name in queued):
            end_array(agent, array)
    explain(agent.scheduler, found)
    unsent = notices.look(agent.root, agent.over, notices.LOGIN)
    groups = [
        {"ids": arrays.fold(ids), "why": why, "start": start}
        for (why, start), ids in waiting.items()
    ]
    answer = {"jobs": found, "waiting": groups}  # type: Record
    return dict(answer, unsent=unsent) if unsent else answer


def note_array(agent: Agent, seen: "Dict[str, ArrayDir]", job_id: str) -> None:
    """Its array may still hold secrets, although all its jobs have their own."""
    place = arrays.split(job_id)
    if place is not None:
        seen.setdefault(place[0], agent.array(place[0]))


def only_waits(agent: Agent, job_id: str, queued: "Record", has_directory: bool) -> bool:
    """Whether it is in the queue and has made no attempt."""
    if queued["state"] != "waiting":
        return False
    return not has_directory or not agent.job(job_id).numbers()


def state_in_queue(queued: "Optional[Record]") -> str:
    """Of a job whose files tell nothing."""
    if queued is None:
        return "lost"
    return "queued" if queued["state"] == "waiting" else "running"


def look_through(agent: Agent, kind: str, thoroughly: bool) -> "List[str]":
    """The names of the jobs, or of the arrays; what killed processes have left there goes."""
    folder = os.path.join(agent.root, kind)
    names = files.all_names_in(folder)
    staging.sweep(folder, names, thoroughly)
    return files.visible(names)


def explain(batch: Scheduler, records: "List[Record]") -> None:
    """The scheduler's books, where it keeps any, tell how those ended that could not say it."""
    silent = [record for record in records if "silent" in record]
    asked = [number for record in silent for number in record["silent"]]
    ends = batch.ends(asked) if asked else {}
    for record in silent:
        known = [ends[number] for number in record.pop("silent") if number in ends]
        end, said = known[0] if known else {}, record.pop("said")
        if end and not record["attempts"]:
            more = ": " + said if said and end["state"] == "failed" else ""
            record.update(end, reason=end["reason"] + " before it ran" + more)
        elif end and end["state"] != "failed":  # the batch job's exit code is not the command's
            record.update(end)


def status_in_array(
    agent: Agent, seen: "Dict[str, ArrayDir]", job_id: str, queued: "Optional[Record]"
) -> "Optional[Record]":
    """Of a job that has no directory of its own yet: it never ran."""
    place = arrays.split(job_id)
    if place is None:
        return None
    array = seen.setdefault(place[0], agent.array(place[0]))
    description = shapes.description(array.description_of(place[1]))
    if description is None:
        return status_in_damaged_array(array, job_id, queued)
    record = {"id": job_id, "job": description, "attempts": [], "ended": None}  # type: Record
    record.update(state="queued", reason="")
    if queued is not None:
        record["scheduler"] = queued
    if place[1] in arrays.read_indices(array.stopped):
        record.update(state="stopped", reason="stopped on request")
    elif queued is None and not agent.submitted_since(array):
        batch_log = array.batch_log_of(place[1])
        record.update(unqueued(agent.scheduler.name, array, record, batch_log, place[1]))
    return record


def status_in_damaged_array(
    array: ArrayDir, job_id: str, queued: "Optional[Record]"
) -> "Optional[Record]":
    """None where the array has no such job."""
    if not array.is_damaged() or array.common()["commands"]:
        return None
    record = jobdir.of_nothing(job_id)
    reason = "its description is damaged: " + array.job
    return dict(record, state="queued" if queued else "lost", reason=reason)


def drop_secrets(agent: Agent, job_dir: JobDir) -> None:
    """Of a job that the queue does not have, unless it was submitted after the queue was asked.
    Under the submission's lock: a resume may be about to bring them anew."""
    if not files.exists(job_dir.secrets):
        return
    lock = Submission(job_dir)
    if not lock.take(wait=False):
        return
    try:
        # A batch job that has written the end down needs them no more; a resume removes the end.
        if job_dir.ended() or not agent.submitted_since(job_dir):
            files.discard(job_dir.secrets)
    finally:
        lock.__exit__()


def end_array(agent: Agent, array: ArrayDir) -> None:
    """No job of it can start any more."""
    try:
        drop_secrets(agent, array)
        if not agent.submitted_since(array):
            notices.array_is_over(array)
    except OSError:  # the next look tries again
        pass


def settle(agent: Agent, request: "Record") -> "Record":
    """The laptop has sent these messages, or given them up."""
    for job_id in named(request):
        notices.settle(agent.root, job_id, request["over"] is True)
    return {}


def status_of(agent: Agent, job_dir: JobDir, queued: "Optional[Record]") -> "Optional[Record]":
    """The files tell what happened, the scheduler's queue tells whether it goes on."""
    if queued is not None and queued["state"] == "waiting":
        end_if_too_late(agent, job_dir, queued)
    is_new = queued is None and agent.submitted_since(job_dir)
    record = jobdir.status(job_dir, queued is not None or is_new)
    if record is None:
        return None
    if record["state"] == "lost" and is_beating(job_dir):
        record.update(state="running", reason="")
    if queued is not None and record["state"] in ("queued", "running"):
        # The queue's answer may be a moment old: a supervisor that beats is running.
        if queued["state"] == "waiting" and not is_beating(job_dir):
            record["state"] = "queued"
        record["scheduler"] = queued
    if record["state"] == "lost" and not record["damaged"]:
        record.update(unqueued(agent.scheduler.name, job_dir, record, job_dir.batch_log))
    elif record["state"] == "running":
        silence = jobdir.hung(job_dir)
        record["reason"] = silence + " (its node may be hung)" if silence else record["reason"]
    if record["state"] in jobdir.ENDED and (job_dir.ended() or (queued is None and not is_new)):
        drop_secrets(agent, job_dir)
        agent.over.append(record)
    return record


def end_if_too_late(agent: Agent, job_dir: JobDir, queued: "Record") -> None:
    """End a job that waits although it should have begun by now. One that starts this moment ends
    itself, or finds its end written. Under the submission's lock, as a resume names another
    moment."""
    if too_late(job_dir) is None:
        return
    lock = Submission(job_dir)
    if not lock.take(wait=False):
        return
    try:
        end = too_late(job_dir)
        if end is not None and job_dir.ended() is None:
            outcomes.end_job(job_dir, end, patience=0.0)
        if end is not None:
            agent.scheduler.cancel([agent.scheduler.number_of(queued, job_dir.id)])
    except (OSError, SchedulerError):  # the next look tries again
        pass
    finally:
        lock.__exit__()


def too_late(job_dir: JobDir) -> "Optional[Decision]":
    description = job_dir.description()
    if description is None:
        return None
    return jobdir.too_late(description, job_dir.records(), time.time() - LATE)


def is_beating(job_dir: JobDir) -> bool:
    """Whether the last attempt's supervisor gave a sign of life a moment ago, by the clock of the
    file system that both write to."""
    attempt = job_dir.unfinished()
    silence = attempt.silence() if attempt is not None else None
    return silence is not None and silence < 2 * HEARTBEAT


def unqueued(
    scheduler_name: str,
    job_dir: JobDir,
    record: "Record",
    batch_log: str,
    index: "Optional[int]" = None,
) -> "Record":
    """A job without an end that the scheduler no longer knows was ended by somebody else.
    ``index``: its place in an array, of which ``job_dir`` is the directory."""
    if being_submitted(job_dir):
        return {"state": "queued", "reason": "being submitted"}
    if job_dir.stop_request() is not None:
        return {"state": "stopped", "reason": "stopped on request"}
    number = job_dir.known_number()
    if not record["attempts"] and not number:
        return {"state": "lost", "reason": "it was never handed to " + scheduler_name}
    said = last_line(batch_log)
    end = guess_end(scheduler_name, record["attempts"], said)
    numbers = [number] if number else []
    if number and index is not None:
        numbers.insert(0, "{}_{}".format(number, index))
    return dict(end, silent=numbers, said=said)


def guess_end(scheduler_name: str, attempts: "List[Record]", said: str) -> "Record":
    """From what the attempts have told, and what the batch job has said last."""
    cancelled = "cancelled in {}".format(scheduler_name)
    last = attempts[-1] if attempts else {}
    if last.get("outcome") == "interrupted" and last.get("cause") == "signal":
        return {"state": "stopped", "reason": cancelled, "ended": last.get("ended")}
    if not attempts and not said:
        reason = "its batch job is gone before it ran, and {} does not tell why"
        return {"state": "lost", "reason": reason.format(scheduler_name)}
    if not attempts and "CANCELLED" in said:
        return {"state": "stopped", "reason": cancelled + " before it ran"}
    if not attempts:
        return {"state": "failed", "reason": "its batch script ended before it ran: " + said}
    return {"state": "lost", "reason": "its batch job is gone, and did not say why (see batch.log)"}


def last_line(path: str) -> str:
    """Of what a batch job has said, if it has said anything."""
    try:
        with files.open_regular(path) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LAST_WORDS, 0))
            lines = file.read(LAST_WORDS).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def log(agent: Agent, request: "Record") -> "Record":
    attempt = agent.job(request["id"]).attempt(small(request["attempt"]))
    path = attempt.log_of(small(request.get("rank", 0)))
    size, piece = files.read_piece(path, request["offset"], LOG_PIECE)
    return {"size": size, "payload": len(piece), "pieces": [piece]}


def times_of_log(agent: Agent, request: "Record") -> "Record":
    attempt = agent.job(request["id"]).attempt(small(request["attempt"]))
    return {"times": log_times.read(attempt.log_times)}


def small(number: "Any") -> int:
    """An attempt's or a rank's number: it becomes part of a path."""
    if not shapes.is_count(number) or not 0 <= number <= jobdir.MOST_ATTEMPTS:
        raise Refusal("Refused", "there is no attempt or rank {!r}".format(number)[:300])
    return int(number)


def series(agent: Agent, request: "Record") -> "Record":
    job_dir = agent.job(request["id"])
    return sources.series(job_dir.description() or {}, job_dir)


def stop(agent: Agent, request: "Record") -> "Record":
    ids = named(request)
    queued = agent.scheduler.queue()
    numbers = []
    have_directory = set(files.names_in(os.path.join(agent.root, "jobs")))
    for array, indices in arrays.by_array(set(ids) - have_directory).items():
        agent.array(array).stop_jobs(indices)
        names = [arrays.job_id(array, index) for index in indices]
        numbers += [
            agent.scheduler.number_of(queued[name], name) for name in names if name in queued
        ]
    for job_id in ids:
        if job_id in have_directory:
            numbers += ask_to_stop(agent, agent.job(job_id), queued.get(job_id), request["now"])
    if numbers:
        agent.scheduler.cancel(numbers)
    agent.forget_queue()
    return {}


def ask_to_stop(
    agent: Agent, job_dir: JobDir, queued: "Optional[Record]", now: bool
) -> "List[str]":
    """Its supervisor sees to it; what has none is returned, to be cancelled."""
    attempts = job_dir.records()
    description = job_dir.description()
    is_held = jobdir.is_held(attempts)
    if description and not is_held and not jobdir.decide(description, attempts).again:
        return []  # it has ended for good, and is being cleared away
    files.write_json(job_dir.stop, {"now": now, "time": time.time()})
    if queued is None:
        return []
    number = agent.scheduler.number_of(queued, job_dir.id)
    is_made = is_held or (attempts and attempts[-1]["outcome"] is None)
    if queued["state"] == "running" and is_made:
        agent.scheduler.interrupt(number)
        return []
    return [number]  # it has ended once it has left the queue: see unqueued


def resume(agent: Agent, request: "Record") -> "Record":
    place = arrays.split(request["job"]["id"])
    missing = stage(agent, request)
    if missing:
        return {"missing": missing}
    after = image_requests.awaited(agent, request)
    if place is None:
        number = resume_one(agent, request, after)
    else:
        with Submission(agent.array(place[0])):  # which may be on its way to the scheduler
            number = resume_one(agent, request, after)
    agent.forget_queue()
    return {"scheduler_id": number}


def resume_one(agent: Agent, request: "Record", after: str) -> str:
    job_dir = agent.own_directory(request["job"]["id"])
    with Submission(job_dir) as lock:
        if has_gone_on(job_dir, request["job"]["resumed_after"]):
            return job_dir.known_number() or ""
        require_checkpoint(job_dir, request["job"]["start_from"])
        # If the job has an end, a running batch job is the old one that just wrote it; only a
        # waiting one is the resumed job.
        if files.exists(job_dir.end):
            number = agent.already_queued(job_dir.id, ("waiting",))
        else:
            number = number_in_queue(agent, job_dir)
        if number is None:
            number = submit_again(agent, job_dir, request, lock, after)
        return number


def require_checkpoint(job_dir: JobDir, start_from: str) -> None:
    if not start_from:
        return
    rules = (job_dir.description() or {}).get("resume") or {}
    try:
        origin.require(job_dir.outputs, rules, start_from)
    except origin.NothingToGoOnFrom as error:
        raise Refusal("Refused", str(error))


def has_gone_on(job_dir: JobDir, seen: int) -> bool:
    """Whether an attempt was made since the laptop saw the job: an earlier answer of ours was lost
    on its way, or another laptop was quicker. The attempt may have ended by now."""
    return job_dir.next_number() > seen + 1


def number_in_queue(agent: Agent, job_dir: JobDir) -> "Optional[str]":
    """Return the number of the batch job that goes on with the job. One that is ending may be it:
    a job that is requeued waits again only once it has ended."""
    until = time.monotonic() + ENDING
    while True:
        rows = agent.batch_jobs_of(job_dir.id)
        live = [str(row["id"]) for row in rows if row["state"] != "ending"]
        if live or not rows:
            return live[0] if live else None
        if time.monotonic() > until:
            raise Refusal("ClusterError", "its last batch job is still ending: try again later")
        time.sleep(ENDING_LOOK)


def submit_again(
    agent: Agent, job_dir: JobDir, request: "Record", lock: files.Lock, after: str
) -> str:
    end = job_dir.ended()
    arrays.rewrite(job_dir, *contents_of(agent, request))
    files.remove(job_dir.stop)
    files.remove(job_dir.end)
    try:
        return hand_over(agent, job_dir, lock, after, request)
    except NoAnswer:
        raise
    except SchedulerError:  # it stays as it had ended
        staging.discard_secrets(job_dir.path)
        if end is not None:
            files.write_json(job_dir.end, end)
        raise


def ids(agent: Agent, _: "Record") -> "Record":
    found = [name for name in look_through(agent, "jobs", True) if shapes.is_id(name)]
    for name in filter(shapes.is_id, look_through(agent, "arrays", True)):
        array = ArrayDir(agent.root, name)
        found += [arrays.job_id(name, index) for index in sorted(array.without_directory())]
    return {"ids": arrays.fold(found)}


def outputs(agent: Agent, request: "Record") -> "Record":
    """The files and links among a job's outputs that are wanted."""
    top = outputs_of(agent, request)
    is_chosen = choice_of(agent, request)
    found = []
    for path in files.files_below(top):
        if is_chosen(os.path.relpath(path, top)):
            found += described(top, path)
    return {"files": found}


def checkpoint(agent: Agent, request: "Record") -> "Record":
    """The checkpoint of a job that another one may begin from, and its files."""
    top = outputs_of(agent, request)
    job_dir = agent.job(request["id"])
    try:
        found = giving.find(job_dir, request["name"], request["rules"])
    except origin.NothingToGoOnFrom as error:
        raise Refusal("Refused", str(error))
    wanted = []
    for path in found.files:
        wanted += described(top, os.path.join(top, path))
    return {"path": found.path, "files": wanted, "remarks": found.remarks}


def choice_of(agent: Agent, request: "Record") -> "Callable[[str], bool]":
    globs = request.get("globs", [])
    if not shapes.is_texts(globs) or len(globs) > selecting.MOST_GLOBS:
        raise Refusal("Refused", "these are no globs")
    if any(len(one) > selecting.LONGEST_GLOB for one in globs):
        raise Refusal("Refused", "a glob is too long")
    latest = request.get("latest_checkpoint") is True
    return selecting.chooser(agent.job(request["id"]), globs, latest)


def pull(agent: Agent, request: "Record") -> "Record":
    """These outputs: what they are now, then their contents."""
    top = outputs_of(agent, request)
    wanted = []
    for path in request["paths"]:
        wanted += described(top, os.path.join(top, path))
    total = sum(record["size"] + 1 for record in wanted if record["link"] is None)
    return {"files": wanted, "payload": total, "pieces": contents(top, wanted)}


def outputs_of(agent: Agent, request: "Record") -> str:
    top = agent.job(request["id"]).outputs
    if os.path.islink(top):
        raise Refusal("Refused", "{} is a link, which is not followed".format(top))
    return top


def described(top: str, path: str) -> "List[Record]":
    """None where it cannot be copied, or was removed by the trainer this moment."""
    try:
        record = describe_file(top, path)
    except OSError:
        return []
    return [record] if record is not None else []


def describe_file(top: str, path: str) -> "Optional[Record]":
    """None for a folder; or for a socket or pipe, which cannot be copied."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
        return None
    link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
    return {
        "path": os.path.relpath(path, top),
        "size": 0 if link else status.st_size,
        "mtime": status.st_mtime_ns,
        "mode": status.st_mode & 0o777,
        "link": link,
    }


def contents(top: str, wanted: "List[Record]") -> "Iterator[bytes]":
    """Exactly as many bytes as were promised, and one that says whether they are the file's."""
    for record in wanted:
        if record["link"] is not None:
            continue
        left = record["size"]
        try:
            with files.open_regular(os.path.join(top, record["path"])) as file:
                while left:
                    piece = file.read(min(left, packs.CHUNK))
                    if not piece:
                        break  # it shrank meanwhile
                    left -= len(piece)
                    yield piece
        except OSError:  # unreadable, or removed by the trainer this moment
            pass
        whole = left == 0
        while left:
            piece = b"\0" * min(left, packs.CHUNK)
            left -= len(piece)
            yield piece
        yield b"\1" if whole else b"\0"


def remove(agent: Agent, request: "Record") -> "Record":
    ids = named(request)
    left = [path for job_id in ids for path in staging.remove(agent.job(job_id).path)]
    for array, indices in arrays.by_array(ids).items():
        agent.array(array).remove_jobs(indices)
    for kind in ("jobs", "arrays"):
        look_through(agent, kind, thoroughly=True)
    pack_store.prune(agent.root)
    return {"left": left}


def hello(agent: Agent, _: "Record") -> "Record":
    """What this place is like, asked anew; the laptop checks jobs by it before it submits."""
    from ..containers import runtimes  # not for every request

    files.make_folder(agent.root)
    usage = os.statvfs(agent.root)
    found = {
        "time": time.time(),
        "root": agent.root,
        "python": sys.version.split()[0],
        "free": usage.f_bavail * usage.f_frsize,
        "files": usage.f_favail if usage.f_files else None,
        "container_facts": runtimes.facts(),
        "locks": leases.facts(agent.root),
    }  # type: Record
    found.update(agent.scheduler.describe())
    files.write_json(facts_of(agent), found, durable=False)
    return found


def facts_of(agent: Agent) -> str:
    return os.path.join(agent.root, "facts.json")


def news_of_this_place(agent: Agent, request: "Record") -> "Record":
    """What is known of it goes along with an answer, unless the laptop has it; what is old is
    asked anew once the answer is on its way."""
    known = files.read_record(facts_of(agent)) or {}
    if not shapes.is_number(known.get("time")) or not is_young(known["time"], FACTS_AGE):
        return {"afterwards": lambda: refresh(agent)}
    news = {"facts": known} if known["time"] != request.get("facts") else {}  # type: Record
    return dict(news, afterwards=lambda: tidy(agent))


def tidy(agent: Agent) -> None:
    """Nobody waits for it."""
    for kind in ("jobs", "arrays"):
        try:
            look_through(agent, kind, thoroughly=True)
        except OSError:
            pass


def refresh(agent: Agent) -> None:
    tidy(agent)
    try:
        hello(agent, {})
    except (OSError, SchedulerError):  # nobody waits for it
        pass


VERBS = {
    "bring": bring,
    "checkpoint": checkpoint,
    "hello": hello,
    "ids": ids,
    "image": image_requests.look,
    "image-announce": image_requests.announce,
    "image-part": image_requests.take_part,
    "image-remove": image_requests.remove,
    "images": image_requests.listing,
    "log": log,
    "log-times": times_of_log,
    "metrics": series,
    "outputs": outputs,
    "pull": pull,
    "remove": remove,
    "resume": resume,
    "settle": settle,
    "status": status,
    "stop": stop,
    "submit": submit,
}  # type: Dict[str, Callable[[Agent, Record], Record]]


def main(root: str, kind: str) -> int:
    root = os.path.expandvars(os.path.expanduser(root))
    if "$" in root:
        sys.stderr.write("the root {} names a variable that is not set there\n".format(root))
        return 3
    scheduler.user_umask = os.umask(0o077)
    agent = Agent(root, scheduler.of_kind(kind), sys.stdin.buffer, sys.stdout.buffer)
    while agent.serve():
        pass
    return 0
