"""Brings home what a job writes on a node that does not see the root.

Two rounds: a quick one for logs, the heartbeat and the attempt's record, and one for outputs, new
checkpoints first. The head asks, and the node answers with pieces: so memory is bounded, and where
a file goes is decided here alone (``landing``). Nothing is older here than one round; what a killed
node has written since is lost with it.

A file that has grown is brought from where it ended: most that a trainer writes again and again are
logs. Both ends of what is here already are compared before, and all of it once the job has ended.
"""

import errno
import os
import re
import time

from ..checkpoints import given
from ..formats.messages import print_message
from ..sessions import calls
from .host import CLOSED, MOST_ROWS, write_at
from .landing import Landing, Unsafe, link_inside, parts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple  # noqa: F401

    from ..formats.records import Rules
    from .host import Row, Stamp, Wanted  # noqa: F401

PIECE = 8 << 20  # bytes that are asked for at once
QUICK, SLOW = 2.0, 10.0  # seconds between two rounds
REST = 3.0  # how much longer than a round of outputs took the next one waits
SETTLED = 2.0  # seconds for which nobody has written to a checkpoint that is brought
LARGEST_STATE = 1 << 20  # bytes
MOST_TOLD = 3  # paths of a kind that are named in the log
LONGEST_TOLD = 200  # characters of a path there
MOST_CALLED = 1 << 16  # bytes that are passed on in one look
ATTEMPT = re.compile(r"attempts/([0-9]{3,5})/(.+)$")
STATES = re.compile(r"(attempt|heartbeat|edits|door|ranks/[0-9]{1,6}\.door)\.json$")
DOOR = re.compile(r"attempts/[0-9]{3,5}/(ranks/[0-9]{1,6}\.)?door\.json$")
LOGS = re.compile(r"(log|log-times|ranks/[0-9]{1,6}\.log)$")
LEFT = re.compile(r"left(-[A-Za-z0-9.-]{1,255})?(/|$)")
LEFT_ELSEWHERE = re.compile(r"^(attempts/[0-9]{3,5}/left)-([A-Za-z0-9.-]{1,255})(?=/|$)")
OUTCOME = "outcome.json"
BEAT = "/heartbeat.json"  # its time is that of this disk: by it one sees that a job is silent
INCOMING = "incoming"  # in the job's directory: what is not whole yet
OUTPUT, LOG, STATE, LAST, NOTHING = "output", "log", "state", "last", ""


# -- pure ---------------------------------------------------------------------------------------


def sort_of(path: str, first: int) -> str:
    """Say what a file of a job's directory is to us. Attempts before ``first`` were made elsewhere:
    nobody changes them any more."""
    if path.startswith("outputs/"):
        return OUTPUT
    found = ATTEMPT.match(path)
    if found is None or int(found.group(1)) < first:
        return NOTHING
    name = found.group(2)
    if name == OUTCOME:
        return LAST
    for pattern, sort in ((STATES, STATE), (LOGS, LOG), (LEFT, OUTPUT)):
        if pattern.match(name):
            return sort
    return NOTHING


def placed(path: str) -> str:
    """Return where a file of a node goes: what is left of a work tree lies with that of the first
    node, in a folder of its own."""
    return LEFT_ELSEWHERE.sub(r"\1/\2", path)


def stamp_in(row: "Row") -> "Stamp":
    return (row[2], row[3], row[4])


def checked(rows: "Any", prefix: str) -> "Tuple[List[Row], List[str]]":
    """Return the rows that a node tells, without those that make no sense, with paths below the
    job's directory; and the paths that no file may have here."""
    found, odd = [], []  # type: List[Row], List[str]
    for row in rows:
        path, kind, size, changed, number, target = row
        if not isinstance(path, str) or not path.startswith(prefix):
            continue
        path = path[len(prefix) :]
        numbers = (size, changed, number)
        if not all(type(one) is int and 0 <= one < 2**64 for one in numbers):
            continue
        try:
            parts_of(path)
            parts_of(placed(path))
        except Unsafe:
            odd.append(path)
            continue
        if kind in ("f", "x", "d", "l", CLOSED) and isinstance(target, str):
            found.append((path, kind, size, changed, number, target))
    return found, odd


