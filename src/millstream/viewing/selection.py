"""The filter of a topic's records, with counters."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.viewing.fields import RecordRow

if TYPE_CHECKING:
    from millstream.kafka.records import Record
    from millstream.viewing.binary_values import ValueDecoder
    from millstream.viewing.where.tree import Condition


@dataclass
class Selection:
    """Selects records by key and condition, and counts those it has seen.

    A condition may take `seconds` per record; after that its result is unknown.
    """

    key: bytes | None = None
    where: Condition | None = None
    decoder: ValueDecoder | None = None
    seen: int = 0
    unknown: int = 0
    seconds: float = math.inf

    def matches(self, record: Record) -> bool:
        """Whether the record is selected."""
        return self.matches_row(RecordRow(record, self.decoder))

    def matches_row(self, row: RecordRow) -> bool:
        """The same for a row that several filters share: its value is decoded once."""
        self.seen += 1
        if self.key is not None and row.record.key != self.key:
            return False
        row.until = time.monotonic() + self.seconds
        answer = True if self.where is None else self.where.answer(row)
        self.unknown += answer is None
        return answer is True
