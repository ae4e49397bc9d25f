"""The agent: what the laptop talks to on a login node. It answers until its input ends."""

import hashlib
import json
import os
import sys
import time
import traceback

from . import arrays, files, image_requests, jobdir, metrics, packs, policy, scheduler, shelf
from .arrays import ArrayDir
from .jobdir import JobDir
from .ledger import end_job
from .scheduler import NoAnswer, Scheduler, SchedulerError
from .supervisor import HEARTBEAT
from .wire import MARK, Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple  # noqa: F401

    Record = Dict[str, Any]

LOG_PIECE = 1 << 20
FACTS_AGE = 3600.0  # seconds after which it is asked anew what the cluster has
LAST_WORDS = 4096  # bytes at the end of a batch job's log in which its last line is looked for
QUEUE_AGE = 2.0  # seconds for which one look at the queue serves everybody


class Agent:
    def __init__(self, root: str, batch: Scheduler, stdin: "BinaryIO", stdout: "BinaryIO") -> None:
        self.root = root
        self.scheduler = batch
        self.asked = 0.0  # when the scheduler was asked for the queue that we know
        self.stdin = stdin
        self.stdout = stdout
        self.payload = 0

    def serve(self) -> bool:
        """Answer one request; False where there is none left. What goes wrong is an answer too."""
        lengths = self.stdin.readline().split()
        if not lengths:
            return False
        request = json.loads(self.stdin.read(int(lengths[0])).decode("ascii"))
        self.payload = int(lengths[1])
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
        return JobDir(os.path.join(self.root, "jobs", job_id))

    def own_directory(self, job_id: str) -> JobDir:
        """For what is to be written; a job of an array may not have had one so far."""
        place = arrays.split(job_id)
        if place is None:
            return self.job(job_id)
        return ArrayDir(self.root, place[0]).make_job(place[1])

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
            known = files.read_json(cache)
            if known is None or not 0 <= time.time() - known["time"] < QUEUE_AGE:
                os.utime(cache + ".lock")
                asked = os.stat(cache + ".lock").st_mtime
                text = self.scheduler.read_queue()
                known = {"time": time.time(), "asked": asked, "text": text}
                try:
                    files.write_json(cache, known, durable=False)
                except OSError:  # a full disk: the next one asks again
                    pass
        self.asked = known.get("asked", 0.0)
        return self.scheduler.parse_queue(known["text"])

    def submitted_since(self, job_dir: JobDir) -> bool:
        """Whether the queue that we know may be too old to hold the job: by the clock of the file
        system, as the laptop's agents may be on several login nodes."""
        try:
            return os.stat(job_dir.scheduler).st_mtime >= self.asked
        except OSError:
            return False

    def forget_queue(self) -> None:
        """Not while somebody asks: what they were about to write down would be old already."""
        cache = os.path.join(self.root, "queue.json")
        try:
            with files.Lock(cache + ".lock"):
                files.remove(cache)
        except OSError:  # a full disk; it is forgotten in a moment anyway
            pass

    def already_queued(self, job_id: str) -> "Optional[str]":
        """An earlier agent may have been cut off between the submission and writing down the
        answer. A batch job that is ending is not what was submitted."""
        for name, queued in self.scheduler.queue().items():
            ours = name == job_id or name.startswith(job_id + ".")
            if ours and queued["state"] != "ending":
                return str(queued["id"])
        return None


def submit(agent: Agent, request: "Record") -> "Record":
    """Store the code, write the job (or the array) down, hand it to the scheduler: exactly once."""
    record = request["job"]
    job_dir = agent.job(record["id"])
    if request.get("array"):
        job_dir = ArrayDir(agent.root, record["id"])
    missing = stage(agent, request)
    if missing:
        return {"missing": missing}
    after = image_requests.awaited(agent, request)
    with Submission(job_dir) as lock:
        number = None
        known = files.read_json(job_dir.job)
        if known is None:
            arrays.write_directory(job_dir, *contents_of(agent, request))
        elif known["created"] != record["created"]:
            raise Refusal("Refused", "another job has the id {}: try again".format(job_dir.id))
        else:  # an earlier answer was lost: it may be queued already
            number = job_dir.known_number() or agent.already_queued(job_dir.id)
        if number is None:
            try:
                number = hand_over(agent, job_dir, lock, after)
            except NoAnswer:
                raise  # the job may be queued: a retry will find it
            except SchedulerError:
                files.remove_tree(job_dir.path)
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


