"""Tables in real sinks: a topic with tombstones, Postgres, SQLite and Delta hold the same rows."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from deltalake import DeltaTable

import millstream as ms
from millstream.sinks.kafka.messages import messages
from millstream.sinks.spec import Staged

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

Row = tuple[Any, ...]
Changes = list[tuple[int, dict[str, Any] | None]]


def test_every_keyed_sink_holds_the_table_through_updates_deletes_and_runs(
    tmp_path: Path, broker: ThrowAwayBroker, database: str, topic: str
) -> None:
    users = ms.table(ms.Topic(topic, schema="id long, city string, n long"), key="id")
    grown = users.where("n > 0")
    cities = users.by("city").agg(n=ms.count())
    pipeline = ms.Pipeline(
        f"sinks-{topic[-8:]}",
        grown.to(ms.Topic(f"{topic}.out")),
        grown.to(ms.Postgres("users", key="id", url=database)),
        grown.to(ms.Sqlite(tmp_path / "users.db", "users", key="id")),
        grown.to(ms.Delta(tmp_path / "lake", key="id")),
        cities.to(ms.Postgres("cities", key="city", url=database)),
    )
    first: Changes = [
        (1, {"id": 1, "city": "a", "n": 1}),
        (2, {"id": 2, "city": "a", "n": 2}),
        (3, {"id": 3, "city": "b", "n": 3}),
        (1, {"id": 1, "city": "b", "n": 4}),
    ]
    second: Changes = [
        (2, None),
        (3, {"id": 3, "city": "b", "n": 0}),
        (4, {"id": 4, "city": "c", "n": 5}),
        (9, None),
    ]
    expected = [[(1, "b", 4), (2, "a", 2), (3, "b", 3)], [(1, "b", 4), (4, "c", 5)]]
    grouped = [[("a", 1), ("b", 2)], [("b", 2), ("c", 1)]]
    ms.Topics(kafka=broker.address).create(topic, partitions=2)
    for changes, rows, groups in zip((first, second), expected, grouped, strict=True):
        with ms.Producer(kafka=broker.address) as producer:
            for key, value in changes:
                producer.send(topic, value, key=json.dumps({"id": key}))
        pipeline.run(until="caught_up", kafka=broker.address, checkpoint=tmp_path / "job")
        assert _postgres(database, "select id, city, n from users order by id") == rows
        assert _postgres(database, "select city, n from cities order by city") == groups
        assert _sqlite(tmp_path / "users.db") == rows
        assert sorted(_delta(tmp_path / "lake")) == rows
        assert sorted(_compacted(broker, f"{topic}.out")) == rows


def _postgres(database: str, query: str) -> list[Row]:
    with psycopg.connect(database) as connection:
        return connection.execute(query.encode()).fetchall()


def _sqlite(path: Path) -> list[Row]:
    with sqlite3.connect(path) as connection:
        return connection.execute("select id, city, n from users order by id").fetchall()


def _delta(path: Path) -> list[Row]:
    found = DeltaTable(path).to_pyarrow_table().select(["id", "city", "n"])
    return [tuple(row.values()) for row in found.to_pylist()]


def _compacted(broker: ThrowAwayBroker, topic: str) -> list[Row]:
    """What compaction would leave: the last value of each key, without tombstones."""
    last: dict[bytes | None, Any] = {}
    with ms.Consumer(topic, kafka=broker.address, start="start", until_end=True) as consumer:
        for record in consumer:
            last[record.key] = record.value
    rows = [json.loads(value) for value in last.values() if value is not None]
    return [(row["id"], row["city"], row["n"]) for row in rows]


def test_a_topic_gets_one_record_per_key_and_batch_and_tombstones_for_deletes() -> None:
    rows = pa.table(
        {"id": [1, 1, 2, 3, 4, 4], "n": [1, 2, 5, 7, 8, 8],
         "_time": [5_000, 5_000, None, 6_000, 7_000, 7_000],
         "_sign": pa.array([-1, 1, -1, 1, 1, -1], pa.int8())}
    )  # fmt: skip
    sink = ms.Topic("out")
    staged = Staged("out", "result", sink, ("id",), 4, lambda: iter([rows]), is_table=True)

    (sent,) = messages(staged)

    assert sent.keys is not None
    assert sent.stamps is not None
    assert sent.keys.to_pylist() == [b'{"id":1}', b'{"id":2}', b'{"id":3}']
    assert sent.values.to_pylist() == [b'{"id":1,"n":2}', None, b'{"id":3,"n":7}']
    assert sent.stamps.tolist() == [5, -1, 6]
