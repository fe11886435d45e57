"""One job in detail: its state, plan, metrics per operator, last batches and results."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.instances import instances_of
from millstream.jobs.reports.lag import lags
from millstream.jobs.reports.overview import iso_time, row_of
from millstream.jobs.reports.run_log import RunLogReader
from millstream.metrics.facts import lane_name, place_of

if TYPE_CHECKING:
    from millstream.jobs.folders import StackFolder
    from millstream.jobs.reports.run_log import BatchEntry

SHOWN_BATCHES = 120
SHOWN_EVENTS = 30
_RATE_WINDOW = 10.0


def detail(stack: StackFolder, name: str) -> dict[str, Any]:
    """Return everything the page shows about one job.

    Raises:
        NotFound: there is no such job.
    """
    with JobRegistry(stack.registry, read_only=True) as registry:
        job, events = registry.job(name), registry.events(name, last=SHOWN_EVENTS)
    waiting = lags(stack, name)
    with RunLogReader(stack.job(name).run_log).at_once() as run_log:
        facts = row_of(stack, job, waiting, run_log)
        about, totals = run_log.about() or {}, run_log.totals()
        batches = run_log.batches(last=SHOWN_BATCHES)
    return {
        **facts,
        "file": Path(job.file).name,
        "submitted": iso_time(job.submitted),
        "kafka": about.get("kafka"),
        "plan": about.get("plan"),
        "lanes": about.get("lanes"),
        "leaving": about.get("leaving"),
        "steps": _steps(totals, batches),
        "sources": _sources(totals, batches),
        "lags": [
            {"source": lag.source, "topic": lag.topic, "partition": lag.partition, "lag": lag.lag,
             "position": lag.position, "first": lag.first, "end": lag.end, "warning": lag.warning}
            for lag in waiting
        ],
        "batches_shown": [_batch(entry) for entry in batches],
        "watermarks": batches[-1].facts["watermarks"] if batches else {},
        "watermark_history": [_watermarks(entry) for entry in batches],
        "state_rows": batches[-1].facts["state_rows"] if batches else 0,
        "state_bytes": batches[-1].facts["state_bytes"] if batches else 0,
        "events": [{"at": iso_time(e.at), "event": e.event, "detail": e.detail} for e in events],
    }  # fmt: skip


def _steps(totals: dict[str, dict[str, float]], batches: list[BatchEntry]) -> dict[str, Any]:
    """Return per operator: rows in, out, late and dead, rows per second, busy share, state.

    `behind` counts the rows behind the watermark that were still used; late rows are not among
    them.
    """
    since = time.time() - _RATE_WINDOW
    recent = [entry for entry in batches if entry.at > since]
    steps: dict[str, Any] = {}
    for step, rows in totals.get("step_in", {}).items():
        now = [e.facts["steps"][step] for e in recent if step in e.facts.get("steps", {})]
        last: dict[str, Any] = next((e.facts["steps"][step] for e in reversed(batches)
                     if step in e.facts.get("steps", {})), {})  # fmt: skip
        steps[step] = {
            "in": int(rows),
            "out": int(totals.get("step_out", {}).get(step, 0)),
            "late": int(totals.get("step_late", {}).get(step, 0)),
            "behind": int(totals.get("step_behind", {}).get(step, 0)),
            "dead": int(totals.get("step_dead", {}).get(step, 0)),
            "seconds": round(totals.get("step_seconds", {}).get(step, 0.0), 3),
            "rows_per_second": round(sum(one["in"] for one in now) / _RATE_WINDOW, 1),
            "busy": round(min(1.0, sum(one["seconds"] for one in now) / _RATE_WINDOW), 3),
            "watermark": last.get("watermark"),
            "state_rows": last.get("state_rows"),
            "state_bytes": last.get("state_bytes"),
            "instances": instances_of(step, "steps", totals, batches, since=since,
                                      window=_RATE_WINDOW),
        }  # fmt: skip
    return steps


def _sources(totals: dict[str, dict[str, float]], batches: list[BatchEntry]) -> dict[str, Any]:
    """Return per source: its watermark, the partition that holds it back, idle partitions, and
    the rows of each partition."""
    if not batches:
        return {}
    last, since = batches[-1].facts, time.time() - _RATE_WINDOW
    return {
        source: {
            "watermark": last["watermarks"].get(source),
            "held_by": last.get("held_by", {}).get(source),
            "idle": facts["idle"],
            "idle_partitions": facts["idle_partitions"],
            "partitions": facts["partitions"],
            "instances": instances_of(source, "sources", totals, batches, since=since,
                                      window=_RATE_WINDOW),
        }
        for source, facts in last.get("sources", {}).items()
    }  # fmt: skip


def _watermarks(entry: BatchEntry) -> dict[str, Any]:
    """Return the watermarks after a batch, and the partition that held each source back."""
    facts = entry.facts
    return {
        "batch": facts["batch"],
        "at": iso_time(entry.at),
        "clock": facts.get("clock"),
        "watermarks": facts["watermarks"],
        "held_by": facts.get("held_by", {}),
    }


def _batch(entry: BatchEntry) -> dict[str, Any]:
    facts = entry.facts
    return {
        "batch": facts["batch"],
        "at": iso_time(entry.at),
        "rows": facts["rows"],
        "late": facts["late"],
        "dead": facts["dead"],
        "lane": lane_name(facts["lane"]),
        "where": place_of(facts),
        "seconds": round(facts["seconds"], 4),
        "phases": {name: round(seconds, 4) for name, seconds in facts["phases"].items()},
        "outputs": facts["outputs"],
    }


def results(stack: StackFolder, name: str, output: str | None = None) -> list[dict[str, Any]]:
    """Return the job's charts and live tables, each with the batch it belongs to."""
    with JobRegistry(stack.registry, read_only=True) as registry:
        folder = Path(registry.job(name).checkpoint)
    if not (folder / "job").exists():
        return []
    from millstream.engine.inspection.inspect import open_checkpoint
    from millstream.sinks.live.store import live_outputs

    return [
        {"output": live.output, **live.spec, "batch": live.batch,
         "rows": [json.loads(row) for row in live.rows]}
        for live in live_outputs(open_checkpoint(folder).job, output)
    ]  # fmt: skip