def is_below(path: str, folders: "Set[str]") -> bool:
    """Return whether a path is one of these folders, or lies in one."""
    while path:
        if path in folders:
            return True
        path = os.path.dirname(path)
    return False


def shown(path: str) -> str:
    """Return a path as a log can have it: a job can give its files any name."""
    return repr(path)[1:-1][:LONGEST_TOLD]


def raise_first(failed: "Dict[str, OSError]") -> None:
    """Raise what kept files from being brought, if anything did."""
    for path, error in failed.items():
        why = error.strerror or str(error)
        many = "{} files could not be brought, {}".format(len(failed), shown(path))
        one = "{} could not be brought".format(shown(path))
        raise OSError(error.errno, "{}: {}".format(many if len(failed) > 1 else one, why))


def is_checkpoint(path: str, rules: "Rules") -> bool:
    """Return whether a file is a checkpoint, part of one, or belongs to one."""
    pattern = rules.get("checkpoint")
    if not pattern or not path.startswith("outputs/"):
        return False
    names, wanted = path.split("/")[1:], pattern.split("/")
    return any(given.matches(names[:end], wanted) for end in range(len(names), 0, -1))


def batches(wanted: "List[Wanted]", most: int = PIECE) -> "List[List[Wanted]]":
    """Divide files into pieces, and put small ones together."""
    found, size = [[]], 0  # type: List[List[Wanted]], int
    for path, offset, length in wanted:
        while True:
            if size >= most or len(found[-1]) >= 1000:
                found.append([])
                size = 0
            part = min(length, most - size)
            found[-1].append((path, offset, part))
            size, offset, length = size + part, offset + part, length - part
            if not length:
                break
    return [one for one in found if one]


# -- acting -------------------------------------------------------------------------------------


class Coming:
    """A file that is being brought: a new one, or the rest of one that has grown."""

    def __init__(self, row: "Row", start: int, landing: Landing) -> None:
        self.row = row
        self.at = start
        self.landing = landing
        self.is_new = not start
        self.name, self.fd = landing.new() if self.is_new else ("", -1)

    def take(self, content: bytes) -> None:
        if self.is_new:
            write_at(self.fd, content, self.at)
        else:
            self.landing.append(self.row[0], content, self.at)
        self.at += len(content)

    def is_whole(self) -> bool:
        return self.at >= self.row[2]

    def put(self) -> None:
        """Put it in its place. Raises OSError where not all of it has reached the disk."""
        changed = self.row[3]
        if not self.is_new:
            self.landing.set_time(self.row[0], changed)
            return
        size = os.fstat(self.fd).st_size
        if size != self.row[2]:
            raise OSError(errno.EIO, "{} of its {} bytes are here".format(size, self.row[2]))
        os.fchmod(self.fd, 0o700 if self.row[1] == "x" else 0o600)
        if not self.row[0].endswith(BEAT):
            os.utime(self.fd, ns=(changed, changed))
        self._close()  # before: a file server may say only now that its disk is full
        self.landing.put(self.name, self.row[0])

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        os.close(fd)

    def drop(self) -> None:
        if self.fd >= 0:
            self._close()
        if self.is_new:
            self.landing.drop(self.name)


class Listing:
    """What a node has told of. ``closed``: folders whose content nobody can tell."""

    def __init__(self, now: float, rows: "List[Row]", is_whole: bool) -> None:
        self.now = now
        self.closed = {row[0] for row in rows if row[1] == CLOSED}
        self.rows = [row for row in rows if row[1] != CLOSED]
        self.is_whole = is_whole


