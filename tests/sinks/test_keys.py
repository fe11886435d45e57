"""Keys of several columns in every keyed sink, compared with a dict."""

from __future__ import annotations

import random
import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.sinks.batches import opened, staged

import millstream as ms
from millstream.sinks import rows

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.sinks.spec import OpenSink

KEYS = ["page", "at"]
BEGIN = 1_767_225_600_000_000
Row = tuple[str | None, int | None, int, int]


def changed(seed: int, batches: int = 6) -> list[list[Row]]:
    """Random upserts and deletes with few keys and some nulls."""
    chance = random.Random(seed)
    pages, times = ["a", "b", 'c"', None], [0, 10_000_001, 20_000_000, None]
    return [
        [(chance.choice(pages), chance.choice(times), chance.randrange(100),
          chance.choice([1, 1, -1])) for _ in range(chance.randrange(1, 12))]
        for _ in range(batches)
    ]  # fmt: skip


def expected(batches: list[list[Row]]) -> dict[tuple[Any, Any], int]:
    """The rows in a dict by key."""
    table: dict[tuple[Any, Any], int] = {}
    for batch in batches:
        for page, at, value, sign in batch:
            table.pop((page, at), None)
            if sign > 0:
                table[page, at] = value
    return table


def arrow(batch: list[Row]) -> pa.Table:
    times = [None if at is None else BEGIN + at for _, at, _, _ in batch]
    return pa.table(
        {
            "page": pa.array([page for page, _, _, _ in batch], pa.string()),
            "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "value": pa.array([value for _, _, value, _ in batch], pa.int64()),
            "_sign": pa.array([sign for _, _, _, sign in batch], pa.int8()),
        }
    )


def send(sink: OpenSink, batches: list[list[Row]]) -> None:
    writer = opened(sink)
    for number, batch in enumerate(batches, start=1):
        writer.write(f"intent {number}", number, [staged(sink, table=arrow(batch))])
    writer.close()


def place(at: datetime | None) -> int | None:
    if at is None:
        return None
    return (
        round((at.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6) - BEGIN
    )


def as_dict(found: list[tuple[Any, datetime | None, int]]) -> dict[Any, int]:
    """The rows of a sink by key; each key occurs once."""
    got = {(page, place(at)): value for page, at, value in found}
    assert len(got) == len(found), "a key occurs twice"
    return got


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("chunk", [2, 50_000])
class TestEveryKeyedSink:
    @pytest.fixture(autouse=True)
    def chunks(self, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rows.changes, "__defaults__", (chunk,))

    def test_postgres_ends_with_the_rows_of_a_dict(self, seed: int, database: str) -> None:
        send(ms.Postgres("t", key=KEYS, url=database), changed(seed))
        with psycopg.connect(database) as connection:
            found = connection.execute("select page, at, value from t").fetchall()
        assert as_dict(found) == expected(changed(seed))

    def test_sqlite_ends_with_the_rows_of_a_dict(self, seed: int, tmp_path: Path) -> None:
        send(ms.Sqlite(tmp_path / "out.db", "t", key=KEYS), changed(seed))
        connection = sqlite3.connect(tmp_path / "out.db")
        found = connection.execute("select page, at, value from t").fetchall()
        connection.close()
        timed = [(page, at and datetime.fromisoformat(at), value) for page, at, value in found]
        assert as_dict(timed) == expected(changed(seed))

    def test_delta_ends_with_the_rows_of_a_dict(self, seed: int, tmp_path: Path) -> None:
        send(ms.Delta(tmp_path / "lake", key=KEYS), changed(seed))
        table = DeltaTable(tmp_path / "lake").to_pyarrow_table().to_pylist()
        found = [(row["page"], row["at"], row["value"]) for row in table]
        assert as_dict(found) == expected(changed(seed))
