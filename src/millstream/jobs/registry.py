"""The job registry: every job, its desired state and its current state, in one SQLite file.

Commands and the console write what is wanted (`wanted`, `asked`), the supervisor writes the rest.
All of it survives `kill -9` of the writer.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

from millstream.errors import AlreadyRunning, NotFound
from millstream.jobs.database import open_database, open_read_only, rows_of, transaction

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path
    from types import TracebackType

Wanted = Literal["running", "stopped", "removed"]
State = Literal[
    "starting", "running", "idle", "waiting", "degraded", "failing", "failed", "stopped", "finished"
]
STATES: tuple[State, ...] = (
    "starting", "running", "idle", "waiting", "degraded", "failing", "failed", "stopped",
    "finished",
)  # fmt: skip
WORKING: frozenset[str] = frozenset({"running", "idle", "degraded"})
NEED_ATTENTION: frozenset[str] = frozenset({"waiting", "degraded", "failing", "failed"})
WITHOUT_PROGRESS: frozenset[str] = frozenset({"waiting", "failing", "failed"})
VERSION = 1
_EVENTS_KEPT = 5000
_SCHEMA = """
CREATE TABLE jobs (
    name TEXT PRIMARY KEY, application TEXT NOT NULL, owner TEXT NOT NULL,
    file TEXT NOT NULL, pipeline TEXT NOT NULL, kafka TEXT, checkpoint TEXT NOT NULL, lane TEXT,
    submitted REAL NOT NULL, wanted TEXT NOT NULL, asked INTEGER NOT NULL, ran INTEGER NOT NULL,
    state TEXT NOT NULL, since REAL NOT NULL, reason TEXT,
    run TEXT, launched REAL, stopping REAL,
    failures INTEGER NOT NULL, restarts INTEGER NOT NULL, retry_at REAL NOT NULL,
    share INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, job TEXT, event TEXT NOT NULL, detail TEXT
);
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)
"""


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """One job. Times are seconds since the epoch.

    `asked` counts the requests for a new run, `ran` is the last request that was carried out.
    `run` is the id of the run whose end has not been handled yet; `failures` counts the
    consecutive runs that ended by themselves, `restarts` all of them. With `share` it uses the
    Spark application that jobs share.
    """

    name: str
    application: str
    owner: str
    file: str
    pipeline: str
    kafka: str | None
    checkpoint: str
    lane: str | None
    submitted: float
    wanted: Wanted = "running"
    asked: int = 1
    ran: int = 0
    state: State = "starting"
    since: float = 0.0
    reason: str | None = None
    run: str | None = None
    launched: float | None = None
    stopping: float | None = None
    failures: int = 0
    restarts: int = 0
    retry_at: float = 0.0
    share: bool = False


@dataclass(frozen=True)
class Event:
    """An event in the history of a job, or of the stack (`job` is None)."""

    id: int
    at: float
    job: str | None
    event: str
    detail: str | None


_COLUMNS = tuple(field.name for field in fields(JobRow))


class JobRegistry:
    """A connection to the job registry; its methods may be called from any thread."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._lock = threading.Lock()
        self._path = path
        self._connection: sqlite3.Connection | None = (
            open_read_only(path)
            if read_only
            else open_database(path, _SCHEMA, version=VERSION, durable=True)
        )
        if self._connection is not None and not read_only:
            self._add_missing_columns()

    def _add_missing_columns(self) -> None:
        """Add what registries of earlier versions do not have."""
        with transaction(self._writing):
            known = {row["name"] for row in self._writing.execute("PRAGMA table_info(jobs)")}
            if "share" not in known:
                self._writing.execute(
                    "ALTER TABLE jobs ADD COLUMN share INTEGER NOT NULL DEFAULT 0"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()

    def add(self, job: JobRow) -> None:
        """Add a job.

        Raises:
            AlreadyRunning: there is a job of that name.
        """
        values = asdict(job)
        names, marks = ", ".join(_COLUMNS), ", ".join(f":{name}" for name in _COLUMNS)
        with self._lock, transaction(self._writing):
            if self._one(job.name) is not None:
                raise AlreadyRunning(
                    f"a new job needs an unused name, not {job.name!r}",
                    got="an existing job of that name",
                    do=f"restart it with `millstream jobs restart {job.name}`, or remove it first",
                )
            self._writing.execute(f"INSERT INTO jobs ({names}) VALUES ({marks})", values)  # noqa: S608
            self._add_event(job.name, "submitted", f"{job.file} by {job.owner}")

    def all(self) -> list[JobRow]:
        """Return every job, ordered by name."""
        with self._lock:
            rows = self._rows("SELECT * FROM jobs ORDER BY name")
        return [_job(row) for row in rows]

    def job(self, name: str) -> JobRow:
        """Return the job of that name.

        Raises:
            NotFound: there is none.
        """
        with self._lock:
            found = self._one(name)
        if found is None:
            known = ", ".join(job.name for job in self.all())
            do = f"the jobs are {known}" if known else "there are no jobs yet"
            raise NotFound(f"there is no job named {name!r}", do=do)
        return found

    def want(self, name: str, wanted: Wanted, *, restart: bool = False) -> JobRow:
        """Set a job's desired state; with `restart`, request a new run even if one is running."""
        self.job(name)
        again = ", asked = asked + 1, failures = 0, retry_at = 0" if restart else ""
        with self._lock, transaction(self._writing):
            self._writing.execute(
                f"UPDATE jobs SET wanted = ?{again} WHERE name = ? AND wanted <> 'removed'",  # noqa: S608
                (wanted, name),
            )
            self._add_event(name, "requested", "a new run" if restart else wanted)
        return self.job(name)

    def update(self, name: str, event: str | None = None, detail: str | None = None,
             **changes: Any) -> None:  # fmt: skip
        """Set columns of the job, and add an event to its history."""
        assert set(changes) <= set(_COLUMNS), changes
        with self._lock, transaction(self._writing):
            if changes:
                pairs = ", ".join(f"{column} = :{column}" for column in changes)
                self._writing.execute(
                    f"UPDATE jobs SET {pairs} WHERE name = :_name",  # noqa: S608
                    {**changes, "_name": name},
                )
            if event is not None:
                self._add_event(name, event, detail)

    def forget(self, name: str) -> None:
        """Delete the job."""
        with self._lock, transaction(self._writing):
            self._writing.execute("DELETE FROM jobs WHERE name = ?", (name,))
            self._add_event(name, "removed", None)

    def add_event(self, event: str, detail: str | None = None, job: str | None = None) -> None:
        """Add an event that changes no job."""
        with self._lock, transaction(self._writing):
            self._add_event(job, event, detail)

    def events(self, job: str | None = None, last: int = 100) -> list[Event]:
        """Return the last events of one job, or of all, oldest first."""
        where = "" if job is None else "WHERE job = :job"
        with self._lock:
            rows = self._rows(
                f"SELECT * FROM events {where} ORDER BY id DESC LIMIT :last",  # noqa: S608
                {"job": job, "last": last},
            )
        return [Event(**dict(row)) for row in reversed(rows)]

    def setting(self, name: str) -> str | None:
        """Return a setting of the stack."""
        with self._lock:
            rows = self._rows("SELECT value FROM settings WHERE name = ?", (name,))
        return str(rows[0]["value"]) if rows else None

    def set(self, name: str, value: str | None) -> None:
        """Store a setting of the stack; None removes it."""
        with self._lock, transaction(self._writing):
            self._writing.execute("DELETE FROM settings WHERE name = ?", (name,))
            if value is not None:
                self._writing.execute("INSERT INTO settings VALUES (?, ?)", (name, value))

    @property
    def _writing(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _rows(self, sql: str, values: Any = ()) -> list[sqlite3.Row]:
        if self._connection is None:
            self._connection = open_read_only(self._path)
        return [] if self._connection is None else rows_of(self._connection, sql, values)

    def _one(self, name: str) -> JobRow | None:
        rows = self._rows("SELECT * FROM jobs WHERE name = ?", (name,))
        return _job(rows[0]) if rows else None

    def _add_event(self, job: str | None, event: str, detail: str | None) -> None:
        cursor = self._writing.execute(
            "INSERT INTO events (at, job, event, detail) VALUES (?, ?, ?, ?)",
            (time.time(), job, event, detail),
        )
        self._writing.execute(
            "DELETE FROM events WHERE id <= ?", ((cursor.lastrowid or 0) - _EVENTS_KEPT,)
        )


def _job(row: sqlite3.Row) -> JobRow:
    found = dict(row)
    return JobRow(**{**found, "share": bool(found.get("share"))})
