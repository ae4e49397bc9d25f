"""The index of jobs: kept by several processes at once, private, and honest about damage."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dray.errors import StorageError, StoreBusy, StoreError
from dray.job.model import Attempt, JobArray, JobSpec, JobState, JobView, Resources
from dray.store import MIGRATIONS, VERSION, Damaged, Store, rebuilding, set_aside

Open = Callable[[], Store]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "store.db"


@pytest.fixture
def open_store(path: Path) -> Iterator[Open]:
    opened: list[Store] = []

    def opens() -> Store:
        opened.append(Store(path, patience=0.1))
        return opened[-1]

    yield opens
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> Store:
    return open_store()


def spec(job_id: str = "train-abcd", created: float = 1000.0) -> JobSpec:
    return JobSpec(
        id=job_id,
        name=job_id.rpartition("-")[0],
        command=("python", "train.py", "ü\n'\udcff"),
        resources=Resources(gpus=0.5, memory=2**30, time=60.0),
        outputs=("logs",),
        env={"A": "b"},
        secrets=("TOKEN",),
        created=created,
    )


def view(
    job_id: str = "train-abcd", state: JobState = JobState.RUNNING, created: float = 1000.0
) -> JobView:
    return JobView(
        spec=spec(job_id, created),
        cluster="local",
        state=state,
        reason="because",
        ended=None if state.active else created + 10,
        attempts=(
            Attempt(number=1, outcome="interrupted", exit_code=1, gpus=(0, 1), left=("a",)),
            Attempt(number=2, started=1.0),
        ),
    )


# -- what is kept -------------------------------------------------------------------------------


def test_a_job_comes_back_as_it_was(store: Store, open_store: Open) -> None:
    assert store.is_new
    store.save([view()])
    later = open_store()
    assert not later.is_new
    assert later.view("train-abcd") == view()
    assert later.view("train") is None


def test_an_intent_is_written_once(store: Store) -> None:
    now = time.time()
    assert store.add_intent(spec(created=now), "local")
    assert not store.add_intent(spec(created=now + 5), "other")
    age = store.intent_age("train-abcd")
    assert age is not None
    assert 0 <= age < 60
    assert store.listing(0, -1) == []
    assert store.active() == {"local": {"train-abcd": ("queued", "", 0)}}
    store.save([view()])
    assert store.intent_age("train-abcd") is None
    assert [row.id for row in store.listing(0, -1)] == ["train-abcd"]


def test_later_news_replace_earlier_ones(store: Store) -> None:
    store.save([view()])
    store.save([view(state=JobState.DONE)])
    assert store.view("train-abcd") == view(state=JobState.DONE)
    assert store.active() == {}
    assert store.count() == 1


def test_events_tell_each_change_once(store: Store) -> None:
    store.add_intent(spec(), "local")
    store.save([replace(view(), state=JobState.QUEUED)])
    store.save([view()])
    store.save([view()])
    store.add_event("stop requested", "train-abcd")
    store.save([view(state=JobState.STOPPED)])
    told = [what for _, what in store.events("train-abcd")]
    assert told == ["running", "stop requested", "stopped"]


def test_a_removed_job_leaves_nothing(store: Store, path: Path) -> None:
    store.save([view(), view("other-abcd")])
    store.add_event("x", "train-abcd")
    store.remove("train-abcd")
    store.remove("train-abcd")
    assert store.view("train-abcd") is None
    assert store.events("train-abcd") == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT DISTINCT job FROM attempts").fetchall() == [
            ("other-abcd",)
        ]


def test_the_listing_has_recent_and_all_active_jobs_newest_first(store: Store) -> None:
    store.save(
        [view(f"old-{number}", JobState.DONE, created=number) for number in range(5)]
        + [view("still-active", created=1.5)]
        + [view(f"new-{number}", JobState.FAILED, created=100 + number) for number in range(5)]
    )

    def ids(since: float, most: int) -> list[str]:
        return [row.id for row in store.listing(since, most)]

    assert ids(50, 50) == ["new-4", "new-3", "new-2", "new-1", "new-0", "still-active"]
    assert ids(50, 2) == ["new-4", "new-3", "still-active"]
    everything = ids(0, -1)
    assert len(everything) == len(set(everything)) == 11
    assert everything[-3:] == ["still-active", "old-1", "old-0"]
    row = store.listing(50, 1)[0]
    assert (row.state, row.cluster, row.name, row.attempts) == ("failed", "local", "new", 2)
    last = json.loads(row.last_attempt)
    assert (last["number"], last["started"], last["deadline"]) == (2, 1.0, None)


def test_as_many_of_one_cluster_as_are_asked_for(store: Store) -> None:
    theirs = replace(view("theirs-1111", JobState.DONE, created=100), cluster="far", ended=150)
    store.save([theirs, *(view(f"ours-{n}", JobState.DONE, created=200 + n) for n in range(3))])
    store.save([replace(view("active-1111", created=10), cluster="far"), view("active-2222")])
    assert [row.id for row in store.listing(50, 1, "far")] == ["theirs-1111", "active-1111"]
    assert store.listing(50, 1, "nowhere") == []


def test_what_a_listing_leaves_out_is_counted(store: Store) -> None:
    store.save([view(f"old-{n}", JobState.DONE, created=n) for n in range(5)])
    store.save([view("new-1", JobState.FAILED, created=100), view("active-1", created=1)])
    store.save([replace(view("far-1", JobState.DONE, created=1), cluster="far")])
    store.add_intent(spec("being-submitted"), "local")
    assert len(store.listing(50, 9)) == 2
    assert (store.others(2), store.others(8), store.others(0, "far")) == (6, 0, 1)

    def fitting(text: str, since: float = 50, most: int = 9) -> tuple[list[str], int]:
        rows, hidden = store.fitting(since, most, None, lambda row: text in row.id)
        return [row.id for row in rows], hidden

    assert fitting("1") == (["new-1", "active-1"], 2)
    assert fitting("old", since=0, most=2) == (["old-4", "old-3"], 3)
    assert fitting("old", since=0, most=-1)[1] == 0


def test_a_listing_reads_no_job_that_it_does_not_show(store: Store) -> None:
    """Every query goes by an index, however many jobs there are; only their number is counted."""
    queries: list[str] = []
    store.save([view("old-1", JobState.DONE, created=1)])
    store._connection.set_trace_callback(queries.append)
    store.listing(50, 9)
    store.others(0)
    store.active()
    store._connection.set_trace_callback(None)
    plans = [one[3] for query in queries for one in store._rows(f"EXPLAIN QUERY PLAN {query}")]
    assert len(plans) == len(queries) == 6
    assert [plan for plan in plans if "USING" not in plan] == []


def test_jobs_of_a_project_are_found(store: Store) -> None:
    odd = '/home/ü/a "b'
    store.save([replace(view(), spec=replace(spec(), project=odd))])
    liar = replace(spec("liar-abcd"), command=(f'"project": {json.dumps(odd)}',))
    store.save([replace(view("liar-abcd"), spec=liar)])
    store.add_intents(JobArray(replace(spec("sweep-1"), project=odd), (("a",), ("b",))), "local")
    assert store.ids_of_project(odd) == {"train-abcd", "sweep-1.0", "sweep-1.1"}
    assert store.ids_of_project("/home") == set()


def test_references(store: Store) -> None:
    store.save([view(job_id) for job_id in ("train-ab", "train-abc", "trap-x", "100%-x", "a_b-x")])

    def ids(prefix: str) -> set[str]:
        return {job_id for job_id, _ in store.matching(prefix)}

    assert ids("train-ab") == {"train-ab"}  # exactly this one, though others begin so
    assert ids("train") == {"train-ab", "train-abc"}
    assert ids("tra") == {"train-ab", "train-abc", "trap-x"}
    assert ids("trap") == {"trap-x"}
    assert ids("rain") == set()
    assert ids("%") == ids("a%") == ids("_") == ids("TRAIN") == set()
    assert ids("a_") == {"a_b-x"}
    assert ids("ü") == ids("\udcff") == set()
    assert ("trap-x", "running") in store.recent_ids()
    assert len(store.recent_ids(2)) == 2


# -- the file -----------------------------------------------------------------------------------


def test_it_is_private_and_has_a_write_ahead_log(path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(path)
        store.save([view()])
    finally:
        os.umask(before)
    modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
    assert modes == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm"], 0o600)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    store.close()


def test_a_file_that_others_could_read_is_made_private(path: Path, open_store: Open) -> None:
    open_store().close()
    path.chmod(0o644)
    open_store()
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_older_version_is_brought_up_to_date(path: Path, open_store: Open) -> None:
    """From the very first state on: an empty database, as a killed first start leaves it."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
    store = open_store()
    store.save([view()])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert len(MIGRATIONS) == VERSION


