"""`/metrics`: the figures and states of jobs, in Prometheus' text format.

Names follow Prometheus' rules: base units, `_total` for what only grows. Labels hold names of
pipelines, sources, sinks, steps and their instances, topics, phases, states and systems, never a
key or a record.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from millstream.jobs.registry import STATES, JobRegistry
from millstream.jobs.reports.instances import totals_by_instance
from millstream.jobs.reports.lag import lags
from millstream.jobs.reports.run_log import BUCKETS, RunLogReader, batches_by_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.jobs.folders import StackFolder
    from millstream.jobs.registry import JobRow

HELP: dict[str, tuple[str, str]] = {
    "millstream_pipeline_up": ("gauge", "1 while the job's process is running."),
    "millstream_job_state": ("gauge", "1 for the state the job is in."),
    "millstream_outage_seconds": (
        "gauge",
        "How long the job has waited for a system, or has worked without it.",
    ),
    "millstream_restarts_total": ("counter", "Automatic restarts after a run ended by itself."),
    "millstream_rows_in_total": ("counter", "Rows read."),
    "millstream_rows_out_total": ("counter", "Rows written to a sink."),
    "millstream_rows_dropped_total": ("counter", "Rows that were late or dead."),
    "millstream_dlq_records": ("gauge", "Rows sent to the pipeline's dead-letter topic."),
    "millstream_batches_total": ("counter", "Batches committed, by what ran them."),
    "millstream_batch_duration_seconds": ("histogram", "Duration of batches."),
    "millstream_batch_phase_seconds": ("gauge", "Duration of each phase of the last batch."),
    "millstream_busy_seconds_total": ("counter", "Time spent inside batches."),
    "millstream_lag_records": ("gauge", "Unread records, per partition."),
    "millstream_lag_seconds": ("gauge", "Age of the oldest unread record."),
    "millstream_retention_warning": (
        "gauge",
        "1 while retention is about to delete unread records.",
    ),
    "millstream_watermark_delay_seconds": (
        "gauge",
        "How far a source's watermark is behind the clock.",
    ),
    "millstream_state_rows": ("gauge", "Rows in state."),
    "millstream_state_bytes": ("gauge", "Bytes in state."),
    "millstream_checkpoint_files": ("gauge", "Files of the checkpoint."),
    "millstream_checkpoint_bytes": ("gauge", "Bytes of the checkpoint."),
    "millstream_checkpoint_disk_free_bytes": ("gauge", "Free bytes of the checkpoint's disk."),
    "millstream_step_rows_in_total": ("counter", "Rows into a step."),
    "millstream_step_rows_out_total": ("counter", "Rows out of a step."),
    "millstream_step_rows_late_total": ("counter", "Rows too late for a step."),
    "millstream_step_rows_behind_total": (
        "counter",
        "Rows behind the watermark that still counted.",
    ),
    "millstream_step_busy_seconds_total": ("counter", "Time spent in a step."),
    "millstream_instance_rows_in_total": ("counter", "Rows into one instance of a step."),
    "millstream_instance_busy_seconds_total": ("counter", "Time spent in one instance of a step."),
    "millstream_partition_rows_in_total": ("counter", "Rows read from one partition of a source."),
    "millstream_supervisor_up": ("gauge", "1 while the supervisor is running."),
    "millstream_page_readers": ("gauge", "Open event streams of the page."),
}
_END_OF_TIME = 9999


@dataclass
class _Metrics:
    """Samples by metric, in the order of `HELP`."""

    samples: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in HELP})

    def add(self, name: str, value: float, suffix: str = "", **labels: str) -> None:
        text = ",".join(f'{label}="{_escaped(value_)}"' for label, value_ in labels.items())
        shown = f"{name}{suffix}{{{text}}}" if text else f"{name}{suffix}"
        self.samples[name].append(f"{shown} {_number(value)}")

    def lines(self) -> Iterator[str]:
        for name, samples in self.samples.items():
            if samples:
                kind, words = HELP[name]
                yield f"# HELP {name} {words}"
                yield f"# TYPE {name} {kind}"
                yield from samples


def exposition(stack: StackFolder, readers: int = 0) -> str:
    """All metrics, as text."""
    metrics = _Metrics()
    metrics.add("millstream_supervisor_up", stack.lock("supervisor").held())
    metrics.add("millstream_page_readers", readers)
    with JobRegistry(stack.registry, read_only=True) as registry:
        jobs = registry.all()
    for job in jobs:
        _of_job(metrics, stack, job)
    for lag in lags(stack):
        labels = {"pipeline": lag.job, "source": lag.source, "topic": lag.topic,
                  "partition": str(lag.partition)}  # fmt: skip
        metrics.add("millstream_lag_records", lag.lag, **labels)
        metrics.add("millstream_lag_seconds", lag.seconds, **labels)
        metrics.add("millstream_retention_warning", lag.warning is not None, **labels)
    return "\n".join(metrics.lines()) + "\n"


def _of_job(metrics: _Metrics, stack: StackFolder, job: JobRow) -> None:
    name = job.name
    metrics.add("millstream_pipeline_up", stack.job(name).lock.held(), pipeline=name)
    for state in STATES:
        metrics.add("millstream_job_state", job.state == state, pipeline=name, state=state)
    metrics.add("millstream_restarts_total", job.restarts, pipeline=name)
    run_log = RunLogReader(stack.job(name).run_log)
    try:
        totals, batches = run_log.totals(), run_log.batches(last=1)
        outages = run_log.outages(job.run)
    finally:
        run_log.close()
    for outage in outages:
        metrics.add("millstream_outage_seconds", round(time.time() - outage.since, 1),
                    pipeline=name, system=outage.system, kind=outage.kind)  # fmt: skip
    if totals:
        _totals(metrics, name, totals)
    if batches:
        _last_batch(metrics, name, batches[0].facts)


def _totals(metrics: _Metrics, name: str, totals: dict[str, dict[str, float]]) -> None:
    def total(metric: str) -> float:
        return sum(totals.get(metric, {}).values())

    for source, rows in totals.get("in", {}).items():
        metrics.add("millstream_rows_in_total", rows, pipeline=name, source=source)
    for sink, rows in totals.get("out", {}).items():
        metrics.add("millstream_rows_out_total", rows, pipeline=name, sink=sink)
    for reason in ("late", "dead"):
        metrics.add("millstream_rows_dropped_total", total(reason), pipeline=name, reason=reason)
    metrics.add("millstream_dlq_records", total("dead"), pipeline=name)
    for where, batches in batches_by_place(totals).items():
        metrics.add("millstream_batches_total", batches, pipeline=name, where=where)
    metrics.add("millstream_busy_seconds_total", total("busy_seconds"), pipeline=name)
    _histogram(metrics, name, totals)
    _by_instance(metrics, name, totals)
    for metric, label in (("in", "rows_in"), ("out", "rows_out"), ("late", "rows_late"),
                          ("behind", "rows_behind"), ("seconds", "busy_seconds")):  # fmt: skip
        for step, value in totals.get(f"step_{metric}", {}).items():
            metrics.add(f"millstream_step_{label}_total", value, pipeline=name, step=step)


def _by_instance(metrics: _Metrics, name: str, totals: dict[str, dict[str, float]]) -> None:
    """Cardinality is bounded: one series per task and partition, whatever the data."""
    for (step, instance), counts in totals_by_instance(totals, "steps").items():
        labels = {"pipeline": name, "step": step, "instance": instance}
        metrics.add("millstream_instance_rows_in_total", counts["in"], **labels)
        metrics.add("millstream_instance_busy_seconds_total", counts["seconds"], **labels)
    for (source, partition), counts in totals_by_instance(totals, "sources").items():
        metrics.add("millstream_partition_rows_in_total", counts["in"], pipeline=name,
                    source=source, partition=partition)  # fmt: skip


def _histogram(metrics: _Metrics, name: str, totals: dict[str, dict[str, float]]) -> None:
    counts, so_far = totals.get("duration", {}), 0.0
    for bound in BUCKETS:
        so_far += counts.get(bound, 0.0)
        metrics.add("millstream_batch_duration_seconds", so_far, "_bucket", pipeline=name, le=bound)
    seconds = sum(totals.get("busy_seconds", {}).values())
    metrics.add("millstream_batch_duration_seconds", seconds, "_sum", pipeline=name)
    metrics.add("millstream_batch_duration_seconds", so_far, "_count", pipeline=name)


def _last_batch(metrics: _Metrics, name: str, facts: dict[str, Any]) -> None:
    for phase, seconds in facts["phases"].items():
        metrics.add("millstream_batch_phase_seconds", seconds, pipeline=name, phase=phase)
    for source, text in facts["watermarks"].items():
        at = None if text is None else datetime.fromisoformat(text)
        if at is not None and at.year < _END_OF_TIME:
            metrics.add("millstream_watermark_delay_seconds", time.time() - at.timestamp(),
                        pipeline=name, source=source)  # fmt: skip
    metrics.add("millstream_state_rows", facts["state_rows"], pipeline=name)
    metrics.add("millstream_state_bytes", facts["state_bytes"], pipeline=name)
    sizes = facts.get("checkpoint", {})
    for word, size in (("files", "files"), ("bytes", "bytes"), ("disk_free_bytes", "free")):
        if size in sizes:
            metrics.add(f"millstream_checkpoint_{word}", sizes[size], pipeline=name)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
