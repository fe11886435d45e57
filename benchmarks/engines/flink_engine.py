"""Flink SQL on the same topic: heap or RocksDB store, tuned, in an environment of its own.

Parallelism 2, object reuse, a checkpoint every 2 s (RocksDB: incremental), 1 GB of managed
memory, two-phase aggregation as Flink chooses it; no idle time-out, by which a split that is
read slowly loses rows as late. Its Kafka sink is at least once. A warm-up job runs first in the
same JVM. This module runs without Millstream: it may import nothing of it.
"""

from __future__ import annotations

import tempfile
import uuid
from typing import Any

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

from benchmarks.engines.flink_queries import QUERIES
from benchmarks.measure import measured
from benchmarks.processes import main

_BID = "auction BIGINT, bidder BIGINT, price DOUBLE, channel STRING, url STRING, ts BIGINT"
_NARROW = "auction BIGINT, bidder BIGINT, price DOUBLE, ts BIGINT"
_TIMES = """CAST(window_start AS TIMESTAMP_LTZ(3)) AS window_start,
            CAST(window_end AS TIMESTAMP_LTZ(3)) AS window_end"""
_BOUNDS = "window_start TIMESTAMP_LTZ(3), window_end TIMESTAMP_LTZ(3)"


def _seconds(text: str) -> str:
    number, unit = text.split()
    return f"INTERVAL '{number}' {unit.rstrip('s').upper()}"


def _windowed(spec: dict[str, Any], window: str, key: str, figures: str) -> str:
    return f"""SELECT {key}, {_TIMES}, {figures} FROM TABLE({window})
               GROUP BY {key}, window_start, window_end"""


def tumbling(spec: dict[str, Any]) -> tuple[str, str]:
    """Columns of the output, and the query."""
    window = f"TUMBLE(TABLE ours, DESCRIPTOR(rt), {_seconds(spec['window'])})"
    return (f"auction BIGINT, {_BOUNDS}, n BIGINT, total DOUBLE",
            _windowed(spec, window, "auction", "COUNT(*) AS n, SUM(price) AS total"))  # fmt: skip


def hopping(spec: dict[str, Any]) -> tuple[str, str]:
    """Columns of the output, and the query."""
    window = (
        f"HOP(TABLE ours, DESCRIPTOR(rt), {_seconds(spec['every'])}, {_seconds(spec['window'])})"
    )
    return (f"auction BIGINT, {_BOUNDS}, n BIGINT",
            _windowed(spec, window, "auction", "COUNT(*) AS n"))  # fmt: skip


def session(spec: dict[str, Any]) -> tuple[str, str]:
    """Columns of the output, and the query."""
    window = f"SESSION(TABLE ours PARTITION BY bidder, DESCRIPTOR(rt), {_seconds(spec['gap'])})"
    return (f"bidder BIGINT, {_BOUNDS}, n BIGINT",
            _windowed(spec, window, "bidder", "COUNT(*) AS n"))  # fmt: skip


def distinct(spec: dict[str, Any]) -> tuple[str, str]:
    """The first row of each auction, in order of arrival."""
    return (
        _BID,
        """SELECT auction, bidder, price, channel, url, ts FROM
                    (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY pt) AS place
                     FROM ours) WHERE place = 1""",
    )


def join(spec: dict[str, Any]) -> tuple[str, str]:
    """Pairs of one auction so near in time."""
    within = _seconds(spec["within"])
    return ("auction BIGINT, bidder BIGINT, price DOUBLE",
            f"""SELECT l.auction, l.bidder, r.price FROM ours l JOIN theirs r ON
                l.auction = r.auction AND r.rt BETWEEN l.rt - {within} AND l.rt + {within}
             """)  # fmt: skip


def as_of(spec: dict[str, Any]) -> tuple[str, str]:
    """Bids with the price of that moment, by a temporal join with a versioned view."""
    return ("auction BIGINT, bidder BIGINT, price DOUBLE",
            """SELECT l.auction, l.bidder, r.price FROM ours l
               JOIN versions FOR SYSTEM_TIME AS OF l.rt AS r ON l.auction = r.auction
            """)  # fmt: skip


WORKS = {"tumbling": tumbling, "hopping": hopping, "session": session, "distinct": distinct,
         "join": join, "as_of": as_of, **QUERIES}  # fmt: skip
