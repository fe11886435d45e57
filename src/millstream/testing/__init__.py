"""Tools for tests: `Drive` runs a pipeline step by step, `broker()` and `brokers()` start a real
Kafka of one or several nodes, `postgres()` a real PostgreSQL, and `SinkSuite` has the checks that
every sink has to pass.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.testing.drive import Drive
    from millstream.testing.local_broker import broker
    from millstream.testing.local_brokers import brokers
    from millstream.testing.local_postgres import postgres
    from millstream.testing.sink_suite import SinkSuite

__all__ = ["Drive", "SinkSuite", "broker", "brokers", "postgres"]

_HOMES = {
    "Drive": "millstream.testing.drive",
    "SinkSuite": "millstream.testing.sink_suite",
    "broker": "millstream.testing.local_broker",
    "brokers": "millstream.testing.local_brokers",
    "postgres": "millstream.testing.local_postgres",
}


def __getattr__(name: str) -> object:
    """Import on first use, so that using one tool does not load the others."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
