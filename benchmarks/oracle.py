"""What the answers should be: the topics' records recomputed by DuckDB, which shares no code
with any engine; and DuckDB's own speed at the same work, over bytes that lie in memory."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

Check = dict[str, Any]

_COLUMNS = """'{"auction":"BIGINT","bidder":"BIGINT","price":"DOUBLE","channel":"VARCHAR",
              "url":"VARCHAR","ts":"BIGINT"}'"""
_SUMS = """count(*), sum(auction), sum(bidder), sum(price), sum(length(channel)),
           sum(length(url)), sum(ts)"""


class Unreadable(SystemExit):
    """A topic that the check needs cannot be read."""

    def __init__(self, topic: str, why: KafkaError) -> None:
        super().__init__(f"the check needs the topic {topic}; got {why}")
        self.unknown = why.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def chunks(address: str, topic: str) -> Iterator[pa.Table]:
    """All committed records of a topic, in pieces: partition and value as text."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "oracle",
                         "isolation.level": "read_committed", "enable.partition.eof": True,
                         "auto.offset.reset": "earliest"})  # fmt: skip
    found = consumer.list_topics(topic, timeout=30).topics[topic]
    if found.error is not None:
        consumer.close()
        raise Unreadable(topic, found.error)
    consumer.assign([TopicPartition(topic, p, 0) for p in found.partitions])
    left = set(found.partitions)
    while left:
        places, rows = [], []
        for message in consumer.consume(100_000, timeout=0.2):
            if message.error() is not None:
                left.discard(message.partition())
            else:
                places.append(message.partition())
                rows.append(message.value())
        if rows:
            text = pa.array(rows, pa.binary()).cast(pa.string())
            yield pa.table({"partition": pa.array(places, pa.int32()), "value": text})
    consumer.close()


def written(address: str, out: str) -> Iterator[pa.Table]:
    """The output of an engine, in pieces; empty if it never created its topic."""
    try:
        yield from chunks(address, out)
    except Unreadable as failure:
        if not failure.unknown:
            raise


def loaded(db: duckdb.DuckDBPyConnection, name: str, tables: Iterator[pa.Table], sql: str) -> None:
    """Create a table from the SQL's result for each piece, which is called `piece` in it."""
    made = False
    for piece in tables:
        db.register("piece", piece)
        db.execute(f"insert into {name} {sql}" if made else f"create table {name} as {sql}")
        made = True
    if not made:
        db.register("piece", pa.table({"partition": pa.array([], pa.int32()),
                                       "value": pa.array([], pa.string())}))  # fmt: skip
        db.execute(f"create table {name} as {sql}")


class Windows:
    """The count and sum of every window of a topic of bids, and which of them must have left.

    A window is due when it ended before the slowest partition's watermark.
    """

    def __init__(self, address: str, topic: str, *, window_ms: int, delay_ms: int) -> None:
        self._address, self.window_ms = address, window_ms
        self._db = duckdb.connect()
        columns = """select partition, (value->>'auction')::bigint auction,
                            (value->>'price')::double price, (value->>'ts')::bigint ts
                     from piece"""
        loaded(self._db, "bids", chunks(address, topic), columns)
        self._db.execute(f"""
            create table expected as select auction, ts // {window_ms} w, count(*) n,
                   sum(price) total from bids group by 1, 2;
            create table due as select * from expected where (w + 1) * {window_ms} <=
                   (select min(t) from (select max(ts) t from bids group by partition))
                   - {delay_ms}""")
        self.due: int = self._one("select count(*) from due")

    def check(self, out: str) -> Check:
        """Compare an output topic: every window right and once, no due window missing."""
        self._db.execute("drop table if exists got")
        columns = f"""select (value->>'auction')::bigint auction,
                      epoch_ms((value->>'window_start')::timestamptz) // {self.window_ms} w,
                      (value->>'n')::bigint n, (value->>'total')::double total from piece"""
        loaded(self._db, "got", written(self._address, out), columns)
        return self._compared("due")

    def check_table(self, made: pa.Table) -> Check:
        """Compare all windows with those of a table (auction, w, n, total)."""
        self._db.register("made", made)
        self._db.execute("create or replace table got as select * from made")
        return self._compared("expected")

    def _compared(self, wanted: str) -> Check:
        return {
            "checked": self._one("select count(*) from got"),
            "faults": {
                "missing": self._one(
                    f"select count(*) from {wanted} anti join got using (auction, w)"
                ),
                "twice": self._one("select count(*) - count(distinct (auction, w)) from got"),
                "wrong": self._one("""
                    select count(*) from got g left join expected e using (auction, w)
                    where e.n is null or e.n <> g.n or g.total is null
                          or abs(e.total - g.total) > 1e-9 * abs(e.total)"""),
            },
        }

    def _one(self, sql: str) -> int:
        return int(self._db.execute(sql).fetchall()[0][0])


