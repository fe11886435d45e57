"""Drives a kernel over real state files: slices, bucket ranges, batches, merges."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.operators.kernel import ROWS, Replicates
from millstream.state.keys.hashing import buckets_of
from millstream.state.runs.manifest import Change, Manifest
from millstream.state.runs.merge import merge
from millstream.state.runs.runs import Run, file_name, write_segment
from millstream.state.runs.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from millstream.operators.kernel import Kernel
    from millstream.state.runs.runs import Segment

BUCKETS = 16
Lates = list[tuple[dict[str, Any], list[dict[str, int]] | None]]


@dataclass
class Left:
    """What left in one batch, by which door, and what the kernel said of itself.

    `flowed` is what later operators see; where the kernel does not tell it apart, what left.
    """

    tables: list[pa.Table] = field(default_factory=list)
    flowed: list[pa.Table] = field(default_factory=list)
    late: Lates = field(default_factory=list)
    floors: dict[str, int] = field(default_factory=dict)
    held: int = END_OF_TIME
    wake: int = END_OF_TIME
    gained: int = 0
    unplaced: int = 0

    @property
    def floor(self) -> int | None:
        """Below which order the only table is forgotten."""
        return self.floors.get(ROWS)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The result rows; bounds of windows as microseconds, as `datetime` ends at year 9999."""
        return [row for table in self.tables for row in _bounds_as_ints(table).to_pylist()]

    @property
    def flow(self) -> list[dict[str, Any]]:
        """The rows later operators see, as `rows`."""
        return [row for table in self.flowed for row in _bounds_as_ints(table).to_pylist()]


@dataclass
class Driver:
    """Runs batches through a kernel and keeps its state as the engine does."""

    kernel: Kernel
    ranges: int = 1
    slices: int = 1
    merge_every: int = 0
    folder: Path = field(init=False)
    manifests: dict[str, Manifest] = field(init=False, default_factory=dict)
    batch: int = field(init=False, default=0)
    broadcast: list[pa.Table] = field(init=False, default_factory=list)
    clock: int = field(init=False, default=MIN_TIME)

    def __enter__(self) -> Driver:
        self._place = tempfile.TemporaryDirectory()
        self.folder = Path(self._place.name)
        for table in self.kernel.tables:
            (self.folder / table).mkdir()
            self.manifests[table] = Manifest()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._place.cleanup()

    def step(
        self, rows: pa.Table | Sequence[pa.Table], *, before: int, after: int, clock: int = 0,
        marks: tuple[tuple[int, int], ...] = (),
    ) -> Left:  # fmt: skip
        """One batch, cut into slices on the map side and bucket ranges on the other.

        Rows are one table, or one per side; `marks` has the watermarks of each side, before
        and after.
        """
        batch_time = BatchTime(before, after, clock, self.clock, marks)
        self.clock = clock
        left = Left()
        self.broadcast = []
        sides = [rows] if isinstance(rows, pa.Table) else rows
        exchanged = [
            self._prepared(side, table, batch_time, left) for side, table in enumerate(sides)
        ]
        segments: dict[str, list[Segment]] = {table: [] for table in self.kernel.tables}
        for buckets in self._ranges():
            self._run(exchanged, buckets, batch_time, left, segments)
        for table, written in segments.items():
            runs = (Run(f"b{self.batch}", tuple(written)),) if written else ()
            change = Change(add=runs, floor=left.floors.get(table))
            self.manifests[table] = self.manifests[table].apply(change)
        self.batch += 1
        if self.merge_every and self.batch % self.merge_every == 0:
            for table in self.kernel.tables:
                self._merge(table)
        return left

    def _prepared(
        self, side: int, rows: pa.Table, batch_time: BatchTime, left: Left
    ) -> list[pa.Table]:
        exchanged = []
        for piece in _cut(rows, self.slices):
            prepared = self.kernel.prepare(piece, batch_time, side)
            left.late += _late_rows(piece.take(pa.array(prepared.late)), prepared.late_windows)
            left.unplaced += prepared.unplaced
            exchanged.append(prepared.exchange)
            if prepared.broadcast is not None:
                self.broadcast.append(prepared.broadcast)
        return exchanged

    def _run(
        self, exchanged: list[list[pa.Table]], buckets: tuple[int, int], batch_time: BatchTime,
        left: Left, segments: dict[str, list[Segment]],
    ) -> None:  # fmt: skip
        sides = [[_inside(table, buckets) for table in side] for side in exchanged]
        if self.broadcast:
            sides.append(self.broadcast)
        views = {table: self._view(table, buckets) for table in self.kernel.tables}
        outcome = self.kernel.run(sides, views, batch_time)
        results = list(outcome.results)
        left.tables += results
        left.flowed += results if outcome.flow is None else list(outcome.flow)
        for late in outcome.late:
            left.late += _late_rows(late.rows, late.windows)
        for table, floor in outcome.floors.items():
            left.floors[table] = min(floor, left.floors.get(table, floor))
        left.held, left.wake = min(left.held, outcome.held), min(left.wake, outcome.wake)
        for table, delta in outcome.deltas.items():
            if delta.num_rows:
                left.gained += delta.num_rows
                name = file_name(self.batch, f"r{buckets[0]}")
                segments[table].append(
                    write_segment(self.folder / table, name, delta, buckets=buckets, of=BUCKETS)
                )

    def _view(self, table: str, buckets: tuple[int, int]) -> View:
        manifest = self.manifests[table]
        shared = self.kernel.shared if isinstance(self.kernel, Replicates) else ()
        return View(self.folder / table, self.kernel.tables[table], manifest.runs,
                    floor=manifest.floor, buckets=(0, BUCKETS) if table in shared else buckets,
                    of=BUCKETS)  # fmt: skip

    def _ranges(self) -> list[tuple[int, int]]:
        edges = np.linspace(0, BUCKETS, self.ranges + 1).astype(int).tolist()
        return list(pairwise(edges))

    def _merge(self, table: str) -> None:
        runs = self.manifests[table].runs
        if len(runs) < 2:
            return
        merged = merge(self.folder / table, self.kernel.tables[table], runs,
                       name=f"{self.batch:012d}-m", floor=self.manifests[table].floor,
                       oldest=True, of=BUCKETS)  # fmt: skip
        assert merged is not None
        change = Change(replace=((tuple(run.id for run in runs), merged),))
        self.manifests[table] = self.manifests[table].apply(change)


def _inside(table: pa.Table, buckets: tuple[int, int]) -> pa.Table:
    at = buckets_of(table["_hash"].to_numpy(), BUCKETS)
    return table.filter(pa.array((at >= buckets[0]) & (at < buckets[1])))


def _late_rows(rows: pa.Table, windows: pa.Array | None) -> Lates:
    closed = [None] * rows.num_rows if windows is None else windows.to_pylist()
    return list(zip(rows.to_pylist(), closed, strict=True))


def _bounds_as_ints(table: pa.Table) -> pa.Table:
    for place, name in enumerate(table.column_names):
        if name in ("window_start", "window_end", "event_time"):
            table = table.set_column(place, name, table[name].cast(pa.int64()))
    return table


def _cut(rows: pa.Table, slices: int) -> Sequence[pa.Table]:
    edges = np.linspace(0, rows.num_rows, slices + 1).astype(int).tolist()
    return [rows.slice(low, high - low) for low, high in pairwise(edges)]
