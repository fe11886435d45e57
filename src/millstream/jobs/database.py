"""SQLite databases of the local stack: write-ahead log, short transactions, readers never block."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream.errors import Damaged, Unavailable
from millstream.sinks.private_file import create_private_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE = 30.0


def open_database(path: Path, schema: str, *, version: int, durable: bool) -> sqlite3.Connection:
    """Open a database for writing; a missing one is created, readable by its owner only.

    With `durable`, a committed transaction survives a power failure, otherwise only the death of
    the process. A connection must be used by one thread at a time.

    Raises:
        Damaged: the file is not a database, or has another version.
        Unavailable: it cannot be written, or has been locked for more than 30 seconds.
    """
    create_private_file(path)
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
            _create_tables(connection, schema, version, path)
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


def open_read_only(path: Path) -> sqlite3.Connection | None:
    """Open a database for reading, or return None if it does not exist yet."""
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
    """Run the block as one exclusive write transaction; an exception rolls it back.

    Raises:
        Unavailable: the disk is full, or the file has been locked for more than 30 seconds.
    """
    with _as_unavailable(connection):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def rows_of(connection: sqlite3.Connection, sql: str, values: Any = ()) -> list[sqlite3.Row]:
    """Return all rows of a query.

    Raises:
        Unavailable: the file cannot be read now.
    """
    with _as_unavailable(connection):
        return connection.execute(sql, values).fetchall()


@contextmanager
def _as_unavailable(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        path = connection.execute("PRAGMA database_list").fetchone()["file"]
        raise _unavailable(path, error) from error


def _create_tables(connection: sqlite3.Connection, schema: str, version: int, path: Path) -> None:
    known = connection.execute("PRAGMA user_version").fetchone()[0]
    if known == version:
        return
    if known:
        raise _damaged(path, f"format {known}; this version writes format {version}")
    for statement in filter(str.strip, schema.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")


def _unavailable(path: str, error: sqlite3.OperationalError) -> Unavailable:
    return Unavailable(
        f"{path} must be readable and writable",
        got=str(error),
        do="check whether the disk is full or another process has locked the file",
    )


def _damaged(path: Path, got: str) -> Damaged:
    return Damaged(
        f"{path} must be a database of this version",
        got=got,
        do="move it away; running jobs continue from their checkpoints",
    )