def hand_over(agent: Agent, job_dir: JobDir, lock: files.Lock, after: str) -> str:
    number = agent.scheduler.submit(job_dir.script, after, keep_open=(lock.fd,))
    job_dir.remember_number(number)
    return number


class Submission(files.Lock):
    """Held while a job is handed to the scheduler, by its command too: if we are killed, a retry
    waits for that, and finds the job instead of submitting it again."""

    def __init__(self, job_dir: JobDir) -> None:
        files.make_folder(os.path.join(job_dir.root, "jobs"))
        files.make_folder(os.path.dirname(job_dir.path))
        files.Lock.__init__(self, submission_lock(job_dir))

    def __exit__(self, *details: object) -> None:
        files.remove(self.path)
        files.Lock.__exit__(self, *details)


def submission_lock(job_dir: JobDir) -> str:
    return os.path.join(os.path.dirname(job_dir.path), ".lock-" + job_dir.id)


def being_submitted(job_dir: JobDir) -> bool:
    return files.is_locked(submission_lock(job_dir))


def stage(agent: Agent, request: "Record") -> "List[str]":
    """Take in the pack, if there is one; return what the snapshot still lacks."""
    store = packs.Packs(agent.root)
    shelf.make(store)
    if agent.payload:
        path = os.path.join(store.packs, request["pack"])
        agent.receive(path)
        store.read_index(request["pack"])
        files.remove(store.mark(request["pack"]))
    snapshot = request["job"]["snapshot"]
    if not snapshot or "manifest" not in request:
        return []
    change = request["manifest"]
    with files.Lock(shelf.lock_of(store)):
        names, manifest = read_manifest(store, change)
        needed = shelf.packs_after(store, names, middle_of(change), request["pack"])
        return shelf.enlist(store, snapshot, manifest, needed)


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
    have_directory = set(files.names_in(os.path.join(agent.root, "jobs")))
    found = []
    seen = {}  # type: Dict[str, ArrayDir]
    waiting = {}  # type: Dict[Tuple[str, str], List[str]]
    for job_id in arrays.unfold(request["ids"]):
        row = queued.get(job_id)
        is_waiting = request.get("brief") and row and row["state"] == "waiting"
        if is_waiting and (job_id not in have_directory or not agent.job(job_id).numbers()):
            assert row is not None
            waiting.setdefault((row["why"], row["start"]), []).append(job_id)
            continue
        if job_id in have_directory:
            record = status_of(agent, agent.job(job_id), row)
        else:
            record = status_in_array(agent, seen, job_id, row)
        if record is not None:
            found.append(record)
    for array in seen.values():
        drop_secrets(agent, array, queued)
    explain(agent.scheduler, found)
    groups = [
        {"ids": arrays.fold(ids), "why": why, "start": start}
        for (why, start), ids in waiting.items()
    ]
    return {"jobs": found, "waiting": groups}


def explain(batch: Scheduler, records: "List[Record]") -> None:
    """The scheduler's books, where it keeps any, tell how those ended that could not say it."""
    silent = [record for record in records if record.get("silent")]
    ends = batch.ends([record["silent"] for record in silent]) if silent else {}
    for record in silent:
        end, said = ends.get(record.pop("silent"), {}), record.pop("said")
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
    array = seen.setdefault(place[0], ArrayDir(agent.root, place[0]))
    description = array.description_of(place[1])
    if description is None:
        return None
    record = {"id": job_id, "job": description, "attempts": [], "ended": None}  # type: Record
    record.update(state="queued", reason="")
    if queued is not None:
        record["scheduler"] = queued
    elif not agent.submitted_since(array):
        record.update(unqueued(agent.scheduler.name, array, record, array.batch_log_of(place[1])))
    if place[1] in arrays.read_indices(array.stopped):
        record.update(state="stopped", reason="stopped on request")
    return record


def drop_secrets(agent: Agent, array: ArrayDir, queued: "Dict[str, Record]") -> None:
    """Once no job of the array can start any more."""
    in_queue = any(name.startswith(array.id + ".") for name in queued)
    if not in_queue and not being_submitted(array) and not agent.submitted_since(array):
        files.remove(array.secrets)


def status_of(agent: Agent, job_dir: JobDir, queued: "Optional[Record]") -> "Optional[Record]":
    """The files tell what happened, the scheduler's queue tells whether it goes on."""
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
    elif record["state"] == "lost":
        record.update(unqueued(agent.scheduler.name, job_dir, record, job_dir.batch_log))
    is_over = record["state"] in jobdir.ENDED and queued is None and not is_new
    if is_over and not being_submitted(job_dir):
        files.remove(job_dir.secrets)
    return record


