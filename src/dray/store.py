"""The laptop's own index of jobs: SQLite, used by several dray processes at once.

The jobs' directories on the clusters are the truth. The store holds what was last seen of them, so
a damaged one is moved aside and rebuilt.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

from dray.errors import DrayError, StorageError, StoreBusy, StoreError
from dray.job.model import Attempt, JobArray, JobSpec, JobState, JobView, Resources
from dray.node.formats import files
from dray.records import NamedTuple, asdict, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BUSY_SECONDS = 10.0

MIGRATIONS = (
    """
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        cluster TEXT NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT '',
        submitted INTEGER NOT NULL DEFAULT 0,  -- 0: dray has not yet seen it queued
        created REAL NOT NULL,
        ended REAL,
        attempts INTEGER NOT NULL DEFAULT 0,
        command TEXT NOT NULL,
        spec TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX jobs_by_created ON jobs (created);
    CREATE INDEX jobs_by_ended ON jobs (ended);
    CREATE INDEX jobs_active ON jobs (cluster, id) WHERE state IN ('queued', 'running');
    CREATE TABLE attempts (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (job, number)
    ) WITHOUT ROWID;
    CREATE TABLE events (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        time REAL NOT NULL,
        what TEXT NOT NULL
    );
    CREATE INDEX events_by_job ON events (job, time);
    """,
    """
    CREATE TABLE arrays (  -- the spec that the jobs of an array have in common
        id TEXT PRIMARY KEY,
        spec TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    "ALTER TABLE jobs ADD COLUMN metric TEXT NOT NULL DEFAULT 'null'",
    # 1: this machine has submitted or resumed it, and wrote its spec itself
    "ALTER TABLE jobs ADD COLUMN own INTEGER NOT NULL DEFAULT 0",
    # where its cluster keeps jobs, by the settings it was submitted with; '': not known
    "ALTER TABLE jobs ADD COLUMN place TEXT NOT NULL DEFAULT ''",
    # the last attempt, as a listing shows it; null: none, or not seen since this column is there
    "ALTER TABLE jobs ADD COLUMN last_attempt TEXT NOT NULL DEFAULT 'null'",
    """
    CREATE TABLE sweeps (
        id TEXT PRIMARY KEY,
        cluster TEXT NOT NULL,
        place TEXT NOT NULL,  -- as that of a job
        created REAL NOT NULL,
        study TEXT NOT NULL,
        parts TEXT NOT NULL  -- its arrays, in order
    ) WITHOUT ROWID
    """,
)
VERSION = len(MIGRATIONS)

# What the file system would not let SQLite do.
OUTSIDE = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)


class Row(NamedTuple):
    """A job in a listing."""

    id: str
    cluster: str
    name: str
    state: str
    reason: str
    created: float
    ended: float | None
    attempts: int
    command: str
    metric: str
    last_attempt: str


LISTED = (
    "number",
    "started",
    "heartbeat",
    "ended",
    "deadline",
    "iteration",
    "total",
    "gpu_use",
    "gpu_idle",
)
ACTIVE = (JobState.QUEUED, JobState.RUNNING)

# How an active job was last seen: state, reason, and 1 if it is known to have been submitted.
Last = tuple[str, str, int]


class SweepRow(NamedTuple):
    """A sweep that was submitted from here."""

    id: str
    cluster: str
    place: str
    created: float
    study: dict[str, Any]  # sweep.json
    parts: list[dict[str, Any]]  # records.PartRecord, with the cluster and the place of each

    @property
    def where(self) -> str:
        """Its clusters, in the order of its trials, as --on names them."""
        return ",".join(dict.fromkeys(one.get("cluster", self.cluster) for one in self.parts))

    @property
    def arrays(self) -> list[str]:
        return [one["id"] for one in self.parts]


class Damaged(StoreError):
    """The file is not a whole database."""


