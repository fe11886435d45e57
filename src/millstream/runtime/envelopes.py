"""What late and dead rows look like when they leave: one envelope each, for every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.formats.json.encode import encode
from millstream.sources.decode import ORIGIN

if TYPE_CHECKING:
    from millstream.eventtime.moment import Moment
    from millstream.sources.spec import Reader
    from millstream.steps.kernel import Late

_STAMP = pa.timestamp("us", "UTC")
_PLACE = ("partition", "offset")
_WINDOW = pa.struct([("start", _STAMP), ("end", _STAMP)])


def late(rows: Late, *, step: str, sources: list[str], moment: Moment) -> pa.Table:
    """Late rows: step, reason, watermark, windows, origin, the row as JSON."""
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
    stamp = pa.scalar(moment.before, pa.int64()).cast(_STAMP)
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


def dead(bad: pa.Table, reader: Reader, *, step: str, topic: str) -> pa.Table:
    """Bad records, raw and untouched, with where they came from and why they are here.

    `bad` has their places (partition, offset), the reason, and the step that could not take
    them (null: `step`, the source itself).
    """
    ordered = bad.sort_by([("partition", "ascending"), ("offset", "ascending")])
    places: dict[int, list[int]] = {}
    for partition, offset in zip(*(ordered[n].to_pylist() for n in _PLACE), strict=True):
        places.setdefault(partition, []).append(offset)
    count = bad.num_rows
    return (
        reader.originals(places)
        .append_column("reason", ordered["reason"])
        .append_column("step", pc.fill_null(ordered["step"], step))
        .append_column("topic", pa.repeat(pa.scalar(topic), count))
    )
