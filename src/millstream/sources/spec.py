"""What a source is to the rest of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from millstream.formats.spec import Decoded
    from millstream.kafka.settings import Cluster
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

    def opener(self) -> Opener:
        """How what its reader gives becomes rows, whichever lane runs it."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What raw records hold: each record's place and stamp, its row or its refusal.

    `records` has partition, offset and timestamp (key and headers where they were read);
    `decoded` speaks of them by their number; `bytes` is what they weigh.
    """

    records: pa.Table
    decoded: Decoded
    bytes: int


class TooMuch(Exception):
    """Ranges hold more bytes than are read at once; `ends` is how far they would have to reach."""

    def __init__(self, ends: Offsets) -> None:
        super().__init__(f"more than is read at once; enough up to {ends}")
        self.ends = ends


class Opener(Protocol):
    """Raw records in, decoded rows out: a plain value that is sent to Spark's workers."""

    def open(self, raw: pa.Table, schema: Schema) -> Opened:
        """The rows of raw records, as `Reader.scan` and `Reader.table` give them."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a source holds now: per partition the first offset kept and the stable end."""

    first: Offsets
    end: Offsets
    identity: str | None = None


class Notes(Protocol):
    """What a source remembers in its job's checkpoint: durable, in order, never changed."""

    def all(self) -> list[dict[str, Any]]:
        """Every note there is, the oldest first."""

    def add(self, note: dict[str, Any]) -> bool:
        """One more, on disk when this returns; False if another run was first.

        Raises:
            Fenced: this run no longer owns the job.
        """

    def replace(self, note: dict[str, Any]) -> bool:
        """One note in the place of all there are; False if another run was first."""


def _no_cluster() -> Cluster:
    raise InvalidSpec("a topic needs a Kafka cluster", got="none", do="run it with --kafka")


@dataclass(frozen=True, slots=True)
class SourceOpening:
    """What the engine passes to a source when it opens it for one run.

    `notes` are its notes in the checkpoint, `clock` the time in microseconds. `eager` asks for a
    fresh listing at every look, as tests need it. Sources in Kafka find their cluster and their
    consumer group here, and call `on_wait` with a reason while they wait for a broker.
    """

    notes: Notes
    clock: Callable[[], int]
    eager: bool = False
    kafka: Callable[[], Cluster] = _no_cluster
    group: str = ""
    on_wait: Callable[[str], None] = lambda why: None


class Fetching(Protocol):
    """Reads in a Spark task what a frame only names: a plain value that is sent to workers."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The raw records that these rows of the frame stand for."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Ranges as a Spark DataFrame: of raw records, or of what `fetch` makes them of."""

    frame: DataFrame
    fetch: Fetching | None = None


@runtime_checkable
class OpenSource(Protocol):
    """A source that a running pipeline can open."""

    def reader(self, opening: SourceOpening) -> Reader:
        """The source opened for one run."""


@runtime_checkable
class RecordLog(Protocol):
    """A source whose records have a timestamp of their own, in a log with a name of its own."""

    @property
    def log_name(self) -> str:
        """The name that identifies the log."""


def log_name(source: Source) -> str | None:
    """The log a source reads; None if its records have no timestamps of their own."""
    return source.log_name if isinstance(source, RecordLog) else None


class Reader(Protocol):
    """A source opened for one run.

    Reading gives value, partition, offset and timestamp, and of key and headers what
    `more` asks for: they cost more than all the rest, and few pipelines look at them.
    Both ways of reading give the same records for the same ranges.
    """

    def extent(self) -> Extent:
        """What may be read now; committed records only."""

    def scan(self, spark: SparkSession, ranges: Ranges, more: Sequence[str] = ()) -> Scan:
        """The records of these ranges for Spark's tasks (wide lane)."""

    def table(self, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """The records of these ranges on the driver (narrow lane).

        Raises:
            DamagedLog: some of them cannot be read.
            TooMuch: they are more bytes than the driver is to hold.
        """

    def originals(self, places: Mapping[int, Sequence[int]]) -> pa.Table:
        """Single records, whole (`raw_schema`), by partition and ascending offsets: all of them,
        or so many of the first that more would be too much memory.

        Raises:
            DamagedLog: one of them cannot be read.
            DataGone: one of them is no longer there.
        """

    def progress(self, offsets: Mapping[int, int]) -> None:
        """Told after each commit: what has been consumed up to."""

    def close(self) -> None:
        """Let go of connections."""


class Following(Protocol):
    """A second way into a source, for whoever reads ahead of the batch in hand in a thread."""

    def wait(
        self, starts: Mapping[int, int], *, least: int, most: int
    ) -> tuple[Ranges, pa.Table] | None:
        """What lies behind these offsets, once it is `least` bytes: the ranges it fills, and the
        records as `Reader.table` gives them. None if it is less after a moment; not many more
        than `most` bytes, however much there is.

        Whatever it raises means that there is nothing to be read ahead now.
        """

    def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A reader whose records can be read before a batch asks for them."""

    def following(self, more: Sequence[str]) -> Following | None:
        """A second way in, for these columns beside the usual; None where there is none."""


def read_columns(more: Sequence[str] = ()) -> list[str]:
    """The columns reading gives."""
    return [*(name for name in ("key", "headers") if name in more),
            "value", "partition", "offset", "timestamp"]  # fmt: skip


def raw_schema(names: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of whole raw records, or of these columns of them."""
    return _raw_schema(None if names is None else tuple(names))


@cache
def _raw_schema(names: tuple[str, ...] | None) -> pa.Schema:
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
