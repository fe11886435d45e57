"""Spark Structured Streaming on the same topic: heap or RocksDB store, tuned.

Shuffle partitions = cores, changelog checkpoints on, AQE off, the same fetch sizes, the
file manager that does not fork a process per checkpoint file. Its Kafka sink is at least
once.
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from typing import Any

from benchmarks.measure import measured
from benchmarks.nexmark import BID_SCHEMA
from millstream.runtime.session import session

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
}


def spark_for(store: str) -> Any:
    """A session with the settings of this peer."""
    settings = {
        "spark.sql.streaming.checkpointFileManagerClass": _MANAGER,
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.metricsEnabled": "false",
    }
    if store == "rocksdb":
        settings["spark.sql.streaming.stateStore.providerClass"] = _ROCKS
        settings["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] = "true"
    return session(settings=settings)


def typed(spark: Any, stream: Any) -> Any:
    """The bids as columns, by from_json; epoch milliseconds become timestamps."""
    schema = BID_SCHEMA.replace("ts timestamp", "ts long")
    parsed = stream.selectExpr(f"from_json(cast(value as string), '{schema}') as r").select("r.*")
    return parsed.selectExpr("auction", "bidder", "price", "channel", "url",
                             "timestamp_millis(ts) as ts")  # fmt: skip


def tumbling(address: str, told: dict[str, Any]) -> dict[str, Any]:
    """Drain a topic through a window into a topic, at least once."""
    from pyspark.sql import functions as F

    spark = spark_for(told["store"])
    for topic, out in ((told["warm"], f"warm-{uuid.uuid4().hex[:8]}"), (told["topic"], told["out"])):
        options = {"kafka.bootstrap.servers": address, "subscribe": topic,
                   "startingOffsets": "earliest", "maxOffsetsPerTrigger": told["rows"], **_FETCH}  # fmt: skip
        bids = typed(spark, spark.readStream.format("kafka").options(**options).load())
        hot = (
            bids.withWatermark("ts", told["delay"])
            .groupBy("auction", F.window("ts", told["window"]))
            .agg(F.count("*").alias("n"), F.sum("price").alias("total"))
            .selectExpr("to_json(struct(auction, window.start as window_start, "
                        "window.end as window_end, n, total)) as value")
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder, measured() as cost:
            query = (
                hot.writeStream.format("kafka").option("kafka.bootstrap.servers", address)
                .option("topic", out).option("checkpointLocation", folder)
                .outputMode("append").trigger(availableNow=True).start()
            )  # fmt: skip
            query.awaitTermination()
    return {"wall": cost.wall, "cpu": cost.cpu}


def decode(address: str, told: dict[str, Any]) -> dict[str, Any]:
    """Read and decode every record to columns; use every column so that none is pruned."""
    spark = spark_for("heap")
    for topic in (told["warm"], told["topic"]):
        options = {"kafka.bootstrap.servers": address, "subscribe": topic, **_FETCH}
        with measured() as cost:
            bids = typed(spark, spark.read.format("kafka").options(**options).load())
            row = bids.selectExpr(
                "count(*)", "max(auction)", "max(bidder)", "max(price)", "max(length(channel))",
                "max(length(url))", "max(ts)",
            ).collect()[0]  # fmt: skip
    return {"wall": cost.wall, "cpu": cost.cpu, "rows": row[0]}


if __name__ == "__main__":
    work, kafka, arguments = sys.argv[1:]
    answer = {"tumbling": tumbling, "decode": decode}[work](kafka, json.loads(arguments))
    print(json.dumps(answer))
