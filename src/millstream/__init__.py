"""Millstream: streams in Kafka, work on Spark, results right in event time, exactly once.

    import millstream as ms

A record's path is the order of the packages: log, formats, state, sources, sinks,
eventtime, steps, windows, tables, joins, plan, runtime, pipeline, testing, cli. What users touch is
here; everything heavy is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.log.consumer import Consumer
    from millstream.log.producer import Producer
    from millstream.log.share_consumer import ShareConsumer
    from millstream.log.topics import Topics
    from millstream.pipeline import Pipeline
    from millstream.sinks.alert import Alert, JobAlert
    from millstream.sinks.delta import Delta
    from millstream.sinks.email import Email
    from millstream.sinks.function import Function
    from millstream.sinks.live import Chart, LiveTable
    from millstream.sinks.postgres import Postgres
    from millstream.sinks.spec import discard
    from millstream.sinks.sqlite import Sqlite
    from millstream.sinks.webhook import Webhook
    from millstream.sources.files import Files
    from millstream.sources.memory import Memory
    from millstream.sources.rate import Rate
    from millstream.sources.topic import Topic
    from millstream.stream import Stream, read
    from millstream.tabled import Table, table
    from millstream.windows.aggregates import (
        approx_distinct,
        approx_quantile,
        collect,
        count,
        count_distinct,
        first,
        frequent,
        largest,
        last,
        mean,
        quantile,
        smallest,
        stddev,
        variance,
    )
    from millstream.windows.aggregates import max as max
    from millstream.windows.aggregates import min as min
    from millstream.windows.aggregates import sum as sum
    from millstream.windows.counted import rows
    from millstream.windows.delta import delta
    from millstream.windows.punctuated import punctuated
    from millstream.windows.session import session
    from millstream.windows.sliding import sliding
    from millstream.windows.spec import everything, hopping, tumbling
    from millstream.windows.trigger import all_of, any_of, each, every, when
    from millstream.windows.user_aggregate import aggregate

__version__ = "0.1.0"

__all__ = [
    "Alert",
    "Chart",
    "Consumer",
    "Delta",
    "Email",
    "Files",
    "Function",
    "JobAlert",
    "LiveTable",
    "Memory",
    "Pipeline",
    "Postgres",
    "Producer",
    "Rate",
    "ShareConsumer",
    "Sqlite",
    "Stream",
    "Table",
    "Topic",
    "Topics",
    "Webhook",
    "aggregate",
    "all_of",
    "any_of",
    "approx_distinct",
    "approx_quantile",
    "collect",
    "count",
    "count_distinct",
    "delta",
    "discard",
    "each",
    "every",
    "everything",
    "first",
    "frequent",
    "hopping",
    "largest",
    "last",
    "mean",
    "punctuated",
    "quantile",
    "read",
    "rows",
    "session",
    "sliding",
    "smallest",
    "stddev",
    "table",
    "tumbling",
    "variance",
    "when",
]

_HOMES = {
    "millstream.log.consumer": ("Consumer",),
    "millstream.log.producer": ("Producer",),
    "millstream.log.share_consumer": ("ShareConsumer",),
    "millstream.log.topics": ("Topics",),
    "millstream.pipeline": ("Pipeline",),
    "millstream.sinks.alert": (
        "Alert",
        "JobAlert",
    ),
    "millstream.sinks.delta": ("Delta",),
    "millstream.sinks.email": ("Email",),
    "millstream.sinks.function": ("Function",),
    "millstream.sinks.live": (
        "Chart",
        "LiveTable",
    ),
    "millstream.sinks.postgres": ("Postgres",),
    "millstream.sinks.spec": ("discard",),
    "millstream.sinks.sqlite": ("Sqlite",),
    "millstream.sinks.webhook": ("Webhook",),
    "millstream.sources.files": ("Files",),
    "millstream.sources.memory": ("Memory",),
    "millstream.sources.rate": ("Rate",),
    "millstream.sources.topic": ("Topic",),
    "millstream.stream": (
        "Stream",
        "read",
    ),
    "millstream.tabled": (
        "Table",
        "table",
    ),
    "millstream.windows.aggregates": (
        "approx_distinct",
        "approx_quantile",
        "collect",
        "count",
        "count_distinct",
        "first",
        "frequent",
        "largest",
        "last",
        "max",
        "mean",
        "min",
        "quantile",
        "smallest",
        "stddev",
        "sum",
        "variance",
    ),
    "millstream.windows.counted": ("rows",),
    "millstream.windows.delta": ("delta",),
    "millstream.windows.punctuated": ("punctuated",),
    "millstream.windows.session": ("session",),
    "millstream.windows.sliding": ("sliding",),
    "millstream.windows.spec": (
        "everything",
        "hopping",
        "tumbling",
    ),
    "millstream.windows.trigger": (
        "all_of",
        "any_of",
        "each",
        "every",
        "when",
    ),
    "millstream.windows.user_aggregate": ("aggregate",),
}
_LAZY = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
