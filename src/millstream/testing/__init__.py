"""Real parts for tests: `Drive` runs a pipeline by hand, `broker()` is a Kafka of one's own,
`brokers()` one of several nodes, `postgres()` a PostgreSQL of one's own, `SinkSuite` the checks
that a sink of one's own passes.
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
    """Import on first use: naming one part must not load the others."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
