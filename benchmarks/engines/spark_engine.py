"""Spark Structured Streaming on the same topic: heap or RocksDB store, tuned.

Shuffle partitions = cores, changelog checkpoints on, AQE off, the same fetch sizes, the
file manager that does not fork a process per checkpoint file, and a short fetch wait: with
Kafka's 500 ms each batch that reads to the end of its topic waits that long. Its Kafka sink
is at least once.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from typing import Any

from benchmarks.engines import spark_queries as queries
from benchmarks.feeding import FED_SCHEMA, Feed
from benchmarks.measure import Spent, measured
from benchmarks.nexmark import BID_SCHEMA
from benchmarks.processes import main, ready, wait_for_stop
from millstream.engine.spark.session import session
from millstream.kafka.admin.topics import Topics

_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_FETCH = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.receive.buffer.bytes": "1048576",
    "kafka.check.crcs": "false",
    "kafka.fetch.max.wait.ms": "20",
}
PATIENCE = 600
_HEAP = "4g"


def spark_for(store: str) -> Any:
    """A session with the settings of this peer."""
    settings = {
        "spark.driver.memory": _HEAP,
        "spark.sql.streaming.checkpointFileManagerClass": _MANAGER,
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    if store == "rocksdb":
        settings["spark.sql.streaming.stateStore.providerClass"] = _ROCKS
        settings["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] = "true"
    return session(settings=settings)


def typed(stream: Any, ddl: str = BID_SCHEMA) -> Any:
    """The records as columns, by from_json; epoch milliseconds become timestamps."""
    schema = ddl.replace("ts timestamp", "ts long")
    parsed = stream.selectExpr(f"from_json(cast(value as string), '{schema}') as r").select("r.*")
    return parsed.selectExpr(*(name for name in parsed.columns if name != "ts"),
                             "timestamp_millis(ts) as ts")  # fmt: skip


def read(spark: Any, address: str, topic: str, **options: Any) -> Any:
    """A topic as a stream, from its start."""
    where = {"kafka.bootstrap.servers": address, "subscribe": topic,
             "startingOffsets": "earliest", **_FETCH, **options}  # fmt: skip
    return spark.readStream.format("kafka").options(**where).load()


def windows(bids: Any, spec: dict[str, Any]) -> Any:
    """Count and sum per auction and window, as JSON values."""
    from pyspark.sql import functions as F

    return (
        bids.withWatermark("ts", spec["delay"])
        .groupBy("auction", F.window("ts", spec["window"]))
        .agg(F.count("*").alias("n"), F.sum("price").alias("total"))
        .selectExpr("to_json(struct(auction, window.start as window_start, "
                    "window.end as window_end, n, total)) as value")
    )  # fmt: skip


def hops(bids: Any, spec: dict[str, Any]) -> Any:
    """Count per auction and hopping window, as JSON values."""
    from pyspark.sql import functions as F

    return _counted(bids, spec, "auction", F.window("ts", spec["window"], spec["every"]))


def sessions(bids: Any, spec: dict[str, Any]) -> Any:
    """Count per bidder and session, as JSON values."""
    from pyspark.sql import functions as F

    return _counted(bids, spec, "bidder", F.session_window("ts", spec["gap"]))


def _counted(bids: Any, spec: dict[str, Any], key: str, window: Any) -> Any:
    counts = bids.withWatermark("ts", spec["delay"]).groupBy(key, window.alias("w")).count()
    return counts.selectExpr(f"to_json(struct({key}, w.start as window_start, "
                             "w.end as window_end, count as n)) as value")  # fmt: skip


def distinct(bids: Any, spec: dict[str, Any]) -> Any:
    """The first row of each auction, as JSON values."""
    return bids.dropDuplicates(["auction"]).selectExpr("to_json(struct(*)) as value")


def pairs(spark: Any, address: str, topic: str, spec: dict[str, Any]) -> Any:
    """Pairs of bids of two topics, of one auction and so near in time, as JSON values."""
    other = spec["warm_other"] if topic == spec["warm"] else spec["other"]
    sides = [
        typed(read(spark, address, name, maxOffsetsPerTrigger=spec["rows"]),
              f"auction long, {column}, ts timestamp")
        .withWatermark("ts", spec["delay"]).alias(side)
        for name, column, side in ((topic, "bidder long", "l"), (other, "price double", "r"))
    ]  # fmt: skip
    from pyspark.sql import functions as F

    near = F.expr(f"l.auction = r.auction and r.ts >= l.ts - interval {spec['within']} "
                  f"and r.ts <= l.ts + interval {spec['within']}")  # fmt: skip
    return (
        sides[0]
        .join(sides[1], near)
        .selectExpr(
            "to_json(struct(l.auction, bidder, greatest(l.ts, r.ts) as ts, price)) as value"
        )
    )


WORKS = {"tumbling": windows, "hopping": hops, "session": sessions, "distinct": distinct,
         **queries.OF_BIDS}  # fmt: skip


def _to_topic(frame: Any, address: str, out: str, folder: str) -> Any:
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", address)
    return writer.option("topic", out).option("checkpointLocation", folder).outputMode("append")


def drain(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Drain a topic through the given workload into a topic, at least once."""
    spark = spark_for(spec["store"])
    outs = {spec["warm"]: f"warm-{uuid.uuid4().hex[:8]}", spec["topic"]: spec["out"]}
    for topic, out in outs.items():
        bids = typed(read(spark, address, topic, maxOffsetsPerTrigger=spec["rows"]))
        with tempfile.TemporaryDirectory() as folder, measured() as cost:
            query = _to_topic(_done(spark, address, topic, bids, spec), address, out, folder)
            query.trigger(availableNow=True).start().awaitTermination()
    return {"wall": cost.wall, "cpu": cost.cpu}


