"""`Sqlite`: the suite of all sinks, and its own tests."""

from __future__ import annotations

import json
import sqlite3
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.sinks.batches import opened, staged

import millstream as ms
from millstream.errors import DataGone, InvalidSpec, MillstreamError, Unavailable
from millstream.sinks.tables.writer import TableWriter
from millstream.testing.sink_suite import SinkSuite

if TYPE_CHECKING:
    from pathlib import Path


class TestSqlite(SinkSuite):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "out.db"

    def sink(self) -> ms.Sqlite:
        return ms.Sqlite(self.path, "hot; drop table x")

    def keyed_sink(self) -> ms.Sqlite:
        return ms.Sqlite(self.path, "hot; drop table x", key="k")

    def rows(self) -> list[dict[str, Any]]:
        with sqlite3.connect(self.path) as connection:
            connection.row_factory = sqlite3.Row
            found = connection.execute('select * from "hot; drop table x"').fetchall()
        connection.close()
        return [dict(row) for row in found]

    def seen(self, value: Any) -> Any:
        if isinstance(value, bool):
            return int(value)
        if value == 0.0:
            return value + 0  # SQLite does not store negative zero
        if isinstance(value, datetime):
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        if isinstance(value, date | Decimal):
            return str(value)
        if isinstance(value, list | dict):
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return value


def asked(path: Path, question: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(question).fetchall()
    finally:
        connection.close()


def test_the_writer_waits_for_a_file_locked_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = ms.Sqlite(path, "hot")
    heard: list[str] = []

    def let_go(why: str) -> None:
        heard.append(why)
        other.execute("ROLLBACK")

    writer = opened(sink, on_wait=let_go)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    other.close()
    assert asked(path, "select n from hot") == [(1,)]
    assert heard == [f"waiting for the SQLite file {path}: database is locked "
                     "(another process may hold it)"]  # fmt: skip


def test_a_file_that_stays_locked_stops_the_job(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = ms.Sqlite(path, "hot")
    writer = opened(sink, patience=0.2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Unavailable, match=r"needs the SQLite file .* to take batch 1; got no succ"):
        writer.write("one", 1, [staged(sink, n=[1])])
    other.close()
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    assert asked(path, "select n from hot") == [(1,)]


def test_a_commit_with_a_lost_response_is_resolved_from_the_ledger(tmp_path: Path) -> None:
    """The file system stores the commit and then reports an error."""
    path = tmp_path / "out.db"
    sink = ms.Sqlite(path, "hot")
    writer = opened(sink)
    assert isinstance(writer, TableWriter)
    database = writer._database
    commit, failed = database.commit, iter([True])

    def lost() -> None:
        commit()
        if next(failed, False):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    database.commit = lost  # type: ignore[method-assign]
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()
    assert asked(path, "select n from hot order by n") == [(1,), (2,)]


def test_all_tables_of_a_file_commit_together(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    asked(path, "create table second (n int check (n < 5))")
    first, second = ms.Sqlite(path, "first"), ms.Sqlite(path, "second")
    writer = opened(first, second)
    writer.write("one", 1, [staged(first, n=[1]), staged(second, n=[1])])
    with pytest.raises(MillstreamError, match="CHECK constraint failed"):
        writer.write("two", 2, [staged(first, n=[2]), staged(second, n=[7])])
    writer.close()
    assert asked(path, "select n from first") == [(1,)]
    assert asked(path, "select intent, batch from millstream_ledger") == [("one", 1)] * 2


def test_a_missing_column_and_a_dropped_table_are_named(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = ms.Sqlite(path, "hot")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    with pytest.raises(InvalidSpec, match="needs the column 'm'; got columns n; ALTER TABLE"):
        writer.write("two", 2, [staged(sink, m=[1])])
    asked(path, "drop table hot")
    with pytest.raises(DataGone, match="needs the rows of earlier batches"):
        writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()


def test_missing_folders_are_created_and_an_impossible_path_is_named(tmp_path: Path) -> None:
    sink = ms.Sqlite(tmp_path / "a" / "b" / "out.db", "hot")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    assert asked(tmp_path / "a" / "b" / "out.db", "select n from hot") == [(1,)]
    (tmp_path / "file").touch()
    with pytest.raises(
        InvalidSpec, match=r"the SQLite file .*file/out.db needs the folder .*got a file"
    ):
        opened(ms.Sqlite(tmp_path / "file" / "out.db", "hot"), patience=0.0)


def test_nan_is_stored_as_text(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = ms.Sqlite(path, "hot")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, x=[float("nan"), None, 1.5])])
    writer.close()
    assert asked(path, "select x from hot") == [("NaN",), (None,), (1.5,)]


@pytest.mark.parametrize(("path", "table"), [("", "t"), (7, "t"), ("a.db", ""), ("a.db", None)])
def test_invalid_paths_and_table_names_are_refused(path: Any, table: Any) -> None:
    with pytest.raises(InvalidSpec, match="Sqlite needs a"):
        ms.Sqlite(path, table)
