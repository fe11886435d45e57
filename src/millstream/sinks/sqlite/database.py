"""A SQLite file as `Database`."""

from __future__ import annotations

import math
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import MillstreamError
from millstream.schema import Schema
from millstream.sinks.retries import CONTINUES
from millstream.sinks.sqlite import statements as sql
from millstream.sinks.tables.ledger import TABLE, Entry
from millstream.sinks.texts import texts
from millstream.toolchain.folders import refuse_file_above

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from millstream.schema import Field, Type
    from millstream.sinks.retries import Diagnosis
    from millstream.sinks.rows import Changes
    from millstream.sinks.tables.writer import TableSink

_BUSY_SECONDS = 1.0
_COLUMNS = ("target", "pipeline", "job", "epoch", "intent", "batch", "rows")
_LEDGER = f"""
    CREATE TABLE IF NOT EXISTS {TABLE} (
        target TEXT PRIMARY KEY, pipeline TEXT NOT NULL, job TEXT NOT NULL,
        epoch INTEGER NOT NULL, intent TEXT, batch INTEGER NOT NULL, rows INTEGER NOT NULL
    ) WITHOUT ROWID
"""
_READ = " ".join(["SELECT", ", ".join(_COLUMNS), "FROM", TABLE, "WHERE target = ?"])
_SAVE = sql.upsert(TABLE, _COLUMNS, ["target"])
_TRANSIENT = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_CANTOPEN)  # fmt: skip


class SqliteDatabase:
    """One file; its lock excludes other writers. Connections cannot be ended from outside."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error, OSError)

    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = f"the SQLite file {path}"
        self._connection: sqlite3.Connection | None = None

    @property
    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def connect(self) -> None:
        """Replace the connection. It waits for locks only briefly, because the writer retries."""
        self.close()
        refuse_file_above(self._path.parent, self.where)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._open.execute(_LEDGER)

    def backend(self) -> str:
        """Empty: SQLite does not list connections."""
        return ""

    def target(self, sink: TableSink) -> str:
        return sink.table

    def entries(self, targets: Sequence[str]) -> list[Entry]:
        found = (self._open.execute(_READ, [target]).fetchone() for target in targets)
        return [Entry(*row) for row in found if row is not None]

    def fence(self, backends: Iterable[str]) -> None:
        """Does nothing: a run that holds the lock cannot be ended, only waited for."""

    def begin(self) -> None:
        """Take the write lock of the file."""
        self._open.execute("BEGIN IMMEDIATE")

    def begin_claim(self, targets: Sequence[str]) -> None:
        """As `begin`: other claims wait for the write lock."""
        self.begin()

    def locked(self, targets: Sequence[str]) -> list[Entry]:
        """The ledger entries; the transaction has locked the whole file."""
        return self.entries(targets)

    def save(self, entries: Iterable[Entry]) -> None:
        self._open.executemany(
            _SAVE,
            [(e.target, e.pipeline, e.job, e.epoch, e.intent, e.batch, e.rows) for e in entries],
        )

    def commit(self) -> None:
        self._open.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- rows ------------------------------------------------------------------

    def append(self, sink: TableSink, table: pa.Table) -> None:
        """Append rows."""
        self._many(sql.insert(sink.table, table.column_names), table)

    def apply(self, sink: TableSink, change: Changes) -> None:
        delete, upserts = sql.delete(sink.table, sink.keys), change.upserts
        self._many(delete, change.deletes)
        null_keys = _null_keys(upserts, sink.keys)
        if null_keys is not None:
            # A unique index allows any number of null keys: delete the rows to be replaced.
            self._many(delete, upserts.filter(null_keys).select(sink.keys))
        self._many(sql.upsert(sink.table, upserts.column_names, sink.keys), upserts)

    def _many(self, statement: str, table: pa.Table) -> None:
        if table.num_rows:
            self._open.executemany(statement, _values(table))

    # -- tables ----------------------------------------------------------------

    def columns(self, target: str) -> list[str]:
        found = self._open.execute(f"PRAGMA table_info({sql.quoted(target)})")
        return [row[1] for row in found]

    def has_column(self, columns: Collection[str], name: str) -> bool:
        """Whether a name is among these; SQLite ignores case."""
        return name.lower() in {column.lower() for column in columns}

    def add_column(self, target: str, column: Field) -> str:
        return (f"ALTER TABLE {sql.quoted(target)} ADD COLUMN {sql.quoted(column.name)} "
                f"{sql.kind(column.type)}")  # fmt: skip

    def create(self, sink: TableSink, schema: Schema) -> None:
        """Create the table, with a unique index on the key."""
        self._open.execute(sql.create_table(sink.table, schema, sink.keys))

    # -- errors ----------------------------------------------------------------

    def classify_error(self, error: Exception) -> Diagnosis:
        """A locked file and a full disk are temporary; a table that rejects rows is not."""
        said = str(error)
        if isinstance(error, OSError):
            return said, None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _TRANSIENT:
            return f"{said} (another process may hold it)" if "locked" in said else said, None
        return said, MillstreamError(
            f"{self.where} needs to accept the rows", got=said, do=f"fix the table; {CONTINUES}",
        )  # fmt: skip


def _null_keys(table: pa.Table, keys: tuple[str, ...]) -> pa.Array | None:
    """Which rows have a null in their key; None if there are none."""
    found = None
    for key in keys:
        if table[key].null_count:
            mask = table[key].is_null()
            found = mask if found is None else pc.or_(found, mask)
    return found


def _values(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    fields = Schema.from_arrow(table.schema)
    columns = [_column(table[field.name], field.type) for field in fields]
    return zip(*columns, strict=True)


def _column(column: pa.ChunkedArray, type_: Type) -> list[Any]:
    """Values in the form that SQLite binds."""
    if sql.kind(type_) == "TEXT":
        column = texts(column, type_)
    values: list[Any] = column.to_pylist()
    if sql.kind(type_) == "REAL" and pc.any(pc.is_nan(column)).as_py():
        # SQLite would bind NaN as null.
        values = ["NaN" if v is not None and math.isnan(v) else v for v in values]
    return values
