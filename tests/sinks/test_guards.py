"""Without each of the sinks' guards, the failure it prevents happens.

This proves that the tests of the guards would fail.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
import pytest
from deltalake import CommitProperties, DeltaTable
from tests.sinks.batches import opened, staged

import millstream as ms
from millstream.sinks.delta.writer import DeltaWriter
from millstream.sinks.files.files import FilesSink
from millstream.sinks.files.writer import FilesWriter
from millstream.sinks.postgres.database import PostgresDatabase
from millstream.sinks.record_log import Records
from millstream.sinks.tables.ledger import Ownership
from millstream.sinks.tables.writer import TableWriter
from millstream.testing.sink_suite import Crash

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.sinks.spec import OpenSink


def in_sqlite(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    found = connection.execute("select n from hot order by n").fetchall()
    connection.close()
    return [n for (n,) in found]


def in_delta(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["n"].to_pylist())


def in_files(path: Path) -> list[int]:
    found = duckdb.connect().execute("select n from read_parquet(?)", [f"{path}/*.parquet"])
    return sorted(n for (n,) in found.fetchall())


def crashed_after_its_commit(sink: OpenSink) -> None:
    """A run that is killed after committing its second batch, and a run that continues."""
    armed: list[bool] = []

    def crash(point: str) -> None:
        if armed and point == "after a sink's commit":
            raise Crash

    writer = opened(sink, on_step=crash)
    writer.write("one", 1, [staged(sink, n=[1])])
    armed.append(True)
    with pytest.raises(Crash):
        writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()
    writer = opened(sink, epoch=2, recovered=False)
    if writer.recover("one") != "two":
        writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()


def overtaken(sink: OpenSink) -> None:
    """A run that continues to write after its successor has started."""
    zombie = opened(sink)
    zombie.write("one", 1, [staged(sink, n=[1])])
    successor = opened(sink, epoch=2, recovered=False)
    successor.recover("one")
    successor.write("two", 2, [staged(sink, n=[2])])
    zombie.write("two", 2, [staged(sink, n=[2])])
    zombie.close()
    successor.close()


def nothing(*_: Any, **__: Any) -> None:
    """Replaces a guard."""


def test_without_the_ledger_entry_a_table_gets_a_batch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ms.Sqlite(tmp_path / "out.db", "hot")
    mark: Callable[..., None] = TableWriter._update_ledger
    monkeypatch.setattr(
        TableWriter, "_update_ledger",
        lambda self, intent, *rest: mark(self, intent, *rest) if intent == "one" else None,
    )  # fmt: skip
    crashed_after_its_commit(sink)
    assert in_sqlite(tmp_path / "out.db") == [1, 2, 2]


def test_without_the_epoch_a_zombie_writes_to_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ownership, "refuse_any_change", nothing)
    overtaken(ms.Sqlite(tmp_path / "out.db", "hot"))
    assert in_sqlite(tmp_path / "out.db") == [1, 2, 2]


def test_without_terminating_its_backend_a_frozen_run_blocks_its_successor(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresDatabase, "fence", nothing)
    sink = ms.Postgres("hot", url=database)
    held: list[bool] = []

    def meanwhile(point: str) -> None:
        if point == "before a sink's commit" and not held:
            with psycopg.connect(database, autocommit=True) as other:
                other.execute("set statement_timeout = '500ms'")
                try:
                    other.execute("select 1 from millstream_ledger for update")
                except psycopg.errors.QueryCanceled:
                    held.append(True)

    writer = opened(sink, on_step=meanwhile)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    assert held == [True]


def test_without_the_manifest_record_a_folder_gets_a_batch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another id, because a file written again with the same id replaces itself."""
    commit: Callable[..., None] = FilesWriter._commit

    def unrecorded(self: FilesWriter, **body: Any) -> None:
        if body.get("intent") != "two":
            commit(self, **body)
        else:
            self._publish(body["add"])

    monkeypatch.setattr(FilesWriter, "_commit", unrecorded)
    sink = FilesSink(ms.Files(tmp_path / "out"))
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()
    writer = opened(sink, epoch=2, recovered=False)
    assert writer.recover("one") == "one"
    writer.write("zwei", 2, [staged(sink, n=[2])])
    writer.close()
    assert in_files(tmp_path / "out") == [1, 2, 2]


def test_without_claiming_the_folder_a_zombie_adds_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Records, "check", nothing)
    monkeypatch.setattr(Records, "append", nothing)
    sink = FilesSink(ms.Files(tmp_path / "out"))
    zombie = opened(sink)
    successor = opened(sink, epoch=2)
    successor.write("one", 1, [staged(sink, n=[1])])
    zombie.write("uno", 1, [staged(sink, n=[1])])
    assert in_files(tmp_path / "out") == [1, 1]


def test_without_the_application_transaction_a_delta_table_gets_a_batch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaWriter, "_properties", lambda self, intent, batch: CommitProperties())
    monkeypatch.setattr(DeltaWriter, "recover", lambda self, expected: expected)
    crashed_after_its_commit(ms.Delta(tmp_path / "lake"))
    assert in_delta(tmp_path / "lake") == [1, 2, 2]


def test_without_comparing_batch_numbers_a_delta_table_accepts_a_batch_of_a_zombie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Records, "check", nothing)
    monkeypatch.setattr(DeltaWriter, "_is_committed", lambda self, table, intent, batch: False)
    overtaken(ms.Delta(tmp_path / "lake"))
    assert in_delta(tmp_path / "lake") == [1, 2, 2]
