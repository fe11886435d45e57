"""Decodes raw records to rows; both lanes use the same decoder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.event_time.clock_correction import FLAG, OFFSET, ClockCorrection, corrected
from millstream.formats.json.format import Json
from millstream.sources.spec import raw_schema
from millstream.sources.values import Values
from millstream.state import row_columns

if TYPE_CHECKING:
    from millstream.schema import Schema
    from millstream.sources.spec import Opener

_NEVER = 2**63 - 1
_NONE_BAD = pa.schema([
    ("partition", pa.int32()), ("offset", pa.int64()), ("reason", pa.string()),
    ("step", pa.string()),
]).empty_table()  # fmt: skip
ORIGIN = row_columns.ORIGIN
_HIDDEN_FROM = {"_key": "key", "_headers": "headers", "_timestamp": "timestamp"}


@dataclass(slots=True)
class PartReport:
    """What was read from one partition: records, bad records, seconds, and the process."""

    rows: int = 0
    bad: int = 0
    seconds: float = 0.0
    where: str = ""


@dataclass(slots=True)
class Report:
    """What a slice of a source contained: rows, bytes, the largest time per partition.

    `parts` has the rows, and how long they took, per partition.
    """

    rows: int = 0
    bytes: int = 0
    extra: int = 0
    times: dict[int, int] = field(default_factory=dict)
    parts: dict[int, PartReport] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        """Add the figures of another slice."""
        self.rows += other.rows
        self.bytes += other.bytes
        self.extra += other.extra
        for partition, time in other.times.items():
            self.times[partition] = max(time, self.times.get(partition, time))
        for partition, part in other.parts.items():
            known = self.parts.setdefault(partition, PartReport())
            known.rows, known.bad = known.rows + part.rows, known.bad + part.bad
            known.seconds, known.where = known.seconds + part.seconds, part.where

    def took(self, seconds: float, where: str) -> None:
        """Record how long reading took and where it ran, divided among partitions by rows."""
        for part in self.parts.values():
            part.seconds, part.where = seconds * part.rows / max(1, self.rows), where

    @property
    def bad(self) -> int:
        """The number of bad records."""
        return sum(part.bad for part in self.parts.values())


@dataclass(frozen=True, slots=True)
class Rows:
    """Good rows with their origin, the offsets of bad rows with a reason, and the report."""

    good: pa.Table
    bad: pa.Table
    report: Report


def counted(rows: Rows) -> Rows:
    """Return the same rows with counts of good and bad records per partition in the report."""
    parts: dict[int, PartReport] = {}
    for partition, count in per_partition(rows.good["_partition"]).items():
        parts[partition] = PartReport(count)
    for partition, count in per_partition(rows.bad["partition"]).items():
        known = parts.setdefault(partition, PartReport())
        known.rows, known.bad = known.rows + count, count
    return replace(rows, report=replace(rows.report, parts=parts))


def per_partition(column: pa.ChunkedArray) -> dict[int, int]:
    """Count the rows of each partition in a column of partitions."""
    partitions = column.to_numpy()
    if not len(partitions):
        return {}
    first = int(partitions[0])
    if partitions[-1] == first and (partitions == first).all():
        return {first: len(partitions)}
    found, counts = np.unique(partitions, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


Skips = dict[int, dict[int, tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """What differs between batches: the batch clock, and records that raised an error in a step.

    `skips` maps partition and offset to the step's name and the reason.
    """

    clock: int = 0
    skips: Skips = field(default_factory=dict)


NO_CONTEXT = DecodeContext()


class RecordDecoder(Protocol):
    """Decodes a source's raw records; created once per run and sent to Spark's workers."""

    @property
    def more(self) -> tuple[str, ...]:
        """Which of a record's key and headers it needs."""

    @property
    def needs_clock(self) -> bool:
        """Whether rows depend on the batch clock, and so cannot be decoded before the batch."""

    def columns(self) -> pa.Schema:
        """The columns of good rows."""

    def __call__(self, raw: pa.Table, context: DecodeContext = NO_CONTEXT) -> Rows:
        """Decode a slice of the reader's records."""


