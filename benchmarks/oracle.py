"""What the answer should be: the topics' records recomputed by DuckDB, which shares no code
with any engine."""

from __future__ import annotations

import time
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition


def values(address: str, topic: str) -> pa.Table:
    """All committed records of a topic: partition and value as text."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "oracle",
                         "isolation.level": "read_committed", "enable.partition.eof": True,
                         "auto.offset.reset": "earliest"})  # fmt: skip
    parts = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in parts])
    rows: list[bytes] = []
    places: list[int] = []
    left = set(parts)
    while left:
        for message in consumer.consume(50_000, timeout=5):
            if message.error() is not None:
                left.discard(message.partition())
            else:
                rows.append(message.value())
                places.append(message.partition())
    consumer.close()
    return pa.table({"partition": places, "value": pa.array(rows, pa.binary()).cast(pa.string())})


def check_windows(
    address: str, topic: str, out: str, *, window_seconds: int, delay_seconds: int
) -> dict[str, Any]:
    """Compare an output topic with the recomputed windows.

    Every window that left must be right and there once; every window that ended before
    the slowest partition's watermark must have left.
    """
    db = duckdb.connect()
    db.register("raw", values(address, topic))
    db.register("got_raw", values(address, out))
    db.execute(f"""
        create table bids as select partition, (value->>'auction')::bigint auction,
               (value->>'price')::double price, (value->>'ts')::bigint ts from raw;
        create table expected as select auction, ts // {window_seconds * 1000} w,
               count(*) n, sum(price) total from bids group by 1, 2;
        create table got as select (value->>'auction')::bigint auction,
               epoch_ms((value->>'window_start')::timestamptz) // {window_seconds * 1000} w,
               (value->>'n')::bigint n, (value->>'total')::double total from got_raw;
        create table closed as select e.* from expected e where
               (e.w + 1) * {window_seconds * 1000} <= (select min(t) from
                (select max(ts) t from bids group by partition)) - {delay_seconds * 1000};
    """)  # noqa: S608

    def one(sql: str) -> int:
        return int(db.execute(sql).fetchall()[0][0])

    return {
        "windows": one("select count(*) from got"),
        "missing": one("select count(*) from closed anti join got using (auction, w)"),
        "twice": one("select count(*) - count(distinct (auction, w)) from got"),
        "wrong": one("""select count(*) from got g left join expected e using (auction, w)
                     where e.n is null or e.n <> g.n or abs(e.total - g.total) >
                     1e-9 * abs(e.total)"""),
    }


def duckdb_decode(address: str, topic: str) -> dict[str, float]:
    """How fast DuckDB turns the same bytes into columns (bytes in memory, two threads)."""
    table = values(address, topic)
    db = duckdb.connect(config={"threads": "2"})
    db.register("raw", table)
    began, cpu = time.perf_counter(), time.process_time()
    rows = db.execute("""select count(*), max(r.auction), max(r.bidder), max(r.price),
        max(length(r.channel)), max(length(r.url)), max(r.ts) from (select from_json(value,
        '{"auction":"BIGINT","bidder":"BIGINT","price":"DOUBLE","channel":"VARCHAR",
          "url":"VARCHAR","ts":"BIGINT"}') r from raw)""").fetchall()[0][0]
    return {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu, "rows": rows}