def is_beating(job_dir: JobDir) -> bool:
    """Whether the last attempt's supervisor gave a sign of life a moment ago, by the clock of the
    file system that both write to."""
    numbers = job_dir.numbers()
    if not numbers or files.read_json(job_dir.attempt(numbers[-1]).outcome) is not None:
        return False
    probe = os.path.join(job_dir.root, "clock.{}".format(os.getpid()))
    try:
        beat = os.stat(job_dir.attempt(numbers[-1]).heartbeat).st_mtime
        files.write_bytes(probe, b"", durable=False)
        return os.stat(probe).st_mtime - beat < 2 * HEARTBEAT
    except OSError:
        return False
    finally:
        files.remove(probe)


def unqueued(scheduler_name: str, job_dir: JobDir, record: "Record", batch_log: str) -> "Record":
    """A job without an end that the scheduler no longer knows was ended by somebody else."""
    if being_submitted(job_dir):
        return {"state": "queued", "reason": "being submitted"}
    if os.path.exists(job_dir.stop):
        return {"state": "stopped", "reason": "stopped on request"}
    if not record["attempts"] and not job_dir.known_number():
        return {"state": "lost", "reason": "it was never handed to " + scheduler_name}
    said = last_line(batch_log)
    end = guess_end(scheduler_name, record["attempts"], said)
    return dict(end, silent=job_dir.known_number(), said=said)


def guess_end(scheduler_name: str, attempts: "List[Record]", said: str) -> "Record":
    """From what the attempts have told, and what the batch job has said last."""
    cancelled = "cancelled in {}".format(scheduler_name)
    last = attempts[-1] if attempts else {}
    if last.get("outcome") == "interrupted" and last.get("cause") == "signal":
        return {"state": "stopped", "reason": cancelled, "ended": last.get("ended")}
    if not attempts and (not said or "CANCELLED" in said):
        return {"state": "stopped", "reason": cancelled + " before it ran"}
    if not attempts:
        return {"state": "failed", "reason": "its batch script ended before it ran: " + said}
    return {"state": "lost", "reason": "its batch job is gone, and did not say why (see batch.log)"}


def last_line(path: str) -> str:
    """Of what a batch job has said, if it has said anything."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LAST_WORDS, 0))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def log(agent: Agent, request: "Record") -> "Record":
    attempt = agent.job(request["id"]).attempt(request["attempt"])
    try:
        with open(attempt.log_of(request.get("rank", 0)), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Some file systems refuse a place far behind the end.
            file.seek(min(request["offset"], size))
            piece = file.read(LOG_PIECE)
    except FileNotFoundError:
        size, piece = 0, b""
    return {"size": size, "payload": len(piece), "pieces": [piece]}


def series(agent: Agent, request: "Record") -> "Record":
    job_dir = agent.job(request["id"])
    return metrics.series(files.read_json(job_dir.job) or {}, job_dir)


def stop(agent: Agent, request: "Record") -> "Record":
    ids = list(arrays.unfold(request["ids"]))
    queued = agent.scheduler.queue()
    numbers = []
    have_directory = set(files.names_in(os.path.join(agent.root, "jobs")))
    for array, indices in arrays.by_array(set(ids) - have_directory).items():
        ArrayDir(agent.root, array).stop_jobs(indices)
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
    if not jobdir.decide(files.read_json(job_dir.job) or {}, attempts).again:
        return []  # it has ended for good, and is being cleared away
    files.write_json(job_dir.stop, {"now": now, "time": time.time()})
    if queued is None:
        return []
    number = agent.scheduler.number_of(queued, job_dir.id)
    if queued["state"] == "running" and attempts and attempts[-1]["outcome"] is None:
        agent.scheduler.interrupt(number)
        return []
    end_job(job_dir, policy.Decision("stopped", "stopped on request"))
    return [number]


def resume(agent: Agent, request: "Record") -> "Record":
    job_dir = agent.own_directory(request["job"]["id"])
    missing = stage(agent, request)
    if missing:
        return {"missing": missing}
    after = image_requests.awaited(agent, request)
    with Submission(job_dir) as lock:
        # Without an end, an earlier answer may have been lost, or another laptop was quicker. With
        # one, what is in the queue is the batch job that has just written it.
        ended = os.path.exists(job_dir.end)
        number = None if ended else agent.already_queued(job_dir.id)
        if number is None:
            number = submit_again(agent, job_dir, request, lock, after)
    agent.forget_queue()
    return {"scheduler_id": number}


def submit_again(
    agent: Agent, job_dir: JobDir, request: "Record", lock: files.Lock, after: str
) -> str:
    end = files.read_json(job_dir.end)
    arrays.write_contents(job_dir, *contents_of(agent, request))
    files.remove(job_dir.stop)
    files.remove(job_dir.end)
    try:
        return hand_over(agent, job_dir, lock, after)
    except NoAnswer:
        raise
    except SchedulerError:  # it stays as it had ended
        files.remove(job_dir.secrets)
        if end is not None:
            files.write_json(job_dir.end, end)
        raise


def ids(agent: Agent, _: "Record") -> "Record":
    found = files.names_in(os.path.join(agent.root, "jobs"))
    for name in files.names_in(os.path.join(agent.root, "arrays")):
        array = ArrayDir(agent.root, name)
        found += [arrays.job_id(name, index) for index in sorted(array.without_directory())]
    return {"ids": arrays.fold(found)}


def outputs(agent: Agent, request: "Record") -> "Record":
    """All files and links among a job's outputs."""
    top = agent.job(request["id"]).outputs
    found = []
    for folder, folders, names in os.walk(top):
        for path in (os.path.join(folder, name) for name in names + folders):
            if not os.path.islink(path) and not os.path.isfile(path):
                continue  # a folder; or a socket or pipe, which cannot be copied
            try:
                found.append(describe_file(top, path))
            except FileNotFoundError:  # removed by the trainer this moment
                continue
    return {"files": found}


