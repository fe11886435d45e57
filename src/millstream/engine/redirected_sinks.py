"""The same sink at another place: what `rewind --into SUFFIX` writes to."""

from __future__ import annotations

import os
from dataclasses import replace

from millstream.errors import InvalidInput
from millstream.sinks.delta.delta import Delta
from millstream.sinks.live.live import Chart, LiveTable
from millstream.sinks.postgres.postgres import Postgres
from millstream.sinks.spec import Movable, Sink
from millstream.sinks.sqlite.sqlite import Sqlite
from millstream.sources.files.files import Files
from millstream.sources.kafka.topic import Topic


def with_suffix(sink: Sink, suffix: str) -> Sink:
    """A sink whose topic, table or path has this at its end.

    Charts and tables on the page stay: their rows are told apart by their output's name.

    >>> with_suffix(Topic("hot"), "-2").name
    'hot-2'

    Raises:
        InvalidInput: it has no place that could be another.
    """
    if isinstance(sink, Movable):
        return sink.into(suffix)
    if isinstance(sink, Topic):
        return replace(sink, name=sink.name + suffix)
    if isinstance(sink, Postgres | Sqlite):
        return replace(sink, table=sink.table + suffix)
    if isinstance(sink, Files | Delta):
        return replace(sink, path=os.fspath(sink.path).rstrip("/") + suffix)
    if isinstance(sink, Chart | LiveTable):
        return sink
    raise InvalidInput("new outputs need sinks that name a topic, a table or a path",
                       got=repr(sink), do="rewind with --again instead")  # fmt: skip
