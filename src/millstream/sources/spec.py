"""What a source is to the rest of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from millstream.schema import Schema

Offsets = dict[int, int]
Ranges = dict[int, tuple[int, int]]

HIDDEN = ("_key", "_headers", "_timestamp", "_topic", "_partition", "_offset")


@runtime_checkable
class Source(Protocol):
    """A value that names where events rest and what they look like."""

    @property
    def name(self) -> str:
        """How plans, metrics and `Drive` call it."""

    def row_schema(self) -> Schema:
        """The columns of its rows."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a source holds now: per partition the first offset kept and the stable end."""

    first: Offsets
    end: Offsets
    identity: str | None = None


class Reader(Protocol):
    """A source opened for one run.

    Reading gives value, partition, offset and timestamp, and of key and headers what
    `more` asks for: they cost more than all the rest, and few pipelines look at them.
    Both ways of reading give the same records for the same ranges.
    """

    def extent(self) -> Extent:
        """What may be read now; committed records only."""

    def frame(self, spark: SparkSession, ranges: Ranges, more: Sequence[str] = ()) -> DataFrame:
        """The records of these ranges as a Spark DataFrame (wide lane)."""

    def table(self, spark: SparkSession, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """The records of these ranges on the driver (short lane)."""

    def originals(self, places: Mapping[int, Sequence[int]]) -> pa.Table:
        """Single records, whole (`raw_schema`), by partition and ascending offsets.

        Raises:
            DataGone: one of them is no longer there.
        """

    def progress(self, offsets: Mapping[int, int]) -> None:
        """Told after each commit: what has been consumed up to."""

    def close(self) -> None:
        """Let go of connections."""


def read_columns(more: Sequence[str] = ()) -> list[str]:
    """The columns reading gives."""
    return [*(name for name in ("key", "headers") if name in more),
            "value", "partition", "offset", "timestamp"]  # fmt: skip


def raw_schema(names: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of whole raw records, or of these columns of them."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    whole = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(header)),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
        ]
    )
    return whole if names is None else pa.schema([whole.field(name) for name in names])
