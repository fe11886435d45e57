"""SQLite, as a database that takes batches."""

from __future__ import annotations

import math
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import DataGone, InvalidSpec, MillstreamError
from millstream.schema import Schema
from millstream.sinks import rows as rows_of
from millstream.sinks.sqlite import statements as sql
from millstream.sinks.tables.ledger import TABLE, Entry
from millstream.sinks.texts import texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from millstream.schema import Type
    from millstream.sinks.spec import Staged
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
_SAVE = sql.replaced(TABLE, _COLUMNS, ["target"])
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_CANTOPEN)  # fmt: skip


class SqliteDatabase:
    """One file. The lock on it is what keeps others out; it names no connections."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error, OSError)

    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = f"the SQLite file {path}"
        self._connection: sqlite3.Connection | None = None
        self._known: dict[str, list[str]] = {}

    @property
    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def connect(self) -> None:
        """A new connection; its waiting for a lock is short, for the writer tries again."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._open.execute(_LEDGER)
        self._known = {}

    def backend(self) -> str:
        """SQLite knows no connections of others."""
        return ""

    def target(self, sink: TableSink) -> str:
        """The table's name."""
        return sink.table

    def entries(self, targets: Sequence[str]) -> list[Entry]:
        """What the ledger holds of these tables."""
        found = (self._open.execute(_READ, [target]).fetchone() for target in targets)
        return [Entry(*row) for row in found if row is not None]

    def fence(self, backends: Iterable[str]) -> None:
        """A run that holds the lock is waited for: nobody can end it from here."""

    def begin(self) -> None:
        """Take the file's one lock for writing."""
        self._open.execute("BEGIN IMMEDIATE")

    def begin_claim(self, targets: Sequence[str]) -> None:
        """The same: whoever else claims a table waits for the file's lock."""
        self.begin()

    def locked(self, targets: Sequence[str]) -> list[Entry]:
        """What the ledger holds; the transaction has locked the whole file."""
        return self.entries(targets)

    def save(self, entries: Iterable[Entry]) -> None:
        """Write entries of the ledger."""
        self._open.executemany(
            _SAVE,
            [(e.target, e.pipeline, e.job, e.epoch, e.intent, e.batch, e.rows) for e in entries],
        )

    def has(self, target: str) -> bool:
        """Whether there is such a table."""
        return bool(self._columns(target))

    def commit(self) -> None:
        """End the transaction for good."""
        self._open.execute("COMMIT")

    def rollback(self) -> None:
        """Let go of a transaction, whatever state it is in."""
        self._known = {}
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- rows ------------------------------------------------------------------

    def put(self, sink: TableSink, staged: Staged, entry: Entry | None) -> int:
        """Send one output's rows."""
        if sink.keys:
            return self._upsert(staged, sink, entry)
        count = 0
        for table in rows_of.appended(staged):
            self._ready(sink, table.schema, entry)
            self._many(sql.inserted(sink.table, table.column_names), table)
            count += table.num_rows
        return count

    def _upsert(self, staged: Staged, sink: TableSink, entry: Entry | None) -> int:
        count = 0
        delete = sql.deleted(sink.table, sink.keys)
        for change in rows_of.changes(staged, sink.keys):
            upserts = change.upserts
            self._ready(sink, upserts.schema, entry)
            self._many(delete, change.deletes)
            nameless = _with_null(upserts, sink.keys)
            if nameless is not None:
                # A unique index lets any number of nulls in: those rows are replaced by hand.
                self._many(delete, upserts.filter(nameless).select(sink.keys))
            self._many(sql.replaced(sink.table, upserts.column_names, sink.keys), upserts)
            count += upserts.num_rows + change.deletes.num_rows
        return count

    def _many(self, statement: str, table: pa.Table) -> None:
        if table.num_rows:
            self._open.executemany(statement, _values(table))

    def _ready(self, sink: TableSink, schema: pa.Schema, entry: Entry | None) -> None:
        """Make the table, or see that it has the columns."""
        if self._known.get(sink.table) == schema.names:
            return
        found = self._columns(sink.table)
        if not found:
            if entry is not None and entry.rows:
                raise DataGone(
                    f"the table {sink.table!r} in {self.where} needs to hold what earlier batches "
                    "wrote", got="no such table",
                    do="restore it, or begin anew with another --checkpoint",
                )  # fmt: skip
            self._open.execute(sql.made(sink.table, Schema.from_arrow(schema), sink.keys))
        else:
            _check_columns(sink, schema, found, self.where)
        self._known[sink.table] = schema.names

    def _columns(self, table: str) -> list[str]:
        asked = self._open.execute(f"PRAGMA table_info({sql.quoted(table)})")
        return [row[1] for row in asked]

    # -- errors ----------------------------------------------------------------

    def told(self, error: Exception) -> tuple[str, MillstreamError | None]:
        """A locked file and a full disk may heal; what is wrong with the table does not."""
        said = str(error)
        if isinstance(error, OSError):
            return said, None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _PASSING:
            return f"{said} (another process may hold it)" if "locked" in said else said, None
        return said, MillstreamError(
            f"{self.where} needs to take the rows as they are", got=said,
            do="mend the table; the job goes on from here when it is started again",
        )  # fmt: skip


def _check_columns(sink: TableSink, schema: pa.Schema, found: list[str], where: str) -> None:
    there = {name.lower() for name in found}
    for field in Schema.from_arrow(schema):
        if field.name.lower() not in there:
            raise InvalidSpec(
                f"the table {sink.table!r} in {where} needs the column {field.name!r}",
                got=f"columns {', '.join(found)}",
                do=f"ALTER TABLE {sql.quoted(sink.table)} ADD COLUMN {sql.quoted(field.name)} "
                f"{sql.kind(field.type)}",
            )


def _with_null(table: pa.Table, keys: tuple[str, ...]) -> pa.Array | None:
    """Which rows have a null in their key; None if none has."""
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
    """Values as SQLite binds them."""
    if sql.kind(type_) == "TEXT":
        column = texts(column, type_)
    values: list[Any] = column.to_pylist()
    if sql.kind(type_) == "REAL" and pc.any(pc.is_nan(column)).as_py():
        # SQLite would bind NaN as null.
        values = ["NaN" if v is not None and math.isnan(v) else v for v in values]
    return values
