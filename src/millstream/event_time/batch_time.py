"""The time of a batch: its watermarks and its clock, in microseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass

MIN_TIME = -(2**63)
END_OF_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BatchTime:
    """The times of one operator in one batch.

    `before` is its input watermark when the batch began: it decides what is late. `after` is the
    watermark with this batch's rows included: it decides what closes. `clock` is the batch clock,
    `since` that of the previous batch.

    `sides` has (before, after) of each input of a step that has several; `before` and
    `after` are the smallest of them.
    """

    before: int
    after: int
    clock: int
    since: int = MIN_TIME
    sides: tuple[tuple[int, int], ...] = ()

    def before_of(self, side: int) -> int:
        """The watermark of one input when the batch began."""
        return self.sides[side][0] if self.sides else self.before

    def after_of(self, side: int) -> int:
        """The watermark of one input with this batch's rows included."""
        return self.sides[side][1] if self.sides else self.after
