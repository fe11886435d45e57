"""A transcript played through Drive: what leaves is held against what is written, line by line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from tests.engine.scenes import drive_in
from tests.transcripts import tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.transcripts.reading import Feed, Step, Transcript
    from tests.transcripts.tables import Table

    from millstream.metrics.facts import Facts
    from millstream.testing import Drive

Row = dict[str, Any]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def play(transcript: Transcript, *, lane: Any = "narrow", restarts: bool = False) -> None:
    """Run a transcript; with `restarts`, from the checkpoint alone before each batch.

    Raises:
        AssertionError: something else happened than is written, with the lines that differ.
    """
    with drive_in(transcript.build(), lane) as drive:
        for step in transcript.steps:
            if step.restart or restarts:
                drive.restart()
            facts = _run(drive, step)
            complaints = list(Judge(transcript, step).complaints(drive, facts))
            if complaints:
                place = f"{transcript.item.file.name}:{step.item.line}"
                head = f'{place} "{transcript.title}" in the {lane} lane'
                raise AssertionError("\n".join([head, *complaints]))


def _run(drive: Drive, step: Step) -> Facts:
    for feed in step.feeds:
        _feed(drive, feed)
    for source, at in step.watermarks.items():
        drive.watermark(source, at)
    if step.clock is not None:
        drive.clock(step.clock)
    return drive.finish() if step.finish else drive.step()


def _feed(drive: Drive, feed: Feed) -> None:
    drive.feed(feed.source, [], feed.partition)
    for row in feed.rows:
        value = {name: cell for name, cell in row.items() if name != "_timestamp"}
        drive.feed(feed.source, [value], feed.partition, row.get("_timestamp"))


@dataclass(frozen=True)
class Judge:
    """Holds what left in one batch against the text of its step."""

    transcript: Transcript
    step: Step

    @property
    def zero(self) -> datetime:
        """What times count from."""
        return self.transcript.zero

    def complaints(self, drive: Drive, facts: Facts) -> Iterator[str]:
        """What is written and did not happen, what happened and is not written."""
        for output in self.transcript.build().outputs:
            expected = self.step.panes.get(output.name)
            yield from self.rows(f"panes of {output.name}", expected, drive.rows(output.name))
        late = [self._envelope(row) for row in drive.late()]
        yield from self.rows("late rows", self.step.late, late)
        yield from self._dead(drive.dead())
        yield from self._facts(facts)

    def _envelope(self, row: Row) -> Row:
        """A late row's own columns, the windows that are gone, and the step that said so."""
        windows = [self.window(w["start"], w["end"]) for w in row["windows"] or []]
        own = {name: _timed(value) for name, value in json.loads(row["row"]).items()}
        return {**own, "windows": ",".join(windows) or None, "step": row["step"]}

    def rows(self, what: str, expected: Table | None, rows: Sequence[Row]) -> list[str]:
        """Nothing if the rows are those of the table, in its order; else both, marked - and +."""
        lines = expected.lines if expected else ()
        if len(rows) == len(lines) and all(map(self._agrees, (li.cells for li in lines), rows)):
            return []
        columns = expected.columns if lines and expected else _columns(rows)
        missing, left = [], list(rows)
        for line in lines:
            match = next((row for row in left if self._agrees(line.cells, row)), None)
            if match is None:
                missing.append(f"- {line.text}    (line {line.number})")
            else:
                left.remove(match)
        if not missing and not left:
            left, what = list(rows), f"{what} in another order"
        texts = ("  ".join(self._cell(column, row) for column in columns) for row in left)
        return [f"  {what}: {'  '.join(columns)}", *missing, *(f"+ {text}" for text in texts)]

    def _agrees(self, cells: dict[str, str], row: Row) -> bool:
        return all(
            cell == self._cell(column, row)
            if column == "windows"
            else tables.window_of(cell, self.zero) == (row["window_start"], row["window_end"])
            if column == "window"
            else tables.agrees(cell, row[column], self.zero)
            for column, cell in cells.items()
        )

    def _cell(self, column: str, row: Row) -> str:
        if column == "window":
            return self.window(row["window_start"], row["window_end"])
        return tables.shown(row[column], self.zero)

    def window(self, start: datetime | None, end: datetime | None) -> str:
        if start is None:
            return "null"
        return f"{tables.shown(start, self.zero)}..{tables.shown(end, self.zero)}"

    def _dead(self, rows: Sequence[Row]) -> list[str]:
        found, expected = [str(row["reason"]) for row in rows], self.step.dead
        if isinstance(expected, int):
            same = len(found) == expected
        else:
            same = len(found) == len(expected) and all(map(str.startswith, found, expected))
        return [] if same else [f"  dead rows: {expected} expected, got {found}"]

    def _facts(self, facts: Facts) -> Iterator[str]:
        for fact in self.step.facts:
            found = reduce(_inside, fact.path, facts)
            if not tables.agrees(fact.text, found, self.zero):
                label = ".".join(map(str, fact.path))
                yield f"- {label}: {fact.text}    (line {fact.line})"
                yield f"+ {label}: {tables.shown(found, self.zero)}"


def _inside(known: Any, name: str | int) -> Any:
    return known[name]


def _timed(value: Any) -> Any:
    """A time that was written as JSON, or any other value as it is."""
    is_time = isinstance(value, str) and _TIME.fullmatch(value)
    return datetime.fromisoformat(value) if is_time else value


def _columns(rows: Sequence[Row]) -> list[str]:
    names = list(rows[0]) if rows else []
    if set(tables.BOUNDS) <= set(names):
        names = [name for name in names if name != "window_end"]
        names[names.index("window_start")] = "window"
    return names
