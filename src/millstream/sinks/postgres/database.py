"""PostgreSQL, as a database that takes batches."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from millstream.errors import DataGone, InvalidSpec, MillstreamError
from millstream.kafka import secrets
from millstream.schema import Schema
from millstream.sinks import rows as rows_of
from millstream.sinks.postgres import errors as postgres_errors
from millstream.sinks.postgres.copy import copied, kind
from millstream.sinks.postgres.limits import Column, PostgresLimits
from millstream.sinks.tables.ledger import TABLE, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from millstream.sinks.spec import Staged
    from millstream.sinks.tables.writer import TableSink

_COLUMNS = "target, pipeline, job, epoch, intent, batch, rows, backend"
_LEDGER = f"""
    CREATE TABLE IF NOT EXISTS {TABLE} (
        target text PRIMARY KEY, pipeline text NOT NULL, job text NOT NULL, epoch bigint NOT NULL,
        intent text, batch bigint NOT NULL, rows bigint NOT NULL, backend text
    )
"""
_READ = f"SELECT {_COLUMNS} FROM {TABLE} WHERE target = ANY(%s) ORDER BY target"  # noqa: S608
_SAVE = f"""
    INSERT INTO {TABLE} ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (target) DO UPDATE SET pipeline = EXCLUDED.pipeline, job = EXCLUDED.job,
        epoch = EXCLUDED.epoch, intent = EXCLUDED.intent, batch = EXCLUDED.batch,
        rows = EXCLUDED.rows, backend = EXCLUDED.backend
"""  # noqa: S608
_BACKEND = "pid || ' ' || extract(epoch from backend_start)"
_MINE = f"SELECT {_BACKEND} FROM pg_stat_activity WHERE pid = pg_backend_pid()"  # noqa: S608
_END = f"""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE {_BACKEND} = ANY(%s) AND pid <> pg_backend_pid()
"""  # noqa: S608
_NAMES = """
    SELECT attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attrelid = (
        SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        WHERE nspname = %s AND relname = %s)
    ORDER BY attnum
"""
_TYPES = """
    SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute
    WHERE attnum > 0 AND NOT attisdropped AND attrelid = to_regclass(%s)
