"""A kernel driven by hand over real state files: slices, bucket ranges, batches, merges."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.eventtime.moment import Moment
from millstream.state.hashing import buckets_of
from millstream.state.manifest import Change, Manifest
from millstream.state.merge import merge
from millstream.state.runs import Run, file_name, write_segment
from millstream.state.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from millstream.steps.kernel import Kernel

BUCKETS = 16


@dataclass
class Left:
    """What left in one batch, by which door, and what the kernel said of itself."""

    tables: list[pa.Table]
    late: list[tuple[dict[str, Any], list[int] | None]]
    floor: int | None
    held: int
    gained: int = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The result rows; bounds of windows as microseconds, as `datetime` ends at year 9999."""
        return [row for table in self.tables for row in _bounds_as_ints(table).to_pylist()]


@dataclass
class Driver:
    """Runs batches through a kernel and keeps its state as the engine does."""

    kernel: Kernel
    ranges: int = 1
    slices: int = 1
    merge_every: int = 0
    folder: Path = field(init=False)
    manifest: Manifest = field(init=False, default_factory=Manifest)
    batch: int = field(init=False, default=0)

    def __enter__(self) -> Driver:
        self._place = tempfile.TemporaryDirectory()
        self.folder = Path(self._place.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._place.cleanup()

    def step(self, rows: pa.Table, *, before: int, after: int) -> Left:
        """One batch, cut into slices on the map side and bucket ranges on the other."""
        moment = Moment(before=before, after=after, clock=0)
        late: list[tuple[dict[str, Any], list[int] | None]] = []
        exchanged = []
        for piece in _cut(rows, self.slices):
            prepared = self.kernel.prepare(piece, moment)
            windows = prepared.late_windows
            for place, index in enumerate(prepared.late.tolist()):
                row = piece.slice(index, 1).to_pylist()[0]
                late.append((row, None if windows is None else windows[place].as_py()))
            exchanged.append(prepared.exchange)
        left = Left([], late, None, 2**63 - 1)
        segments = [
            segment
            for low, high in self._ranges()
            for segment in self._run(exchanged, (low, high), moment, left)
        ]
        runs = (Run(f"b{self.batch}", tuple(segments)),) if segments else ()
        self.manifest = self.manifest.apply(Change(add=runs, floor=left.floor))
        self.batch += 1
        if self.merge_every and self.batch % self.merge_every == 0:
            self._merge()
        return left

    def _run(
        self, exchanged: list[pa.Table], buckets: tuple[int, int], moment: Moment, left: Left
    ) -> Iterator[Any]:
        low, high = buckets
        inputs = []
        for table in exchanged:
            hashes = table["_hash"].to_numpy()
            at = buckets_of(hashes, BUCKETS)
            inputs.append(table.filter(pa.array((at >= low) & (at < high))))
        view = View(self.folder, self.kernel.state, self.manifest.runs,
                    floor=self.manifest.floor, buckets=buckets, of=BUCKETS)  # fmt: skip
        outcome = self.kernel.run(inputs, view, moment)
        left.tables += list(outcome.results)
        left.floor, left.held = outcome.floor, min(left.held, outcome.held)
        if outcome.delta is not None:
            left.gained += outcome.delta.num_rows
            name = file_name(self.batch, f"r{low}")
            yield write_segment(self.folder, name, outcome.delta, buckets=buckets, of=BUCKETS)

    def _ranges(self) -> list[tuple[int, int]]:
        edges = np.linspace(0, BUCKETS, self.ranges + 1).astype(int).tolist()
        return list(pairwise(edges))

    def _merge(self) -> None:
        runs = self.manifest.runs
        if len(runs) < 2:
            return
        merged = merge(self.folder, self.kernel.state, runs, name=f"{self.batch:012d}-m",
                       floor=self.manifest.floor, oldest=True, of=BUCKETS)  # fmt: skip
        assert merged is not None
        change = Change(replace=((tuple(run.id for run in runs), merged),))
        self.manifest = self.manifest.apply(change)


def _bounds_as_ints(table: pa.Table) -> pa.Table:
    for place, name in enumerate(table.column_names):
        if name in ("window_start", "window_end"):
            table = table.set_column(place, name, table[name].cast(pa.int64()))
    return table


def _cut(rows: pa.Table, slices: int) -> Sequence[pa.Table]:
    edges = np.linspace(0, rows.num_rows, slices + 1).astype(int).tolist()
    return [rows.slice(low, high - low) for low, high in pairwise(edges)]
