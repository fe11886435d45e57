"""Spark Structured Streaming with a trigger interval, else as `spark_engine` has it."""

from __future__ import annotations

import tempfile
from typing import Any

from benchmarks.engines.spark_engine import read, spark_for, typed, windows
from benchmarks.feeding import FED_SCHEMA
from benchmarks.measure import measured
from benchmarks.processes import main, ready, wait_for_stop


def latency(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Run until it is stopped, a batch each `batch`, at least once."""
    bids = typed(read(spark_for(spec["store"]), address, spec["topic"]), FED_SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        options = {"kafka.bootstrap.servers": address, "topic": spec["out"],
                   "checkpointLocation": folder}  # fmt: skip
        writer = windows(bids, spec).writeStream.format("kafka").options(**options)
        query = writer.outputMode("append").trigger(processingTime=spec["batch"]).start()
        ready()
        with measured() as cost:
            wait_for_stop()
        batches = [
            {
                "rows": progress.numInputRows,
                "seconds": progress.durationMs.get("triggerExecution", 0) / 1000,
            }
            for progress in query.recentProgress
        ]
        query.stop()
    return {"wall": cost.wall, "cpu": cost.cpu, "batches": batches}


if __name__ == "__main__":
    main({"latency": latency})
