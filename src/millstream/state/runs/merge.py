"""Merges runs into fewer, larger ones: chosen by size, in pieces, in a thread of the driver."""

from __future__ import annotations

import os
import queue
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.combine import combine, without_tombstones
from millstream.state.keys.hashing import buckets_of
from millstream.state.runs.runs import SUFFIX, Run, file_name, write_segment
from millstream.state.runs.slices import read, slices
from millstream.state.sorting import hashes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from pathlib import Path

    from millstream.state.runs.manifest import Manifest
    from millstream.state.spec import StateSpec

PIECE_BYTES = 64 * 2**20
_LOW_PRIORITY = 10


def choose(runs: Sequence[Run], *, fanout: int = 4) -> tuple[Run, ...] | None:
    """The newest runs to merge, or None: runs are added while the next is no larger than their sum.

    At least `fanout` runs are merged, so a row is rewritten a logarithmic number of times and
    the number of runs stays small.
    """
    chosen: list[Run] = []
    size = 0
    for run in reversed(runs):
        if chosen and run.bytes > size:
            break
        chosen.append(run)
        size += run.bytes
    return tuple(reversed(chosen)) if len(chosen) >= fanout else None


def merge(
    folder: Path,
    spec: StateSpec,
    runs: Sequence[Run],
    *,
    name: str,
    floor: int,
    oldest: bool,
    of: int,
    piece_bytes: int = PIECE_BYTES,
    stop: Callable[[], bool] = lambda: False,
) -> Run | None:
    """Merge the runs (oldest first) into one, in segments of about `piece_bytes`; None if stopped.

    Rows below the floor are dropped, and also tombstones if these are the `oldest` runs. A piece
    is a range of buckets; memory holds a few copies of one.
    """
    segments = []
    stem = name.removesuffix(SUFFIX)
    for place, buckets in enumerate(_pieces(folder, spec, runs, of, piece_bytes)):
        if stop():
            return None
        table = combine(_rows(folder, spec, runs, buckets=buckets, floor=floor, of=of), spec)
        if oldest:
            table = without_tombstones(table)
        if len(table):
            file = f"{stem}-{place:03d}{SUFFIX}"
            segments.append(write_segment(folder, file, table, buckets=buckets, of=of))
    return Run(stem, tuple(segments), max(run.level for run in runs) + 1)


def _rows(
    folder: Path,
    spec: StateSpec,
    runs: Sequence[Run],
    *,
    buckets: tuple[int, int],
    floor: int,
    of: int,
) -> pa.Table:
    taken = [
        part.rows(part.start, part.stop)
        for run in runs
        for part in slices(folder, spec, run, orders=(floor, None), buckets=buckets, of=of)
    ]
    return pa.Table.from_batches(taken, schema=spec.schema)


def _pieces(
    folder: Path, spec: StateSpec, runs: Sequence[Run], of: int, piece_bytes: int
) -> Iterator[tuple[int, int]]:
    """Bucket ranges of about `piece_bytes` each, at least one bucket, over all buckets in use."""
    weights = np.zeros(of)
    for run in runs:
        for segment in run.segments:
            counts = np.bincount(
                buckets_of(hashes_of(read(folder, spec, segment)), of), minlength=of
            )
            weights += counts * (segment.bytes / segment.rows)
    low, size = 0, 0.0
    for bucket, weight in enumerate(weights.tolist()):
        if size and size + weight > piece_bytes:
            yield low, bucket
            low, size = bucket, 0.0
        size += weight
    yield low, of


@dataclass(slots=True)
class _Work:
    """One merge, from `offer` to `take`."""

    folder: Path
    spec: StateSpec
    runs: tuple[Run, ...]
    name: str
    batch: int
    floor: int
    oldest: bool
    done: threading.Event
    result: Run | None = None
    error: BaseException | None = None


class Merger:
    """Merges at most one set of runs per table at a time; batches never wait for it.

    `incarnation` makes file names unique among all runs of the job. An unfinished merge leaves
    only unreferenced files.
    """

    def __init__(
        self,
        incarnation: str,
        *,
        of: int = 256,
        fanout: int = 4,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._incarnation, self._of = incarnation, of
        self._fanout, self._piece_bytes = fanout, piece_bytes
        self._work: dict[Hashable, _Work] = {}
        self._count = 0
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def offer(
        self, place: Hashable, folder: Path, spec: StateSpec, manifest: Manifest, *, batch: int
    ) -> bool:
        """Start a merge if a table's runs need one and none is in progress."""
        runs = choose(manifest.runs, fanout=self._fanout)
        if runs is None or place in self._work or self._stop.is_set():
            return False
        self._count += 1
        name = file_name(batch, self._incarnation, f"merge{self._count}")
        oldest = runs[0].id == manifest.runs[0].id
        done = threading.Event()
        work = _Work(folder, spec, runs, name, batch, manifest.floor, oldest, done)
        self._work[place] = work
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="state-merger", daemon=True)
            self._thread.start()
        self._queue.put(work)
        return True

    def take(
        self, place: Hashable, manifest: Manifest, *, wait: float = 0.0
    ) -> tuple[tuple[tuple[str, ...], Run], ...]:
        """The replacements of a finished merge, for `replace` of the next Change; else none.

        The manifest is the one that Change will be applied to. Runs that were removed from it
        by the floor need no replacement; if one is missing for any other reason, the merge is
        discarded. An error of the merge is raised here.
        """
        work = self._work.get(place)
        if work is None or not work.done.wait(wait):
            return ()
        del self._work[place]
        if work.error is not None:
            raise work.error
        assert work.result is not None
        have = {run.id for run in manifest.runs}
        left = [run for run in work.runs if run.id not in have]
        ids = tuple(run.id for run in work.runs if run.id in have)
        forgotten = all(
            segment.greatest < manifest.floor for run in left for segment in run.segments
        )
        return ((ids, work.result),) if ids and forgotten else ()

    def oldest_batch(self, place: Hashable) -> int | None:
        """The batch in the file names of the current merge; keep its files and later ones."""
        work = self._work.get(place)
        return None if work is None else work.batch

    def reading(self, place: Hashable) -> frozenset[str]:
        """The files that the current merge reads; keep them, also if no manifest refers to them."""
        work = self._work.get(place)
        runs = () if work is None else work.runs
        return frozenset(segment.file for run in runs for segment in run.segments)

    def close(self) -> None:
        """Stop after the current piece and discard the rest."""
        self._stop.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        self._work.clear()

    def _serve(self) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
        while (work := self._queue.get()) is not None:
            if self._stop.is_set():
                return
            try:
                work.result = merge(
                    work.folder,
                    work.spec,
                    work.runs,
                    name=work.name,
                    floor=work.floor,
                    oldest=work.oldest,
                    of=self._of,
                    piece_bytes=self._piece_bytes,
                    stop=self._stop.is_set,
                )
            except BaseException as error:
                work.error = error
            if work.result is not None or work.error is not None:
                work.done.set()