def pull(agent: Agent, request: "Record") -> "Record":
    """These outputs: what they are now, then their contents."""
    top = agent.job(request["id"]).outputs
    wanted = []
    for path in request["paths"]:
        try:
            wanted.append(describe_file(top, os.path.join(top, path)))
        except OSError:  # removed by the trainer this moment
            continue
    total = sum(record["size"] + 1 for record in wanted if record["link"] is None)
    return {"files": wanted, "payload": total, "pieces": contents(top, wanted)}


def describe_file(top: str, path: str) -> "Record":
    status = os.lstat(path)
    link = os.readlink(path) if os.path.islink(path) else None
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
            with open(os.path.join(top, record["path"]), "rb") as file:
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
    ids = list(arrays.unfold(request["ids"]))
    left = [path for job_id in ids for path in files.remove_tree(agent.job(job_id).path)]
    for array, indices in arrays.by_array(ids).items():
        ArrayDir(agent.root, array).remove_jobs(indices)
    shelf.prune(agent.root)
    return {"left": left}


def hello(agent: Agent, _: "Record") -> "Record":
    """What this place is like, asked anew; the laptop checks jobs by it before it submits."""
    from . import runtimes  # not for every request

    files.make_folder(agent.root)
    usage = os.statvfs(agent.root)
    found = {
        "time": time.time(),
        "root": agent.root,
        "python": sys.version.split()[0],
        "free": usage.f_bavail * usage.f_frsize,
        "files": usage.f_favail if usage.f_files else None,
        "container_facts": runtimes.facts(),
    }  # type: Record
    found.update(agent.scheduler.describe())
    files.write_json(facts_of(agent), found, durable=False)
    return found


def facts_of(agent: Agent) -> str:
    return os.path.join(agent.root, "facts.json")


def news_of_this_place(agent: Agent, request: "Record") -> "Record":
    """What is known of it goes along with an answer, unless the laptop has it; what is old is
    asked anew once the answer is on its way."""
    known = files.read_json(facts_of(agent))
    if known is None or not 0 <= time.time() - known["time"] < FACTS_AGE:
        return {"afterwards": lambda: refresh_facts(agent)}
    return {"facts": known} if known["time"] != request.get("facts") else {}


def refresh_facts(agent: Agent) -> None:
    try:
        hello(agent, {})
    except (OSError, SchedulerError):  # nobody waits for it
        pass


VERBS = {
    "hello": hello,
    "ids": ids,
    "image": image_requests.look,
    "image-announce": image_requests.announce,
    "image-part": image_requests.take_part,
    "image-remove": image_requests.remove,
    "images": image_requests.listing,
    "log": log,
    "metrics": series,
    "outputs": outputs,
    "pull": pull,
    "remove": remove,
    "resume": resume,
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
