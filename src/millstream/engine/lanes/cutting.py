"""Batches that are cut short.

The size of a range of offsets, and whether all of it can be read, is known only after reading it.
If the ranges exceed the driver's limit, or contain a damaged record batch, a shorter batch replaces
this one before anything is prepared: a new intent from the same commit.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from millstream.errors import DamagedLog
from millstream.sources.spec import TooMuch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.engine.checkpoint.protocol import Intent
    from millstream.plan.graph import Read
    from millstream.plan.stages import Stages
    from millstream.sources.spec import Offsets, Ranges, Reader


class CutShort(Exception):
    """The batch has to end at these offsets of a source; `why` is the damage, if any."""

    def __init__(self, read: Read, ends: Offsets, why: DamagedLog | None = None) -> None:
        super().__init__(str(why or ends))
        self.read, self.ends, self.why = read, ends, why


@runtime_checkable
class ChecksRecords(Protocol):
    """A reader that can check its records for damage."""

    def check(self, ranges: Ranges) -> None:
        """Read these ranges only to check them.

        Raises:
            DamagedLog: a part of them cannot be read.
        """

    def offset_after_damage(self, partition: int, offset: int, end: int) -> int | None:
        """Where reading can continue, if the record batch at this offset is damaged."""


@contextmanager
def reading(read: Read) -> Iterator[None]:
    """Turn the errors of a reader into `CutShort`."""
    try:
        yield
    except TooMuch as more:
        raise CutShort(read, more.ends) from None
    except DamagedLog as error:
        raise _at(read, error) from error


def cut_by(
    error: CutShort | DamagedLog, stages: Stages, readers: Mapping[str, Reader], intent: Intent
) -> CutShort:
    """Where a batch has to end. Spark tasks report damage only as text, so its place is searched
    again on the driver."""
    if isinstance(error, CutShort):
        return error
    for name, read in stages.reads.items():
        reader = readers[name]
        if isinstance(reader, ChecksRecords):
            try:
                reader.check(intent.sources[name].ranges)
            except DamagedLog as found:
                return _at(read, found)
    raise error


def _at(read: Read, error: DamagedLog) -> CutShort:
    if error.place is None:
        raise error
    partition, first, _ = error.place
    return CutShort(read, {partition: first}, error)


def shortened(intent: Intent, name: str, cut: CutShort, *, declared: int) -> Intent:
    """The same intent with earlier ends in one source, and without the finish.

    Raises:
        DamagedLog: the damage is at the start of the batch.
    """
    planned = intent.sources[name]
    ranges = {p: (a, max(a, min(b, cut.ends.get(p, b)))) for p, (a, b) in planned.ranges.items()}
    if cut.why is not None and any(ranges[p][1] == ranges[p][0] for p in cut.ends):
        raise cut.why
    shorter = replace(planned, ranges=ranges, declared=declared)
    return replace(intent, finish=False, sources={**intent.sources, name: shorter})