def column_sums(address: str, topic: str) -> list[float]:
    """The row count and the sums of a bid's six columns, extracted from the JSON text."""
    db = duckdb.connect()
    columns = """select (value->>'auction')::bigint auction, (value->>'bidder')::bigint bidder,
                        (value->>'price')::double price, value->>'channel' channel,
                        value->>'url' url, (value->>'ts')::bigint ts from piece"""
    loaded(db, "bids", chunks(address, topic), columns)
    return [float(one) for one in db.execute(f"select {_SUMS} from bids").fetchall()[0]]


def sums_in(address: str, out: str) -> list[float]:
    """The sums that an engine wrote as the one record of a topic, in the order of its columns."""
    (value,) = [text.as_py() for piece in chunks(address, out) for text in piece["value"]]
    return [one for one in json.loads(value).values() if isinstance(one, float)]


def check_sums(got: list[float], wanted: list[float]) -> Check:
    """Compare rows and the sums over columns; a sum of doubles may differ by its order."""
    wrong = sum(abs(a - b) > 1e-9 * abs(b) for a, b in zip(got, wanted, strict=True))
    return {"checked": int(got[0]), "faults": {"wrong columns": wrong}}


def duckdb_decode(address: str, topic: str) -> dict[str, Any]:
    """DuckDB's speed at decoding the same bytes to columns, with two threads."""
    db = _in_memory(address, topic)
    began, cpu = time.perf_counter(), time.process_time()
    sums = db.execute(f"""with rows as (select unnest(from_json(value, {_COLUMNS})) from raw)
                          select {_SUMS} from rows""").fetchall()[0]
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"wall": wall, "cpu": cpu, "sums": [float(one) for one in sums]}


def duckdb_tumbling(address: str, topic: str, expected: Windows) -> dict[str, Any]:
    """DuckDB's speed at grouping the same bytes into windows, with two threads; no output topic."""
    db = _in_memory(address, topic)
    began, cpu = time.perf_counter(), time.process_time()
    table = db.sql(f"""with rows as (select unnest(from_json(value, {_COLUMNS})) from raw)
                       select auction, ts // {expected.window_ms} w, count(*) n, sum(price) total
                       from rows group by 1, 2""").to_arrow_table()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"wall": wall, "cpu": cpu, "check": expected.check_table(table)}


def _in_memory(address: str, topic: str) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect(config={"threads": "2"})
    db.register("raw", pa.concat_tables(chunks(address, topic)))
    return db


class Counts:
    """The number of records per key of a topic."""

    def __init__(self, address: str, topic: str) -> None:
        self._address, self._db = address, duckdb.connect()
        columns = "select (value->>'auction')::bigint auction from piece"
        loaded(self._db, "bids", chunks(address, topic), columns)
        self._db.execute("create table expected as select auction, count(*) n from bids group by 1")

    def check(self, out: str) -> Check:
        """Compare with the rows of an output topic."""
        columns = "select (value->>'auction')::bigint auction, (value->>'n')::bigint n from piece"
        loaded(self._db, "got", written(self._address, out), columns)
        return self._compared()

    def check_files(self, folder: str) -> Check:
        """Compare with the rows of Parquet files."""
        self._db.execute("create table got as select auction, n from read_parquet(?)",
                         [f"{folder}/*.parquet"])  # fmt: skip
        return self._compared()

    def _compared(self) -> Check:
        missing, wrong, keys, rows = self._db.execute("""
            select count(*) filter (where g.n is null),
                   count(*) filter (where e.n is null or e.n <> g.n),
                   count(distinct g.auction), count(g.auction)
            from expected e full join got g using (auction)""").fetchall()[0]
        return {"checked": rows, "faults": {"missing": missing, "wrong": wrong,
                                            "twice": rows - keys}}  # fmt: skip
