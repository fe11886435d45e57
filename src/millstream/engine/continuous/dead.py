"""Bad rows of continuous mode, sent to the dead topic before positions after them are stored.

A query of Spark only counts them. When it has stored its positions and some rows before them were
bad, or a crash has left a gap, the range is read again as a batch and checked by the same
expressions. The rows that fail are bad; the decoder gives the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.engine.continuous.frames import VALID
from millstream.engine.dead_letters import envelopes
from millstream.errors import InvalidInput
from millstream.sinks.spec import Staged
from millstream.sources.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from millstream.engine.continuous.frames import SourceFrame
    from millstream.plan.graph import Read
    from millstream.sinks.kafka.plain_writer import PlainTopicWriter
    from millstream.sources.kafka.reader import TopicReader
    from millstream.sources.kafka.topic import Topic
    from millstream.sources.spec import Ranges

_PIECE = 50_000
_PLACES = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
_DISAGREED = "not a row of the schema, according to continuous mode"


class DeadTopicWriter:
    """Sends the bad rows of one source to the dead topic, raw and with their reasons."""

    def __init__(
        self, name: str, read: Read, reader: TopicReader, writer: PlainTopicWriter, topic: Topic
    ) -> None:
        self._name, self._read, self._reader, self._writer = name, read, reader, writer
        self._topic = topic

    def send(self, bad: pa.Table) -> int:
        """Send the records at these partitions and offsets, with reasons; returns their number.

        It returns when all are acknowledged.
        """
        for start in range(0, bad.num_rows, _PIECE):
            self._send(bad.slice(start, _PIECE))
        return int(bad.num_rows)

    def _send(self, bad: pa.Table) -> None:
        if "step" not in bad.column_names:
            bad = bad.append_column("step", pa.nulls(bad.num_rows, pa.string()))
        topic = self._read.source.name
        for dead in envelopes.dead(bad, self._reader, step=self._name, topic=topic):
            self._write(dead)

    def _write(self, dead: pa.Table) -> None:
        staged = Staged(self._name, "dead", self._topic, (), dead.num_rows, lambda: iter((dead,)))
        self._writer.write(f"bad rows of {self._name}", 0, [staged])

    def stopped(self, partition: int, offset: int, reason: str) -> InvalidInput:
        """The error for a bad row with `on_bad="stop"`."""
        return InvalidInput(
            f"the pipeline needs every record of {self._read.source.name} to be good "
            '(on_bad="stop")',
            got=f"a bad one at partition {partition}, offset {offset}: {reason}",
            do='send bad rows to the dead topic with on_bad="dead", or fix the producer and '
            "start after it with another --checkpoint",
        )


class BadRowFinder:
    """Finds the bad rows of one source that a query has skipped, and sends them."""

    def __init__(
        self, source: SourceFrame, reader: TopicReader, writer: PlainTopicWriter,
        *, topic: Topic, spark: SparkSession,
    ) -> None:  # fmt: skip
        self._source, self._reader, self._spark = source, reader, spark
        self._dead = DeadTopicWriter(source.name, source.read, reader, writer, topic)

    def send_bad(self, before: Mapping[int, int], after: Mapping[int, int]) -> int:
        """Send the bad rows of these ranges to the dead topic; returns their number."""
        return sum(self._dead.send(self._bad(ranges)) for ranges in _pieces(before, after))

    def _bad(self, ranges: Ranges) -> pa.Table:
        """Partition, offset and reason of the bad records of a range."""
        raw = self._reader.table(ranges)
        checked = self._source.checked(self._spark.createDataFrame(raw)).filter(f"not {VALID}")
        found = checked.selectExpr("_partition as partition", "_offset as offset").toArrow()
        reasons = self._reasons(raw)
        return found.cast(_PLACES).append_column(
            "reason",
            pa.array([reasons.get((row["partition"], row["offset"]), _DISAGREED)
                      for row in found.to_pylist()], pa.string()),
        )  # fmt: skip

    def _reasons(self, raw: pa.Table) -> dict[tuple[int, int], str]:
        read = self._source.read
        decoder = Decoder(
            source=0, topic=read.source.name, schema=read.source.row_schema(),
            time=read.time.column if read.time else None, ahead=read.ahead,
        )  # fmt: skip
        return {(row["partition"], row["offset"]): row["reason"]
                for row in decoder(raw).bad.to_pylist()}  # fmt: skip

    def stopped(self, partition: int, offset: int) -> InvalidInput:
        """The error for a bad row with `on_bad="stop"`."""
        raw = self._reader.originals({partition: [offset]})
        reason = self._reasons(raw).get((partition, offset), _DISAGREED)
        return self._dead.stopped(partition, offset, reason)


def _pieces(before: Mapping[int, int], after: Mapping[int, int]) -> Iterator[Ranges]:
    """The ranges between two positions, divided into pieces of one partition each."""
    for partition, end in sorted(after.items()):
        start = before.get(partition, 0)
        for at in range(start, end, _PIECE):
            yield {partition: (at, min(at + _PIECE, end))}
