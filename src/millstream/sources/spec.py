"""The protocols of a source: what the engine needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from millstream.formats.spec import Decoded
    from millstream.kafka.settings import Cluster
    from millstream.schema import Schema

Offsets = dict[int, int]
Ranges = dict[int, tuple[int, int]]

HIDDEN = ("_key", "_headers", "_timestamp", "_topic", "_partition", "_offset")


@runtime_checkable
class Source(Protocol):
    """A value that names where records are and which columns they have."""

    @property
    def name(self) -> str:
        """Its name in plans, metrics and `Drive`."""

    def row_schema(self) -> Schema:
        """The columns of its rows."""

    def opener(self) -> Opener:
        """How the raw records of its reader become rows, in either lane."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Raw records with their rows.

    `records` has partition, offset and timestamp (key and headers if they were read); `decoded`
    has the good rows and the bad records, numbered as in `records`; `bytes` is the size read.
    """

    records: pa.Table
    decoded: Decoded
    bytes: int


class TooMuch(Exception):
    """Ranges have too many bytes to be read at once; they fit up to the offsets `ends`."""

    def __init__(self, ends: Offsets) -> None:
        super().__init__(f"too many bytes to be read at once; they fit up to {ends}")
        self.ends = ends


class Opener(Protocol):
    """Raw records in, decoded rows out: a plain value that is sent to Spark's workers."""

    def open(self, raw: pa.Table, schema: Schema) -> Opened:
        """The rows of raw records, as `Reader.scan` and `Reader.table` give them."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Per partition the first offset a source still has, and the end of what may be read."""

    first: Offsets
    end: Offsets
    identity: str | None = None


class Notes(Protocol):
    """A source's durable notes in its job's checkpoint, in order."""

    def all(self) -> list[dict[str, Any]]:
        """All notes, oldest first."""

    def add(self, note: dict[str, Any]) -> bool:
        """Add a note durably; return False if another run was first.

        Raises:
            Fenced: this run no longer owns the job.
        """

    def replace(self, note: dict[str, Any]) -> bool:
        """Replace all notes by this one; return False if another run was first."""


def _no_cluster() -> Cluster:
    raise InvalidSpec("a topic needs a Kafka cluster", got="none", do="run it with --kafka")


def no_spark() -> SparkSession:
    """The session of an opening without one."""
    raise InvalidSpec("a source or sink of Spark needs a session", got="none",
                      do="run the pipeline with pipeline.run()")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceOpening:
    """What the engine passes to a source when it opens it for one run.

    `notes` are its notes in the checkpoint, `clock` the time in microseconds. `eager` requests a
    fresh listing at every call, for tests. Sources in Kafka find their cluster and their
    consumer group here, and call `on_wait` with a reason while they wait for a broker, for
    `patience` seconds if it is given, and `on_answer` with its name afterwards. `spark` returns the
    session of the run, and starts it if need be. `folder` is the source's own folder in the
    checkpoint, which may not exist yet.
    """

    notes: Notes
    clock: Callable[[], int]
    eager: bool = False
    kafka: Callable[[], Cluster] = _no_cluster
    group: str = ""
    on_wait: Callable[[str], None] = lambda why: None
    on_answer: Callable[[str], None] = lambda system: None
    spark: Callable[[], SparkSession] = no_spark
    folder: Path | None = None
    patience: float | None = None


class Fetching(Protocol):
    """Reads slices of a source in a Spark task; it is pickled to the workers."""

    def __call__(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The raw records of the slices with these numbers."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Ranges as `count` slices, numbered from 0, which Spark's tasks read with `fetch`."""

    count: int
    fetch: Fetching


@runtime_checkable
class OpenSource(Protocol):
    """A source that a running pipeline can open."""

    def reader(self, opening: SourceOpening) -> Reader:
        """The source opened for one run."""


@runtime_checkable
class RecordLog(Protocol):
    """A source whose records have timestamps, in a named log."""

    @property
    def log_name(self) -> str:
        """The name that identifies the log."""


def log_name(source: Source) -> str | None:
    """The log a source reads; None if its records have no timestamps."""
    return source.log_name if isinstance(source, RecordLog) else None


class Reader(Protocol):
    """A source opened for one run.

    Records have value, partition, offset and timestamp, and key and headers if `more` names
    them: these cost more than all others, and few pipelines use them. `scan` and `table` return
    the same records for the same ranges.
    """

    def extent(self) -> Extent:
        """What may be read now; committed records only."""

    def scan(self, ranges: Ranges, slices: int, more: Sequence[str] = ()) -> Scan:
        """The records of these ranges for Spark's tasks, in about so many slices."""

    def table(self, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """The records of these ranges on the driver (narrow lane).

        Raises:
            DamagedLog: some of them cannot be read.
            TooMuch: they are more bytes than the driver may hold.
        """

    def originals(self, places: Mapping[int, Sequence[int]]) -> pa.Table:
        """Single records with all columns (`raw_schema`), by partition and ascending offsets:
        all of them, or the first ones, as many as fit in memory.

        Raises:
            DamagedLog: one of them cannot be read.
            DataGone: one of them no longer exists.
        """

    def progress(self, offsets: Mapping[int, int]) -> None:
        """Called after each commit with the offsets consumed up to."""

    def close(self) -> None:
        """Close its connections."""


class RecordReader(Protocol):
    """Reads records, on the driver or in a Spark task."""

    def table(self, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """As `Reader.table`."""


@runtime_checkable
class ReadsInTasks(Protocol):
    """A reader whose records Spark's tasks can fetch by themselves."""

    def in_task(self) -> RecordReader:
        """What reads these records in a task: a plain value, pickled once per run."""


class PrefetchReader(Protocol):
    """Reads the records after the current batch, in a thread."""

    def wait(
        self, starts: Mapping[int, int], *, least: int, most: int
    ) -> tuple[Ranges, pa.Table] | None:
        """The records from these offsets on, once they are `least` bytes: their ranges, and the
        records as `Reader.table` returns them, at most about `most` bytes. None if there are
        fewer after a moment.

        Any error means that nothing can be prefetched now.
        """

    def close(self) -> None:
        """Close its connections."""


@runtime_checkable
class Prefetchable(Protocol):
    """A reader whose records can be prefetched."""

    def prefetch_reader(self, more: Sequence[str]) -> PrefetchReader | None:
        """A reader of the next records, with key and headers as in `more`; None if impossible."""


class Watch(Protocol):
    """Waits for new records of a source at less cost than asking for its ends again and again."""

    def wait(self, ends: Offsets) -> bool:
        """Whether there are records at or after these offsets; waits for them about a second.

        Any error means that the source has to be asked.
        """

    def interrupt(self) -> None:
        """End the current `wait`; called from another thread."""

    def close(self) -> None:
        """Close its connections."""


@runtime_checkable
class Watchable(Protocol):
    """A reader whose source can be watched."""

    def watch(self) -> Watch | None:
        """A watch on its source; None if it cannot be watched."""


def read_columns(more: Sequence[str] = ()) -> list[str]:
    """The columns of records read with `more`."""
    return [*(name for name in ("key", "headers") if name in more),
            "value", "partition", "offset", "timestamp"]  # fmt: skip


def raw_schema(names: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of raw records, with all columns or with these."""
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
