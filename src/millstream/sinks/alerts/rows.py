"""Observations of an alert's keys from the rows of a batch, in the order of time."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidSpec
from millstream.formats.json.encode import encode
from millstream.sinks.alerts.rendering import LARGEST_KEY, shortened
from millstream.sinks.alerts.rule import Observation
from millstream.sinks.rows import SIGN, chunks, columns_of, visible
from millstream.sql.condition import condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from millstream.sinks.alerts.alert import Alert
    from millstream.sinks.spec import Staged
    from millstream.sql.condition import Value

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

_CHUNK = 20_000
_SPAN = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Observed:
    """An observation of a key; `row` is the row as JSON if it raises."""

    key: str
    seen: Observation
    row: str | None


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    seen: Observation
    text: str
    is_live: bool


@dataclass(frozen=True)
class _Chunk:
    table: pa.Table
    keys: pa.Array
    times: Ints
    raises: Bools
    clears: Bools
    early: Bools
    late: Bools
    live: Bools


class AlertRows:
    """The rows of one output in one batch, for its alert."""

    def __init__(self, staged: Staged, alert: Alert) -> None:
        self._staged, self._alert = staged, alert
        self._by = staged.keys if alert.by is None else alert.by
        self._now = time.time_ns() // 1000
        self._conditions: tuple[Value, Value | None] | None = None
        self.clock: int | None = None

    def observed(self, tracked: Iterable[str]) -> Iterator[Observed]:
        """Yield the observations of keys that are raised here or tracked already, in the order
        of time; rows of the same key and time become one observation."""
        wanted = set(tracked)
        for chunk in self._chunks():
            wanted.update(chunk.keys.filter(pa.array(chunk.raises)).to_pylist())
            settled = chunk.times[~chunk.early]
            if len(settled):
                latest = int(settled.max())
                self.clock = latest if self.clock is None else max(self.clock, latest)
        moments: dict[tuple[str, int], list[_Row]] = {}
        those = pa.array(wanted, pa.string())
        for chunk in self._chunks() if wanted else ():
            for row in self._of(chunk, those):
                moments.setdefault((row.key, row.seen.time), []).append(row)
        for moment in sorted(moments):
            yield _as_one(moments[moment])

    def _chunks(self) -> Iterator[_Chunk]:
        for table in chunks(self._staged, _CHUNK):
            rows, signs = visible(table), _signs(table)
            raises, clears = self._evaluate(rows)
            live = signs > 0
            pane = rows["pane"].to_numpy(zero_copy_only=False) if "pane" in rows.column_names else (
                np.full(rows.num_rows, "on_time")
            )  # fmt: skip
            yield _Chunk(rows, self._keys(rows), self._times(table), raises & live,
                         clears | ~live, (pane == "early") & live, pane == "late",
                         live)  # fmt: skip

    def _evaluate(self, rows: pa.Table) -> tuple[Bools, Bools]:
        if self._conditions is None:
            names = tuple(columns_of(rows))
            clears = self._alert.clears
            self._conditions = (condition(self._alert.when, names),
                                None if clears is None else condition(clears, names))  # fmt: skip
        when, over = self._conditions
        raises = self._is_true(when, rows)
        return raises, ~raises if over is None else self._is_true(over, rows) & ~raises

    def _is_true(self, value: Value, rows: pa.Table) -> Bools:
        """Return whether a condition is true, row by row; null is not true."""
        try:
            found = value(rows)
            if isinstance(found, pa.Scalar):
                found = pa.array([found.as_py()] * rows.num_rows, pa.bool_())
            answer: Bools = pc.fill_null(found.cast(pa.bool_()), pa.scalar(value=False)).to_numpy(
                zero_copy_only=False
            )
        except pa.ArrowException as error:
            raise InvalidSpec(
                f"Alert({self._alert.name!r}) needs conditions that fit the types of its columns",
                got=f"{error} for {', '.join(map(repr, self._alert.conditions))}",
                do="cast the column with .with_columns(…) before the alert",
            ) from error
        return answer

    def _keys(self, rows: pa.Table) -> pa.Array:
        if not self._by:
            return pa.array(["{}"] * rows.num_rows)
        found = encode(rows.select(list(self._by))).cast(pa.string())
        longest = pc.max(pc.binary_length(found)).as_py() or 0
        if longest <= LARGEST_KEY:
            return found
        return pa.array([shortened(key, LARGEST_KEY) for key in found.to_pylist()])

    def _times(self, table: pa.Table) -> Ints:
        """Return the event times; rows without one get the current time."""
        if "_time" not in table.column_names:
            return np.full(table.num_rows, self._now, np.int64)
        times: Ints = pc.fill_null(table["_time"].cast(pa.int64()), self._now).to_numpy()
        return times

    def _of(self, chunk: _Chunk, wanted: pa.Array) -> Iterator[_Row]:
        places = np.flatnonzero(
            pc.is_in(chunk.keys, value_set=wanted).to_numpy(zero_copy_only=False)
        )
        if not len(places):
            return
        part = chunk.table.take(pa.array(places))
        texts, ends = encode(part).to_pylist(), self._ends(part)
        for place, body, end in zip(places, texts, ends, strict=True):
            at, up = int(chunk.times[place]), bool(chunk.raises[place])
            seen = Observation(at, up, bool(chunk.clears[place]), None if end is None else at + end,
                        bool(chunk.early[place]), bool(chunk.late[place]))  # fmt: skip
            yield _Row(chunk.keys[place].as_py(), seen, body.decode(), bool(chunk.live[place]))

    def _ends(self, part: pa.Table) -> list[int | None]:
        """Return for how long each row is valid if no other follows."""
        if self._alert.absent is not None:
            return [self._alert.absent] * part.num_rows
        if self._staged.is_table or not set(_SPAN) <= set(part.column_names):
            return [None] * part.num_rows
        bounds: list[Any] = [part[name].cast(pa.int64()) for name in _SPAN]
        lengths: list[int | None] = pc.subtract(bounds[1], bounds[0]).to_pylist()
        return [None if length is None else 2 * length for length in lengths]


def _as_one(rows: list[_Row]) -> Observed:
    """Combine the rows of a key and a time, whatever their order: retracted rows are removed, and
    one remaining row that raises is enough."""
    live: list[_Row] = []
    for row in rows:
        if row.is_live:
            live.append(row)
        else:
            given = next((one for one in live if one.text == row.text), None)
            if given is not None:
                live.remove(given)
    left = live or rows[-1:]
    counts = next((row for row in left if row.seen.raises), left[-1])
    ends = [row.seen.until for row in left]
    seen = replace(
        counts.seen,
        clears=all(row.seen.clears for row in left),
        provisional=all(row.seen.provisional for row in left),
        correction=all(row.seen.correction for row in left),
        until=None if None in ends else max(end for end in ends if end is not None),
    )
    if not live:
        seen = replace(seen, raises=False, clears=True, provisional=False)
    return Observed(counts.key, seen, shortened(counts.text) if seen.raises else None)


def _signs(table: pa.Table) -> Ints:
    if SIGN not in table.column_names:
        return np.ones(table.num_rows, np.int64)
    signs: Ints = table[SIGN].to_numpy()
    return signs