class Store:
    """The index of jobs. ``patience``: how many seconds to wait for another process that writes."""

    def __init__(self, path: Path, patience: float = BUSY_SECONDS) -> None:
        self.path = path
        self.patience = patience
        self.is_new = False  # just created: knows no job yet
        self._studies: dict[str, dict[str, Any] | None] = {}  # of sweeps: they never change
        files.make_folder(str(path.parent))
        # Before it is opened: if the file is replaced right now, the new one is not taken for ours.
        self._identity = identify(path)
        with self._errors():
            self._connection = sqlite3.connect(
                path, timeout=patience, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(self._connection)
                self._identity = self._identity or identify(path)
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if self.path.stat().st_mode & 0o777 != files.PRIVATE_FILE:
            self.path.chmod(files.PRIVATE_FILE)
        connection.execute("PRAGMA foreign_keys = ON")
        # A job whose id was printed must not be forgotten, not even by a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        if self._version(connection) < VERSION:
            self._migrate(connection)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        self._choose_wal(connection)
        with self._transaction(connection):  # one process migrates, the others wait
            version = self._version(connection)
            self.is_new = version == 0
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def _choose_wal(self, connection: sqlite3.Connection) -> None:
        """Switch to write-ahead logging. SQLite does not wait by itself if two processes do so at
        once."""
        until = time.monotonic() + self.patience
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(0.01)

    def _version(self, connection: sqlite3.Connection) -> int:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > VERSION:
            raise StoreError(
                f"{self.path} was written by a newer dray (version {version}, this one knows "
                f"{VERSION})",
                hint="Update dray: pip install --upgrade dray",
            )
        return version

    @contextmanager
    def _errors(self, opened: bool = False) -> Iterator[None]:
        """Raise SQLite's errors as dray's. Damage found only now is left to the next dray
        process."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            known = self._explain(error)
            if opened and isinstance(known, Damaged):
                self._set_aside(known)
            raise known from error

    def _explain(self, error: sqlite3.DatabaseError | UnicodeDecodeError) -> DrayError:
        # In a record, or in what SQLite itself says of the damage.
        if isinstance(error, UnicodeDecodeError) or "Could not decode to UTF-8" in str(error):
            return Damaged(f"{self.path} is damaged: it holds text that is no UTF-8")
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusy(
                f"{self.path} has been locked by another process for {self.patience:g} s",
                hint=f"Try again; if it stays so, look for a hanging dray: fuser {self.path}",
            )
        if code in OUTSIDE:
            return StorageError(
                f"{self.path} cannot be used: {self._complaint() or error}",
                hint="Check free space and permissions there; DRAY_HOME moves it elsewhere.",
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "no such" in str(error):
            return Damaged(f"{self.path} is damaged: {error}")
        return StoreError(f"{self.path} cannot be used: {error}")

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Treat a record that cannot be read as damage, too."""
        try:
            yield
        except ValueError as error:
            known = Damaged(f"{self.path} is damaged: a record in it cannot be read: {error}")
            self._set_aside(known)
            raise known from error

    def _set_aside(self, known: Damaged) -> None:
        known.hint = "Try again: the jobs are then found in their own directories."
        aside = self._move_aside()
        if aside is not None:
            known.hint = f"It was moved to {aside}. {known.hint}"

    def _move_aside(self) -> Path | None:
        """Move the damaged file aside; None if another process has replaced it, or does so right
        now: the file of this name is then not the one that was read."""
        lock = rebuilding(self.path)
        if not lock.take(wait=False):  # perhaps by this process: waiting would never end
            return None
        try:
            return set_aside(self.path) if identify(self.path) == self._identity else None
        finally:
            lock.__exit__()

    def _complaint(self) -> str:
        """Return what the system says if SQLite only says that it could not open the file."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, files.PRIVATE_FILE))
        except OSError as error:
            return error.strerror or ""
        return ""

    def close(self) -> None:
        self._connection.close()

    # -- writing ------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._errors(opened=True), self._transaction(self._connection):
            yield self._connection

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite itself rolls back on a full disk
                connection.execute("ROLLBACK")
            raise

    def add_intent(self, spec: JobSpec, cluster: str, place: str = "") -> bool:
        """Record that this job is about to be submitted. Return False if the id is taken."""
        with self._writing() as connection:
            made = connection.execute(
                "INSERT OR IGNORE INTO jobs"
                " (id, cluster, place, name, state, created, command, spec, own)"
                " VALUES (?, ?, ?, ?, 'queued', ?, ?, ?, 1)",
                (
                    spec.id,
                    cluster,
                    place,
                    spec.name,
                    spec.created,
                    json.dumps(spec.command),
                    json.dumps(spec.to_dict()),
                ),
            )
            return made.rowcount == 1

    def add_intents(
        self, array: JobArray, cluster: str, place: str = "", *, goes_on: bool = False
    ) -> bool:
        """Record that all jobs of an array are about to be submitted. Return False if an id is
        taken. ``goes_on``: a submission of this very array may have been cut in the middle; then
        those that are missing are recorded."""
        common = array.common
        # Trials of a sweep have one command.
        commands = [json.dumps(one) for one in array.commands or (common.command,)]
        rows = [
            (job_id, cluster, place, common.name, common.created, command)
            for job_id, command in zip(array.ids, cycle(commands), strict=False)
        ]
        with self._writing() as connection:
            known = self.array_spec(array.id)
            if known is not None and not (goes_on and known.created == common.created):
                return False
            taken = connection.execute(  # a cluster may claim a job of that id
                "SELECT 1 FROM jobs WHERE id >= ? AND id < ? AND NOT (? AND own AND cluster = ?)"
                " LIMIT 1",
                (*ids_in(array.id), known is not None, cluster),
            )
            if taken.fetchone() is not None:
                return False
            connection.execute(
                "INSERT OR IGNORE INTO arrays VALUES (?, ?)",
                (array.id, json.dumps(common.to_dict())),
            )
            connection.executemany(
                "INSERT OR IGNORE INTO jobs"
                " (id, cluster, place, name, state, created, command, spec, own)"
                " VALUES (?, ?, ?, ?, 'queued', ?, ?, '', 1)",
                rows,
            )
        return True

    def save_array(self, array: JobArray) -> None:
        """Record what the jobs of an array have in common, as it is sent."""
        with self._writing() as connection:
            self._save_array(connection, array)

    def _save_array(self, connection: sqlite3.Connection, array: JobArray) -> None:
        spec = json.dumps(array.common.to_dict())
        connection.execute("UPDATE arrays SET spec = ? WHERE id = ?", (spec, array.id))

    def save_submitted(self, array: JobArray) -> None:
        """Record that all jobs of the array are queued."""
        with self._writing() as connection:
            self._save_array(connection, array)
            connection.execute(
                "UPDATE jobs SET submitted = 1 WHERE id >= ? AND id < ?", ids_in(array.id)
            )

    def save_waiting(self, reasons: Mapping[str, str]) -> None:
        """Record that these jobs are queued, each with its reason."""
        with self._writing() as connection:
            connection.executemany(
                "UPDATE jobs SET state = 'queued', reason = ?, submitted = 1 WHERE id = ?",
                [(reason, job_id) for job_id, reason in reasons.items()],
            )

    def save(self, views: Iterable[JobView]) -> None:
        """Record what was just seen of these jobs, each as returned by ``as_seen``."""
        with self._writing() as connection:
            for view in views:
                self._save_one(connection, view)

    def move(self, found: Iterable[JobView], place: str) -> None:
        """Record that our own jobs were found where their cluster keeps jobs now. Only the job
        itself knows when it was created, which identifies it."""
        with self._writing() as connection:
            connection.executemany(
                "UPDATE jobs SET place = ?1 WHERE id = ?2 AND cluster = ?3 AND created = ?4"
                " AND own AND place NOT IN ('', ?1)",
                [(place, one.id, one.cluster, one.spec.created) for one in found],
            )

    def save_own(self, view: JobView) -> None:
        """Record a job that this machine has just submitted or resumed, with its description."""
        with self._writing() as connection:
            self._save_one(connection, view)
            connection.execute("UPDATE jobs SET own = 1 WHERE id = ?", (view.id,))

    def _save_one(self, connection: sqlite3.Connection, view: JobView) -> None:
        spec = view.spec
        before = connection.execute("SELECT state FROM jobs WHERE id = ?", (view.id,)).fetchone()
        connection.execute(
            "INSERT INTO jobs (id, cluster, name, state, reason, submitted, created, ended,"
            " attempts, command, spec, metric, last_attempt)"
            " VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET state = excluded.state, reason = excluded.reason,"
            " submitted = 1, ended = excluded.ended, attempts = excluded.attempts,"
            " command = excluded.command, spec = excluded.spec, metric = excluded.metric,"
            " last_attempt = excluded.last_attempt"
            " WHERE cluster = excluded.cluster",  # one cluster does not speak for another
            (
                view.id,
                view.cluster,
                spec.name,
                str(view.state),
                view.reason,
                spec.created,
                view.ended,
                len(view.attempts),
                json.dumps(spec.command),
                json.dumps(spec.to_dict()),
                json.dumps(view.metric),
                json.dumps(in_listing(view.attempts[-1]) if view.attempts else None),
            ),
        )
        connection.executemany(
            "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?)",
            [(view.id, one.number, json.dumps(asdict(one))) for one in view.attempts],
        )
        if before is None or before[0] != view.state:
            self._add_event(connection, view.id, str(view.state))

    def add_event(self, what: str, *ids: str) -> None:
        with self._writing() as connection:
            for job_id in ids:
                self._add_event(connection, job_id, what)

    def _add_event(self, connection: sqlite3.Connection, job_id: str, what: str) -> None:
        connection.execute("INSERT INTO events VALUES (?, ?, ?)", (job_id, time.time(), what))

    def remove(self, *ids: str) -> None:
        with self._writing() as connection:
            connection.executemany("DELETE FROM jobs WHERE id = ?", [(one,) for one in ids])
            arrays = {one.rpartition(".")[0] for one in ids if "." in one}
            connection.executemany(
                "DELETE FROM arrays WHERE id = ?1 AND NOT EXISTS"
                " (SELECT 1 FROM jobs WHERE id >= ?1 || '.' AND id < ?1 || '/')",
                [(one,) for one in arrays],
            )
            self._remove_empty_sweeps(connection, arrays)

    # -- sweeps -------------------------------------------------------------------------------

    def save_sweep(self, row: SweepRow) -> None:
        """Record a sweep whose trials are about to be submitted, or another array of it; forget one
        that has no array."""
        with self._writing() as connection:
            if not row.parts:
                connection.execute("DELETE FROM sweeps WHERE id = ?", (row.id,))
                return
            connection.execute(
                "INSERT OR REPLACE INTO sweeps VALUES (?, ?, ?, ?, ?, ?)",
                (*row[:4], json.dumps(row.study), json.dumps(row.parts)),
            )

    def _remove_empty_sweeps(self, connection: sqlite3.Connection, arrays: set[str]) -> None:
        """Remove the sweeps of these arrays that have no job left."""
        for row in self.sweeps() if arrays else ():
            if not arrays.isdisjoint(row.arrays) and not any(map(self.in_array, row.arrays)):
                connection.execute("DELETE FROM sweeps WHERE id = ?", (row.id,))

    def sweeps(self) -> list[SweepRow]:
        """Return the sweeps that were submitted from here, the newest first."""
        with self._decoding():
            return [
                SweepRow._make([*row[:4], json.loads(row[4]), json.loads(row[5])])
                for row in self._rows("SELECT * FROM sweeps ORDER BY created DESC")
            ]

    def in_sweep(self, sweep: str) -> list[str]:
        """Return the ids of a sweep's jobs, in the order of its trials; none if there is no such
        sweep."""
        rows = (
            self._rows("SELECT parts FROM sweeps WHERE id = ?", (sweep,)) if sweep.isascii() else ()
        )
        with self._decoding():
            return [
                one
                for row in rows
                for part in json.loads(row[0])
                for one in self.in_array(part["id"])
            ]

    def rows_in(self, array: str) -> list[Row]:
        """Return the jobs of an array, in no order."""
        query = f"SELECT {', '.join(Row._fields)} FROM jobs WHERE id >= ? AND id < ?"
        return [Row._make(row) for row in self._rows(query, ids_in(array))]

    def array_spec(self, array: str) -> JobSpec | None:
        """Return what the jobs of an array that was submitted from here have in common."""
        rows = self._rows("SELECT spec FROM arrays WHERE id = ?", (array,))
        with self._decoding():
            return JobSpec.from_dict(json.loads(rows[0][0])) if rows else None

    def _filled(self, ours: JobSpec, told: JobSpec) -> JobSpec:
        """Return our description of a trial with the parameters that its cluster tells, if they are
        of the sweep's space. What is made of them is our own."""
        values = told.sweep.get("values")
        before, may_change = ours.sweep.get("values"), "template" in ours.sweep
        if values is None or values == before or (before is not None and not may_change):
            return ours
        from dray.node.sweeps.trial import as_filled  # only for a trial

        study: Any = self._study(ours.sweep["id"])
        record = as_filled(ours.to_dict(), study, values) if study else None
        return JobSpec.from_dict(record) if record else ours

    def _study(self, sweep: str) -> dict[str, Any] | None:
        if sweep not in self._studies:
            rows = self._rows("SELECT study FROM sweeps WHERE id = ?", (sweep,))
            with self._decoding():
                self._studies[sweep] = json.loads(rows[0][0]) if rows else None
        return self._studies[sweep]

    # -- reading ------------------------------------------------------------------------------

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._errors(opened=True):
            return self._connection.execute(query, values).fetchall()

    def active(self) -> Mapping[str, dict[str, Last]]:
        """Return the jobs that had not ended when last seen, by cluster."""
        query = (
            "SELECT cluster, id, state, reason, submitted FROM jobs"
            " WHERE state IN ('queued', 'running')"
        )
        found: dict[str, dict[str, Last]] = {}
        for cluster, job_id, state, reason, submitted in self._rows(query):
            found.setdefault(cluster, {})[job_id] = (state, reason, submitted)
        return found

    def numbers(self) -> dict[str, dict[str, int]]:
        """Count the jobs that were queued and running when last seen, by cluster and state."""
        query = (
            "SELECT cluster, state, COUNT(*) FROM jobs"
            " WHERE state IN ('queued', 'running') GROUP BY cluster, state"
        )
        found: dict[str, dict[str, int]] = {}
        for cluster, state, count in self._rows(query):
            found.setdefault(cluster, {})[state] = count
        return found

    def ids_on(self, cluster: str) -> list[str]:
        """Return the ids of all known jobs of this cluster."""
        return [row[0] for row in self._rows("SELECT id FROM jobs WHERE cluster = ?", (cluster,))]

    def listing(self, since: float, most: int, on: str | None = None) -> list[Row]:
        """Return the active jobs, and those created or ended since then, newest first. ``on``: only
        those of this cluster."""
        columns = ", ".join(Row._fields)
        wanted = "submitted AND (?1 IS NULL OR cluster = ?1)"
        recent = []
        for moment in ("created", "ended"):
            recent += self._rows(
                f"SELECT {columns} FROM jobs WHERE {moment} >= ?2 AND {wanted}"
                f" ORDER BY {moment} DESC LIMIT ?3",
                (on, since, most),
            )
        active = self._rows(
            f"SELECT {columns} FROM jobs WHERE state IN ('queued', 'running') AND {wanted}", (on,)
        )
        rows = {row[0]: Row._make(row) for row in recent + active}.values()
        # In an array .9 comes before .10.
        return sorted(rows, key=lambda row: (row.created, len(row.id), row.id), reverse=True)

    def fitting(
        self, since: float, most: int, on: str | None, fits: Callable[[Row], bool]
    ) -> tuple[list[Row], int]:
        """Return the rows of ``listing`` that fit, and how many more jobs would fit."""
        found = [row for row in self.listing(0.0, -1, on) if fits(row)]
        recent = [row for row in found if max(row.created, row.ended or 0.0) >= since]
        shown = {row.id for row in (recent if most < 0 else recent[:most])}
        kept = [row for row in found if row.id in shown or row.state in ACTIVE]
        return kept, len(found) - len(kept)

    def others(self, listed: int, on: str | None = None) -> int:
        """Count the submitted jobs beside those that are listed. SQLite counts all jobs by an
        index; few of them were never submitted."""
        where = "" if on is None else " WHERE cluster = ?"
        values = () if on is None else (on,)
        rest = int(self._rows(f"SELECT count(*) FROM jobs{where}", values)[0][0]) - listed
        if rest <= 0:
            return 0
        # Of the active ones, as the index has them: SQLite would look at every job otherwise.
        active = "state IN ('queued', 'running') AND state = 'queued'"
        intents = f"{active} AND NOT submitted AND (?1 IS NULL OR cluster = ?1)"
        return rest - int(self._rows(f"SELECT count(*) FROM jobs WHERE {intents}", (on,))[0][0])

    def ids_of_project(self, project: str) -> set[str]:
        """Return the ids of the jobs that were submitted from this folder."""
        # As json.dumps writes it; within another text its quotation marks would be escaped.
        sign = (f'"project": {json.dumps(project)}',)
        own = self._rows("SELECT id FROM jobs WHERE instr(spec, ?)", sign)
        arrays = self._rows("SELECT id FROM arrays WHERE instr(spec, ?)", sign)
        return {row[0] for row in own} | {one for row in arrays for one in self.in_array(row[0])}

    def count(self) -> int:
        return int(self._rows("SELECT count(*) FROM jobs")[0][0])

    def matching(self, prefix: str) -> list[tuple[str, str]]:
        """Return (id, cluster) of the job with this id, else of those whose id begins with it."""
        if not prefix.isascii():  # no id is like that, and SQLite takes no broken text
            return []
        exact = self._rows("SELECT id, cluster FROM jobs WHERE id = ?", (prefix,))
        if exact:
            return [tuple(exact[0])]
        end = prefix + "\U0010ffff"
        rows = self._rows(
            "SELECT id, cluster FROM jobs WHERE id >= ? AND id < ? ORDER BY created DESC LIMIT 20",
            (prefix, end),
        )
        return [tuple(row) for row in rows]

    def in_array(self, array: str) -> list[str]:
        """Return the ids of this array's jobs, in order; none if there is no such array."""
        if not array.isascii():
            return []
        query = "SELECT id FROM jobs WHERE id >= ? AND id < ? ORDER BY length(id), id"
        return [row[0] for row in self._rows(query, ids_in(array))]

    def latest(self) -> str | None:
        """Return the id of the job that was submitted last; for an array, its first job."""
        rows = self._rows(
            "SELECT id FROM jobs WHERE submitted ORDER BY created DESC, length(id), id LIMIT 1"
        )
        return rows[0][0] if rows else None

    def recent_ids(self, most: int = 200) -> list[tuple[str, str]]:
        rows = self._rows("SELECT id, state FROM jobs ORDER BY created DESC LIMIT ?", (most,))
        return [tuple(row) for row in rows]

    def recent(self, most: int = 200) -> list[tuple[str, str, float]]:
        """Return the newest jobs: id, state when last seen, and time of submission."""
        query = "SELECT id, state, created FROM jobs ORDER BY created DESC LIMIT ?"
        return [tuple(row) for row in self._rows(query, (most,))]

    def recent_images(self, most: int = 200) -> dict[str, float]:
        """Return the images of the newest jobs from here, as their users call them, and when each
        was last used."""
        query = "SELECT spec, created FROM jobs WHERE own ORDER BY created DESC LIMIT ?"
        found: dict[str, float] = {}
        for spec, created in self._rows(query, (most,)):
            with self._decoding():
                container = JobSpec.from_dict(json.loads(spec)).container if spec else None
            if container:
                found.setdefault(container.name or container.image, created)
        return found

    def view(self, job_id: str) -> JobView | None:
        """Return the job as it was last seen."""
        row = self._row(job_id, "cluster, state, reason, ended")
        if row is None:
            return None
        cluster, state, reason, ended, *described = row
        attempts = self._rows(
            "SELECT record FROM attempts WHERE job = ? ORDER BY number", (job_id,)
        )
        with self._decoding():
            return JobView(
                spec=read_spec(job_id, *described),
                cluster=cluster,
                state=JobState(state),
                reason=reason,
                ended=ended,
                attempts=tuple(Attempt.from_dict(json.loads(one[0])) for one in attempts),
            )

    def _row(self, job_id: str, columns: str) -> tuple[Any, ...] | None:
        """Read these columns of a job, and what ``read_spec`` needs. One statement reads it all:
        between two, another process may remove the job together with its array."""
        rows = self._rows(
            f"SELECT {columns}, command, jobs.spec, arrays.spec"
            " FROM jobs LEFT JOIN arrays ON arrays.id = ? WHERE jobs.id = ?",
            (job_id.rpartition(".")[0], job_id),
        )
        return rows[0] if rows else None

    def with_others_before(self) -> list[tuple[str, JobState, JobSpec]]:
        """Return our own jobs that have not ended and take something from others: see
        dray.node.jobs.following. Of an array, its first one stands for all. What a cluster tells of
        others does not decide on what may be removed."""
        active = "state IN ('queued', 'running')"
        named = """(instr({0}, '"after": {{"') OR instr({0}, '"inputs": {{"'))"""
        alone = self._rows(
            f"SELECT id, state, command, spec, NULL FROM jobs WHERE {active}"
            f" AND own AND {named.format('spec')}"
        )
        arrays = self._rows(
            "SELECT min(jobs.id), min(state), command, '', arrays.spec FROM arrays JOIN jobs"
            " ON jobs.id >= arrays.id || '.' AND jobs.id < arrays.id || '/' AND jobs.spec = ''"
            f" WHERE {active} AND {named.format('arrays.spec')} GROUP BY arrays.id"
        )
        with self._decoding():
            return [
                (job_id, JobState(state), read_spec(job_id, *described))
                for job_id, state, *described in [*alone, *arrays]
            ]

    def is_own(self, job_id: str) -> bool:
        """Return whether this machine has submitted the job, so that its description is our own."""
        return bool(self._rows("SELECT 1 FROM jobs WHERE id = ? AND own", (job_id,)))

    def place(self, job_id: str) -> str:
        """Return where the job's cluster kept jobs when it was submitted; '' if not known."""
        rows = self._rows("SELECT place FROM jobs WHERE id = ?", (job_id,))
        return str(rows[0][0]) if rows else ""

    def active_places(self, cluster: str) -> set[str]:
        """Return where this cluster kept jobs when those that have not ended were submitted."""
        query = (
            "SELECT DISTINCT place FROM jobs WHERE state IN ('queued', 'running') AND cluster = ?"
        )
        return {row[0] for row in self._rows(query, (cluster,))}

    def as_seen(self, view: JobView) -> JobView | None:
        """Merge the stored job with what a cluster reports about it.

        For our own jobs the cluster says how they do, not what they are. About another cluster's
        jobs it says nothing, hence None.
        """
        row = self._row(view.id, "cluster, own")
        if row is None:
            return view
        cluster, own, *described = row
        if cluster != view.cluster:
            return None
        if view.is_unreadable:
            last = self.view(view.id)
            return replace(last, reason=view.reason) if last is not None else view
        if not own:
            return view
        with self._decoding():
            ours = read_spec(view.id, *described)
        told = view.spec
        if told.command:  # otherwise its description is damaged there
            ours = replace(ours, snapshot=told.snapshot, resumed_after=told.resumed_after)
            ours = self._filled(ours, told) if ours.sweep else ours
        return replace(view, spec=ours)

    def intent_age(self, job_id: str) -> float | None:
        """Return how long ago the submission began, if it was never seen to succeed."""
        rows = self._rows("SELECT created FROM jobs WHERE id = ? AND NOT submitted", (job_id,))
        return time.time() - rows[0][0] if rows else None

    def waits(self, cluster: str, most: int = 200) -> list[tuple[Resources, float]]:
        """Return how long the last jobs on a cluster waited for their first attempt, with what
        they asked for; by two clocks, so a little off."""
        query = (
            "SELECT jobs.id, jobs.command, jobs.spec, arrays.spec, jobs.created, attempts.record "
            "FROM jobs JOIN attempts ON attempts.job = jobs.id AND attempts.number = 1 "
            "LEFT JOIN arrays ON arrays.id = rtrim(rtrim(jobs.id, '0123456789'), '.') "
            "WHERE jobs.cluster = ? ORDER BY jobs.created DESC LIMIT ?"
        )
        found = []
        with self._decoding():
            for job_id, command, own, common, created, record in self._rows(query, (cluster, most)):
                started = json.loads(record).get("started")
                if isinstance(started, int | float):
                    spec = read_spec(job_id, command, own, common)
                    found.append((spec.resources, max(started - created, 0.0)))
        return found

    def events(self, job_id: str) -> list[tuple[float, str]]:
        rows = self._rows("SELECT time, what FROM events WHERE job = ? ORDER BY time", (job_id,))
        return [tuple(row) for row in rows]


def in_listing(attempt: Attempt) -> dict[str, Any]:
    """Return the fields of an attempt that a listing shows."""
    return {name: getattr(attempt, name) for name in LISTED}


def ids_in(array: str) -> tuple[str, str]:
    """Return two texts between which lie the ids of the array's jobs, and no others."""
    return f"{array}.", f"{array}/"


def read_spec(job_id: str, command: str, own: str, common: str | None) -> JobSpec:
    """Build the job's spec from its own, or from its array's; raise ValueError if it has
    neither."""
    if own:
        return JobSpec.from_dict(json.loads(own))
    record = {**json.loads(common or ""), "id": job_id, "command": json.loads(command)}
    if record.get("sweep"):
        from dray.node.jobs.arrays import as_trial, split  # only for a trial

        place = split(job_id)
        record = as_trial(record, place[1] if place else 0)
    return JobSpec.from_dict(record)


def rebuilding(path: Path) -> files.Lock:
    """Return the lock to hold while a damaged store is replaced."""
    return files.Lock(f"{path}.lock")


def identify(path: Path) -> tuple[int, int] | None:
    """Return what tells this file from a later one of the same name; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def set_aside(path: Path) -> Path:
    """Move a damaged store aside, with the files that SQLite keeps beside it. The caller holds the
    lock of ``rebuilding``."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).replace(aside.with_name(aside.name + ending))
    return aside
