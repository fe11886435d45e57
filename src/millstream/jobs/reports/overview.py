"""Jobs in a few facts each, for lists: from the book, the diaries and the lag."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millstream.jobs.folders import StackPlace, stack_place
from millstream.jobs.registry import Book
from millstream.jobs.reports.lag import lags
from millstream.jobs.reports.run_log import DiaryReader

if TYPE_CHECKING:
    from millstream.jobs.registry import JobRow
    from millstream.jobs.reports.lag import Lag

RATE_WINDOW = 5
RATES = 60


def overview(name: str | None = None, place: StackPlace | None = None) -> list[dict[str, Any]]:
    """Every job, or the one of that name."""
    place = place or stack_place()
    with Book(place.book, read_only=True) as book:
        jobs = book.all() if name is None else [book.job(name)]
    waiting = lags(place, name)
    rows = []
    for job in jobs:
        with DiaryReader(place.job(job.name).facts).at_once() as diary:
            rows.append(row_of(place, job, [lag for lag in waiting if lag.job == job.name], diary))
    return rows


def row_of(
    place: StackPlace, job: JobRow, waiting: list[Lag], diary: DiaryReader
) -> dict[str, Any]:
    """One job in a few facts."""
    entry, about = diary.run(job.run), diary.about()
    rates = diary.rows_per_second(RATES)
    totals = {name: int(sum(parts.values())) for name, parts in diary.totals().items()}
    holder = place.job(job.name).life.holder()
    return {
        "job": job.name,
        "state": job.state,
        "since": moment(job.since),
        "reason": job.reason,
        "application": job.application,
        "owner": job.owner,
        "version": about["version"] if about else None,
        "phase": entry.phase if entry and holder else None,
        "pid": holder.pid if holder else None,
        "rows_per_second": round(sum(rates[-RATE_WINDOW:]) / RATE_WINDOW, 1),
        "rates": rates,
        "lag": sum(lag.lag for lag in waiting) if waiting else None,
        "warnings": [f"{lag.topic}/{lag.partition}: {lag.warning}" for lag in waiting
                     if lag.warning],
        "rows": totals.get("rows", 0),
        "out": totals.get("out", 0),
        "late": totals.get("late", 0),
        "dead": totals.get("dead", 0),
        "batches": totals.get("batches", 0),
        "restarts": job.restarts,
    }  # fmt: skip


def moment(at: float) -> str:
    """A time in seconds since the epoch as ISO text."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
