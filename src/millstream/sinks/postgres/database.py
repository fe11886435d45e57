"""A PostgreSQL database as `Database`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from millstream.kafka import secrets
from millstream.outages import Ping
from millstream.sinks.postgres import errors as postgres_errors
from millstream.sinks.postgres import ping
from millstream.sinks.postgres.copy import copy_text, kind
from millstream.sinks.postgres.limits import Column, PostgresLimits
from millstream.sinks.tables.ledger import TABLE, Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pyarrow as pa

    from millstream.schema import Field, Schema
    from millstream.sinks.retries import Diagnosis
    from millstream.sinks.rows import Changes
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
_OWN_BACKEND = f"SELECT {_BACKEND} FROM pg_stat_activity WHERE pid = pg_backend_pid()"  # noqa: S608
_TERMINATE = f"""
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
_TYPES_SECONDS = 5.0  # how long column types are cached
_LOCK = 0x6D696C6C  # the advisory lock for creating the ledger table
_SESSION = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4,
    "tcp_user_timeout": 60_000, "application_name": "millstream",
}  # fmt: skip
_OPTIONS = "-c timezone=UTC -c datestyle=ISO -c statement_timeout=0"
_TERMINATE_SECONDS = 30.0
_NULLS_NOT_DISTINCT = 150_000  # the first server version that has UNIQUE NULLS NOT DISTINCT


