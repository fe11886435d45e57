"""A summary of each job, from the job registry, the run logs and the lag."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millstream.jobs.folders import StackFolder, stack_folder
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.lag import lags
from millstream.jobs.reports.run_log import RunLogReader, batches_by_place

if TYPE_CHECKING:
    from millstream.jobs.registry import JobRow
    from millstream.jobs.reports.lag import Lag
    from millstream.outages import Outage

RATE_WINDOW = 5
RATES = 60


def overview(name: str | None = None, stack: StackFolder | None = None) -> list[dict[str, Any]]:
    """Return the summary of every job, or of the one of that name."""
    stack = stack or stack_folder()
    with JobRegistry(stack.registry, read_only=True) as registry:
        jobs = registry.all() if name is None else [registry.job(name)]
    waiting = lags(stack, name)
    rows = []
    for job in jobs:
        with RunLogReader(stack.job(job.name).run_log).at_once() as run_log:
            rows.append(
                row_of(stack, job, [lag for lag in waiting if lag.job == job.name], run_log)
            )
    return rows


def row_of(
    stack: StackFolder, job: JobRow, waiting: list[Lag], run_log: RunLogReader
) -> dict[str, Any]:
    """Return one job's summary."""
    entry, about = run_log.run(job.run), run_log.about()
    rates = run_log.rows_per_second(RATES)
    by_part = run_log.totals()
    totals = {name: int(sum(parts.values())) for name, parts in by_part.items()}
    holder = stack.job(job.name).lock.holder()
    checkpoint: dict[str, Any] = {}
    for last in run_log.batches(last=1):
        checkpoint = last.facts.get("checkpoint", {})
    return {
        "job": job.name,
        "state": job.state,
        "since": iso_time(job.since),
        "reason": job.reason,
        "outages": [_outage(one) for one in run_log.outages(job.run)] if holder else [],
        "application": job.application,
        "owner": job.owner,
        "version": about["version"] if about else None,
        "phase": entry.phase if entry and holder else None,
        "spark_ui": entry.about.get("spark_ui") if entry and entry.about and holder else None,
        "pid": holder.pid if holder else None,
        "rows_per_second": round(sum(rates[-RATE_WINDOW:]) / RATE_WINDOW, 1),
        "rates": rates,
        "lag": sum(lag.lag for lag in waiting) if waiting else None,
        "warnings": [
            *(f"{lag.topic}/{lag.partition}: {lag.warning}" for lag in waiting if lag.warning),
            *(text for text in [checkpoint.get("warning")] if text),
        ],
        "checkpoint_files": checkpoint.get("files"),
        "checkpoint_bytes": checkpoint.get("bytes"),
        "rows": totals.get("rows", 0),
        "out": totals.get("out", 0),
        "late": totals.get("late", 0),
        "dead": totals.get("dead", 0),
        "batches": totals.get("batches", 0),
        "where": batches_by_place(by_part),
        "restarts": job.restarts,
    }  # fmt: skip


def _outage(outage: Outage) -> dict[str, Any]:
    return {"system": outage.system, "why": outage.why, "since": iso_time(outage.since),
            "next_try": None if outage.next_try is None else iso_time(outage.next_try),
            "kind": outage.kind}  # fmt: skip


def iso_time(at: float) -> str:
    """Format seconds since the epoch as ISO text."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
