"""Several accounts of one machine share it through a folder: real accounts, processes and files."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.share_findings import findings
from dray.node.schedulers import sharing
from dray.node.schedulers.queue import Queue, Unusable, fits_beside, queue_of
from dray.node.schedulers.shared_queue import SharedQueue
from tests.conftest import wait_for
from tests.unit.test_queue import MACHINE, holds, wish

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="becomes several accounts")
LENA, MARA, MALLORY = 54331, 54332, 54333

FAIR = "fair-gpu"
# Becomes the account once all is imported: what it may read then need not hold Python.
PROGRAM = """
import json, os, pwd, shlex, signal, sys, time
from pathlib import Path
from dray.node.schedulers import sharing
from dray.node.schedulers.shared_queue import SharedQueue
uid, share, root, *words = sys.argv[1:]
os.setgroups([])
os.setgid(int(uid))
os.setuid(int(uid))
queue = SharedQueue(root, share)
"""
HOLD = """
queue.make()
job, gpus, queue.order = words
wanted = {"cpus": 1, "gpus": float(gpus), "memory": None}
ticket = queue.take_ticket(job, wanted)
print("waits", flush=True)
grant = queue.wait_for_grant(ticket, job, wanted)
print(json.dumps(grant.given["gpus"]), flush=True)
sys.stdin.read()
grant.release()
"""
# Whoever has a GPU makes its file, which nobody else may have made. Each tries at once, out of
# line: what keeps them apart is what they write down, and not the order.
GRAB = """
queue.make()
job, rounds, witness = words
wanted = {"cpus": 1, "gpus": 1.0, "memory": None}
got = 0
while got < int(rounds):
    grant = queue._try_grant(job, wanted)
    if grant is None:
        time.sleep(0.001)
        continue
    mark = Path(witness, str(grant.given["gpus"][0]))
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    time.sleep(0.002)
    mark.unlink()
    grant.release()
    got += 1
"""
WAIT_IN_LINE = """
queue.make()
job, rounds, witness = words
for number in range(int(rounds)):
    wanted = {"cpus": 1, "gpus": 1.0, "memory": None}
    grant = queue.wait_for_grant(queue.take_ticket(job, wanted), job, wanted)
    mark = Path(witness, str(grant.given["gpus"][0]))
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    time.sleep(0.002)
    mark.unlink()
    grant.release()
"""


class Machine:
    """A machine with two GPUs, and a folder that its accounts share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.share = folder / "share"
        self.share.mkdir()
        self.share.chmod(0o1777)
        self.started: list[subprocess.Popen[str]] = []

    def root_of(self, uid: int, gpus: int = 2) -> Path:
        root = self.folder / str(uid)
        if not root.exists():
            (root / "queue").mkdir(parents=True)
            capacity = {"cpus": 64, "gpus": gpus, "memory": None}
            (root / "queue/capacity.json").write_text(json.dumps(capacity))
            for path in (root, *root.rglob("*")):
                os.chown(path, uid, uid)
                path.chmod(0o700 if path.is_dir() else 0o600)
        return root

    def start(self, uid: int, program: str, *words: str, gpus: int = 2) -> subprocess.Popen[str]:
        arguments = [str(uid), str(self.share), str(self.root_of(uid, gpus)), *words]
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def hold(self, uid: int, job: str, gpus: int, order: str = "") -> subprocess.Popen[str]:
        """Start a job that waits for its turn, and then holds what it got until it is let go."""
        process = self.start(uid, HOLD, job, str(gpus), order)
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        return process

    def queue(self, uid: int = 0) -> SharedQueue:
        return SharedQueue(str(self.root_of(uid)), str(self.share))

    def folder_of_new(self, uid: int) -> Path:
        """Make the folder of an account that has none."""
        own = self.share / f"{uid}-{'0' * 12}"
        for path in (own, own / "tickets", own / "grants"):
            path.mkdir()
            os.chown(path, uid, uid)
        return own

    def folder_of(self, uid: int) -> Path:
        return next(self.share.glob(f"{uid}-*"))


