"""Events with their row of a table: the columns of both, the event's time and origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.operators.joins.result_columns import LEFT, result_columns
from millstream.operators.joins.sides import AT, FROM
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.row_columns import ORIGIN_FIELDS, SIGN, TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from millstream.operators.joins.on import Pairs

    Ints = NDArray[np.int64]

CHUNK_BYTES = 32 << 20
NOWHERE = -1


class Enriched:
    """The columns of the stream, then those of the table; a key of the same name once."""

    def __init__(
        self,
        stream: Mapping[str, pa.DataType],
        table: Mapping[str, pa.DataType],
        on: Pairs,
        *,
        suffix: str | None,
        step: str,
    ) -> None:
        self._types = stream, table
        self._columns = result_columns(list(stream), list(table), on, suffix=suffix, step=step)
        fields = [pa.field(name, self._types[side][own]) for name, side, own in self._columns]
        self.schema = pa.schema([*fields, *ORIGIN_FIELDS])

    def results(
        self, events: pa.Table, rows: pa.Table, place: Ints, *, every: bool, timed: bool = True
    ) -> Iterator[pa.Table]:
        """Each event with the row at its index, in chunks; NOWHERE means no row.

        With `every`, events without a row are included.
        """
        stays = np.arange(len(place)) if every else np.flatnonzero(place != NOWHERE)
        width = sum(table.nbytes // max(1, table.num_rows) for table in (events, rows))
        each = max(1, CHUNK_BYTES // max(1, width))
        for first in range(0, len(stays), each):
            part = stays[first : first + each]
            met = pa.array(place[part], mask=place[part] == NOWHERE)
            yield self._made(events.take(pa.array(part)), rows.take(met), timed=timed)

    def _made(self, events: pa.Table, rows: pa.Table, *, timed: bool) -> pa.Table:
        origin = int_values(plain(events[FROM]))
        columns = {
            name: (events if side == LEFT else rows)[own].cast(self._types[side][own])
            for name, side, own in self._columns
        }
        return pa.table(
            {
                **columns,
                "_source": pa.array((origin >> 32).astype(np.int32)),
                "_partition": pa.array((origin & 0xFFFFFFFF).astype(np.int32)),
                "_offset": events["_offset"],
                "_sub": events["_sub"],
                TIME: events[AT] if timed else pa.nulls(events.num_rows, pa.int64()),
                SIGN: pa.array(np.ones(events.num_rows, np.int8)),
            }
        )