class PostgresDatabase:
    """One database; a new run can end the connections of earlier runs."""

    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, url: str, shown: str) -> None:
        self._url = url
        self.where = f"the database {shown}"
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._schema = "public"
        self._types: dict[str, tuple[float, dict[str, Column]]] = {}

    @property
    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        assert self._connection is not None
        return self._connection

    def connect(self) -> None:
        """Replace the connection, and create the ledger table if it is missing."""
        self.close()
        url = secrets.resolve(self._url, setting="the address of Postgres(…)")
        self._connection = psycopg.connect(_session_url(url), autocommit=True)
        found = self._open.execute("SELECT current_schema(), to_regclass(%s)", [TABLE]).fetchone()
        assert found is not None
        self._schema = found[0] or "public"
        if found[1] is None:
            with self._open.transaction():
                self._open.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                self._open.execute(_LEDGER)

    def pings(self) -> list[Ping]:
        """Whether the server is there."""
        return [Ping(self.where, self._ask)]

    def _ask(self) -> None:
        ping.ask(secrets.resolve(self._url, setting="the address of Postgres(…)"))

    def backend(self) -> str:
        """The id and start time of the server process behind this connection."""
        found = self._open.execute(_OWN_BACKEND).fetchone()
        assert found is not None
        return str(found[0])

    def target(self, sink: TableSink) -> str:
        return sink.table if "." in sink.table else f"{self._schema}.{sink.table}"

    def entries(self, targets: Sequence[str]) -> list[Entry]:
        return [Entry(*row) for row in self._open.execute(_READ, [list(targets)])]

    def fence(self, backends: Iterable[str]) -> None:
        """Terminate the server processes behind these connections: they may hold locks forever."""
        named = list(backends)
        deadline = time.monotonic() + _TERMINATE_SECONDS
        while self._open.execute(_TERMINATE, [named]).fetchall():
            if time.monotonic() > deadline:
                raise psycopg.OperationalError("a connection of an earlier run does not terminate")
            time.sleep(0.02)

    def begin(self) -> None:
        """Begin a transaction."""
        self._open.execute("BEGIN")

    def begin_claim(self, targets: Sequence[str]) -> None:
        """Begin a transaction that other claims to these tables wait for."""
        self.begin()
        self._open.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(name)) FROM unnest(%s::text[]) AS name",
            [_LOCK, sorted(targets)],
        )

    def locked(self, targets: Sequence[str]) -> list[Entry]:
        """The ledger entries, with their rows locked."""
        return [Entry(*row) for row in self._open.execute(f"{_READ} FOR UPDATE", [list(targets)])]

    def save(self, entries: Iterable[Entry]) -> None:
        with self._open.cursor() as cursor:
            cursor.executemany(
                _SAVE,
                [(e.target, e.pipeline, e.job, e.epoch, e.intent, e.batch, e.rows, e.backend)
                 for e in entries],
            )  # fmt: skip

    def limits(self, sink: TableSink) -> PostgresLimits:
        """The check by the current column types."""
        target = self.target(sink)
        read_at, columns = self._types.get(target, (0.0, {}))
        if self._connection is not None and time.monotonic() - read_at > _TYPES_SECONDS:
            named = _identifier(target).as_string(self._connection)
            with suppress(psycopg.Error):
                found = self._connection.execute(_TYPES, [named]).fetchall()
                columns = {name: Column(type_, nullable) for name, type_, nullable in found}
                self._types[target] = time.monotonic(), columns
        return PostgresLimits(columns, sink.keys)

    def commit(self) -> None:
        self._open.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def classify_error(self, error: Exception) -> Diagnosis:
        """An unavailable server may come back; a table that rejects rows needs a change."""
        return postgres_errors.classify_error(error, self.where)

    # -- rows ------------------------------------------------------------------

    def append(self, sink: TableSink, table: pa.Table) -> None:
        """Append rows by COPY."""
        self._copy(_identifier(self.target(sink)), table)

    def apply(self, sink: TableSink, change: Changes) -> None:
        """Apply upserts and deletes through a temporary table."""
        self._delete(sink, change.deletes)
        self._upsert(sink, change.upserts)

    def _copy(self, target: sql.Composable, table: pa.Table) -> None:
        command = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
            target, _names(table.column_names)
        )
        with self._open.cursor() as cursor, cursor.copy(command) as copy:
            copy.write(copy_text(table))

    def _upsert(self, sink: TableSink, table: pa.Table) -> None:
        if not table.num_rows:
            return
        stage, names = self._temporary(sink, table), _names(table.column_names)
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
        stage = self._temporary(sink, keys)
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

    def _temporary(self, sink: TableSink, table: pa.Table) -> sql.Composable:
        """Copy rows to a temporary table that has the column types of the real one."""
        stage = sql.SQL("pg_temp.millstream_stage")
        self._open.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(stage))
        self._open.execute(
            sql.SQL("CREATE TEMP TABLE millstream_stage ON COMMIT DROP AS "
                    "SELECT {} FROM {} WITH NO DATA").format(
                _names(table.column_names), _identifier(self.target(sink)))
        )  # fmt: skip
        self._copy(stage, table)
        return stage

    # -- tables ----------------------------------------------------------------

    def columns(self, target: str) -> list[str]:
        return [row[0] for row in self._open.execute(_NAMES, target.split("."))]

    def has_column(self, columns: Collection[str], name: str) -> bool:
        return name in columns

    def add_column(self, target: str, column: Field) -> str:
        return f'ALTER TABLE {target} ADD COLUMN "{column.name}" {kind(column.type)}'

    def create(self, sink: TableSink, schema: Schema) -> None:
        """Create the table, with a unique index on the key."""
        parts = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(kind(field.type)))
            for field in schema
        ]
        if sink.keys:
            supported = self._open.info.server_version >= _NULLS_NOT_DISTINCT
            unique = sql.SQL("UNIQUE NULLS NOT DISTINCT ({})" if supported else "PRIMARY KEY ({})")
            parts.append(unique.format(_names(sink.keys)))
        self._open.execute(
            sql.SQL("CREATE TABLE {} ({})").format(
                _identifier(self.target(sink)), sql.SQL(", ").join(parts)
            )
        )


def _session_url(url: str) -> str:
    """The address with the session settings of a writer; its own settings take precedence."""
    given = conninfo_to_dict(url)
    options = " ".join(filter(None, [_OPTIONS, str(given.pop("options", ""))]))
    settings: dict[str, Any] = {**_SESSION, **given, "options": options}
    return make_conninfo(**settings)


def _identifier(target: str) -> sql.Composable:
    return sql.Identifier(*target.split("."))


def _names(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))