def got(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    given: list[int] = json.loads(process.stdout.readline())
    return given


def let_go(process: subprocess.Popen[str]) -> None:
    process.communicate()
    assert process.returncode == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account can come to."""
    folder = Path(tempfile.mkdtemp(prefix="dr", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def machine(open_folder: Path) -> Iterator[Machine]:
    made = Machine(open_folder)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


# -- one line for all ---------------------------------------------------------------------------


@needs_root
def test_accounts_wait_for_each_other_in_the_order_in_which_they_came(machine: Machine) -> None:
    first = machine.hold(LENA, "walk-1", 2)
    assert got(first) == [0, 1]
    second = machine.hold(MARA, "run-2", 2)
    third = machine.hold(LENA, "jump-3", 1)
    queue = machine.queue()
    line = [f"user {MARA}'s run-2", f"user {LENA}'s jump-3"]
    taken = f"waiting for 2 GPUs: 2 of 2 taken by user {LENA}'s walk-1"
    assert queue.waiting() == (line, taken)
    let_go(first)
    assert got(second) == [0, 1]
    assert machine.queue(LENA).in_line() == [f"user {LENA}'s jump-3"]
    let_go(second)
    assert got(third) == [0]


@needs_root
def test_everybodys_first_gpu_comes_before_anybodys_second(machine: Machine) -> None:
    first, second = (machine.hold(LENA, f"walk-{one}", 1, FAIR) for one in (1, 2))
    assert (got(first), got(second)) == ([0], [1])
    third = machine.hold(LENA, "walk-3", 1, FAIR)
    newcomer = machine.hold(MARA, "run-1", 1, FAIR)
    queue = machine.queue()
    assert queue.in_line() == [f"user {MARA}'s run-1", f"user {LENA}'s walk-3"]
    assert [(one["job"], one["order"]) for one in queue.overview()[:2]] == [
        ("run-1", FAIR),
        ("walk-3", FAIR),
    ]
    let_go(first)
    assert got(newcomer) == [0]
    let_go(newcomer)
    assert got(third) == [0]


@needs_root
def test_who_has_not_chosen_the_rule_keeps_all_by_age(machine: Machine) -> None:
    """Else two could wait for each other, each by its own order."""
    first = machine.hold(LENA, "walk-1", 2)
    assert got(first) == [0, 1]
    second = machine.hold(LENA, "walk-2", 2)
    newcomer = machine.hold(MARA, "run-1", 1, FAIR)
    assert machine.queue().in_line() == [f"user {LENA}'s walk-2", f"user {MARA}'s run-1"]
    let_go(first)
    assert got(second) == [0, 1]
    let_go(second)
    assert got(newcomer) == [0]


@needs_root
def test_the_rule_holds_as_soon_as_all_who_wait_have_chosen_it(machine: Machine) -> None:
    """Who waited for the one ahead by age does not wait for it any longer."""
    first = machine.hold(LENA, "walk-1", 2)
    assert got(first) == [0, 1]
    by_age = machine.hold(LENA, "walk-2", 1)
    older = machine.hold(LENA, "walk-3", 1, FAIR)
    newcomer = machine.hold(MARA, "run-1", 1, FAIR)
    time.sleep(0.5)  # for each to have found who is ahead
    let_go(first)
    assert got(by_age) == [0]
    assert got(newcomer) == [1]
    let_go(by_age)
    assert got(older) == [0]


@needs_root
def test_a_first_one_overtakes_who_stood_at_the_head_of_the_line(machine: Machine) -> None:
    """The order is looked at again and again: it changes with whoever comes."""
    first, second = (machine.hold(LENA, f"walk-{one}", 1, FAIR) for one in (1, 2))
    assert (got(first), got(second)) == ([0], [1])
    head = machine.hold(LENA, "walk-3", 1, FAIR)
    time.sleep(0.5)  # long enough for it to have found itself first
    newcomer = machine.hold(MARA, "run-1", 1, FAIR)
    time.sleep(1.0)  # and for it to find out that it is not any more
    let_go(first)
    assert got(newcomer) == [0]
    let_go(second)
    assert got(head) == [1]


@needs_root
@pytest.mark.parametrize("state", ["runs", "waits"])
def test_a_killed_job_frees_its_place(machine: Machine, state: str) -> None:
    first = machine.hold(LENA, "walk-1", 2)
    assert got(first) == [0, 1]
    waiting = machine.hold(LENA, "jump-3", 2)
    third = machine.hold(MARA, "run-2", 1)
    if state == "runs":
        waiting.kill()
        first.kill()
    else:
        first.kill()
        assert got(waiting) == [0, 1]
        waiting.kill()
    assert got(third) == [0]
    # The others can only ignore what is left; its owner removes it.
    left = [path.name for path in machine.folder_of(LENA).glob("*/*")]
    assert [name for name in left if name.endswith(("walk-1", "jump-3"))]
    assert got(machine.hold(LENA, "sit-4", 1)) == [1]
    names = {path.name for path in machine.folder_of(LENA).glob("*/*")}
    assert names == {"sit-4"}


@needs_root
@pytest.mark.parametrize("program", [GRAB, WAIT_IN_LINE], ids=["out of line", "in line"])
def test_many_at_once_never_have_the_same_gpu(machine: Machine, program: str) -> None:
    witness = machine.folder / "witness"
    witness.mkdir()
    witness.chmod(0o1777)
    racing = [
        machine.start(uid, program, f"job-{number}", "15", str(witness))
        for uid in (LENA, MARA, MALLORY)
        for number in range(2)
    ]
    assert [process.wait(100) for process in racing] == [0] * len(racing)
    assert machine.queue().holders() == {}
    assert machine.queue().in_line() == []


@needs_root
def test_a_job_that_no_longer_fits_does_not_hold_up_others(machine: Machine) -> None:
    machine.root_of(LENA, gpus=1)  # she had two when it was accepted
    machine.hold(LENA, "walk-1", 2)
    assert got(machine.hold(MARA, "run-2", 2)) == [0, 1]


@needs_root
def test_each_account_says_itself_how_much_it_uses(machine: Machine) -> None:
    machine.root_of(LENA, gpus=1)
    assert got(machine.hold(LENA, "walk-1", 1)) == [0]
    assert got(machine.hold(MARA, "run-2", 1)) == [1]


def test_without_a_share_the_queue_is_the_accounts_own(tmp_path: Path) -> None:
    queue = queue_of(str(tmp_path), None)
    assert type(queue) is Queue
    queue.make()
    os.close(queue.take_ticket("walk-1", wish()))
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    made = ["counter", "grants", "lock", "tickets", "tickets/000000000001-walk-1"]
    assert names == ["queue", *(f"queue/{name}" for name in made)]


def test_nothing_else_of_a_job_is_told(machine: Machine) -> None:
    queue = machine.queue(os.getuid())
    queue.make()
    wanted = {**wish(gpus=1), "gpu_type": "a100", "time": 60.0, "nodes": 1}
    ticket = queue.take_ticket("walk-1", wanted)
    (path,) = machine.share.glob("*/tickets/*")
    assert json.loads(path.read_text()) == {**wish(gpus=1), "order": ""}
    grant = queue.wait_for_grant(ticket, "walk-1", wanted)
    (path,) = machine.share.glob("*/*/walk-1")
    assert json.loads(path.read_text()) == holds(0, cpus=1)
    grant.release()
    assert not list(machine.share.glob("*/*/*"))


@pytest.mark.parametrize(
    ("others", "given", "fits"),
    [
        ([], holds(0, 1), True),
        ([holds(0)], holds(1), True),
        ([holds(1)], holds(0, 1), False),
        ([holds(0, share=0.5)], holds(0, share=0.5), True),
        ([holds(0, share=0.6)], holds(0, share=0.5), False),
        ([holds(cpus=7)], holds(cpus=1), True),
        ([holds(cpus=8)], holds(cpus=1), False),
        ([holds(memory=999)], holds(memory=2), False),
    ],
)
def test_what_was_taken_at_the_same_moment_is_seen(
    others: list[dict[str, Any]], given: dict[str, Any], fits: bool
) -> None:
    assert fits_beside(MACHINE, others, given) is fits


# -- accounts that mean ill ---------------------------------------------------------------------


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o644)


ALL = json.dumps(holds(0, 1, cpus=64)).encode()
BAD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "link to itself": lambda path: path.symlink_to(path),
    "empty": lambda path: put(path, b""),
    "half": lambda path: put(path, ALL[:-5]),
    "list": lambda path: put(path, b"[1, 2]"),
    "deep": lambda path: put(path, b"[" * 4000),
    "huge": lambda path: put(path, ALL + b" " * 5000),
    "no text": lambda path: put(path, b"\xff\x00"),
    "less than nothing": lambda path: put(path, json.dumps(holds(0, cpus=-64)).encode()),
    "no number": lambda path: put(path, ALL.replace(b"64", b"NaN")),
    "many GPUs": lambda path: put(path, json.dumps(holds(*range(1500))).encode()),
}


@needs_root
@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_grant_is_ignored_though_it_is_held(machine: Machine, kind: str) -> None:
    own = machine.share / f"{MALLORY}-{'0' * 12}"
    held = []
    for folder in (own / "grants", own / "tickets"):
        folder.mkdir(parents=True)
        BAD[kind](folder / "1-bad")
        os.chown(folder / "1-bad", MALLORY, MALLORY, follow_symlinks=False)
        os.chown(folder, MALLORY, MALLORY)
        if (folder / "1-bad").is_file() and not (folder / "1-bad").is_symlink():
            held.append(os.open(folder / "1-bad", os.O_RDWR))
            sharing.hold(held[-1])
    os.chown(own, MALLORY, MALLORY)
    assert sharing.grants(str(machine.share)) == sharing.tickets(str(machine.share)) == []
    assert got(machine.hold(LENA, "walk-1", 2)) == [0, 1]
    for fd in held:
        os.close(fd)


def grant_of(machine: Machine, folder: str, owner: int, of_file: int) -> int:
    """Put down a file that claims both GPUs; return it open and locked."""
    path = machine.share / folder / "grants/walk-1"
    path.parent.mkdir(parents=True)
    put(path, ALL)
    for one in (path.parent, path.parent.parent):
        os.chown(one, owner, owner)
    os.chown(path, of_file, of_file)
    fd = os.open(path, os.O_RDWR)
    sharing.hold(fd)
    return fd


@needs_root
@pytest.mark.parametrize(
    ("folder", "owner", "of_file", "counts"),
    [
        (f"{MALLORY}-{'0' * 12}", MALLORY, MALLORY, True),
        (f"{LENA}-{'0' * 12}", MALLORY, MALLORY, False),  # a folder in another's name
        (f"{LENA}-{'0' * 12}", MALLORY, LENA, False),
        (f"{MALLORY}-{'0' * 12}", MALLORY, LENA, False),  # a file of another's, by a link
        ("rubbish", MALLORY, MALLORY, False),
    ],
)
def test_a_file_counts_as_its_owners_only(
    machine: Machine, folder: str, owner: int, of_file: int, counts: bool
) -> None:
    fd = grant_of(machine, folder, owner, of_file)
    found = machine.queue().holders()
    assert list(found) == ([f"user {MALLORY}'s walk-1"] if counts else [])
    os.close(fd)
    assert machine.queue().holders() == {}


@needs_root
def test_a_folder_in_ones_name_keeps_nobody_out(machine: Machine) -> None:
    os.close(grant_of(machine, f"{LENA}-{'0' * 12}", MALLORY, MALLORY))
    assert got(machine.hold(LENA, "walk-1", 2)) == [0, 1]


MOVED = """
theirs, place, home = map(Path, words)
theirs.rename(place)
for part in ("tickets", "grants"):
    (place / part).symlink_to(home)
"""


@needs_root
def test_a_folder_that_was_moved_there_is_not_taken_for_ones_own(machine: Machine) -> None:
    """Whoever may write to a folder can move it. What dray would tidy there is what it links to."""
    home, lab = machine.folder / "home", machine.folder / "lab"
    for path in (home, lab, lab / "results"):
        path.mkdir()
    (home / "key").write_text("secret")
    for path in (home, home / "key", lab / "results"):
        os.chown(path, LENA, LENA)
    home.chmod(0o700)
    for path in (lab, lab / "results"):
        path.chmod(0o777)
    place = machine.share / f"{LENA}-{'0' * 12}"
    mover = machine.start(MALLORY, MOVED, *map(str, (lab / "results", place, home)))
    assert mover.wait() == 0
    assert got(machine.hold(LENA, "walk-1", 2)) == [0, 1]
    assert (home / "key").read_text() == "secret"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@needs_root
@pytest.mark.parametrize("part", ["grants", "walk-1", "."])
def test_what_others_can_write_to_does_not_count(machine: Machine, part: str) -> None:
    """They could hold its lock, and claim all GPUs in its owner's name."""
    fd = grant_of(machine, f"{LENA}-{'0' * 12}", LENA, LENA)
    folder = machine.folder_of(LENA)
    open_to_others = {".": folder, "grants": folder / "grants"}.get(part, folder / "grants/walk-1")
    assert list(machine.queue().holders()) == [f"user {LENA}'s walk-1"]
    open_to_others.chmod(open_to_others.stat().st_mode | 0o020)
    assert machine.queue().holders() == {}
    os.close(fd)


STANDS_FIRST = """
queue.make()
ticket = queue.take_ticket("walk-1", {"cpus": 1, "gpus": 1.0, "memory": None})
print("waits", flush=True)
sys.stdin.read()
"""


@needs_root
def test_nobody_waits_for_somebody_who_cannot_be_seen(machine: Machine) -> None:
    """A ticket that was taken away though its lock is held."""
    ahead = machine.start(MALLORY, STANDS_FIRST)
    assert ahead.stdout is not None
    assert ahead.stdout.readline() == "waits\n"
    behind = machine.hold(MARA, "run-2", 1)
    wait_for(lambda: Path(f"/proc/{behind.pid}/stat").read_text().split()[2] == "S")
    next((machine.folder_of(MALLORY) / "tickets").iterdir()).unlink()
    assert machine.queue().in_line() in ([f"user {MARA}'s run-2"], [])
    assert got(behind) == [0]
    assert ahead.poll() is None


@needs_root
def test_nobody_can_make_a_dead_job_look_alive(machine: Machine) -> None:
    """All the locks that another account can get on a file that it can read."""
    lost = machine.hold(LENA, "walk-1", 2)
    assert got(lost) == [0, 1]
    program = """
fd = os.open(words[0], os.O_RDONLY)
import fcntl, struct
fcntl.flock(fd, fcntl.LOCK_EX)
fcntl.fcntl(fd, 37, struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 0, 0)) if words[1] == "dead" else 0
try:
    sharing.hold(fd)
except OSError:
    print("refused", flush=True)
sys.stdin.read()
"""
    path = str(machine.folder_of(LENA) / "grants/walk-1")
    lost.kill()
    lost.wait()
    holder = machine.start(MALLORY, program, path, "dead")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "refused\n"
    assert machine.queue().holders() == {}
    assert got(machine.hold(MARA, "run-2", 2)) == [0, 1]
    machine.hold(LENA, "jump-3", 1)
    assert not Path(path).exists()


@needs_root
def test_nobody_can_touch_what_another_account_keeps(machine: Machine) -> None:
    assert got(machine.hold(LENA, "walk-1", 1)) == [0]
    own = machine.folder_of(LENA)
    program = """
own = Path(words[0])
tried = [
    lambda: (own / "grants/walk-1").unlink(),
    lambda: (own / "grants/walk-1").write_text(""),
    lambda: (own / "grants/walk-1").chmod(0),
    lambda: (own / "grants/more").write_text(""),
    lambda: (own / "lock").read_text(),
    lambda: (own / "grants").rename(own.parent / "elsewhere"),
    lambda: own.rename(own.parent / "elsewhere"),
]
for act in tried:
    try:
        act()
    except OSError:
        continue
    print("done", act.__code__.co_firstlineno, flush=True)
"""
    ended = machine.start(MALLORY, program, str(own)).communicate()
    assert ended[0] == ""
    assert list(machine.queue().holders()) == [f"user {LENA}'s walk-1"]


@needs_root
def test_who_holds_a_lease_on_a_file_holds_nobody_up(machine: Machine) -> None:
    """The kernel makes others wait who open it, unless they say that they will not."""
    path = machine.folder_of_new(MALLORY) / "grants/walk-1"
    put(path, ALL)
    os.chown(path, MALLORY, MALLORY)
    fd = os.open(path, os.O_RDWR)
    sharing.hold(fd)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    started = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        assert machine.queue().holders() == {}
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, started)


