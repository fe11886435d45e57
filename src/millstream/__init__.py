"""Millstream: streams in Kafka, work on Spark, results right in event time, exactly once.

    import millstream as ms

The public names are here; each is imported when it is first used. A module imports only from the
packages below its own, from the top: cli, testing, api, engine, plan, operators, sinks, sources,
event_time, state, formats, kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.api.pipeline import Pipeline
    from millstream.api.read import read, table
    from millstream.api.stream import Stream
    from millstream.api.table import Table
    from millstream.kafka.admin.topics import Topics
    from millstream.kafka.clients.consuming.consumer import Consumer
    from millstream.kafka.clients.consuming.share_consumer import ShareConsumer
    from millstream.kafka.clients.producing.producer import Producer
    from millstream.operators.aggregates.functions import (
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
    from millstream.operators.aggregates.functions import max as max
    from millstream.operators.aggregates.functions import min as min
    from millstream.operators.aggregates.functions import sum as sum
    from millstream.operators.aggregates.user_aggregate import aggregate
    from millstream.operators.windows.by_rows.spec import delta, punctuated, rows
    from millstream.operators.windows.sessions.spec import session
    from millstream.operators.windows.sliding.spec import sliding
    from millstream.operators.windows.spec import everything, hopping, tumbling
    from millstream.operators.windows.trigger import all_of, any_of, each, every, when
    from millstream.sinks.alerts.alert import Alert, JobAlert
    from millstream.sinks.alerts.email import Email
    from millstream.sinks.delta.delta import Delta
    from millstream.sinks.function import Function
    from millstream.sinks.live.live import Chart, LiveTable
    from millstream.sinks.postgres.postgres import Postgres
    from millstream.sinks.spark.foreach_batch import ForeachBatch
    from millstream.sinks.spec import discard
    from millstream.sinks.sqlite.sqlite import Sqlite
    from millstream.sinks.webhook.webhook import Webhook
    from millstream.sources.files.files import Files
    from millstream.sources.kafka.topic import Topic
    from millstream.sources.memory import Memory
    from millstream.sources.rate import Rate
    from millstream.sources.spark.spark import Spark

__version__ = "0.1.0"

__all__ = [
    "Alert",
    "Chart",
    "Consumer",
    "Delta",
    "Email",
    "Files",
    "ForeachBatch",
    "Function",
    "JobAlert",
    "LiveTable",
    "Memory",
    "Pipeline",
    "Postgres",
    "Producer",
    "Rate",
    "ShareConsumer",
    "Spark",
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
    "millstream.kafka.clients.consuming.consumer": ("Consumer",),
    "millstream.kafka.clients.producing.producer": ("Producer",),
    "millstream.kafka.clients.consuming.share_consumer": ("ShareConsumer",),
    "millstream.kafka.admin.topics": ("Topics",),
    "millstream.api.pipeline": ("Pipeline",),
    "millstream.sinks.alerts.alert": (
        "Alert",
        "JobAlert",
    ),
    "millstream.sinks.delta.delta": ("Delta",),
    "millstream.sinks.alerts.email": ("Email",),
    "millstream.sinks.function": ("Function",),
    "millstream.sinks.live.live": (
        "Chart",
        "LiveTable",
    ),
    "millstream.sinks.postgres.postgres": ("Postgres",),
    "millstream.sinks.spark.foreach_batch": ("ForeachBatch",),
    "millstream.sinks.spec": ("discard",),
    "millstream.sinks.sqlite.sqlite": ("Sqlite",),
    "millstream.sinks.webhook.webhook": ("Webhook",),
    "millstream.sources.files.files": ("Files",),
    "millstream.sources.memory": ("Memory",),
    "millstream.sources.rate": ("Rate",),
    "millstream.sources.spark.spark": ("Spark",),
    "millstream.sources.kafka.topic": ("Topic",),
    "millstream.api.read": ("read", "table"),
    "millstream.api.stream": ("Stream",),
    "millstream.api.table": ("Table",),
    "millstream.operators.aggregates.functions": (
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
    "millstream.operators.windows.by_rows.spec": ("delta", "punctuated", "rows"),
    "millstream.operators.windows.sessions.spec": ("session",),
    "millstream.operators.windows.sliding.spec": ("sliding",),
    "millstream.operators.windows.spec": (
        "everything",
        "hopping",
        "tumbling",
    ),
    "millstream.operators.windows.trigger": (
        "all_of",
        "any_of",
        "each",
        "every",
        "when",
    ),
    "millstream.operators.aggregates.user_aggregate": ("aggregate",),
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