"""
_LIMITS_HOLD = 5.0
_LOCK = 0x6D696C6C  # one number for all who make the ledger's table
_SESSION = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4,
    "tcp_user_timeout": 60_000, "application_name": "millstream",
}  # fmt: skip
_OPTIONS = "-c timezone=UTC -c datestyle=ISO -c statement_timeout=0"
_GONE_SECONDS = 30.0
_NULLS_ALIKE = 150_000  # the first server version in which a unique index can take nulls as equal


class PostgresDatabase:
    """One database; its connections can be ended from another one."""

    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, url: str, shown: str) -> None:
        self._url = url
        self.where = f"the database {shown}"
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._schema = "public"
        self._ready_for: dict[str, list[str]] = {}
        self._types: dict[str, tuple[float, dict[str, Column]]] = {}

    @property
    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        assert self._connection is not None
        return self._connection

    def connect(self) -> None:
        """A new connection; makes the ledger's table, where it is missing."""
        self.close()
        url = secrets.resolve(self._url, setting="the address of Postgres(…)")
        self._connection = psycopg.connect(_with_ours(url), autocommit=True)
        found = self._open.execute("SELECT current_schema(), to_regclass(%s)", [TABLE]).fetchone()
        assert found is not None
        self._schema = found[0] or "public"
        if found[1] is None:
            with self._open.transaction():
                self._open.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                self._open.execute(_LEDGER)

    def backend(self) -> str:
        """Process id and start of the server's process behind this connection."""
        found = self._open.execute(_MINE).fetchone()
        assert found is not None
        return str(found[0])

    def target(self, sink: TableSink) -> str:
        """Schema and table."""
        return sink.table if "." in sink.table else f"{self._schema}.{sink.table}"

    def entries(self, targets: Sequence[str]) -> list[Entry]:
        """What the ledger holds of these tables, as committed."""
        return [Entry(*row) for row in self._open.execute(_READ, [list(targets)])]

    def fence(self, backends: Iterable[str]) -> None:
        """End the server's processes behind these connections: they may hold a lock for ever."""
        named = list(backends)
        until = time.monotonic() + _GONE_SECONDS
        while self._open.execute(_END, [named]).fetchall():
            if time.monotonic() > until:
                raise psycopg.OperationalError("a connection of an earlier run does not end")
            time.sleep(0.02)

    def begin(self) -> None:
        """Begin a transaction."""
        self._open.execute("BEGIN")

    def begin_claim(self, targets: Sequence[str]) -> None:
        """Begin a transaction; whoever else claims one of these tables waits for its end."""
        self.begin()
        self._open.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(name)) FROM unnest(%s::text[]) AS name",
            [_LOCK, sorted(targets)],
        )

    def locked(self, targets: Sequence[str]) -> list[Entry]:
        """What the ledger holds, its rows locked."""
        return [Entry(*row) for row in self._open.execute(f"{_READ} FOR UPDATE", [list(targets)])]

    def save(self, entries: Iterable[Entry]) -> None:
        """Write entries of the ledger."""
        with self._open.cursor() as cursor:
            cursor.executemany(
                _SAVE,
                [(e.target, e.pipeline, e.job, e.epoch, e.intent, e.batch, e.rows, e.backend)
                 for e in entries],
            )  # fmt: skip

    def has(self, target: str) -> bool:
        """Whether there is such a table."""
        return bool(self._columns(target))

    def limits(self, sink: TableSink) -> PostgresLimits:
        """By the types that the columns have now."""
        target = self.target(sink)
        asked, columns = self._types.get(target, (0.0, {}))
        if self._connection is not None and time.monotonic() - asked > _LIMITS_HOLD:
            named = _identifier(target).as_string(self._connection)
            with suppress(psycopg.Error):
                found = self._connection.execute(_TYPES, [named]).fetchall()
                columns = {name: Column(type_, nullable) for name, type_, nullable in found}
                self._types[target] = time.monotonic(), columns
        return PostgresLimits(columns, sink.keys)

    def commit(self) -> None:
        """End the transaction for good."""
        self._open.execute("COMMIT")

    def rollback(self) -> None:
        """Let go of a transaction, whatever state it is in."""
        self._ready_for = {}
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Let go of the connection."""
        self._ready_for = {}
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def told(self, error: Exception) -> tuple[str, MillstreamError | None]:
        """A server that is away may come back; what is wrong with a table stays wrong."""
        return postgres_errors.told(error, self.where)

    # -- rows ------------------------------------------------------------------

    def put(self, sink: TableSink, staged: Staged, entry: Entry | None) -> int:
        """Send one output's rows by COPY."""
        count = 0
        if not sink.keys:
            for table in rows_of.appended(staged):
                self._ready(sink, table.schema, entry)
                self._copy(_identifier(self.target(sink)), table)
                count += table.num_rows
            return count
        for change in rows_of.changes(staged, sink.keys):
            self._ready(sink, change.upserts.schema, entry)
            self._delete(sink, change.deletes)
            self._upsert(sink, change.upserts)
            count += change.upserts.num_rows + change.deletes.num_rows
        return count

    def _copy(self, into: sql.Composable, table: pa.Table) -> None:
        order = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
            into, _names(table.column_names)
        )
        with self._open.cursor() as cursor, cursor.copy(order) as copy:
            copy.write(copied(table))

    def _upsert(self, sink: TableSink, table: pa.Table) -> None:
        if not table.num_rows:
            return
        stage, names = self._staged(sink, table), _names(table.column_names)
        others = [name for name in table.column_names if name not in sink.keys]
        sets = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
        )
        self._open.execute(
            sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
                _identifier(self.target(sink)), names, names, stage, _names(sink.keys),
                sql.SQL("UPDATE SET ") + sets if others else sql.SQL("NOTHING"),
            )
        )  # fmt: skip

    def _delete(self, sink: TableSink, keys: pa.Table) -> None:
        if not keys.num_rows:
            return
        stage = self._staged(sink, keys)
        same = sql.SQL(" AND ").join(
            sql.SQL("(t.{0} = s.{0} OR (t.{0} IS NULL AND s.{0} IS NULL))"
                    if keys[name].null_count else "t.{0} = s.{0}").format(sql.Identifier(name))
            for name in keys.column_names
        )  # fmt: skip
        self._open.execute(
            sql.SQL("DELETE FROM {} t USING {} s WHERE {}").format(
                _identifier(self.target(sink)), stage, same
            )
        )

    def _staged(self, sink: TableSink, table: pa.Table) -> sql.Composable:
        """A temporary table with these rows, of the same column types as the real one."""
        stage = sql.SQL("pg_temp.millstream_stage")
        self._open.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(stage))
        self._open.execute(
            sql.SQL("CREATE TEMP TABLE millstream_stage ON COMMIT DROP AS "
                    "SELECT {} FROM {} WITH NO DATA").format(
                _names(table.column_names), _identifier(self.target(sink)))
        )  # fmt: skip
        self._copy(stage, table)
        return stage

    # -- the table itself --------------------------------------------------------

    def _ready(self, sink: TableSink, schema: pa.Schema, entry: Entry | None) -> None:
        """Make the table, or see that it has the columns and the key."""
        target = self.target(sink)
        if self._ready_for.get(target) == schema.names:
            return
        found = self._columns(target)
        if not found:
            if entry is not None and entry.rows:
                raise DataGone(
                    f"the table {target!r} in {self.where} needs to hold what earlier batches "
                    "wrote", got="no such table",
                    do="restore it, or begin anew with another --checkpoint",
                )  # fmt: skip
            self._make(sink, Schema.from_arrow(schema))
        else:
            self._check_columns(target, schema, found)
        self._ready_for[target] = schema.names

    def _columns(self, target: str) -> list[str]:
        return [row[0] for row in self._open.execute(_NAMES, target.split("."))]

    def _make(self, sink: TableSink, schema: Schema) -> None:
        parts = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(kind(field.type)))
            for field in schema
        ]
        if sink.keys:
            alike = self._open.info.server_version >= _NULLS_ALIKE
            unique = sql.SQL("UNIQUE NULLS NOT DISTINCT ({})" if alike else "PRIMARY KEY ({})")
            parts.append(unique.format(_names(sink.keys)))
        self._open.execute(
            sql.SQL("CREATE TABLE {} ({})").format(
                _identifier(self.target(sink)), sql.SQL(", ").join(parts)
            )
        )

    def _check_columns(self, target: str, schema: pa.Schema, found: list[str]) -> None:
        for field in Schema.from_arrow(schema):
            if field.name not in found:
                raise InvalidSpec(
                    f"the table {target!r} in {self.where} needs the column {field.name!r}",
                    got=f"columns {', '.join(found)}",
                    do=f'ALTER TABLE {target} ADD COLUMN "{field.name}" {kind(field.type)}',
                )


def _with_ours(url: str) -> str:
    """An address with what a writer needs of its session; what it says itself stays."""
    given = conninfo_to_dict(url)
    options = " ".join(filter(None, [_OPTIONS, str(given.pop("options", ""))]))
    told: dict[str, Any] = {**_SESSION, **given, "options": options}
    return make_conninfo(**told)


def _identifier(target: str) -> sql.Composable:
    return sql.Identifier(*target.split("."))


def _names(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))