@needs_root
def test_of_another_account_not_all_is_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "MOST_FILES", 3)
    monkeypatch.setattr(sharing, "MOST_FOLDERS", 2)
    for number in range(4):
        folder = machine.share / f"{MALLORY}-{number:012}/tickets"
        folder.mkdir(parents=True)
        for ticket in range(5):
            put(folder / f"{ticket}-job", json.dumps(wish()).encode())
        for path in (folder.parent, folder, *folder.iterdir()):
            os.chown(path, MALLORY, MALLORY)
    paths = sorted(machine.share.glob("*/tickets/*"))
    held = [os.open(path, os.O_RDWR) for path in paths]
    for fd in held:
        sharing.hold(fd)
    found = [Path(one.path) for one in sharing.tickets(str(machine.share))]
    assert sorted(found) == [*paths[:3], *paths[5:8]]
    for fd in held:
        os.close(fd)


# -- a folder that is not fit for it ------------------------------------------------------------


def test_a_folder_that_can_be_shared(machine: Machine) -> None:
    assert sharing.problem_of(str(machine.share)) == ""
    assert list(machine.share.iterdir()) == []  # nothing is left of the look


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Path.rmdir, "Make it once, for all accounts: sudo install -d -m 1777 {}"),
        (lambda share: share.chmod(0o777), "remove each other's files there (chmod +t {})"),
        (lambda share: share.chmod(0o770), "remove each other's files there (chmod +t {})"),
        (lambda share: share.parent.chmod(0o777), "{} could be replaced: {parent} can be written"),
        (lambda share: (share.rmdir(), share.symlink_to("/tmp")), "link: set share to /tmp"),
        (lambda share: (share.rmdir(), share.touch()), "{} is not a folder"),
    ],
    ids=["missing", "no sticky bit", "group", "parent", "link", "file"],
)
def test_a_folder_that_others_could_replace_is_refused(
    machine: Machine, change: Callable[[Path], object], told: str
) -> None:
    change(machine.share)
    problem = sharing.problem_of(str(machine.share))
    assert told.format(machine.share, parent=machine.share.parent) in problem
    with pytest.raises(Unusable):
        machine.queue(os.getuid()).make()
    assert not (machine.share / str(os.getuid())).exists()
    (finding,) = findings(str(machine.share), sharing.facts(str(machine.share)))
    assert (finding.ok, finding.detail) == (False, problem)


