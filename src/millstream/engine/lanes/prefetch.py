"""Reading ahead: while one batch runs, what follows it is fetched and decoded in a thread.

    batch n is handed its rows; what lies behind them is read -- take() --> batch n + 1

What lies here is a copy of what the log holds, nothing more: no record of the protocol knows
of it, and a crash loses nothing. A batch's ranges are chosen without looking at it. Pieces are
handed to a batch only if they are the very beginning of its ranges, of the same topic, decoded
in the same way; whatever does not fit is thrown away, and the batch reads for itself.

Only the narrow lane reads ahead: wide batches are fetched and decoded in Spark's tasks.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.engine.checkpoint.fault_points import AHEAD, reached
from millstream.engine.lanes.planner import NARROW_BYTES
from millstream.metrics.instances import DRIVER
from millstream.sources.decode import Report, Rows
from millstream.sources.spec import ReadsAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.engine.lanes.work import Decodes
    from millstream.sources.spec import Following, Offsets, Ranges, Reader

LEAST = 128 << 10  # bytes as they lie in the log: fewer are cheaper to read in their batch
MOST = NARROW_BYTES  # bytes of one source that may lie here
_PLACES = [("_partition", "ascending"), ("_offset", "ascending")]
_END_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Track:
    """Where a batch leaves a source, of which topic, and how its rows are decoded."""

    ends: Offsets
    identity: str | None
    decoder: Decodes


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that were read ahead, and exactly which records they are."""

    ranges: Ranges
    rows: Rows
    bytes: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What a batch is handed of its ranges, and what it has still to read."""

    rows: tuple[Rows, ...]
    left: Ranges


class SourceAhead:
    """One source, read ahead by one thread.

    The thread reads behind the batch that has come last, as long as it is told of every batch
    (`take`). What it finds for a track that has been left meanwhile is dropped. Where it cannot
    read it says nothing: the batch that reads for itself will find out, and say it.
    """

    def __init__(self, name: str, opened: Callable[[], Following | None]) -> None:
        self._opened = opened
        self._changed = threading.Condition()
        self._track: Track | None = None
        self._at: Offsets = {}
        self._pieces: list[Piece] = []
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"ahead {name}", daemon=True)
        self._thread.start()

    def take(self, ranges: Ranges, track: Track) -> Taken:
        """The beginning of these ranges, as far as it lies here; from now on it is read behind
        them, and what lies here already of that stays."""
        with self._changed:
            at = {partition: first for partition, (first, _) in ranges.items()}
            taken: list[Piece] = []
            while self._same(track) and self._pieces and fits(self._pieces[0], at, ranges):
                taken.append(self._pieces.pop(0))
                at |= _ends(taken[-1])
            if not self._goes_on(track):
                self._leave(track)
            self._changed.notify_all()
        left = {p: (at[p], end) for p, (_, end) in ranges.items() if at[p] < end}
        return Taken(tuple(piece.rows for piece in taken), left)

    def stop(self) -> None:
        """Forget everything, and read no further until a batch comes."""
        with self._changed:
            self._leave(None)

    def close(self) -> None:
        """End the thread; one that waits for a broker ends by itself."""
        with self._changed:
            self._over = True
            self._leave(None)
        self._thread.join(_END_SECONDS)

    def _same(self, track: Track) -> bool:
        known = self._track
        return (
            known is not None
            and known.identity == track.identity
            and known.decoder == track.decoder
            and known.ends.keys() == track.ends.keys()
        )

    def _goes_on(self, track: Track) -> bool:
        """Whether what lies here, or comes next, begins where this track ends."""
        here = dict(self._at)
        for piece in reversed(self._pieces):
            here |= {partition: first for partition, (first, _) in piece.ranges.items()}
        return self._same(track) and here == track.ends

    def _leave(self, track: Track | None) -> None:
        self._track, self._pieces = track, []
        self._at = {} if track is None else dict(track.ends)
        self._changed.notify_all()

    # -- in the thread ----------------------------------------------------------

    def _run(self) -> None:
        following: Following | None = None
        while (wanted := self._wanted()) is not None:
            try:
                following = following or self._opened()
                piece = None if following is None else _read(following, *wanted)
            except Exception:
                if following is not None:
                    following.close()
                following = piece = None
            self._found(wanted[0], piece, gone=following is None)
        if following is not None:
            following.close()

    def _wanted(self) -> tuple[Track, Offsets, int] | None:
        """What to read next, once there is something; None at the end."""
        with self._changed:
            while not self._over:
                room = MOST - sum(piece.bytes for piece in self._pieces)
                if self._track is not None and self._at and room >= LEAST:
                    return self._track, dict(self._at), room
                self._changed.wait()
        return None

    def _found(self, track: Track, piece: Piece | None, *, gone: bool) -> None:
        with self._changed:
            if self._track is not track:
                return
            if gone:
                self._leave(None)
            if piece is None or not starts_at(piece, self._at):
                return
            self._pieces.append(piece)
            self._at |= _ends(piece)
        reached(AHEAD, 0)


def _read(following: Following, track: Track, at: Offsets, most: int) -> Piece | None:
    found = following.wait(at, least=LEAST, most=most)
    if found is None:
        return None
    began = time.perf_counter()
    ranges, raw = found
    rows = track.decoder(raw)
    rows.report.took(time.perf_counter() - began, DRIVER)
    return Piece(ranges, rows, raw.nbytes)


def _ends(piece: Piece) -> Offsets:
    return {partition: end for partition, (_, end) in piece.ranges.items()}


def starts_at(piece: Piece, at: Mapping[int, int]) -> bool:
    """Whether a piece begins at these offsets."""
    return all(at.get(partition) == first for partition, (first, _) in piece.ranges.items())


def fits(piece: Piece, at: Mapping[int, int], ranges: Ranges) -> bool:
    """Whether a piece goes on exactly from there, and holds nothing beyond these ranges."""
    return starts_at(piece, at) and all(
        end <= ranges[partition][1] for partition, (_, end) in piece.ranges.items()
    )


class Prefetcher:
    """All sources of a run that can be read ahead."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = {name: reader for name, reader in readers.items()
                         if isinstance(reader, ReadsAhead)}  # fmt: skip
        self._sources: dict[str, SourceAhead] = {}
        self._known: dict[str, Decodes] = {}

    def take(self, name: str, ranges: Ranges, track: Track) -> Taken:
        """What lies here of a batch's ranges; from now on it is read behind them.

        A source is read ahead once two batches have decoded it in the same way: where the
        decoder knows the batch clock, as that of a table does, nothing could ever be used.
        """
        reader = self._readers.get(name)
        if reader is None:
            return Taken((), ranges)
        before, self._known[name] = self._known.get(name), track.decoder
        if name not in self._sources and before != track.decoder:
            return Taken((), ranges)
        if name not in self._sources:
            opened = partial(reader.following, track.decoder.more)
            self._sources[name] = SourceAhead(name, opened)
        return self._sources[name].take(ranges, track)

    def stop(self) -> None:
        """Throw everything away; nothing is read ahead until the next batch that takes."""
        for source in self._sources.values():
            source.stop()

    def close(self) -> None:
        """End all threads."""
        for source in self._sources.values():
            source.close()


def together(parts: Sequence[Rows], *, partitions: int) -> Rows:
    """Rows that were read one after the other, as if they had been read at once."""
    if len(parts) == 1:
        return parts[0]
    good = pa.concat_tables([part.good for part in parts])
    report = Report()
    for part in parts:
        report.add(part.report)
    return Rows(
        good if partitions == 1 else good.sort_by(_PLACES),
        pa.concat_tables([part.bad for part in parts]),
        report,
    )
