"""The envelopes of late and dead rows, the same for every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.formats.json.encode import encode
from millstream.sinks.kafka.messages import RESULT_OF
from millstream.sources.decode import ORIGIN
from millstream.sources.spec import raw_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.kernel import Late
    from millstream.sources.spec import Reader

_STAMP = pa.timestamp("us", "UTC")
_PLACE = ("partition", "offset")
_IN_A_BATCH = 10**9
_WINDOW = pa.struct([("start", _STAMP), ("end", _STAMP)])


def late(rows: Late, *, step: str, sources: list[str], batch_time: BatchTime) -> pa.Table:
    """Late rows: step, reason, watermark, windows, origin, and the row as JSON."""
    taken = rows.rows
    count = taken.num_rows
    windows: pa.Array = pa.nulls(count, pa.list_(_WINDOW))
    if rows.windows is not None:
        windows = rows.windows.cast(pa.list_(_WINDOW))
    names = np.array(sources, dtype=object)[taken["_source"].to_numpy()]
    origin = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), *(taken[name].combine_chunks() for name in ORIGIN[1:])],
        names=["source", "partition", "offset", "index"],
    )
    user = taken.select([name for name in taken.column_names if not name.startswith("_")])
    stamp = pa.scalar(batch_time.before, pa.int64()).cast(_STAMP)
    return pa.table(
        {
            "step": pa.repeat(pa.scalar(step), count),
            "reason": pa.repeat(pa.scalar("late"), count),
            "watermark": pa.repeat(stamp, count),
            "windows": windows,
            "origin": origin,
            "row": encode(user).cast(pa.string()),
        }
    )


def refused(
    tables: Iterable[pa.Table], *, output: str, topics: list[str], batch: int, clock: int
) -> Iterator[pa.Table]:
    """Results that a sink rejects, as JSON, with the reason and the origin.

    The origin is the record that a result was computed from; results of several records are
    numbered in their batch, under the name of the output.
    """
    first = batch * _IN_A_BATCH
    for rows in tables:
        count = rows.num_rows
        user = rows.select([name for name in rows.column_names if not name.startswith("_")])
        known = np.zeros(count, bool)
        topic = np.full(count, output, dtype=object)
        partition, offset = np.zeros(count, np.int32), first + np.arange(count)
        if "_source" in rows.column_names:
            source = rows["_source"].to_numpy()
            known = (source >= 0) & (source < len(topics))
            topic[known] = np.array(topics, dtype=object)[source[known]]
            partition[known] = rows["_partition"].to_numpy()[known]
            offset[known] = rows["_offset"].to_numpy()[known]
        first += count
        plain = raw_schema()
        yield pa.table(
            {
                "key": pa.nulls(count, plain.field("key").type),
                "value": encode(user).cast(plain.field("value").type),
                "headers": _result_headers(output, count).cast(plain.field("headers").type),
                "partition": pa.array(partition),
                "offset": pa.array(offset),
                "timestamp": pa.repeat(pa.scalar(clock, pa.int64()), count).cast(_STAMP),
                "reason": rows["_reason"],
                "step": pa.repeat(pa.scalar(output), count),
                "topic": pa.array(topic, pa.string()),
            }
        )


def _result_headers(output: str, count: int) -> pa.Array:
    """The header that distinguishes a rejected result from a bad record."""
    headers = [{"key": RESULT_OF, "value": output.encode()}]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.repeat(pa.scalar(headers, kind), count)


def dead(bad: pa.Table, reader: Reader, *, step: str, topic: str) -> Iterator[pa.Table]:
    """Bad records, raw and unchanged, with origin and reason.

    `bad` has their partition and offset, the reason, and the step that failed (null: `step`, the
    source itself).
    """
    left = bad.sort_by([("partition", "ascending"), ("offset", "ascending")])
    while left.num_rows:
        raw = _originals(reader, left)
        these, left = left.slice(0, raw.num_rows), left.slice(raw.num_rows)
        yield (
            raw.append_column("reason", these["reason"])
            .append_column("step", pc.fill_null(these["step"], step))
            .append_column("topic", pa.repeat(pa.scalar(topic), raw.num_rows))
        )


def _originals(reader: Reader, ordered: pa.Table) -> pa.Table:
    """The records at the first of these partitions and offsets, at least one."""
    places: dict[int, list[int]] = {}
    for partition, offset in zip(*(ordered[n].to_pylist() for n in _PLACE), strict=True):
        places.setdefault(partition, []).append(offset)
    return reader.originals(places)
