"""Finding the rows a user's expression or function cannot take, so that the others go on.

A batch that failed in user code is tried again on parts of its ranges, cut in half until
the rows that fail are alone. Each trial runs only the stage that failed and leaves nothing
behind that counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.errors import UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.engine.checkpoint.protocol import Intent

MOST = 1_000  # bad rows in one batch: beyond it the fault is hardly that of single rows


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
    """One record, and what was raised over it."""

    source: str
    partition: int
    offset: int
    reason: str


def bad_rows(
    pieces: Sequence[Piece], trial: Callable[[Sequence[Piece]], None], error: UserCodeFailed
) -> list[Bad]:
    """The records over which a trial fails, of pieces that together have failed with an error.

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
    """The first half of the records, and the others."""
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
    """What an intent reads of some sources."""
    return [
        Piece(name, partition, first, last)
        for name in sources
        for partition, (first, last) in sorted(intent.sources[name].ranges.items())
        if last > first
    ]


def only(intent: Intent, pieces: Sequence[Piece]) -> Intent:
    """The intent over these records and no others."""
    sources = {}
    for name, told in intent.sources.items():
        mine = {p.partition: (p.first, p.last) for p in pieces if p.source == name}
        ranges = {part: mine.get(part, (first, first)) for part, (first, _) in told.ranges.items()}
        sources[name] = replace(told, ranges=ranges)
    return replace(intent, sources=sources)


def without(intent: Intent, found: Sequence[Bad], step: str) -> Intent:
    """The intent with these records marked as ones that a step cannot take."""
    sources = dict(intent.sources)
    for bad in found:
        told = sources[bad.source]
        skips = {partition: dict(some) for partition, some in told.skips.items()}
        skips.setdefault(bad.partition, {})[bad.offset] = (step, bad.reason)
        sources[bad.source] = replace(told, skips=skips)
    return replace(intent, sources=sources)