def test_a_migration_that_fails_changes_nothing(
    path: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store().save([view()])
    before = dump(path)
    monkeypatch.setattr("dray.store.VERSION", VERSION + 1)
    monkeypatch.setattr("dray.store.MIGRATIONS", (*MIGRATIONS, "CREATE TABLE x (y); oops"))
    with pytest.raises(StoreError, match="syntax error"):
        Store(path)
    assert dump(path) == before
    monkeypatch.undo()
    assert open_store().view("train-abcd") == view()


def test_a_later_migration_keeps_the_jobs(
    path: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store().save([view()])
    more = "ALTER TABLE jobs ADD COLUMN note TEXT; CREATE TABLE x (y)"
    monkeypatch.setattr("dray.store.VERSION", VERSION + 1)
    monkeypatch.setattr("dray.store.MIGRATIONS", (*MIGRATIONS, more))
    store = open_store()
    assert store.view("train-abcd") == view()
    assert open_store().count() == 1


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()
        return [str(version), *connection.iterdump()]


def test_a_newer_version_is_refused_and_left_alone(path: Path, open_store: Open) -> None:
    open_store().save([view()])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = dump(path)
    with pytest.raises(StoreError, match=r"written by a newer dray \(version 99, .* knows") as told:
        Store(path)
    assert not isinstance(told.value, Damaged)
    assert told.value.exit_code == 6
    assert "Update dray" in told.value.hint
    assert dump(path) == before


# -- several at once ----------------------------------------------------------------------------

WRITER = """
import sys, time
from pathlib import Path
from dray.job.model import Attempt, JobArray, JobSpec, JobState, JobView
from dray.store import Store

path, me, count, go = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
while not go.exists():
    time.sleep(0.001)
store = Store(path)
for number in range(count):
    spec = JobSpec(id=f"{me}-{number}", name=me, command=("true",), created=float(number))
    assert store.add_intent(spec, "local")
    for state in (JobState.QUEUED, JobState.RUNNING, JobState.DONE):
        store.save([JobView(spec=spec, cluster="local", state=state)])
    if number % 2:
        store.remove(spec.id)
"""


def test_several_processes_make_it_and_write_to_it(
    path: Path, tmp_path: Path, open_store: Open
) -> None:
    """They all open it at the same moment, when it is not there yet."""
    go = tmp_path / "go"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"w{me}", "10", str(go)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for me in range(6)
    ]
    go.touch()
    for writer in writers:
        _, complaint = writer.communicate(timeout=60)
        assert writer.returncode == 0, complaint
    expected = {f"w{me}-{number}" for me in range(6) for number in range(0, 10, 2)}
    rows = open_store().listing(0, -1)
    assert {row.id for row in rows} == expected
    assert {row.state for row in rows} == {"done"}


LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_locked_by_another_process(store: Store, path: Path) -> None:
    store.save([view()])
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        assert store.view("train-abcd") == view()  # reading goes on
        with pytest.raises(StoreBusy, match=r"locked by another process for 0\.1 s") as told:
            store.save([view(state=JobState.DONE)])
        assert told.value.transient
        assert told.value.exit_code == 6
        assert "fuser" in told.value.hint
        other.communicate()
    store.save([view(state=JobState.DONE)])
    assert store.view("train-abcd") == view(state=JobState.DONE)


def test_a_writer_killed_in_the_middle_leaves_the_state_before(store: Store, path: Path) -> None:
    store.save([view()])
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        other.kill()
    store.save([view("other-abcd")])
    assert store.count() == 2


# -- damage -------------------------------------------------------------------------------------


def fill(path: Path, jobs: int = 200) -> None:
    store = Store(path)
    store.save([view(f"job-{number:04d}", JobState.DONE) for number in range(jobs)])
    store.close()


@pytest.mark.parametrize(
    "content",
    [b"this is not a database, but it is long enough to be one" * 10, b"SQLite format 3\0oops"],
)
def test_not_a_database(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(Damaged, match="is damaged: file is not a database") as told:
        Store(path)
    assert told.value.exit_code == 6
    assert path.read_bytes() == content


def test_another_programs_database(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cookies (x)")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    store = Store(path)
    with pytest.raises(Damaged, match="no such table: jobs"):
        store.count()
    store.close()


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_truncated(path: Path, kept: float) -> None:
    """Found when it is opened, or at the latest when the lost part is wanted."""
    fill(path)
    os.truncate(path, int(path.stat().st_size * kept))
    with pytest.raises(Damaged, match="is damaged"):
        read_everything(path)


def test_overwritten_in_the_middle(path: Path) -> None:
    fill(path)
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xa5" * (len(content) - 8192 - 4096)
    path.write_bytes(content)
    with pytest.raises(Damaged, match="is damaged"):
        read_everything(path)


def read_everything(path: Path) -> None:
    with closing(Store(path)) as store:
        for row in store.listing(0, -1):
            assert store.view(row.id) is not None


def test_a_damaged_store_is_set_aside_with_all_its_files(path: Path, open_store: Open) -> None:
    other = open_store()
    other.save([view()])
    names = {one.name for one in path.parent.iterdir()}
    assert names == {"store.db", "store.db-wal", "store.db-shm"}
    aside = set_aside(path)
    assert aside.name.startswith("store.db.damaged-")
    assert {one.name for one in path.parent.iterdir()} == {
        aside.name + ending for ending in ("", "-wal", "-shm")
    }
    other.close()
    assert open_store().count() == 0


# -- a file system that does not play along -----------------------------------------------------


def test_a_folder_in_its_place(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StorageError, match="cannot be used: Is a directory") as told:
        Store(path)
    assert told.value.exit_code == 8
    assert "DRAY_HOME" in told.value.hint


def test_a_store_that_became_read_only(store: Store, path: Path) -> None:
    store.save([view()])
    store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="readonly database") as told:
        store.save([view("other-abcd")])
    assert told.value.exit_code == 8
    store._connection.execute("PRAGMA query_only = OFF")
    store.save([view("other-abcd")])
    assert store.count() == 2


def test_a_full_disk_undoes_what_was_begun(store: Store) -> None:
    """SQLite's own limit on pages stands in for the disk's; it fails in the same place."""
    store.save([view("job-0")])
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="full") as told:
        store.save([view(f"job-{number}") for number in range(500)])
    assert told.value.exit_code == 8
    assert store.count() == 1
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.save([view("job-1")])
    assert store.count() == 2


# -- arrays -------------------------------------------------------------------------------------


def test_an_arrays_jobs_are_kept_each_with_its_command(store: Store) -> None:
    array = JobArray(spec("sweep-abcd"), (("a",), ("b", "ü")))
    assert store.add_intents(array, "local")
    assert not store.add_intents(array, "local")
    assert set(store.active()["local"].values()) == {("queued", "", 0)}
    known = array._replace(common=replace(array.common, snapshot="5" * 40))
    store.save_submitted(known)
    assert [row.id for row in store.listing(0, -1)] == ["sweep-abcd.1", "sweep-abcd.0"]
    found = store.view("sweep-abcd.1")
    assert found is not None
    assert found.spec == list(known.jobs())[1]


def test_an_array_is_not_added_where_a_cluster_claims_one_of_its_jobs(store: Store) -> None:
    array = JobArray(spec("sweep-abcd"), (("a",), ("b",)))
    store.save([told("sweep-abcd.1", cluster="evil")])
    assert not store.add_intents(array, "local")
    assert store.count() == 1
    store.remove("sweep-abcd.1")
    assert store.add_intents(array, "local")


def test_an_array_that_was_cut_in_the_middle_is_completed(store: Store) -> None:
    array = JobArray(spec("many-abcd"), (("a",), ("b",), ("c",)))
    store.add_intents(array, "local")
    store.save_submitted(array)
    store.remove("many-abcd.1", "many-abcd.2")
    other = array._replace(common=replace(array.common, created=array.common.created + 1))
    assert not store.add_intents(other, "local", goes_on=True)
    assert store.add_intents(array, "local", goes_on=True)
    ages = [store.intent_age(job_id) is None for job_id in array.ids]
    assert ages == [True, False, False]  # what was submitted is not about to be
    store.remove("many-abcd.2")
    store.save([told("many-abcd.2", cluster="evil")])
    assert not store.add_intents(array, "local", goes_on=True)


def test_why_jobs_wait_is_kept(store: Store) -> None:
    store.save([view("one-abcd", JobState.QUEUED), view("two-abcd", JobState.RUNNING)])
    store.save_waiting({"one-abcd": "later"})
    assert store.active()["local"]["one-abcd"] == ("queued", "later", 1)
    assert store.active()["local"]["two-abcd"] == ("running", "because", 1)


def test_an_array_is_forgotten_with_its_last_job(store: Store) -> None:
    array = JobArray(spec("sweep-abcd"), (("a",), ("b",)))
    store.add_intents(array, "local")
    store.remove("sweep-abcd.0")
    assert not store.add_intents(array, "local")
    store.remove("sweep-abcd.1")
    assert store.add_intents(array, "local")


@pytest.mark.parametrize("read", [Store.view, lambda store, _: store.as_seen(told("sweep-abcd.0"))])
def test_an_array_that_is_removed_while_it_is_read_is_no_damage(
    path: Path,
    open_store: Open,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Store, str], JobView | None],
) -> None:
    reading, removing = open_store(), open_store()
    reading.add_intents(JobArray(spec("sweep-abcd"), (("a",),)), "local")
    rows = reading._rows

    def rows_then_remove(*query: Any) -> list[Any]:
        found = rows(*query)
        removing.remove("sweep-abcd.0")
        return found

    monkeypatch.setattr(reading, "_rows", rows_then_remove)
    seen = read(reading, "sweep-abcd.0")
    assert seen is not None
    assert seen.spec.command == ("a",)
    monkeypatch.undo()
    assert reading.view("sweep-abcd.0") is None
    assert path.exists()


