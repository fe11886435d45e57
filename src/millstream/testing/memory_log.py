"""Topics in memory and sinks that remember: what Drive has in the place of Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.sinks.memory import visible
from millstream.sources.spec import Extent, Ranges, raw_schema, read_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from millstream.sinks.spec import Staged


@dataclass
class MemoryLog:
    """Records by topic and partition; an offset is a place in a list."""

    records: dict[str, dict[int, list[dict[str, Any]]]] = field(default_factory=dict)

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, stamp: int | None
    ) -> None:
        """One more record; without a stamp, its event time is never too far ahead of it."""
        partitions = self.records.setdefault(topic, {})
        part = partitions.setdefault(partition, [])
        part.append({"key": key, "value": value, "headers": None, "partition": partition,
                     "offset": len(part), "timestamp": stamp})  # fmt: skip


class MemoryReader:
    """One topic in memory, read as raw records."""

    def __init__(self, log: MemoryLog, topic: str) -> None:
        self._log, self._topic = log, topic

    def extent(self) -> Extent:
        """All that has been fed."""
        parts = self._log.records.get(self._topic, {})
        return Extent(dict.fromkeys(parts, 0), {p: len(records) for p, records in parts.items()})

    def frame(self, spark: SparkSession, ranges: Ranges, more: Sequence[str] = ()) -> DataFrame:
        """The records of these ranges, spread over tasks."""
        parallel = int(spark.sparkContext.defaultParallelism)
        return spark.createDataFrame(self.table(spark, ranges, more)).repartition(parallel)

    def table(self, spark: SparkSession, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """The records of these ranges."""
        parts = self._log.records.get(self._topic, {})
        rows = [record for p, (a, b) in sorted(ranges.items()) for record in parts.get(p, [])[a:b]]
        return pa.Table.from_pylist(rows, schema=raw_schema(read_columns(more)))

    def originals(self, places: Mapping[int, Sequence[int]]) -> pa.Table:
        """Single records, whole."""
        parts = self._log.records.get(self._topic, {})
        rows = [parts[p][offset] for p, offsets in sorted(places.items()) for offset in offsets]
        return pa.Table.from_pylist(rows, schema=raw_schema())

    def progress(self, offsets: Mapping[int, int]) -> None:
        """Nobody watches a topic in memory."""

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Left:
    """Rows that left in one batch by one door."""

    output: str
    door: str
    rows: list[dict[str, Any]]


class RecordingWriter:
    """Keeps what leaves, each batch once, in one place for all doors."""

    def __init__(self, ledger: dict[str, str], left: list[list[Left]]) -> None:
        self._ledger, self._left = ledger, left

    def recover(self, expected: str | None) -> str | None:
        """The intent written last."""
        return self._ledger.get("drive")

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Keep a batch's rows."""
        self._left.append(
            [
                Left(staged.output, staged.door, [
                    row for table in staged.tables() for row in visible(table.to_pylist())
                ])
                for staged in outputs
            ]
        )  # fmt: skip
        self._ledger["drive"] = intent

    def close(self) -> None:
        """Nothing is held."""


def order_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Rows of one batch by their values, nulls first: keys come first, then the window."""
    return tuple((value is not None, type(value).__name__, str(value) if _odd(value) else value)
                 for value in row.values())  # fmt: skip


def _odd(value: Any) -> bool:
    return isinstance(value, dict | list) or value is None or value != value
