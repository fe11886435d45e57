"""The store behind the page's charts and tables: one SQLite file per job, bounded, exactly once.

A batch's rows and its ledger entry are one transaction: after a crash the ledger tells whether
the batch was written. Readers open the file read-only and never block the writer.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from millstream.errors import Unavailable
from millstream.formats.json.encode import encode
from millstream.sinks.ownership import fenced, missing_entry
from millstream.sinks.private_file import create_private_file
from millstream.sinks.rows import SIGN, chunks, visible
from millstream.sinks.spec import PATIENCE
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from millstream.sinks.live.live import Chart, LiveTable
    from millstream.sinks.spec import Opening, Staged

VERSION = 1
_CHUNK = 2000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1), job TEXT, epoch INTEGER, intent TEXT, batch INTEGER
);
CREATE TABLE IF NOT EXISTS outputs (output TEXT PRIMARY KEY, spec TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS live_rows (
    place INTEGER PRIMARY KEY AUTOINCREMENT, output TEXT NOT NULL, key TEXT, batch INTEGER NOT NULL,
    value TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS by_key ON live_rows (output, key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_place ON live_rows (output, place)
"""

_INSERT = "INSERT INTO live_rows (output, key, batch, value) VALUES (?, ?, ?, ?)"
_DELETE_KEY = "DELETE FROM live_rows WHERE output = ? AND key = ?"
_DELETE_ROW = (
    "DELETE FROM live_rows WHERE place = "
    "(SELECT max(place) FROM live_rows WHERE output = ? AND value = ?)"
)


def store_file(job: str) -> Path:
    """Return the file with the charts and tables of a job; `job` is the id of its checkpoint."""
    return home_folder() / "live" / f"{job}.db"


class LiveWriter:
    """Writes the charts and tables of one run."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._path = store_file(opening.job)
        self._connection: sqlite3.Connection | None = None
        self._last: str | None = None

    def recover(self, expected: str | None) -> str | None:
        """Claim the store, and return the intent it has last."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        create_private_file(self._path)
        store = sqlite3.connect(
            self._path, timeout=min(PATIENCE, self._opening.patience), isolation_level=None,
            check_same_thread=False,
        )  # fmt: skip
        self._connection = store
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("PRAGMA synchronous = FULL")
        store.executescript(_SCHEMA + f"; PRAGMA user_version = {VERSION}")
        store.execute("BEGIN IMMEDIATE")
        row = store.execute("SELECT epoch, intent FROM ledger").fetchone()
        epoch, self._last = row or (0, None)
        if epoch > self._opening.epoch:
            store.execute("ROLLBACK")
            raise fenced(self._opening.job, str(self._path))
        if expected is not None and self._last is None:
            store.execute("ROLLBACK")
            raise missing_entry(str(self._path), None, restore="restore the file")
        self._write_ledger(self._last, 0 if row is None else None)
        store.execute("COMMIT")
        return self._last

    def _write_ledger(self, intent: str | None, batch: int | None) -> None:
        assert self._connection is not None
        self._connection.execute(
            "INSERT INTO ledger VALUES (1, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET "
            "job = excluded.job, epoch = excluded.epoch, intent = excluded.intent, "
            "batch = coalesce(excluded.batch, batch)",
            (self._opening.job, self._opening.epoch, intent, batch),
        )

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Write a batch's rows and its ledger entry in one transaction."""
        store = self._connection
        assert store is not None
        try:
            store.execute("BEGIN IMMEDIATE")
            try:
                self._put_all(store, intent, batch, outputs)
                self._opening.on_step("before a sink's commit")
                store.execute("COMMIT")
            except BaseException:
                store.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            raise Unavailable(
                f"batch {batch} needs the store of its charts and tables in {self._path}",
                got=str(error),
                do="check whether the disk is full or another process writes to the file",
            ) from error
        self._opening.on_step("after a sink's commit")
        self._last = intent

    def rewind_obstacle(self, batch: int, intent: str | None) -> str | None:
        """Always possible: each row has its batch number."""
        return None

    def rewind(self, batch: int, intent: str | None, mark: str) -> str | None:
        """Delete the rows of later batches."""
        assert self._connection is not None
        self._connection.execute("DELETE FROM live_rows WHERE batch > ?", (batch,))
        return self._last

    def _put_all(
        self, store: sqlite3.Connection, intent: str, batch: int, outputs: Sequence[Staged]
    ) -> None:
        found = store.execute("SELECT epoch, intent FROM ledger").fetchone()
        if found != (self._opening.epoch, self._last):
            raise fenced(self._opening.job, str(self._path))
        for staged in outputs:
            store.execute(
                "INSERT INTO outputs VALUES (?, ?) "
                "ON CONFLICT (output) DO UPDATE SET spec = excluded.spec",
                (staged.output, _spec(staged.sink)),
            )
            for table in chunks(staged, _CHUNK):
                _put(store, staged, batch, table)
            _trim(store, staged)
        self._write_ledger(intent, batch)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()


def _put(store: sqlite3.Connection, staged: Staged, batch: int, table: pa.Table) -> None:
    sink = _sink(staged)
    user = visible(table)
    values = [value.decode() for value in encode(user).to_pylist()]
    keys: list[str | None] = [None] * len(values)
    if sink.key:
        keys = [key.decode() for key in encode(user.select(sink.key)).to_pylist()]
    signs = table[SIGN].to_pylist() if SIGN in table.column_names else [1] * len(values)
    for sign, key, value in zip(signs, keys, values, strict=True):
        if key is not None:
            store.execute(_DELETE_KEY, (staged.output, key))
        elif sign < 0:
            store.execute(_DELETE_ROW, (staged.output, value))
        if sign > 0:
            store.execute(_INSERT, (staged.output, key, batch, value))


def _trim(store: sqlite3.Connection, staged: Staged) -> None:
    store.execute(
        "DELETE FROM live_rows WHERE output = ? AND place <= (SELECT place FROM live_rows "
        "WHERE output = ? ORDER BY place DESC LIMIT 1 OFFSET ?)",
        (staged.output, staged.output, _sink(staged).keep),
    )


def _sink(staged: Staged) -> Chart | LiveTable:
    return cast("Chart | LiveTable", staged.sink)


def _spec(sink: Any) -> str:
    kind = type(sink).__name__
    body = {name: getattr(sink, name) for name in ("x", "y", "by", "shape", "key", "keep")
            if hasattr(sink, name)}  # fmt: skip
    return json.dumps({"kind": kind, **body})


@dataclass(frozen=True)
class LiveOutput:
    """A chart or table as of `batch`; its rows are JSON texts, oldest first."""

    output: str
    spec: dict[str, Any]
    batch: int
    rows: list[str]


def live_outputs(job: str, output: str | None = None) -> Iterator[LiveOutput]:
    """Yield the charts and tables of a job in the order of their first rows, or one of them."""
    path = store_file(job)
    if not path.exists():
        return
    store = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        store.execute("BEGIN")
        ledger = store.execute("SELECT batch FROM ledger").fetchone()
        specs = store.execute("SELECT output, spec FROM outputs ORDER BY rowid").fetchall()
        for name, spec in specs:
            if output in (None, name):
                rows = store.execute(
                    "SELECT value FROM live_rows WHERE output = ? ORDER BY place", (name,)
                ).fetchall()
                batch = (ledger or (0,))[0] or 0
                yield LiveOutput(name, json.loads(spec), batch, [row[0] for row in rows])
    except sqlite3.OperationalError:  # created a moment ago, still without tables
        return
    finally:
        store.close()
