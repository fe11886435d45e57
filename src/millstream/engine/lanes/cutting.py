"""A batch that ends earlier than it was meant to.

How many bytes a range of offsets holds, and whether all of it can be read, is known once it has
been read. A batch whose ranges hold more than the driver is to hold, or a damaged record batch,
becomes a shorter one before anything of it was prepared: a new intent from the same commit.
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
    """What is read of a source has to end at these offsets; `why`, where it is for damage."""

    def __init__(self, read: Read, ends: Offsets, why: DamagedLog | None = None) -> None:
        super().__init__(str(why or ends))
        self.read, self.ends, self.why = read, ends, why


@runtime_checkable
class ChecksRecords(Protocol):
    """A reader whose records may be damaged."""

    def check(self, ranges: Ranges) -> None:
        """Read these ranges for nothing.

        Raises:
            DamagedLog: some of them cannot be read.
        """

    def behind_damage(self, partition: int, offset: int, end: int) -> int | None:
        """Where reading can go on, if the record batch at this offset is damaged."""


@contextmanager
def reading(read: Read) -> Iterator[None]:
    """What a reader cannot read of its ranges cuts the batch short."""
    try:
        yield
    except TooMuch as more:
        raise CutShort(read, more.ends) from None
    except DamagedLog as error:
        raise _at(read, error) from error


def cut_by(
    error: CutShort | DamagedLog, stages: Stages, readers: Mapping[str, Reader], intent: Intent
) -> CutShort:
    """Where a batch has to end. Of damage that a Spark task has met only a sentence comes here:
    it is looked for once more."""
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
    """The same intent, ending earlier in one source: it is not read to its end, and nothing
    is finished.

    Raises:
        DamagedLog: the damage is where the batch begins.
    """
    told = intent.sources[name]
    ranges = {p: (a, max(a, min(b, cut.ends.get(p, b)))) for p, (a, b) in told.ranges.items()}
    if cut.why is not None and any(ranges[p][1] == ranges[p][0] for p in cut.ends):
        raise cut.why
    shorter = replace(told, ranges=ranges, declared=declared)
    return replace(intent, finish=False, sources={**intent.sources, name: shorter})
