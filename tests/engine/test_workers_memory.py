"""Spark's Python workers reuse the memory they free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PAGE = 4096


def test_freed_memory_is_reused_without_page_faults(spark: SparkSession) -> None:
    made = 64 * (2 << 20)

    def faults(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import resource

        import numpy as np

        list(batches)
        counts = []
        for _ in range(6):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            arrays = [np.arange(2 << 17) for _ in range(64)]
            counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
            del arrays
        pool = pa.default_memory_pool().backend_name
        yield pa.record_batch([pa.array([min(counts)]), pa.array([pool])], names=["n", "pool"])

    (row,) = spark.range(1, numPartitions=1).mapInArrow(faults, "n long, pool string").collect()

    assert row["n"] < made / PAGE / 100
    assert row["pool"] == "system"
