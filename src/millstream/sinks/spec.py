"""The protocols between the engine and its sinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from millstream.sources.spec import no_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession


@runtime_checkable
class Sink(Protocol):
    """A value that names where rows go."""

    @property
    def name(self) -> str:
        """The default name of an output that writes to this sink."""


Delivery = Literal["exactly_once", "at_least_once", "at_most_once"]


@runtime_checkable
class OpenSink(Sink, Protocol):
    """A sink that creates its own writer: the protocol for user-defined sinks.

    `millstream.testing.SinkSuite` holds the checks that every such sink must pass.
    """

    @property
    def system(self) -> str:
        """The external system, as a stable text without secrets.

        Sinks with the same text share one writer: their rows of a batch become visible together.
        """

    def writer(self, opening: Opening) -> Writer:
        """Return a writer for one run of one job. It must not connect before `recover`."""


@runtime_checkable
class Movable(Sink, Protocol):
    """A user-defined sink that can be renamed, so that a job can be rewound into new outputs."""

    def into(self, suffix: str) -> Sink:
        """Return the same sink with `suffix` appended to the name of its target."""


class Discard:
    """`ms.discard`: late rows are counted and dropped."""

    name = "discard"

    def __repr__(self) -> str:
        return "ms.discard"


discard = Discard()


@dataclass(frozen=True, slots=True)
class Staged:
    """One output's rows of one batch, on disk, ready to be sent.

    `kind` is the output kind: `result`, `late` or `dead`. `keys` are the columns of the record
    key, if the sink has one. `tables()` streams the files and never loads all of them; `parts`
    streams each file on its own, and is sent to Spark's tasks. `again`
    is the number of the rewind that sends these rows once more. If `is_table`, the rows are
    changes of a table: those with the sign −1 are deletes.
    """

    output: str
    kind: str
    sink: Sink
    keys: tuple[str, ...]
    rows: int
    tables: Callable[[], Iterator[pa.Table]]
    again: int | None = None
    is_table: bool = False
    parts: tuple[Callable[[], Iterator[pa.Table]], ...] = ()


PATIENCE = 120.0


def _ignore(text: str) -> None:
    """The default callback."""


def _always_owned() -> None:
    """The default ownership check."""


def _never_idle() -> float:
    """The default idle time."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Opening:
    """The run for which a writer is opened.

    Attributes:
        pipeline: the name of the pipeline.
        job: the random id of the job.
        epoch: the number of this run; a higher epoch fences all lower ones.
        sinks: all sinks that this writer serves.
        take_over: whether sinks that belong to another job may be taken over.
        delivery: the guarantee of the pipeline; only `at_least_once` writes without a ledger.
        patience: for how many seconds an unavailable system is retried.
        on_wait: called with the reason while the writer waits for the system, which
            `millstream.outages.waiting_for` makes.
        on_answer: called with the name of that system when the wait is over.
        check_owned: raises `Fenced` if a newer run owns the job.
        on_step: called at each step of the commit protocol; for tests.
        idle_seconds: for how many seconds the run has had nothing to do; 0 while it reads.
        spark: returns the Spark session of the run, and starts it if need be.
        folder: the writer's own folder in the checkpoint, which may not exist yet.
    """

    pipeline: str
    job: str
    epoch: int
    sinks: tuple[Sink, ...]
    take_over: bool = False
    delivery: Delivery = "exactly_once"
    patience: float = PATIENCE
    on_wait: Callable[[str], None] = field(default=_ignore)
    on_answer: Callable[[str], None] = field(default=_ignore)
    check_owned: Callable[[], None] = field(default=_always_owned)
    on_step: Callable[[str], None] = field(default=_ignore)
    idle_seconds: Callable[[], float] = field(default=_never_idle)
    spark: Callable[[], SparkSession] = field(default=no_spark)
    folder: Path | None = None


class Writer(Protocol):
    """An external system opened for one run; it writes all outputs that go there.

    The engine calls `recover` first, then `write` once per batch with increasing numbers. A batch
    with the same `intent` is repeated only after a crash. The writer must make all rows of a
    batch visible together and treat a repeat as a no-op.
    """

    def recover(self, expected: str | None) -> str | None:
        """Fence earlier runs and return the intent that was written last, if any.

        `expected` is the intent written last according to the last commit. A writer whose
        system has lost it stops the job.
        """

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Write the rows of one batch under the intent's id, atomically."""

    def close(self) -> None:
        """Close all connections."""


class Check(Protocol):
    """Finds rows that a sink can never take. Checks are plain values, sent to Spark's workers."""

    def __call__(self, rows: pa.Table) -> pa.Array | None:
        """Return the reason per row, null for a valid row; None if all rows are valid."""


@runtime_checkable
class RejectsRows(Protocol):
    """A writer that knows in advance which rows its system can never take.

    Such rows go to the dead-letter topic before the batch is prepared, and the job continues.
    """

    def check(self, sink: Sink, keys: tuple[str, ...]) -> Check | None:
        """Return the check for rows of the next batch whose record key has these columns."""


@runtime_checkable
class RefreshesLedger(Protocol):
    """A writer whose external system expires ledger entries that are not rewritten."""

    def refresh(self) -> None:
        """Rewrite the ledger entry if it is old. Called between batches."""


@runtime_checkable
class Rewindable(Protocol):
    """A writer that can remove what was written after a given batch.

    `intent` is the last intent that the writer was sent up to that batch, if any.
    """

    def rewind_obstacle(self, batch: int, intent: str | None) -> str | None:
        """Return why a rewind is impossible, None if it is possible. Changes nothing."""

    def rewind(self, batch: int, intent: str | None, mark: str) -> str | None:
        """Remove the later batches atomically; a repeat is a no-op.

        Returns the intent that the ledger then names: `mark`, or the one it named before.
        """


@runtime_checkable
class ListsExisting(Protocol):
    """A writer that can list which of its targets exist already."""

    def existing(self) -> list[str]:
        """Return the names of the targets that exist. Changes nothing."""
