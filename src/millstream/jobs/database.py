"""SQLite as facts need it: write-ahead log, short transactions, readers that never block."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream.errors import Damaged, Unavailable
from millstream.sinks.store_file import made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE = 30.0


def opened(path: Path, schema: str, *, version: int, durable: bool) -> sqlite3.Connection:
    """A database opened for writing, made if there is none, for its owner alone.

    With `durable` a transaction outlives the machine, otherwise only the process. One
    connection is used by one thread at a time.

    Raises:
        Damaged: it is no database, or one of another version.
        Unavailable: it cannot be written, or somebody holds it for longer than half a minute.
    """
    made(path)
    try:
        connection = sqlite3.connect(
            path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
    except sqlite3.OperationalError as error:
        raise _unavailable(str(path), error) from error
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        with transaction(connection):
            _lay_out(connection, schema, version, path)
    except sqlite3.OperationalError as error:
        connection.close()
        raise _unavailable(str(path), error) from error
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _damaged(path, str(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def looked_at(path: Path) -> sqlite3.Connection | None:
    """A database opened for reading only, or None when there is none yet."""
    if not path.exists():
        return None
    try:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE, isolation_level=None,
            check_same_thread=False,
        )  # fmt: skip
        connection.row_factory = sqlite3.Row
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            connection.close()
            return None
    except sqlite3.OperationalError:
        return None
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing; nobody else writes meanwhile.

    Raises:
        Unavailable: the disk is full, or somebody holds the file for longer than half a minute.
    """
    with _foreseen(connection):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def rows_of(connection: sqlite3.Connection, sql: str, values: Any = ()) -> list[sqlite3.Row]:
    """What a query finds.

    Raises:
        Unavailable: the file cannot be read now.
    """
    with _foreseen(connection):
        return connection.execute(sql, values).fetchall()


@contextmanager
def _foreseen(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        path = connection.execute("PRAGMA database_list").fetchone()["file"]
        raise _unavailable(path, error) from error


def _lay_out(connection: sqlite3.Connection, schema: str, version: int, path: Path) -> None:
    known = connection.execute("PRAGMA user_version").fetchone()[0]
    if known == version:
        return
    if known:
        raise _damaged(path, f"format {known}, where this version writes {version}")
    for statement in filter(str.strip, schema.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")


def _unavailable(path: str, error: sqlite3.OperationalError) -> Unavailable:
    return Unavailable(
        f"{path} needs to be open to whoever reads and writes it",
        got=str(error),
        do="see whether the disk is full or somebody holds it",
    )


def _damaged(path: Path, got: str) -> Damaged:
    return Damaged(
        f"{path} needs to be a database of this version",
        got=got,
        do="move it away; what runs goes on from its checkpoint",
    )
