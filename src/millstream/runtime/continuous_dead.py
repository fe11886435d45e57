"""Bad rows of continuous mode: found by the very expressions that passed them by.

The running query only counts them. When it has kept its positions, and some of the rows before
them were bad, or a crash has left a gap, the range is read once more, as a batch, by the same
expressions; what they do not take goes to the dead topic, whole, with the decoder's reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import InvalidInput
from millstream.runtime.continuous_frames import TAKEN
from millstream.sinks.spec import Staged
from millstream.sources.decode import Decoder
from millstream.sources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from millstream.runtime.continuous_frames import Taking
    from millstream.sinks.topic_plain import PlainTopicWriter
    from millstream.sources.spec import Ranges
    from millstream.sources.topic_reader import TopicReader

_PIECE = 50_000
_WHOLE = ("key", "headers")
_PLACES = pa.schema([("_partition", pa.int32()), ("_offset", pa.int64())])
_DISAGREED = "not a row of the schema, by continuous mode's reading"


class DeadRows:
    """Parts the bad rows of one source from the others."""

    def __init__(
        self, taking: Taking, reader: TopicReader, writer: PlainTopicWriter,
        *, pipeline: str, spark: SparkSession,
    ) -> None:  # fmt: skip
        self._taking, self._reader, self._writer = taking, reader, writer
        self._topic, self._spark = Topic(f"{pipeline}.dead"), spark

    def part(self, before: Mapping[int, int], after: Mapping[int, int]) -> int:
        """Send the bad rows of these ranges to the dead topic; how many there were.

        Only when all have been acknowledged does it return.
        """
        parted = 0
        for ranges in _pieces(before, after):
            dead = self._whole(ranges)
            if dead.num_rows:
                self._writer.write(f"parted {ranges}", 0, [self._staged(dead)])
            parted += dead.num_rows
        return parted

    def _staged(self, dead: pa.Table) -> Staged:
        return Staged(self._taking.name, "dead", self._topic, (), dead.num_rows,
                      lambda: iter((dead,)))  # fmt: skip

    def _whole(self, ranges: Ranges) -> pa.Table:
        """The bad records of a range, whole and untouched, with the reasons."""
        records = self._spark.createDataFrame(self._reader.table(ranges))
        bad = self._taking.judged(records).filter(f"not {TAKEN}")
        found = bad.select("_partition", "_offset").toArrow().cast(_PLACES)
        places: dict[int, list[int]] = {}
        ordered = found.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        for row in ordered.to_pylist():
            places.setdefault(row["_partition"], []).append(row["_offset"])
        raw = self._reader.originals(places)
        count = raw.num_rows
        return (
            raw.append_column("reason", pa.array(self._reasons(raw), pa.string()))
            .append_column("step", pa.repeat(pa.scalar(self._taking.name), count))
            .append_column("topic", pa.repeat(pa.scalar(self._taking.read.source.name), count))
        )

    def _reasons(self, raw: pa.Table) -> list[str]:
        read = self._taking.read
        decoder = Decoder(
            source=0, topic=read.source.name, schema=read.source.row_schema(),
            time=read.time.column if read.time else None, ahead=read.ahead, limit=None,
        )  # fmt: skip
        told = {(row["partition"], row["offset"]): row["reason"]
                for row in decoder(raw).bad.to_pylist()}  # fmt: skip
        return [told.get(place, _DISAGREED)
                for place in zip(raw["partition"].to_pylist(), raw["offset"].to_pylist(),
                                 strict=True)]  # fmt: skip

    def stopped(self, partition: int, offset: int) -> InvalidInput:
        """The sentence for a bad row where none may be."""
        raw = self._reader.originals({partition: [offset]})
        return InvalidInput(
            f"the pipeline needs every record of {self._taking.read.source.name} to be good "
            '(on_bad="stop")',
            got=f"a bad one at partition {partition}, offset {offset}: {self._reasons(raw)[0]}",
            do='let bad rows go to the dead topic with on_bad="dead", or mend the producer and '
            "begin behind it with another --checkpoint",
        )


def _pieces(before: Mapping[int, int], after: Mapping[int, int]) -> Iterator[Ranges]:
    """The ranges between two places, so many offsets of a partition at a time."""
    for partition, end in sorted(after.items()):
        start = before.get(partition, 0)
        for at in range(start, end, _PIECE):
            yield {partition: (at, min(at + _PIECE, end))}
