"""Late and dead rows in files, a page at a time, as `Pages` reads a topic."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from millstream.viewing.pages import Bounds, Page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.engine.dead_letters.kept_rows import KeptRows
    from millstream.kafka.positions import Position
    from millstream.kafka.records import Record
    from millstream.viewing.pages import Offsets, RecordFilter

_FURTHER = 4


class FilePages:
    """The rows of a folder as one partition; a row's number is its offset."""

    def __init__(self, kept: KeptRows) -> None:
        self._kept, self._bounds = kept, Bounds()
        self.first: Offsets = {0: 0}
        self.end: Offsets = {0: kept.count()}

    def offsets(self, place: Position | int) -> Offsets:
        """The number of the first row at a point in time, within the folder's rows."""
        if isinstance(place, int):
            return {0: min(max(place, 0), self.end[0])}
        if isinstance(place, datetime):
            found = (one.offset for one in self._kept.records() if one.timestamp >= place)
            return {0: next(found, self.end[0])}
        return dict(self.first if place == "start" else self.end)

    def after(self, offsets: Mapping[int, int], selection: RecordFilter, limit: int) -> Page:
        """The first rows at or after a number."""
        begin = at = self.offsets(offsets.get(0, 0))[0]
        records: list[Record] = []
        size = 0
        for record in islice(self._kept.records(begin), self._bounds.records):
            if len(records) == limit or size > self._bounds.bytes or at >= self.end[0]:
                break
            size, at = size + _size(record), record.offset + 1
            if selection.matches(record):
                records.append(record)
        return Page(
            records=records,
            complete=len(records) == limit or at >= self.end[0],
            earlier={0: begin} if begin else None,
            later={0: at} if at < self.end[0] else None,
        )

    def before(self, offsets: Mapping[int, int], selection: RecordFilter, limit: int) -> Page:
        """The last rows before a number."""
        top = low = self.offsets(offsets.get(0, self.end[0]))[0]
        records: deque[Record] = deque()
        looked = size = 0
        step = limit
        while low and len(records) < limit and looked < self._bounds.records:
            begin, end = max(0, low - step), low
            found: deque[Record] = deque(maxlen=limit - len(records))
            for record in islice(self._kept.records(begin), end - begin):
                looked, size = looked + 1, size + _size(record)
                if selection.matches(record):
                    found.append(record)
            records.extendleft(reversed(found))
            low = found[0].offset if len(records) == limit else begin
            left = (self._bounds.bytes - size) * looked // max(size, 1)
            step = min(step * _FURTHER, left)
            if step < 1:
                break
        return Page(
            records=list(records),
            complete=len(records) == limit or low == 0,
            earlier={0: low} if low else None,
            later={0: top} if top < self.end[0] else None,
        )


def _size(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"")
