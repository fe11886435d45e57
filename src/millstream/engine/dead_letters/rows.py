"""Dead rows: how they are identified and selected, and which were retried or dropped."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from millstream.sinks.kafka.messages import AGAIN, ENVELOPE, RESULT_OF

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from millstream.kafka.records import Record

What = Literal["retried", "dropped"]
State = Literal["waiting", "retried", "dropped"]
Origin = tuple[str, int, int]  # topic, partition, offset
ROWS_PER_TRANSACTION, BYTES_PER_TRANSACTION = 5_000, 16_000_000
DIGITS = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class DeadRow:
    """A record that failed: `record` is the original, with its topic, partition, offset and
    headers; `place` is its partition and offset in the dead topic."""

    record: Record
    step: str
    reason: str
    place: tuple[int, int]

    @property
    def origin(self) -> Origin:
        """Its identity: topic, partition and offset of the original record."""
        return self.record.topic, self.record.partition, self.record.offset

    @property
    def result_of(self) -> str | None:
        """The output whose sink rejected it, if it is a result and not a record."""
        name, value = self.record.headers[-1] if self.record.headers else ("", b"")
        return (value or b"").decode("utf-8", "replace") if name == RESULT_OF else None

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return len(self.record.value or b"") + len(self.record.key or b"")


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of dead rows; by default all of them.

    `reason` is a part of the reason; `places` are offsets in the source, of one partition or
    (None) of any.
    """

    reason: str | None = None
    step: str | None = None
    source: str | None = None
    places: tuple[tuple[int | None, int], ...] = ()

    def takes(self, row: DeadRow) -> bool:
        """Whether the filter selects a row."""
        source, partition, offset = row.origin
        if self.places and not {(None, offset), (partition, offset)} & set(self.places):
            return False
        if self.source is not None and source != self.source:
            return False
        if self.step is not None and row.step != self.step:
            return False
        return self.reason is None or self.reason.lower() in row.reason.lower()


@dataclass
class Survey:
    """The number of selected rows that wait, per source, and of those retried or dropped before;
    `results` names the outputs that rejected some of them."""

    waiting: Counter[str] = field(default_factory=Counter)
    done_before: int = 0
    results: set[str] = field(default_factory=set)


class Marks:
    """The rows that were retried or dropped, by origin."""

    def __init__(self) -> None:
        self._done: dict[tuple[str, int], dict[int, What]] = {}

    def state(self, origin: Origin) -> State:
        """Whether a row waits, was retried or was dropped."""
        source, partition, offset = origin
        return self._done.get((source, partition), {}).get(offset, "waiting")

    def add(self, origin: Origin, what: What) -> None:
        """Record that a row was retried or dropped."""
        source, partition, offset = origin
        self._done.setdefault((source, partition), {})[offset] = what


class DeadLetters(ABC):
    """The dead rows of one pipeline, in a topic or in files; `where` names it."""

    where: str
    foreign = 0

    def rows(self, selection: Selection) -> Iterator[tuple[DeadRow, State]]:
        """The selected rows, oldest first, each with its state."""
        marks = self.marks()
        for row in self._read(selection):
            yield row, marks.state(row.origin)

    def survey(self, selection: Selection, *, again: bool = False) -> Survey:
        """The number of rows that a command would process."""
        found = Survey()
        for row in self._to_process(selection, found, again=again):
            found.waiting[row.record.topic] += 1
            if row.result_of is not None:
                found.results.add(row.result_of)
        return found

    @abstractmethod
    def retry(
        self, selection: Selection, topics: Collection[str], *, again: bool = False
    ) -> Survey:
        """Send the selected rows to their topics again, each to the partition it came from.

        Raises:
            InvalidInput: some came from a source that is not among `topics`; nothing was sent.
        """

    @abstractmethod
    def drop(self, selection: Selection) -> Survey:
        """Mark the selected rows as dropped; they stay where they are."""

    @abstractmethod
    def marks(self) -> Marks:
        """The rows that were retried or dropped so far."""

    @abstractmethod
    def _records(self) -> Iterator[Record]:
        """All rows in their envelope, oldest first."""

    def _read(self, selection: Selection) -> Iterator[DeadRow]:
        self.foreign = 0
        for record in self._records():
            row = opened(record)
            if row is None:
                self.foreign += 1
            elif selection.takes(row):
                yield row

    def _to_process(self, selection: Selection, found: Survey, *, again: bool) -> Iterator[DeadRow]:
        """Each selected record that waits, once; the others are counted."""
        marks, seen = self.marks(), Marks()
        for row in self._read(selection):
            if seen.state(row.origin) != "waiting":
                continue
            seen.add(row.origin, "retried")
            if again or marks.state(row.origin) == "waiting":
                yield row
            else:
                found.done_before += 1

    def _chunks(
        self, selection: Selection, found: Survey, *, again: bool
    ) -> Iterator[list[DeadRow]]:
        chunk: list[DeadRow] = []
        size = 0
        for row in self._to_process(selection, found, again=again):
            chunk.append(row)
            size += row.size
            if len(chunk) >= ROWS_PER_TRANSACTION or size >= BYTES_PER_TRANSACTION:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk


def opened(record: Record) -> DeadRow | None:
    """The original of a record of the dead topic; None if it has no envelope."""
    headers = record.headers
    if headers and headers[-1][0] == AGAIN and _names(headers[-6:-1]) == ENVELOPE:
        headers = headers[:-1]
    if _names(headers[-5:]) != ENVELOPE:
        return None
    fields = {
        name.removeprefix("millstream."): (value or b"").decode("utf-8", "backslashreplace")
        for name, value in headers[-5:]
    }
    if not (DIGITS.fullmatch(fields["partition"]) and DIGITS.fullmatch(fields["offset"])):
        return None
    original = replace(record, topic=fields["topic"], partition=int(fields["partition"]),
                       offset=int(fields["offset"]), headers=headers[:-5])  # fmt: skip
    return DeadRow(original, fields["step"], fields["reason"], (record.partition, record.offset))


def _names(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, ...]:
    return tuple(name.removeprefix("millstream.") for name, _ in headers
                 if name.startswith("millstream."))  # fmt: skip


def by_partition(rows: Sequence[DeadRow]) -> dict[tuple[str, int], list[list[int]]]:
    """The offsets of rows as ranges [first, end), by source and partition."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        offsets.setdefault(row.origin[:2], []).append(row.record.offset)
    return {place: _ranges(some) for place, some in offsets.items()}


def _ranges(offsets: list[int]) -> list[list[int]]:
    """Offsets as ranges [first, end).

    >>> _ranges([7, 4, 5])
    [[4, 6], [7, 8]]
    """
    ranges: list[list[int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] = offset + 1
        else:
            ranges.append([offset, offset + 1])
    return ranges
