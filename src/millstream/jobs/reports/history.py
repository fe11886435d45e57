"""A job's history: its commits, and its watermarks over time."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.overview import iso_time
from millstream.jobs.reports.run_log import RunLogReader

if TYPE_CHECKING:
    from millstream.jobs.folders import StackFolder
    from millstream.jobs.reports.run_log import BatchEntry

_END_OF_TIME = 9999
_SHOWN = ("batch", "lane", "where", "rows", "late", "dead", "finished", "outputs",
          "watermarks")  # fmt: skip


def commits_of(stack: StackFolder, name: str, last: int, before: int | None) -> dict[str, Any]:
    """Return the last commits of a job (before a given batch), oldest first.

    `reachable` commits can be rewound to; the others were undone by an earlier rewind.

    Raises:
        NotFound: there is no such job.
    """
    folder = _checkpoint(stack, name)
    if not (folder / "job").exists():
        return {"job": name, "commits": [], "earlier": None, "suffix": ""}
    from millstream.engine.inspection.inspect import commits, open_checkpoint
    from millstream.engine.recovery.rewind import suffix_of

    checkpoint = open_checkpoint(folder)
    rows = commits(checkpoint, last, before)
    reachable = set(checkpoint.lineage())
    first = checkpoint.batches("commit")[:1]
    more = bool(rows and first and first[0] < rows[0]["batch"])
    return {
        "job": name,
        "commits": [
            {**{word: row[word] for word in _SHOWN}, "seconds": round(row["seconds"], 4),
             "at": None if row["at"] is None else iso_time(row["at"].timestamp()),
             "reachable": row["batch"] in reachable}
            for row in rows
        ],
        "earlier": rows[0]["batch"] if more else None,
        "suffix": suffix_of(folder),
    }  # fmt: skip


def watermarks_of(stack: StackFolder, name: str, last: int) -> dict[str, Any]:
    """Return per batch each source's watermark, and its delay behind the wall clock.

    Raises:
        NotFound: there is no such job.
    """
    _checkpoint(stack, name)
    with RunLogReader(stack.job(name).run_log).at_once() as run_log:
        batches = run_log.batches(last=last)
    sources = {source for entry in batches for source in entry.facts["watermarks"]}
    return {"job": name, "now": iso_time(time.time()), "sources": sorted(sources),
            "points": [_point(entry) for entry in batches]}  # fmt: skip


def _point(entry: BatchEntry) -> dict[str, Any]:
    marks = entry.facts["watermarks"]
    return {
        "batch": entry.facts["batch"],
        "at": iso_time(entry.at),
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


def _checkpoint(stack: StackFolder, name: str) -> Path:
    with JobRegistry(stack.registry, read_only=True) as registry:
        return Path(registry.job(name).checkpoint)