class Mirror:
    """What one node of a job has, and what of it is here. ``ask`` calls a method of the node's
    host; ``first`` is the number of its first attempt; ``yields`` says which outputs are another
    node's to tell of; ``pause`` is called between two pieces."""

    def __init__(
        self,
        job_path: str,
        stand_in: str,
        rules: "Rules",
        first: int,
        ask: "Callable[..., Any]",
        **more: "Any",
    ) -> None:
        self.job_path = job_path
        self.prefix = "jobs/{}/".format(os.path.basename(job_path))
        self.there = os.path.join(stand_in, self.prefix)
        self.on_node = os.path.join(self.there, "outputs")
        self.rules = rules
        self.first = first
        self.ask = ask
        self.yields = more.get("yields") or (lambda path: False)
        self.pause = more.get("pause") or (lambda: None)
        self.landing = Landing(job_path, os.path.join(job_path, INCOMING), placed)
        self.known = {}  # type: Dict[str, Stamp]
        self.links = {}  # type: Dict[str, str]
        self.folders = set()  # type: Any
        self.grown = set()  # type: Any  # files that were brought in parts, at different times
        self.tails = {}  # type: Dict[str, int]
        self.calls = {}  # type: Dict[str, int]  # how much was passed on of who wants in, by path
        self.remarks = set()  # type: Any
        self.outputs = set()  # type: Any  # what was listed last
        self.failed = {}  # type: Dict[str, OSError]  # outputs that the last round did not bring

    def close(self) -> None:
        self.landing.close()

    def remember(self, path: str, stamp: "Stamp") -> None:
        """Take note of an output that was sent there, and is as it is here."""
        self.known[path] = stamp

    # -- the quick round --------------------------------------------------------------------------

    def bring_news(self) -> None:
        """Bring what logs have grown by, and how the attempt does."""
        listing, failed = self._list(["attempts"]), {}  # type: Any, Dict[str, OSError]
        for row in listing.rows:
            if sort_of(row[0], self.first) == LOG and row[1] == "f":
                attempt(failed, row[0], self._bring_tail, row)
        states = [row for row in listing.rows if sort_of(row[0], self.first) == STATE]
        failed.update(self._bring([row for row in states if row[2] <= LARGEST_STATE]))
        self._forget(STATE, {row[0] for row in states}, listing.closed)
        raise_first(failed)

    def _bring_tail(self, row: "Row") -> None:
        """Bring the new end of a log; one that is shorter than before is brought anew."""
        path, size = row[0], row[2]
        at = self.tails.get(path, 0)
        if size < at or self.known.get(path, row[2:5])[2] != row[4]:
            raise_first(self._bring([row]))
            self.tails[path] = size
            return
        while at < size:
            answer = self._read([(path, at, min(PIECE, size - at))])[0]
            if answer is None or not answer[0]:
                break
            self.landing.append(path, answer[0], at)
            at += len(answer[0])
        if at == 0 and path not in self.known:
            self.landing.append(path, b"")
        self.tails[path] = at
        self.known[path] = stamp_in(row)

    def pass_calls(self) -> None:
        """Pass on to the node what those have written who want into the job: see sessions.calls."""
        doors = [path for path in list(self.known) if DOOR.match(path)]
        for path in set(self.calls) - {calls.path_beside(one) for one in doors}:
            self.landing.remove(path)
            del self.calls[path]
        failed = {}  # type: Dict[str, OSError]
        for path in (calls.path_beside(one) for one in doors):
            attempt(failed, path, self._pass_call, path)
        for error in failed.values():  # the first stands for all
            raise error

    def _pass_call(self, path: str) -> None:
        if path not in self.calls:
            self.landing.append(path, b"")
            self.calls[path] = 0
        heard, text = self.calls[path], self.landing.read(path, self.calls[path], MOST_CALLED)
        whole = text[: text.rfind(b"\n") + 1]
        if whole:
            self.ask("append", os.path.join(self.there, path), whole)
            self.calls[path] = heard + len(whole)

    def bring_file(self, path: str, most: int) -> bytes:
        """Return the content of a small file of the stand-in; b"" where there is none."""
        answer = self.ask("read", [(path, 0, most)])[0]
        return bytes(answer[0]) if answer is not None else b""

    # -- the round of outputs ---------------------------------------------------------------------

    def bring_outputs(self, is_last: bool = False) -> None:
        """Bring what is new or has changed among the outputs, then the outcomes of attempts that
        have ended before. Raises OSError where something could not be: after all else, and before
        an outcome says that all is well."""
        self.failed = {}
        listing = self._list(["attempts", "outputs"])
        outputs = [row for row in listing.rows if sort_of(row[0], self.first) == OUTPUT]
        self.outputs = {row[0] for row in outputs}
        outputs = [row for row in outputs if not self.yields(row[0])]
        for row in outputs:
            if row[1] == "d" and row[0] not in self.folders:
                attempt(self.failed, row[0], self._make_folder, row[0])
        fresh = [row for row in outputs if self._is_fresh(row)]
        ready = [row for row in fresh if is_last or self._has_settled(row, listing.now)]
        self.failed.update(self._bring(sorted(ready, key=self._rank), is_last))
        for row in outputs:
            if row[1] == "l":
                attempt(self.failed, row[0], self._bring_link, row)
        # A checkpoint goes once the one that comes after it is here.
        if len(ready) == len(fresh) and listing.is_whole and not self.failed:
            self._forget(OUTPUT, {row[0] for row in outputs}, listing.closed)
        if is_last:
            self._compare([row for row in outputs if row[0] in self.grown])
        raise_first(self.failed)
        self._bring_outcomes(listing)

    def bring_outcomes(self) -> None:
        """Bring the outcomes of attempts, whatever has come of their outputs."""
        self._bring_outcomes(self._list(["attempts"]))

    def _bring_outcomes(self, listing: Listing) -> None:
        rows = [row for row in listing.rows if sort_of(row[0], self.first) == LAST]
        raise_first(self._bring(rows))

    def _make_folder(self, path: str) -> None:
        self.landing.make_folder(path)
        self.folders.add(path)

    def _is_fresh(self, row: "Row") -> bool:
        return row[1] in ("f", "x") and self.known.get(row[0]) != stamp_in(row)

    def _has_settled(self, row: "Row", now: float) -> bool:
        """Return whether a checkpoint is no longer being written to, as far as can be told; others
        are brought as they are."""
        is_young = now - row[3] / 1e9 < SETTLED
        return not is_young or not is_checkpoint(row[0], self.rules)

    def _rank(self, row: "Row") -> "Tuple[bool, int]":
        """Put checkpoints first, the newest before others, then what is small."""
        if is_checkpoint(row[0], self.rules):
            return (False, -row[3])
        return (True, row[2])

    def _bring_link(self, row: "Row") -> None:
        path = row[0]
        if path.startswith("outputs/"):
            target = link_inside(path[len("outputs/") :], row[5], self.on_node)
        else:
            target = ""  # of a work tree, where links mostly lead to what is not here
        if not target:
            self._remark("{} leads out of the outputs, and was left there".format(shown(path)))
        elif self.links.get(path) != target:
            self.landing.link(path, target)
            self.links[path] = target

    def _forget(self, sort: str, there: "Any", closed: "Set[str]") -> None:
        """Remove what is not there any more on the node, where it once was. In folders that could
        not be listed, it may still be."""
        for path in [one for one in self.known if one not in there]:
            is_own = sort_of(path, self.first) == sort and not self.yields(path)
            if is_own and not is_below(path, closed):
                self.landing.remove(path)
                del self.known[path]
        if sort != OUTPUT:
            return
        for path in [one for one in self.links if one not in there]:
            if not is_below(path, closed):
                self.landing.remove(path)
                del self.links[path]
        for path in sorted((one for one in self.folders if one not in there), reverse=True):
            if not is_below(path, closed):
                self.landing.remove(path)
                self.folders.discard(path)

    def _compare(self, rows: "List[Row]") -> None:
        """Bring files anew that are not the same as on the node, all in all."""
        differ = []
        for row in rows:
            self.pause()
            own = self.landing.probe(row[0], row[2], True)
            if self.ask("probe", self.prefix + row[0], row[2], True) != own:
                differ.append(row)
                self.known.pop(row[0], None)
        self.failed.update(self._bring(differ, is_last=True))

    # -- files ------------------------------------------------------------------------------------

    def _bring(self, rows: "List[Row]", is_last: bool = False) -> "Dict[str, OSError]":
        """Bring files; return those that could not be written here, which the next round brings."""
        by_path = {row[0]: row for row in rows if row[1] in ("f", "x")}
        fresh = [row for row in by_path.values() if self.known.get(row[0]) != stamp_in(row)]
        starts = {row[0]: self._start_of(row) for row in fresh}
        wanted = [(row[0], starts[row[0]], row[2] - starts[row[0]]) for row in fresh]
        failed = {}  # type: Dict[str, OSError]
        coming = None  # type: Optional[Coming]
        try:
            for batch in batches(wanted):
                self.pause()
                if coming is None:  # without the rest of one that was given up
                    batch = [one for one in batch if one[1] == starts[one[0]]]
                answers = self._read(batch) if batch else []
                for at, (path, offset, length) in enumerate(batch):
                    try:
                        coming = coming or Coming(by_path[path], offset, self.landing)
                        is_more = self._take(coming, length, answers[at], is_last)
                    except OSError as error:
                        failed[path], is_more = error, False
                        if coming is not None:
                            coming.drop()
                    coming = coming if is_more else None
        finally:
            if coming is not None:
                coming.drop()
        return failed

    def _take(self, coming: Coming, length: int, answer: "Any", is_last: bool) -> bool:
        """Take a piece; return whether more is to come."""
        if answer is None or len(answer[0]) != length:
            coming.drop()
            if is_last:
                told = shown(coming.row[0])
                self._remark("{} could not be read on its node, and was left there".format(told))
            return False
        coming.take(answer[0])
        if not coming.is_whole():
            return True
        if not self._is_same(coming.row, answer[1], is_last):
            coming.drop()
            return False
        coming.put()
        if not coming.is_new:
            self.grown.add(coming.row[0])
        self.known[coming.row[0]] = stamp_in(coming.row)
        return False

    def _is_same(self, row: "Row", stamp: "Stamp", is_last: bool) -> bool:
        """Return whether the file is still the one that was listed. One that grows may have grown
        on."""
        if stamp == stamp_in(row):
            return True
        may_grow = is_last or not is_checkpoint(row[0], self.rules)
        if may_grow and stamp[2] == row[4] and stamp[0] > row[2]:
            self.grown.add(row[0])
            return True
        return False

    def _start_of(self, row: "Row") -> int:
        """Return from where on a file is to be brought: 0, or where it ended before."""
        known = self.known.get(row[0])
        if known is None or known[2] != row[4] or not 0 < known[0] <= row[2]:
            return 0
        if is_checkpoint(row[0], self.rules) or sort_of(row[0], self.first) != OUTPUT:
            return 0
        there = self.ask("probe", self.prefix + row[0], known[0], False)
        return known[0] if there == self.landing.probe(row[0], known[0], False) else 0

    def _read(self, batch: "List[Wanted]") -> "Any":
        return self.ask("read", [(self.prefix + path, at, most) for path, at, most in batch])

    def _list(self, names: "List[str]") -> Listing:
        now, told = self.ask("list", [self.prefix + name for name in names])
        rows, odd = checked(told, self.prefix)
        listing = Listing(float(now), rows, len(told) < MOST_ROWS)
        self._tell_left(odd, "has a path that is too deep or that no file may have here")
        self._tell_left(listing.closed, "cannot be listed on its node")
        if not listing.is_whole:
            many = (
                "its node has too many files: the first {} files and folders were looked at, and "
            )
            self._remark((many + "there are more, which were left there").format(MOST_ROWS))
        return listing

    def _tell_left(self, paths: "Iterable[str]", why: str) -> None:
        """Say which of the outputs are left on the node, and why: the first of them."""
        left = sorted(one for one in paths if sort_of(one, self.first) != NOTHING)
        for path in left[:MOST_TOLD]:
            self._remark("{} {}, and was left there".format(shown(path), why))
        if len(left) > MOST_TOLD:
            self._remark("the same holds for others: each {}, and was left there".format(why))

    def _remark(self, text: str) -> None:
        if text not in self.remarks and len(self.remarks) < 100:
            self.remarks.add(text)
            print_message("{}: {}".format(os.path.basename(self.job_path), text))


def attempt(
    failed: "Dict[str, OSError]", path: str, step: "Callable[..., None]", *arguments: "Any"
) -> None:
    """Take a step for one path; take note of an error, which is no reason to leave out others."""
    try:
        step(*arguments)
    except OSError as error:
        failed[path] = error


class Pace:
    """When the next round is due."""

    def __init__(self) -> None:
        self.news = self.outputs = 0.0

    def is_time_for_news(self) -> bool:
        now = time.monotonic()
        if now < self.news:
            return False
        self.news = now + QUICK
        return True

    def is_time_for_outputs(self) -> bool:
        return time.monotonic() >= self.outputs

    def had_outputs(self, began: float) -> None:
        now = time.monotonic()
        self.outputs = now + max(SLOW, REST * (now - began))
