"""Millstream: streams in Kafka, work on Spark, results right in event time, exactly once.

    import millstream as ms

A record's path is the order of the packages: log, formats, state, sources, sinks,
eventtime, steps, windows, plan, runtime, pipeline, testing, cli. What users touch is
here; everything heavy is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.pipeline import Pipeline, Stream, read
from millstream.sinks.memory import Memory
from millstream.sinks.spec import discard
from millstream.sources.topic import Topic
from millstream.windows.aggregates import count, mean
from millstream.windows.aggregates import max as max
from millstream.windows.aggregates import min as min
from millstream.windows.aggregates import sum as sum
from millstream.windows.spec import tumbling

if TYPE_CHECKING:
    from millstream.log.consumer import Consumer
    from millstream.log.producer import Producer
    from millstream.log.topics import Topics

__version__ = "0.1.0"

__all__ = [
    "Consumer",
    "Memory",
    "Pipeline",
    "Producer",
    "Stream",
    "Topic",
    "Topics",
    "count",
    "discard",
    "mean",
    "read",
    "tumbling",
]

_LAZY = {
    "Consumer": "millstream.log.consumer",
    "Producer": "millstream.log.producer",
    "Topics": "millstream.log.topics",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'millstream' has no attribute {name!r}")
