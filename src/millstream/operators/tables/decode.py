"""Decodes raw records as changes of a table; used by both lanes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.operators.tables.debezium import TOMBSTONE, Debezium
from millstream.operators.tables.upserts import AT, POSITION, SIGN, Upserts, change_schema
from millstream.sources.decode import NO_CONTEXT, ORIGIN, Rows, counted

if TYPE_CHECKING:
    from millstream.operators.tables.spec import ChangeLog
    from millstream.sources.decode import DecodeContext, Decoder

TIME, STAMP = "_time", "_timestamp"


@dataclass(frozen=True)
class ChangeDecoder:
    """Decodes the records of one source as changes.

    `rows` decodes records. The batch clock is the time of records without a timestamp.
    A change with a null key, or with a null or far future time, is a bad row.
    """

    rows: Decoder
    log: ChangeLog
    needs_clock = True

    @classmethod
    def of(cls, rows: Decoder, log: ChangeLog) -> ChangeDecoder:
        """The decoder of changes for a source's format."""
        opener = (Debezium(log.keys) if log.kind == "debezium"
                  else Upserts(rows.opener, log.keys, log.time))  # fmt: skip
        return cls(replace(rows, opener=opener, time=None, hidden=(STAMP,)), log)

    @property
    def more(self) -> tuple[str, ...]:
        """The record's key, which identifies the row that a record without a value deletes."""
        return ("key",)

    def columns(self) -> pa.Schema:
        """The source's columns, the origin, and the columns of a change."""
        return self._columns

    @cached_property
    def _columns(self) -> pa.Schema:
        changes = change_schema(self.rows.schema)
        user = [part for part in changes if not part.name.startswith("_")]
        origin = [self.rows.columns().field(name) for name in ORIGIN]
        return pa.schema([*user, *origin, changes.field(SIGN), pa.field(TIME, pa.int64()),
                          changes.field(POSITION)])  # fmt: skip

    def __call__(self, raw: pa.Table, context: DecodeContext = NO_CONTEXT) -> Rows:
        """Decode a slice of the reader's records."""
        found = self.rows(raw, context)
        good = found.good
        stamps = good[STAMP].cast(pa.int64())
        times = pc.coalesce(good[AT], stamps, pa.scalar(context.clock, pa.int64()))
        good = good.append_column(TIME, times)
        reasons = self._refused(good, stamps, context.clock)
        bad = found.bad
        if reasons:
            bad = pa.concat_tables([bad, _bad(good, reasons, bad.schema)])
            good = good.take(pa.array(np.delete(np.arange(good.num_rows), list(reasons))))
        good = good.select(self.columns().names).cast(self.columns())
        return counted(Rows(good, bad, replace(found.report, times=_largest(good))))

    def _refused(self, good: pa.Table, stamps: pa.ChunkedArray, clock: int) -> dict[int, str]:
        """Which decoded changes are bad rows, and why."""
        reasons: dict[int, str] = {}
        alive = good[SIGN].to_numpy() != 0
        for key in self.log.keys:
            for place in _where(pc.is_null(good[key])):
                if alive[place]:
                    reasons[int(place)] = f"{key}: the key of a table is null"
        if self.log.time is None:
            return reasons
        sets = good[SIGN].to_numpy() > 0
        for place in _where(pc.is_null(good[AT])):
            if sets[place]:
                reasons.setdefault(int(place), f"{self.log.time}: event time is null")
        if self.rows.ahead is not None:
            limit = pa.scalar(clock, pa.int64()) if self.rows.by_clock else stamps
            ahead = pc.subtract(good[AT], pa.scalar(self.rows.ahead, pa.int64()))
            for place in _where(pc.greater(ahead, limit)):
                reasons.setdefault(int(place), f"future: {self.log.time} lies too far ahead")
        return reasons


def _where(mask: pa.ChunkedArray) -> np.ndarray:
    return np.flatnonzero(pc.fill_null(mask, False).to_numpy())  # noqa: FBT003


def _bad(good: pa.Table, reasons: dict[int, str], schema: pa.Schema) -> pa.Table:
    places = sorted(reasons)
    taken = good.take(pa.array(places))
    count = len(places)
    return pa.Table.from_arrays(
        [taken["_partition"], taken["_offset"], pa.array([reasons[place] for place in places]),
         pa.nulls(count, pa.string())], schema=schema,
    )  # fmt: skip


def _largest(good: pa.Table) -> dict[int, int]:
    """The largest time of each partition; the tombstone after a delete has no time."""
    good = good.filter(pc.not_equal(good[SIGN], TOMBSTONE))
    partitions, times = good["_partition"].to_numpy(), good[TIME].to_numpy()
    found = np.unique(partitions)
    return {int(p): int(times[partitions == p].max()) for p in found}