_SIDES = {"q8": ("id BIGINT, name STRING, ts BIGINT", "seller BIGINT, ts BIGINT")}
_VERSIONS = """CREATE TEMPORARY VIEW versions AS SELECT auction, price, rt FROM
               (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY rt DESC) AS place
                FROM theirs) WHERE place = 1"""


def tables(store: str, folder: str, connector: str) -> Any:
    """A table environment with the settings of this peer."""
    settings = {
        "parallelism.default": "2",
        "pipeline.jars": f"file://{connector}",
        "pipeline.object-reuse": "true",
        "execution.checkpointing.interval": "2 s",
        "execution.checkpointing.dir": f"file://{folder}",
        "execution.checkpointing.incremental": "true",
        "state.backend.type": "rocksdb" if store == "rocksdb" else "hashmap",
        "taskmanager.memory.managed.size": "1 gb",
        "taskmanager.numberOfTaskSlots": "2",
        "table.local-time-zone": "UTC",
    }
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    made = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration)
    return TableEnvironment.create(made.build())


def _source(env: Any, name: str, address: str, topic: str, columns: str, delay: str) -> None:
    env.execute_sql(f"""CREATE TEMPORARY TABLE {name} ({columns},
        rt AS TO_TIMESTAMP_LTZ(ts, 3), pt AS PROCTIME(),
        WATERMARK FOR rt AS rt - {_seconds(delay)}) WITH (
        'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
        'properties.bootstrap.servers' = '{address}', 'properties.group.id' = 'flink',
        'properties.isolation.level' = 'read_committed',
        'properties.max.partition.fetch.bytes' = '8388608',
        'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')""")


def _sink(env: Any, address: str, topic: str, columns: str) -> None:
    env.execute_sql(f"""CREATE TEMPORARY TABLE answers ({columns}) WITH (
        'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
        'properties.bootstrap.servers' = '{address}',
        'properties.compression.type' = 'lz4', 'properties.linger.ms' = '20',
        'properties.batch.size' = '1000000',
        'json.timestamp-format.standard' = 'ISO-8601',
        'sink.delivery-guarantee' = 'at-least-once')""")


def _run(address: str, spec: dict[str, Any], topic: str, other: str | None, out: str) -> Any:
    columns, query = WORKS[spec.get("work", "tumbling")](spec)
    with tempfile.TemporaryDirectory() as folder:
        env = tables(spec["store"], folder, spec["connector"])
        ours, theirs = _SIDES.get(spec.get("work", ""), (_NARROW if other else _BID, _NARROW))
        _source(env, "ours", address, topic, ours, spec["delay"])
        if other is not None:
            _source(env, "theirs", address, other, theirs, spec["delay"])
        if spec.get("work") == "as_of":
            env.execute_sql(_VERSIONS)
        _sink(env, address, out, columns)
        with measured() as cost:
            env.execute_sql(f"INSERT INTO answers {query}").wait()
    return cost


def drain(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Drain a topic through the given workload into a topic, at least once."""
    _run(address, spec, spec["warm"], spec.get("warm_other"), f"warm-{uuid.uuid4().hex[:8]}")
    cost = _run(address, spec, spec["topic"], spec.get("other"), spec["out"])
    return {"wall": cost.wall, "cpu": cost.cpu}


def decode(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Read and decode every record to columns; use every column, in one window over all."""
    columns = ("window_end TIMESTAMP_LTZ(3), n DOUBLE, auction DOUBLE, bidder DOUBLE, "
               "price DOUBLE, channel DOUBLE, url DOUBLE, ts DOUBLE")  # fmt: skip
    summed = ("auction", "bidder", "price", "CHAR_LENGTH(channel)", "CHAR_LENGTH(url)", "ts")
    sums = ", ".join(f"CAST(SUM({one}) AS DOUBLE)" for one in summed)
    query = f"""SELECT CAST(window_end AS TIMESTAMP_LTZ(3)), CAST(COUNT(*) AS DOUBLE), {sums}
                FROM TABLE(TUMBLE(TABLE ours, DESCRIPTOR(rt), INTERVAL '10000' DAY(5)))
                GROUP BY window_start, window_end"""
    WORKS["decode"] = lambda spec: (columns, query)
    spec = {**spec, "work": "decode", "delay": "5 seconds", "store": "heap"}
    return drain(address, spec)


if __name__ == "__main__":
    main({"drain": drain, "decode": decode})