@dataclass(frozen=True)
class Decoder:
    """The decoder of one source.

    A row whose event time is more than `ahead` beyond the record's timestamp, or with `by_clock`
    beyond the batch clock, is a bad row. `hidden` are the hidden columns that later steps name.
    `opener` reads the rows of raw records.
    """

    source: int
    topic: str
    schema: Schema
    time: str | None
    ahead: int | None
    by_clock: bool = False
    hidden: tuple[str, ...] = ()
    opener: Opener = field(default_factory=lambda: Values(Json()))
    correction: ClockCorrection | None = None

    @property
    def more(self) -> tuple[str, ...]:
        """Which of a record's key and headers later steps name."""
        return tuple(name for name in ("key", "headers") if f"_{name}" in self.hidden)

    @property
    def needs_clock(self) -> bool:
        return self.by_clock and self.time is not None and self.ahead is not None

    def columns(self) -> pa.Schema:
        """The schema of good rows: the source's columns, hidden columns in use, the origin."""
        return self._columns

    @cached_property
    def _columns(self) -> pa.Schema:
        fields = list(self.schema.arrow())
        if self.correction is not None:
            fields += [pa.field(FLAG, pa.bool_()), pa.field(OFFSET, pa.int64())]
        raw = raw_schema()
        for name in self.hidden:
            if name in _HIDDEN_FROM:
                fields.append(raw.field(_HIDDEN_FROM[name]).with_name(name))
            elif name == "_topic":
                fields.append(pa.field(name, pa.string()))
        return pa.schema([*fields, *row_columns.ORIGIN_FIELDS])

    def __call__(self, raw: pa.Table, context: DecodeContext = NO_CONTEXT) -> Rows:
        """Decode a slice of the reader's records.

        Rows are bad if the format refuses them, if they have no event time, or if their time is
        more than `ahead` in the future; bad rows do not advance the watermark.
        """
        opened = self.opener.open(raw, self.schema)
        raw, decoded = opened.records, opened.decoded
        table, positions = decoded.table, decoded.good
        reasons = dict(zip(decoded.bad.tolist(), decoded.reasons, strict=True))
        if context.skips:
            skipped = _skipped(context.skips, raw, positions)
            reasons |= {int(positions[place]): why for place, (_, why) in skipped.items()}
            kept = np.delete(np.arange(len(positions)), list(skipped))
            table, positions = table.take(pa.array(kept)), positions[kept]
        if self.correction is not None:
            table = corrected(table, self.correction, self._received(table, raw, positions))
        if self.time is not None:
            keep, refused = self._timely(table, raw, positions, context.clock)
            reasons |= refused
            if refused:
                table, positions = table.filter(pa.array(keep)), positions[keep]
        origin = raw if len(positions) == raw.num_rows else raw.take(pa.array(positions))
        good = self._with_origin(table, origin)
        report = Report(raw.num_rows, opened.bytes, decoded.extra, self._largest(good))
        return counted(Rows(good, _bad(raw, reasons, context.skips), report))

    def _received(self, table: pa.Table, raw: pa.Table, positions: np.ndarray) -> pa.ChunkedArray:
        assert self.correction is not None
        if self.correction.received == "_timestamp":
            return raw["timestamp"].take(pa.array(positions))
        return table[self.correction.received]

    def _timely(
        self, table: pa.Table, raw: pa.Table, positions: np.ndarray, clock: int
    ) -> tuple[np.ndarray, dict[int, str]]:
        assert self.time is not None
        column = table[self.time].combine_chunks()
        keep = pc.is_valid(column).to_numpy(zero_copy_only=False)
        refused = {int(positions[i]): f"{self.time}: event time is null"
                   for i in np.flatnonzero(~keep)}  # fmt: skip
        if self.ahead is not None:
            future = keep & self._future(column, raw, positions, clock)
            for i in np.flatnonzero(future):
                refused[int(positions[i])] = f"future: {self.time} lies too far ahead"
            keep = keep & ~future
        return keep, refused

    def _future(
        self, column: pa.Array, raw: pa.Table, positions: np.ndarray, clock: int
    ) -> np.ndarray:
        """Which times are more than `ahead` beyond the record's timestamp or the batch clock."""
        times = pc.fill_null(column, 0).cast(pa.int64()).to_numpy()
        if not self.by_clock:
            stamps = raw["timestamp"].take(pa.array(positions)).cast(pa.int64())
            since = pc.fill_null(stamps, _NEVER).to_numpy()
        else:
            since = np.full(len(times), clock)
        beyond = times.astype(np.uint64) - since.astype(np.uint64)  # cannot overflow if positive
        future: np.ndarray = (times > since) & (beyond > np.uint64(self.ahead or 0))
        return future

    def _with_origin(self, table: pa.Table, raw: pa.Table) -> pa.Table:
        count = table.num_rows
        for name in self.hidden:
            if name in _HIDDEN_FROM:
                table = table.append_column(name, self._hidden(name, table, raw))
            elif name == "_topic":
                table = table.append_column(name, pa.repeat(pa.scalar(self.topic), count))
        return (
            table.append_column("_source", pa.array(np.full(count, self.source, np.int32)))
            .append_column("_partition", raw["partition"])
            .append_column("_offset", raw["offset"])
            .append_column("_sub", pa.array(np.zeros(count, np.int64)))
        )

    def _hidden(self, name: str, table: pa.Table, raw: pa.Table) -> pa.ChunkedArray:
        """A hidden column; a record without a timestamp gets the row's event time."""
        column = raw[_HIDDEN_FROM[name]]
        if name == "_timestamp" and self.time is not None and column.null_count:
            return pc.coalesce(column, table[self.time])
        return column

    def _largest(self, good: pa.Table) -> dict[int, int]:
        if self.time is None or not good.num_rows:
            return {}
        times = good[self.time].cast(pa.int64()).combine_chunks().to_numpy()
        partitions = good["_partition"].combine_chunks().to_numpy()
        if partitions[0] == partitions[-1] and (partitions == partitions[0]).all():
            return {int(partitions[0]): int(times.max())}
        order = np.argsort(partitions, kind="stable")
        ids, starts = np.unique(partitions[order], return_index=True)
        largest = np.maximum.reduceat(times[order], starts)
        return dict(zip(ids.tolist(), largest.tolist(), strict=True))


def _skipped(skips: Skips, raw: pa.Table, positions: np.ndarray) -> dict[int, tuple[str, str]]:
    """The good rows that raised an error in a later step in an earlier attempt."""
    partitions, offsets = raw["partition"].to_numpy(), raw["offset"].to_numpy()
    found = {}
    for partition, some in skips.items():
        mine = (partitions[positions] == partition) & np.isin(offsets[positions], list(some))
        for place in np.flatnonzero(mine).tolist():
            found[place] = some[int(offsets[positions[place]])]
    return found


def _bad(raw: pa.Table, reasons: dict[int, str], skips: Skips) -> pa.Table:
    """The offsets of bad records, the reasons, and the step if a step has refused them."""
    if not reasons:
        return _NONE_BAD
    positions = sorted(reasons)
    bad = raw.take(pa.array(positions, pa.int64())).select(["partition", "offset"])
    places = zip(bad["partition"].to_pylist(), bad["offset"].to_pylist(), strict=True)
    steps = [skips.get(p, {}).get(o, (None, ""))[0] for p, o in places]
    return bad.append_column(
        "reason", pa.array([reasons[p] for p in positions], pa.string())
    ).append_column("step", pa.array(steps, pa.string()))
