"""Prefetching: while one batch runs, a thread fetches and decodes the records after it.

    batch n takes its rows; the records after them are read -- take() --> batch n + 1

Prefetched rows are a copy of what the log holds: checkpoint records do not mention them, and a
crash loses nothing. The planner chooses the ranges of a batch without them. A batch gets prefetched
pieces only if they match the start of its ranges and come from the same topic; all others are
dropped, and the batch reads those records itself.

Only the narrow lane prefetches: wide batches are fetched and decoded in Spark tasks.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.engine.checkpoint.fault_points import PREFETCHED, reached
from millstream.engine.lanes.planner import NARROW_BYTES
from millstream.metrics.instances import DRIVER
from millstream.sources.decode import Report, Rows
from millstream.sources.spec import Prefetchable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.sources.decode import RecordDecoder, Skips
    from millstream.sources.spec import Offsets, PrefetchReader, Ranges, Reader

LEAST = 128 << 10  # bytes in the log: the batch itself reads fewer at less cost
MOST = NARROW_BYTES  # bytes of one source that are kept
_ORDER = [("_partition", "ascending"), ("_offset", "ascending")]
_END_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Track:
    """Where a batch ends in a source, the topic's identity, and the records it skips.

    Prefetching skips no records: a batch that does has to decode its rows itself.
    """

    ends: Offsets
    identity: str | None
    skips: Skips = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """Prefetched rows, and the ranges of their records."""

    ranges: Ranges
    rows: Rows
    bytes: int


@dataclass(frozen=True, slots=True)
class Prefetched:
    """The prefetched rows at the start of a batch's ranges, and the ranges left to read."""

    rows: tuple[Rows, ...]
    left: Ranges


class SourcePrefetcher:
    """One source, prefetched by one thread.

    The thread continues after the last batch that called `take`. Rows read for a track that was
    replaced in the meantime are dropped. It ignores errors: the batch that reads the same records
    will report them.
    """

    def __init__(
        self, name: str, opened: Callable[[], PrefetchReader | None], decoder: RecordDecoder
    ) -> None:
        self._opened, self._decoder = opened, decoder
        self._changed = threading.Condition()
        self._track: Track | None = None
        self._at: Offsets = {}
        self._pieces: list[Piece] = []
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"prefetch {name}", daemon=True)
        self._thread.start()

    def take(self, ranges: Ranges, track: Track) -> Prefetched:
        """The prefetched start of these ranges; prefetching continues at their end."""
        with self._changed:
            at = {partition: first for partition, (first, _) in ranges.items()}
            taken: list[Piece] = []
            usable = self._same(track) and not track.skips
            while usable and self._pieces and fits(self._pieces[0], at, ranges):
                taken.append(self._pieces.pop(0))
                at |= _ends(taken[-1])
            if not self._continues(track):
                self._reset(track)
            self._changed.notify_all()
        left = {p: (at[p], end) for p, (_, end) in ranges.items() if at[p] < end}
        return Prefetched(tuple(piece.rows for piece in taken), left)

    def stop(self) -> None:
        """Drop all pieces, and read nothing until the next `take`."""
        with self._changed:
            self._reset(None)

    def close(self) -> None:
        """End the thread; if it waits for a broker, it ends when that wait is over."""
        with self._changed:
            self._over = True
            self._reset(None)
        self._thread.join(_END_SECONDS)

    def _same(self, track: Track) -> bool:
        known = self._track
        return (
            known is not None
            and known.identity == track.identity
            and known.ends.keys() == track.ends.keys()
        )

    def _continues(self, track: Track) -> bool:
        """Whether the pieces, or the next read, start where this track ends."""
        here = dict(self._at)
        for piece in reversed(self._pieces):
            here |= {partition: first for partition, (first, _) in piece.ranges.items()}
        return self._same(track) and here == track.ends

    def _reset(self, track: Track | None) -> None:
        self._track, self._pieces = track, []
        self._at = {} if track is None else dict(track.ends)
        self._changed.notify_all()

    # -- in the thread ----------------------------------------------------------

    def _run(self) -> None:
        reader: PrefetchReader | None = None
        while (wanted := self._wanted()) is not None:
            try:
                reader = reader or self._opened()
                piece = None if reader is None else self._read(reader, *wanted[1:])
            except Exception:
                if reader is not None:
                    reader.close()
                reader = piece = None
            self._found(wanted[0], piece, gone=reader is None)
        if reader is not None:
            reader.close()

    def _wanted(self) -> tuple[Track, Offsets, int] | None:
        """Wait for something to read; None when closed."""
        with self._changed:
            while not self._over:
                room = MOST - sum(piece.bytes for piece in self._pieces)
                if self._track is not None and self._at and room >= LEAST:
                    return self._track, dict(self._at), room
                self._changed.wait()
        return None

    def _read(self, reader: PrefetchReader, at: Offsets, most: int) -> Piece | None:
        found = reader.wait(at, least=LEAST, most=most)
        if found is None:
            return None
        began = time.perf_counter()
        ranges, raw = found
        rows = self._decoder(raw)
        rows.report.took(time.perf_counter() - began, DRIVER)
        return Piece(ranges, rows, raw.nbytes)

    def _found(self, track: Track, piece: Piece | None, *, gone: bool) -> None:
        with self._changed:
            if self._track is not track:
                return
            if gone:
                self._reset(None)
            if piece is None or not starts_at(piece, self._at):
                return
            self._pieces.append(piece)
            self._at |= _ends(piece)
        reached(PREFETCHED, 0)