@needs_root
def test_a_folder_below_one_of_another_account_is_refused(machine: Machine) -> None:
    os.chown(machine.folder, MALLORY, MALLORY)
    problem = sharing.problem_of(str(machine.share))
    belongs = f"{machine.folder} belongs to user {MALLORY}"
    assert problem == f"{machine.share} could be replaced: {belongs}"


@needs_root
def test_a_folder_for_a_group_is_for_its_members(machine: Machine) -> None:
    os.chown(machine.share, 0, LENA)
    machine.share.chmod(0o1770)
    assert got(machine.hold(LENA, "walk-1", 2)) == [0, 1]
    ended = machine.start(MARA, "print(sharing.problem_of(share))").communicate()
    assert ended[0].startswith(f"{machine.share}: your account cannot write to it. ")


@pytest.mark.parametrize(("share", "warned"), [("/tmp/share", True), ("/var/lib/share", False)])
def test_a_folder_whose_old_files_are_removed_is_advised_against(share: str, warned: bool) -> None:
    (finding,) = findings(share, {"problem": "", "owner": "root"})
    assert finding.ok
    assert ("better choose another place" in finding.detail) == warned


@needs_root
def test_who_could_remove_the_files_is_told(machine: Machine) -> None:
    facts = sharing.facts(str(machine.share))
    (finding,) = findings(str(machine.share), facts)
    assert "can remove" not in finding.detail
    os.chown(machine.share, LENA, LENA)
    (finding,) = findings(str(machine.share), sharing.facts(str(machine.share)))
    assert finding.ok
    assert f"user {LENA}, whose folder it is, can remove" in finding.detail


@needs_root
def test_a_job_waits_while_the_folder_is_away(machine: Machine) -> None:
    first = machine.hold(LENA, "walk-1", 2)
    assert got(first) == [0, 1]
    second = machine.hold(LENA, "run-2", 1)
    aside = machine.folder / "aside"
    machine.share.rename(aside)
    let_go(first)
    assert second.stdout is not None
    assert second.stdout.readline().startswith(f"{machine.share}: No such file or directory. ")
    aside.rename(machine.share)
    while (line := second.stdout.readline()).startswith(str(machine.share)):
        pass
    assert json.loads(line) == [0]
    assert [path.name for path in machine.folder_of(LENA).glob("*/*")] == ["run-2"]
