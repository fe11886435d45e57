"""Dead rows of a pipeline without topics: in files, with marks beside them.

dead/part-….json        the rows that failed, with reason and origin
dead.done/<n>           marks: which of them were dropped
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.engine.checkpoint import durable
from millstream.engine.dead_letters.rows import DeadLetters, Marks, Survey, by_partition
from millstream.engine.dead_letters.topic import refuse_other_sources, refuse_results

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from millstream.engine.dead_letters.kept_rows import KeptRows
    from millstream.engine.dead_letters.rows import DeadRow, Selection
    from millstream.kafka.records import Record


class FileDeadLetters(DeadLetters):
    """The dead rows in a folder; a row is identified by its source, partition and row number."""

    def __init__(self, kept: KeptRows) -> None:
        self._kept, self.where = kept, kept.where
        self._done = kept.folder.with_name(f"{kept.folder.name}.done")

    def retry(
        self, selection: Selection, topics: Collection[str], *, again: bool = False
    ) -> Survey:
        """Always refused if rows are selected: files and lists are not written to.

        Raises:
            InvalidInput: some rows are selected.
        """
        found = self.survey(selection, again=again)
        refuse_results(found.results)
        refuse_other_sources(set(found.waiting))
        return found

    def drop(self, selection: Selection) -> Survey:
        """Mark the selected rows as dropped, some thousands in one durable record."""
        found = Survey()
        for chunk in self._chunks(selection, found, again=False):
            self._mark(chunk)
            found.waiting.update(row.record.topic for row in chunk)
        return found

    def marks(self) -> Marks:
        """The rows that were dropped so far."""
        marks = Marks()
        for path in self._mark_files():
            for source, partition, ranges in durable.read(path, "mark")["dropped"]:
                for first, end in ranges:
                    for offset in range(first, end):
                        marks.add((source, partition, offset), "dropped")
        return marks

    def _records(self) -> Iterator[Record]:
        return self._kept.records()

    def _mark(self, rows: Sequence[DeadRow]) -> None:
        dropped = [[*place, ranges] for place, ranges in by_partition(rows).items()]
        body = {"dropped": dropped, "at": round(time.time() * 1000)}
        self._done.mkdir(mode=0o700, parents=True, exist_ok=True)
        while not durable.write_new(self._next(), "mark", body):
            continue

    def _next(self) -> Path:
        last = max((int(path.name) for path in self._mark_files()), default=0)
        return self._done / f"{last + 1:010d}"

    def _mark_files(self) -> list[Path]:
        return sorted(path for path in self._done.glob("[0-9]*") if path.name.isdecimal())
