"""The interface between the kernels of stateful operators and the engine.

    rows -- prepare --> exchange table -- shuffle by _hash --> run(state) --> results, state deltas

`prepare` runs before the shuffle, on any slice of the batch; `run` runs after it, once per
batch and range of buckets, in both lanes. Both are pure: the same arguments give the same
tables.

A step has one or several inputs, its *sides*, and keeps state in one or several *tables*, each
with its own order and floor. Most steps have one of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from millstream.event_time.batch_time import END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    import pyarrow as pa

    from millstream.event_time.batch_time import BatchTime
    from millstream.state.runs.view import View
    from millstream.state.spec import StateSpec

ROWS = "rows"  # the table of a step that has only one


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows to be shuffled, and the late rows.

    `late` holds indices into the prepared rows; `late_windows` holds, for each of
    them, the windows that have closed, as a list of (start, end) in microseconds (None where
    there are no windows). `unplaced` counts rows that belong to no window.

    `broadcast` holds rows for every range of buckets, whatever its keys: they are not
    partitioned by `_hash`, and are passed to `run` as one more side after the others.
    """

    exchange: pa.Table
    late: np.ndarray
    late_windows: pa.Array | None = None
    unplaced: int = 0
    broadcast: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """Rows that `run` found to be late by the state of their key.

    `rows` have the columns of the input; `windows` is as in `Prepared.late_windows`.
    """

    rows: pa.Table
    windows: pa.Array | None = None


@dataclass(slots=True)
class Outcome:
    """The outcome of one batch for one range of buckets.

    `results` are tables of the operator's columns with `_time` and `_sign`, each of
    bounded size; all must be read before the other fields are final. They go to sinks and,
    unless `flow` is given, to later operators too. `flow` is what later operators receive
    where that differs: no early panes, each change as the old row retracted and the new
    one added.

    `deltas` are the changes of the tables (sorted, combined); `floors` are the orders below
    which their rows are dropped. `held` is the smallest event time that may still be emitted,
    `wake` the batch clock at which something may fire without new rows.
    """

    results: Iterable[pa.Table]
    deltas: Mapping[str, pa.Table] = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)
    held: int = END_OF_TIME
    wake: int = END_OF_TIME
    late: Sequence[Late] = ()
    flow: Iterable[pa.Table] | None = None


class Kernel(Protocol):
    """A stateful operator over Arrow: independent of Spark, files and the system clock."""

    @property
    def tables(self) -> Mapping[str, StateSpec]:
        """The state of this operator, table by table."""

    def output(self) -> pa.Schema:
        """The columns of its results, without `_time` and `_sign`."""

    def due(self, watermark: int) -> int:
        """The order below which rows leave its first table at this watermark.

        MIN_TIME if none ever do.
        """

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Hash, aggregate partially and separate late rows; uses only `before` and `clock`."""

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Add the exchanged rows of every side, then close what `batch_time.after` allows."""


@runtime_checkable
class WaitsBySide(Protocol):
    """A kernel of several inputs, where the rows of each table wait for one input's watermark."""

    def dues(self, sides: Sequence[int]) -> Mapping[str, int]:
        """As the function `dues`, at these watermarks of its inputs."""


def dues(kernel: Kernel, sides: Sequence[int]) -> Mapping[str, int]:
    """The tables that rows leave when time advances, each with the order below which they do.

    By default the first table, by the slowest input.
    """
    if isinstance(kernel, WaitsBySide):
        return kernel.dues(sides)
    return {next(iter(kernel.tables)): kernel.due(min(sides))}


@runtime_checkable
class Replicates(Protocol):
    """A kernel that may replicate one side to every range of buckets.

    `shared` are the tables that every range may read whole; each key is still written by the
    range that owns it.
    """

    shared: tuple[str, ...]

    def planned(self, sizes: Mapping[str, int]) -> Kernel:
        """The kernel for one batch, chosen by the size of its tables in bytes."""


@runtime_checkable
class MovesRows(Protocol):
    """A kernel whose results move between ranges of buckets: one range retracts the row of a key,
    another one gives the key's new row.

    Each range gives all its retractions first, in tables of their own, so that those of all ranges
    can be applied before the new rows.
    """

    moves_rows: bool
