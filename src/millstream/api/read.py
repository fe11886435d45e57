"""`read` and `table`: the sources of a pipeline, as a Stream of events or a Table of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.api.stream import Stream
from millstream.api.table import Table
from millstream.duration import Duration, not_negative_micros, positive_micros
from millstream.errors import InvalidSpec
from millstream.operators.tables.spec import ChangeLog, ChangesAre, Keys, key_names
from millstream.plan import columns as columns_of
from millstream.plan import graph
from millstream.plan.graph import HIDDEN_TIME, EventTime
from millstream.schema import Scalar, check_names
from millstream.sources.kafka.topic import Topic
from millstream.sources.spec import Source

if TYPE_CHECKING:
    from millstream.schema import Schema

IDLE, AHEAD = 30_000_000, 86_400_000_000


def read(
    source: Source,
    time: str | None = None,
    watermark: Duration = "0 seconds",
    idle: Duration | None = "30 seconds",
    ahead: Duration | None = "1 day",
) -> Stream:
    """The events of a source, with an event time when `time` names its column.

    `watermark` is how far behind the newest row of its partition a row may be. A partition
    without new rows for `idle` no longer holds the watermark back. A row whose time is more than
    `ahead` in the future is a bad row.

    >>> bids = read(Topic("bids", schema="auction long, ts timestamp"), time="ts")
    >>> bids.columns
    ('auction', 'ts')
    """
    schema = _schema(source, time, step="read")
    return Stream(
        graph.Read(
            columns=tuple(schema.names),
            time=EventTime(time) if time else None,
            source=source,
            name=source.name,
            delay=not_negative_micros(watermark, what="watermark"),
            idle=None if idle is None else positive_micros(idle, what="idle"),
            ahead=None if ahead is None else positive_micros(ahead, what="ahead"),
        )
    )


def table(
    source: Source,
    key: Keys,
    changes: ChangesAre = "upsert",
    time: str | None = None,
    watermark: Duration = "0 seconds",
) -> Table:
    """The table that a changelog describes, one row per `key`.

    With `upsert`, as in a compacted topic, a record is the row of its key, and a record without
    a value deletes the row of the record's key: JSON with the key columns or, for one column, the
    value itself or plain text. With `debezium`, records are Debezium's events. A change takes
    effect at `time`, else at its record's timestamp (Debezium: `source.ts_ms`); `watermark` is
    how far behind its partition a change may be. `Files` and `Memory` have no timestamps: without
    `time` their rows have no times of their own, and `as_of` refuses them.

    >>> users = table(Topic("users", schema="id long, name string"), key="id")
    >>> users.key, users.columns
    (('id',), ('id', 'name'))
    """
    schema = _schema(source, time, step="table")
    keys = key_names(key, step="table(key=…)")
    for name in keys:
        columns_of.check_known(name, tuple(schema.names), step="table(…)")
    log = ChangeLog(keys, changes, time)
    if log.kind == "debezium":
        _check_debezium(source, time)
    node = graph.Read(
        columns=tuple(schema.names),
        time=HIDDEN_TIME,
        source=source,
        name=source.name,
        delay=not_negative_micros(watermark, what="watermark"),
        idle=IDLE,
        ahead=AHEAD,
        changes=log,
    )
    return Table(node, keys, Stream)


def _schema(source: object, time: str | None, *, step: str) -> Schema:
    """The columns of a source.

    Raises:
        InvalidSpec: it is not a source, or `time` is not one of its timestamp columns.
    """
    if not isinstance(source, Source):
        raise InvalidSpec(f"{step} needs a source", got=repr(source),
                          do='write ms.Topic("name", schema="…")')  # fmt: skip
    schema = source.row_schema()
    check_names(tuple(schema.names), f"the schema of {source.name!r}")
    if time is not None:
        columns_of.check_known(time, tuple(schema.names), step=f"{step}(time=…)")
        if schema[time].type != Scalar("timestamp"):
            raise InvalidSpec(f"{step}(time={time!r}) needs a timestamp column",
                              got=schema[time].type.ddl(),
                              do=f"write {time} timestamp in the schema")  # fmt: skip
    return schema


def _check_debezium(source: Source, time: str | None) -> None:
    if not isinstance(source, Topic) or source.format != "json":
        raise InvalidSpec('table(changes="debezium") needs a topic of JSON records',
                          got=repr(source),
                          do='write ms.Topic("server.public.users", schema="…")')  # fmt: skip
    if time is not None:
        raise InvalidSpec('table(changes="debezium") needs no time=', got=repr(time),
                          do="leave it out: a change takes effect at source.ts_ms")  # fmt: skip