def test_a_job_of_an_array_that_is_missing_is_damage(path: Path, open_store: Open) -> None:
    store = open_store()
    store.add_intents(JobArray(spec("sweep-abcd"), (("a",),)), "local")
    with closing(sqlite3.connect(path)) as other:
        other.execute("DELETE FROM arrays")
        other.commit()
    with pytest.raises(Damaged):
        store.view("sweep-abcd.0")


# -- what a cluster may say -----------------------------------------------------------------------


def told(job_id: str = "train-abcd", cluster: str = "local", **fields: object) -> JobView:
    return replace(view(job_id, JobState.DONE), cluster=cluster, **fields)  # type: ignore[arg-type]


def test_of_our_own_job_a_cluster_tells_how_it_does_and_not_what_it_is(store: Store) -> None:
    store.add_intent(spec(), "local")
    forged = replace(spec(), secrets=("AWS_KEY",), project="/home/me", command=("evil",))
    seen = store.as_seen(told(spec=replace(forged, snapshot="a" * 40, resumed_after=3)))
    assert seen is not None
    assert seen.spec == replace(spec(), snapshot="a" * 40, resumed_after=3)
    assert seen.state is JobState.DONE
    assert store.is_own("train-abcd")


def test_of_a_job_from_elsewhere_all_is_as_the_cluster_tells(store: Store) -> None:
    forged = replace(spec(), secrets=("OTHER",))
    assert store.as_seen(told(spec=forged)) == told(spec=forged)
    store.save([told(spec=forged)])
    assert not store.is_own("train-abcd")
    again = replace(spec(), secrets=("ANOTHER",))
    assert store.as_seen(told(spec=again)) == told(spec=again)


