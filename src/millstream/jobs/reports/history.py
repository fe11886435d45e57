"""What a job has been through: its commits, and how its watermarks went."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.jobs.registry import Book
from millstream.jobs.reports.overview import moment
from millstream.jobs.reports.run_log import DiaryReader

if TYPE_CHECKING:
    from millstream.jobs.folders import StackPlace
    from millstream.jobs.reports.run_log import BatchEntry

_END_OF_TIME = 9999
_SHOWN = ("batch", "lane", "rows", "late", "dead", "finished", "outputs", "watermarks")


def commits_of(place: StackPlace, name: str, last: int, before: int | None) -> dict[str, Any]:
    """The last commits of a job (of those before a batch), oldest first, running or not.

    `reachable` are those that `rewind` can go to: the others were left behind by one.

    Raises:
        NotFound: there is no such job.
    """
    folder = _checkpoint(place, name)
    if not (folder / "job").exists():
        return {"job": name, "commits": [], "earlier": None, "suffix": ""}
    from millstream.engine.inspection.inspect import commits, looked_at
    from millstream.engine.recovery.rewind import suffix_of

    checkpoint = looked_at(folder)
    rows = commits(checkpoint, last, before)
    reachable = set(checkpoint.lineage())
    first = checkpoint.batches("commit")[:1]
    more = bool(rows and first and first[0] < rows[0]["batch"])
    return {
        "job": name,
        "commits": [
            {**{word: row[word] for word in _SHOWN}, "seconds": round(row["seconds"], 4),
             "at": None if row["at"] is None else moment(row["at"].timestamp()),
             "reachable": row["batch"] in reachable}
            for row in rows
        ],
        "earlier": rows[0]["batch"] if more else None,
        "suffix": suffix_of(folder),
    }  # fmt: skip


def watermarks_of(place: StackPlace, name: str, last: int) -> dict[str, Any]:
    """Per batch where each source's watermark was, and how far behind the wall clock.

    Raises:
        NotFound: there is no such job.
    """
    _checkpoint(place, name)
    with DiaryReader(place.job(name).facts).at_once() as diary:
        batches = diary.batches(last=last)
    sources = {source for entry in batches for source in entry.facts["watermarks"]}
    return {"job": name, "now": moment(time.time()), "sources": sorted(sources),
            "points": [_point(entry) for entry in batches]}  # fmt: skip


def _point(entry: BatchEntry) -> dict[str, Any]:
    marks = entry.facts["watermarks"]
    return {
        "batch": entry.facts["batch"],
        "at": moment(entry.at),
        "clock": entry.facts.get("clock"),
        "watermarks": marks,
        "delay": {source: _delay(mark, entry.at) for source, mark in marks.items()},
        "held_by": entry.facts.get("held_by", {}),
    }


def _delay(watermark: str | None, at: float) -> float | None:
    if watermark is None:
        return None
    reached = datetime.fromisoformat(watermark)
    return None if reached.year >= _END_OF_TIME else round(at - reached.timestamp(), 3)


def _checkpoint(place: StackPlace, name: str) -> Path:
    with Book(place.book, read_only=True) as book:
        return Path(book.job(name).checkpoint)