def _ends(piece: Piece) -> Offsets:
    return {partition: end for partition, (_, end) in piece.ranges.items()}


def starts_at(piece: Piece, at: Mapping[int, int]) -> bool:
    """Whether a piece starts at these offsets."""
    return all(at.get(partition) == first for partition, (first, _) in piece.ranges.items())


def fits(piece: Piece, at: Mapping[int, int], ranges: Ranges) -> bool:
    """Whether a piece starts at these offsets and ends within these ranges."""
    return starts_at(piece, at) and all(
        end <= ranges[partition][1] for partition, (_, end) in piece.ranges.items()
    )


class Prefetcher:
    """Prefetches all sources of a run whose rows do not depend on the batch clock."""

    def __init__(
        self, readers: Mapping[str, Reader], decoders: Mapping[str, RecordDecoder]
    ) -> None:
        self._readers = {
            name: reader
            for name, reader in readers.items()
            if isinstance(reader, Prefetchable) and not decoders[name].needs_clock
        }
        self._decoders = decoders
        self._sources: dict[str, SourcePrefetcher] = {}

    def take(self, name: str, ranges: Ranges, track: Track) -> Prefetched:
        """The prefetched start of a batch's ranges; prefetching continues at their end."""
        reader = self._readers.get(name)
        if reader is None:
            return Prefetched((), ranges)
        if name not in self._sources:
            decoder = self._decoders[name]
            opened = partial(reader.prefetch_reader, decoder.more)
            self._sources[name] = SourcePrefetcher(name, opened, decoder)
        return self._sources[name].take(ranges, track)

    def stop(self) -> None:
        """Drop all pieces, and read nothing until the next `take`."""
        for source in self._sources.values():
            source.stop()

    def close(self) -> None:
        """End all threads."""
        for source in self._sources.values():
            source.close()


def concat_rows(parts: Sequence[Rows], *, partitions: int) -> Rows:
    """Rows that were read in several parts, as one."""
    if len(parts) == 1:
        return parts[0]
    good = pa.concat_tables([part.good for part in parts])
    report = Report()
    for part in parts:
        report.add(part.report)
    return Rows(
        good if partitions == 1 else good.sort_by(_ORDER),
        pa.concat_tables([part.bad for part in parts]),
        report,
    )