def test_a_cluster_tells_nothing_of_another_ones_jobs(store: Store) -> None:
    store.add_intent(spec(), "local")
    store.save([view()])
    assert store.as_seen(told(cluster="evil")) is None
    store.save([told(cluster="evil")])
    kept = store.view("train-abcd")
    assert kept is not None
    assert (kept.cluster, kept.state) == ("local", JobState.RUNNING)


def test_a_job_that_is_resumed_from_here_becomes_our_own(store: Store) -> None:
    store.save([told()])
    store.save_own(told(spec=replace(spec(), secrets=("NAMED",))))
    assert store.is_own("train-abcd")
    seen = store.as_seen(told())
    assert seen is not None
    assert seen.spec.secrets == ("NAMED",)


# -- damage that is no text -----------------------------------------------------------------------


def test_damage_that_sqlite_reports_in_no_utf8(path: Path, open_store: Open) -> None:
    """The schema itself is damaged, and quoted in the complaint."""
    open_store().close()
    content = path.read_bytes()
    assert b"CREATE TABLE events" in content
    path.write_bytes(content.replace(b"CREATE TABLE events", b"CREATE TABLE e\xff\xfe(("))
    with pytest.raises(Damaged, match="is damaged"):
        open_store()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE jobs SET reason = CAST(X'ff00fe' AS TEXT)",
        "UPDATE jobs SET spec = CAST(X'ff' AS TEXT)",
        "UPDATE jobs SET spec = '{'",
        "UPDATE jobs SET spec = '[]'",
        "UPDATE jobs SET state = 'great'",
    ],
)
def test_a_record_that_cannot_be_read_is_damage(path: Path, open_store: Open, damage: str) -> None:
    store = open_store()
    store.save([view()])
    with closing(sqlite3.connect(path)) as other:
        other.execute(damage)
        other.commit()
    with pytest.raises(Damaged, match="is damaged") as told:
        store.view("train-abcd")
    assert "It was moved to" in told.value.hint
    assert not path.exists()


def damage_record(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE jobs SET spec = '{'")
        other.commit()


def test_a_store_that_another_process_has_rebuilt_is_not_moved_aside(
    path: Path, open_store: Open
) -> None:
    late = open_store()
    late.save([view()])
    damage_record(path)
    set_aside(path)
    open_store().save([view("new-abcd")])
    with pytest.raises(Damaged) as told:
        late.view("train-abcd")
    assert told.value.hint.startswith("Try again")
    assert open_store().count() == 1


def test_a_store_that_another_process_rebuilds_is_left_to_it(path: Path, open_store: Open) -> None:
    store = open_store()
    store.save([view()])
    damage_record(path)
    with rebuilding(path), pytest.raises(Damaged, match="is damaged"):
        store.view("train-abcd")
    assert path.exists()
    with pytest.raises(Damaged):
        store.view("train-abcd")
    assert not path.exists()
