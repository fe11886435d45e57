"""Verifies the results of a job in a separate process: reads topics, compares with DuckDB.

    python verifier.py '{"kafka": …, "topic": …, "name": …, "finished": true}'

It does not import Millstream. It prints JSON: rows lost, doubled, unexpected (phantom) or wrong,
per output, and topics with an open transaction.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

SIZE, DELAY = 10, 5
Place = tuple[int, int, bytes]
_WINDOWS = f"""
    SELECT key, epoch_us(time_bucket(INTERVAL {SIZE} SECOND, ts)) AS start,
           count(*) AS n, sum(amount)::BIGINT AS total
    FROM rows GROUP BY 1, 2
"""
_ONCE = """
    SELECT id, arg_min(key, place), arg_min(amount, place), arg_min(epoch_us(ts), place)
    FROM (SELECT *, partition * 1000000000000 + "offset" AS place FROM rows) GROUP BY id
"""
_WATERMARK = f"""
    SELECT min(latest) - {DELAY * 1_000_000} FROM (
        SELECT max(epoch_us(ts)) AS latest FROM rows GROUP BY partition)
"""


class Log:
    """A broker, read with `read_committed`."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self._admin = AdminClient({"bootstrap.servers": kafka})

    def topics(self) -> dict[str, int]:
        """The number of partitions of every topic."""
        found = self._admin.list_topics(timeout=30).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def ends(self, topic: str, partitions: int, *, committed: bool) -> dict[int, int]:
        """The end of each partition: the last stable offset, or the high watermark."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=30)
        return {place.partition: future.result().offset for place, future in answers.items()}

    def records(self, topic: str, partitions: int) -> list[Any]:
        """All committed records of a topic."""
        ends = self.ends(topic, partitions, committed=True)
        consumer = Consumer(
            {"bootstrap.servers": self._kafka, "group.id": "verifier", "enable.partition.eof": True,
             "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, p, 0) for p, end in ends.items() if end > 0])
        found, open_ones = [], {p for p, end in ends.items() if end > 0}
        while open_ones:
            for record in consumer.consume(10_000, 0.2):
                error = record.error()
                if error is None:
                    found.append(record)
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(record.partition())
                else:
                    raise SystemExit(f"reading {topic}: {error}")
        consumer.close()
        return found


def good_row(value: bytes) -> dict[str, Any] | None:
    """A record's row, None if it is not JSON."""
    try:
        row: dict[str, Any] = json.loads(value)
    except ValueError:
        return None
    return row


def expected(records: list[Place]) -> tuple[dict[Any, Any], dict[Any, Any], int]:
    """The expected windows and first rows, and the watermark of the input."""
    rows = []
    for partition, offset, value in records:
        row = good_row(value)
        if row is not None:
            rows.append([row["id"], row["key"], row["amount"], row["ts"], partition, offset])
    base = duckdb.connect()
    base.execute("SET TimeZone = 'UTC'")
    base.execute("CREATE TABLE rows (id BIGINT, key BIGINT, amount BIGINT, ts TIMESTAMPTZ, "
                 'partition BIGINT, "offset" BIGINT)')  # fmt: skip
    if rows:
        given = pa.table({str(n): list(column) for n, column in enumerate(zip(*rows, strict=True))})
        base.register("given", given)
        base.execute("INSERT INTO rows SELECT * FROM given")
    windows = {(k, s): (n, total) for k, s, n, total in base.execute(_WINDOWS).fetchall()}
    once = {i: (k, a, t) for i, k, a, t in base.execute(_ONCE).fetchall()}
    found = base.execute(_WATERMARK).fetchone()
    return windows, once, found[0] if found and found[0] is not None else 0


def micros(text: str) -> int:
    found = duckdb.execute("SELECT epoch_us(?::TIMESTAMPTZ)", [text]).fetchone()
    assert found is not None
    return int(found[0])


def compared(
    wanted: dict[Any, Any], got: list[tuple[Any, Any]], optional: set[Any]
) -> dict[str, Any]:
    """The differences between an output and the expected rows; `optional` rows may be missing."""
    times = Counter(key for key, _ in got)
    present = dict(got)
    return {
        "rows": len(got),
        "lost": sorted(map(str, set(wanted) - set(times) - optional)),
        "doubled": sorted(str(key) for key, count in times.items() if count > 1),
        "phantom": sorted(map(str, set(times) - set(wanted))),
        "wrong": sorted(
            f"{key}: {present[key]} instead of {wanted[key]}"
            for key in times
            if key in wanted and present[key] != wanted[key]
        ),
    }


def verify(kafka: str, topic: str, name: str, *, finished: bool) -> dict[str, Any]:
    """The verdict on one job."""
    log = Log(kafka)
    sizes = log.topics()
    topics = {kind: f"{name}.{kind}" for kind in ("windows", "once", "dead", "late")}
    seen = {d: log.records(t, sizes[t]) if t in sizes else [] for d, t in topics.items()}
    records = [(r.partition(), r.offset(), r.value()) for r in log.records(topic, sizes[topic])]
    windows, once, watermark = expected(records)
    early = {key for key in windows if key[1] + SIZE * 1_000_000 > watermark}
    bad = {(p, offset): value.hex() for p, offset, value in records if not good_row(value)}
    verdict: dict[str, Any] = {
        "read": len(records),
        "windows": compared(windows, [_window(r) for r in seen["windows"]],
                            set() if finished else early),
        "once": compared(once, [_once(r) for r in seen["once"]], set()),
        "dead": compared(bad, [_dead(r) for r in seen["dead"]], set()),
        "late": [r.value().decode() for r in seen["late"]],
        "open transactions": _open_transactions(log, sizes, [topic, *topics.values()]),
    }  # fmt: skip
    verdict["green"] = _green(verdict)
    return verdict


def _window(record: Any) -> tuple[Any, Any]:
    return window_of(json.loads(record.value()))


def window_of(row: dict[str, Any]) -> tuple[Any, Any]:
    """A row of the windows' output as (key, start) and (n, total)."""
    start, end = micros(row["window_start"]), micros(row["window_end"])
    total = row["total"] if end - start == SIZE * 1_000_000 else f"window of {end - start} µs"
    return (row["key"], start), (row["n"], total)


def _once(record: Any) -> tuple[Any, Any]:
    row = json.loads(record.value())
    return row["id"], (row["key"], row["amount"], micros(row["ts"]))


def _dead(record: Any) -> tuple[Any, Any]:
    headers = {key: value.decode() for key, value in record.headers() or ()}
    place = (int(headers["millstream.partition"]), int(headers["millstream.offset"]))
    return place, record.value().hex()


def _open_transactions(log: Log, sizes: dict[str, int], topics: list[str]) -> list[str]:
    there = [topic for topic in topics if topic in sizes]
    return [
        topic
        for topic in there
        if log.ends(topic, sizes[topic], committed=True)
        != log.ends(topic, sizes[topic], committed=False)
    ]


def _green(verdict: dict[str, Any]) -> bool:
    differences = [
        verdict[output][kind]
        for output in ("windows", "once", "dead")
        for kind in ("lost", "doubled", "phantom", "wrong")
    ]
    return not any([*differences, verdict["late"], verdict["open transactions"]])


if __name__ == "__main__":
    print(json.dumps(verify(**json.loads(sys.argv[1]))))
    assert not any(name.partition(".")[0] == "millstream" for name in sys.modules)
