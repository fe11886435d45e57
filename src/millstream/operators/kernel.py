"""What every stateful operator's kernel promises the engine.

    rows -- prepare --> exchange table -- shuffle by _hash --> run(state) --> results, state deltas

`prepare` runs before the shuffle, on any slice of the batch; `run` runs after it, once per
batch and range of buckets, in both lanes. Both are pure: the same arguments give the same
tables.

A step takes one or several inputs, its *sides*, and remembers in one or several *tables*,
each a state of its own with its own order and floor. Most have one of each.
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
    """The rows on their way to the shuffle, and those that came too late for it.

    `late` holds indices into the prepared rows; `late_windows` holds, for each of
    them, the windows that are gone, as a list of (start, end) in microseconds (None where
    there are no windows). `unplaced` counts rows that belong to no window at all.

    `broadcast` is what every range of buckets has to see, whatever its keys: not parted by
    `_hash`, and handed to `run` as one more side behind the others.
    """

    exchange: pa.Table
    late: np.ndarray
    late_windows: pa.Array | None = None
    unplaced: int = 0
    broadcast: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """Rows that `run` found to be late, beside the state of their key.

    `rows` have the columns they came with; `windows` as `Prepared.late_windows`.
    """

    rows: pa.Table
    windows: pa.Array | None = None


@dataclass(slots=True)
class Outcome:
    """What one range of buckets gives for one batch.

    `results` are tables of the operator's columns with `_time` and `_sign`, each of
    bounded size, to be drained before anything else here is final. They go to sinks and,
    unless `flow` is given, to later operators too. `flow` is what later operators see
    where that differs: no early panes, each change as the old row retracted and the new
    one given.

    `deltas` are what the tables gain (sorted, combined), `floors` the orders below which
    they are forgotten, `held` is the smallest event time that may still be emitted, `wake`
    the batch clock at which something may fire although nothing comes in.
    """

    results: Iterable[pa.Table]
    deltas: Mapping[str, pa.Table] = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)
    held: int = END_OF_TIME
    wake: int = END_OF_TIME
    late: Sequence[Late] = ()
    flow: Iterable[pa.Table] | None = None


class Kernel(Protocol):
    """A stateful operator over Arrow: it knows no Spark, no files and no clock of its own."""

    @property
    def tables(self) -> Mapping[str, StateSpec]:
        """What this operator remembers, table by table."""

    def output(self) -> pa.Schema:
        """The columns of its results, without `_time` and `_sign`."""

    def due(self, watermark: int) -> int:
        """The order below which rows of its first table leave at this watermark.

        MIN_TIME if none ever do.
        """

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Hash, partially aggregate and part the late rows; sees only `before` and `clock`."""

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Take the exchanged rows of every side in, then close what `moment.after` allows."""


@runtime_checkable
class WaitsBySide(Protocol):
    """A kernel of several inputs, each table's rows of which wait for the watermark of one."""

    def dues(self, sides: Sequence[int]) -> Mapping[str, int]:
        """As `dues` below, at these watermarks of its inputs."""


def dues(kernel: Kernel, sides: Sequence[int]) -> Mapping[str, int]:
    """The tables that rows leave as time passes, each with the order below which they do.

    It is the first one, and the slowest input, unless the kernel says otherwise.
    """
    if isinstance(kernel, WaitsBySide):
        return kernel.dues(sides)
    return {next(iter(kernel.tables)): kernel.due(min(sides))}


@runtime_checkable
class Replicates(Protocol):
    """A kernel that may hand all rows of one side to every range of buckets.

    `shared` are its tables that every range may read whole; each is still written by the
    range that owns a key.
    """

    shared: tuple[str, ...]

    def planned(self, sizes: Mapping[str, int]) -> Kernel:
        """The kernel as it runs one batch, by how many bytes its tables take."""
