"""Which records are shown, and how many were not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.cli.bodies import RecordRow
from millstream.cli.output import counted

if TYPE_CHECKING:
    from millstream.cli.where.tree import Condition
    from millstream.log.records import Record


@dataclass
class Selection:
    """Takes records by key and condition, and counts what it saw."""

    key: bytes | None = None
    where: Condition | None = None
    seen: int = 0
    unknown: int = 0

    def restart(self) -> None:
        """Counts from nothing, for reading the same records again."""
        self.seen = self.unknown = 0

    def takes(self, record: Record) -> bool:
        """Whether this record is to be shown."""
        self.seen += 1
        if self.key is not None and record.key != self.key:
            return False
        answer = True if self.where is None else self.where.answer(RecordRow(record))
        self.unknown += answer is None
        return answer is True

    def summary(self, shown: int) -> str | None:
        """What a filter left out, in words; `None` where there is no filter."""
        if self.key is None and self.where is None:
            return None
        text = f"{shown} of {counted(self.seen, 'record')} shown"
        if self.unknown:
            text += f"; in {self.unknown} a field of --where was missing, null or of another type"
        return text
