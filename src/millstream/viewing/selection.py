"""Which records are shown, and how many were not."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.viewing.fields import RecordRow

if TYPE_CHECKING:
    from millstream.kafka.records import Record
    from millstream.viewing.binary_values import Wire
    from millstream.viewing.where.tree import Condition


@dataclass
class Selection:
    """Takes records by key and condition, and counts what it saw.

    A condition gets so many `seconds` for one record; where it takes longer, its answer is unknown.
    """

    key: bytes | None = None
    where: Condition | None = None
    wire: Wire | None = None
    seen: int = 0
    unknown: int = 0
    seconds: float = math.inf

    def takes(self, record: Record) -> bool:
        """Whether this record is to be shown."""
        return self.takes_row(RecordRow(record, self.wire))

    def takes_row(self, row: RecordRow) -> bool:
        """The same for a record that several look at: its value is decoded once for all."""
        self.seen += 1
        if self.key is not None and row.record.key != self.key:
            return False
        row.until = time.monotonic() + self.seconds
        answer = True if self.where is None else self.where.answer(row)
        self.unknown += answer is None
        return answer is True
