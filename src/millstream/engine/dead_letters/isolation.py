"""Isolating the rows that raise in a user's expression or function, so that the others continue.

A batch that failed in user code is tried again on parts of its ranges, halved until the failing
rows are alone. Each trial runs only the stage that failed and has no lasting effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.errors import UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.engine.checkpoint.protocol import Intent

MOST = 1_000  # bad rows in one batch; with more, the error is hardly due to single rows


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one partition of one source."""

    source: str
    partition: int
    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Bad:
    """One record, and the error it raised."""

    source: str
    partition: int
    offset: int
    reason: str


def bad_rows(
    pieces: Sequence[Piece], trial: Callable[[Sequence[Piece]], None], error: UserCodeFailed
) -> list[Bad]:
    """The records that fail on their own, out of pieces that failed together.

    Raises:
        UserCodeFailed: the error, if no single record raises it or too many do.
    """
    found: list[Bad] = []

    def search(some: list[Piece], raised: UserCodeFailed) -> None:
        if sum(piece.size for piece in some) == 1:
            (one,) = [piece for piece in some if piece.size]
            found.append(Bad(one.source, one.partition, one.first, raised.need))
            if len(found) > MOST:
                raise error
            return
        for half in _halves(some):
            try:
                trial(half)
            except UserCodeFailed as again:
                search(half, again)

    search(list(pieces), error)
    if not found:
        raise error
    return found


def _halves(pieces: list[Piece]) -> tuple[list[Piece], list[Piece]]:
    """The first half of the records, and the second."""
    left = sum(piece.size for piece in pieces) // 2
    first: list[Piece] = []
    others: list[Piece] = []
    for piece in pieces:
        taken = min(left, piece.size)
        left -= taken
        middle = piece.first + taken
        first += [Piece(piece.source, piece.partition, piece.first, middle)] if taken else []
        rest = Piece(piece.source, piece.partition, middle, piece.last)
        others += [rest] if rest.size else []
    return first, others


def pieces_of(intent: Intent, sources: Sequence[str]) -> list[Piece]:
    """The records that an intent reads from some sources."""
    return [
        Piece(name, partition, first, last)
        for name in sources
        for partition, (first, last) in sorted(intent.sources[name].ranges.items())
        if last > first
    ]


def only(intent: Intent, pieces: Sequence[Piece]) -> Intent:
    """The intent limited to these records."""
    sources = {}
    for name, source in intent.sources.items():
        mine = {one.partition: (one.first, one.last) for one in pieces if one.source == name}
        ranges = {
            part: mine.get(part, (first, first)) for part, (first, _) in source.ranges.items()
        }
        sources[name] = replace(source, ranges=ranges)
    return replace(intent, sources=sources)


def without(intent: Intent, found: Sequence[Bad], step: str) -> Intent:
    """The intent that skips these records, which a step cannot process."""
    sources = dict(intent.sources)
    for bad in found:
        source = sources[bad.source]
        skips = {partition: dict(some) for partition, some in source.skips.items()}
        skips.setdefault(bad.partition, {})[bad.offset] = (step, bad.reason)
        sources[bad.source] = replace(source, skips=skips)
    return replace(intent, sources=sources)