def _done(spark: Any, address: str, topic: str, bids: Any, spec: dict[str, Any]) -> Any:
    name = spec.get("work", "tumbling")
    if name == "join":
        return pairs(spark, address, topic, spec)
    if name == "q8":
        other = spec["warm_other"] if topic == spec["warm"] else spec["other"]
        sides = ((topic, "id long, name string"), (other, "seller long"))
        return queries.q8(*(
            typed(read(spark, address, one, maxOffsetsPerTrigger=spec["rows"]),
                  f"{columns}, ts timestamp").withWatermark("ts", spec["delay"])
            for one, columns in sides))  # fmt: skip
    return WORKS[name](bids, spec)


def decode(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Read and decode every record to columns; use every column so that none is pruned."""
    spark = spark_for("heap")
    for topic in (spec["warm"], spec["topic"]):
        options = {"kafka.bootstrap.servers": address, "subscribe": topic, **_FETCH}
        with measured() as cost:
            bids = typed(spark.read.format("kafka").options(**options).load())
            row = bids.selectExpr(
                "count(*)", "sum(auction)", "sum(bidder)", "sum(price)", "sum(length(channel))",
                "sum(length(url))", "sum(unix_millis(ts))",
            ).collect()[0]  # fmt: skip
    return {"wall": cost.wall, "cpu": cost.cpu, "sums": [float(one) for one in row]}


def latency(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Run until it is stopped, batch after batch, at least once."""
    spark = spark_for(spec["store"])
    bids = typed(read(spark, address, spec["topic"]), FED_SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        query = _to_topic(windows(bids, spec), address, spec["out"], folder).start()
        ready()
        with measured() as cost:
            wait_for_stop()
        batches = [_figures(progress) for progress in query.recentProgress]
        query.stop()
    return {"wall": cost.wall, "cpu": cost.cpu, "batches": [one for one in batches if one["rows"]]}


def lasting(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Run on a checkpoint that stays, batch after batch, until it is killed."""
    spark = spark_for(spec["store"])
    bids = typed(read(spark, address, spec["topic"], maxOffsetsPerTrigger=spec["rows"]))
    _to_topic(windows(bids, spec), address, spec["out"], spec["folder"]).start().awaitTermination()
    return {}


def growth(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Small batches over a per-key count with many keys open; then its state, as Parquet."""
    spark = spark_for(spec["store"])
    feed = Feed(address, spec["topic"], spec["keys"])
    options = {"kafka.isolation.level": "read_committed", "minPartitions": 2}
    bids = typed(read(spark, address, spec["topic"], **options), FED_SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        counts = bids.groupBy("auction").count().writeStream.format("noop")
        query = counts.option("checkpointLocation", folder).outputMode("update").start()
        feed.preload()
        _taken_in(query, address, spec["topic"])
        feed.settle()
        batches = []
        for _ in range(spec["batches"]):
            feed.batch(spec["rows"])
            spent = Spent()
            progress = _taken_in(query, address, spec["topic"])
            batches.append({**_figures(progress), **spent.so_far()})
        query.stop()
        state = spark.read.format("statestore").load(folder)
        state.selectExpr("key.auction", "value.count as n").write.parquet(spec["state"])
    return {"batches": batches}


def _taken_in(query: Any, address: str, topic: str) -> Any:
    """The progress of the batch that reached the end of the topic."""
    end = Topics(address).offsets(topic, at="end")[0]
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if query.exception() is not None:
            raise query.exception()
        progress = query.lastProgress
        if progress is not None and _reached(progress) >= end:
            return progress
        time.sleep(0.01)
    raise TimeoutError(f"Spark has not reached {end} of {topic}")


def _reached(progress: Any) -> int:
    ends = json.loads(progress.sources[0].endOffset or "{}")
    return max((end for places in ends.values() for end in places.values()), default=0)


def _figures(progress: Any) -> dict[str, Any]:
    phases = dict(progress.durationMs)
    return {"rows": progress.numInputRows, "seconds": phases.get("triggerExecution", 0) / 1000,
            "phases": {name: took / 1000 for name, took in phases.items()}}  # fmt: skip


if __name__ == "__main__":
    main({"drain": drain, "decode": decode, "latency": latency, "growth": growth,
          "lasting": lasting})  # fmt: skip
