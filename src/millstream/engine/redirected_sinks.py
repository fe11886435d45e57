"""The sinks that `rewind --into SUFFIX` writes to."""

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
    """The sink with the suffix on its topic, table or path.

    Charts and tables on the page stay the same: their rows are stored per output name, which has
    the suffix.

    >>> with_suffix(Topic("hot"), "-2").name
    'hot-2'

    Raises:
        InvalidInput: the sink has no name or path.
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
    raise InvalidInput("new outputs need sinks with a topic, a table or a path",
                       got=repr(sink), do="rewind with --again instead")  # fmt: skip
