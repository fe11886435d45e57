"""A user-defined function per key of a batch: the only kernel that calls Python per key."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.process.spec import EPOCH, Visit
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN, TIME
from millstream.state.sorting import arrange, orders_of
from millstream.state.spec import GONE, HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.process.spec import Process, Row
    from millstream.state.runs.view import View

EVENT, CLOCK = "event", "clock"
MOST_ROUNDS = 10_000
_MICROSECOND = timedelta(microseconds=1)


@dataclass
class _Gathered:
    """The rows, state and timers that the visits of a batch returned."""

    rows: list[Row] = field(default_factory=list)
    kept: list[Row] = field(default_factory=list)
    timers: dict[str, list[Row]] = field(default_factory=lambda: {EVENT: [], CLOCK: []})


class ProcessKernel:
    """Calls the function once per key that has rows or timers in a batch.

    An event-time timer fires when the watermark has passed it, a clock timer in the first batch
    whose clock has reached it. A timer set in the past fires in the same batch. At the finish
    each waiting event-time timer fires once; those set then do not fire.

    State: the declared columns per key, as the function sets them; its timers.
    Emits: the rows the function returns, in order of their key's hash, at once; with the
    event time in their column `time`, without one if there is no such column.
    """

    def __init__(self, spec: Process, input_schema: pa.Schema, time: str | None = None) -> None:
        self.spec, self._time = spec, time
        self._columns = [name for name in input_schema.names if not name.startswith("_")]
        self._keys = pa.schema([input_schema.field(name) for name in spec.by])
        self._output: pa.Schema = spec.gives.arrow()
        values = tuple(StateColumn(f.name, f.type, "last") for f in spec.state.arrow())
        self._state = StateSpec(self._keys, values)
        self._timers = StateSpec(self._keys, ())

    @property
    def tables(self) -> dict[str, StateSpec]:
        """Event-time timers, the state of keys, clock timers."""
        return {EVENT: self._timers, ROWS: self._state, CLOCK: self._timers}

    def output(self) -> pa.Schema:
        """The columns in `gives`."""
        return self._output

    def due(self, watermark: int) -> int:
        """Timers below the watermark fire."""
        return watermark

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Hash the keys; no row is late."""
        wanted = [*self._columns, *ORIGIN]
        rows = rows.select(wanted)
        hashes = hash_keys([rows[name] for name in self.spec.by], rows.num_rows)
        return Prepared(rows.append_column(HASH, pa.array(hashes)), np.zeros(0, np.int64))

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Visit every key with new rows or due timers."""
        visits = self._visits(sides[0], state, batch_time)
        gathered = _Gathered()
        for visit in visits:
            self._visit(visit, batch_time, gathered)
        deltas = {table: self._as_timers(gathered.timers[table]) for table in (EVENT, CLOCK)}
        deltas[ROWS] = self._as_state(gathered.kept)
        return Outcome(
            self._results(gathered.rows),
            deltas,
            {EVENT: batch_time.after, CLOCK: min(batch_time.clock, END_OF_TIME - 1) + 1},
            held=_soonest(deltas[EVENT], state[EVENT], batch_time.after),
            wake=_soonest(deltas[CLOCK], state[CLOCK], batch_time.clock + 1),
        )

    def _visits(
        self, tables: Sequence[pa.Table], state: Mapping[str, View], batch_time: BatchTime
    ) -> list[Visit]:
        rows = _by_origin(tables)
        come = {
            EVENT: self._come(state[EVENT], batch_time.after),
            CLOCK: self._come(state[CLOCK], batch_time.clock + 1),
        }
        names = [HASH, *self.spec.by]
        parts = [part.select(names) for part in (rows, *come.values()) if part is not None]
        if not any(part.num_rows for part in parts):
            return []
        everyone = pa.concat_tables([_keyed(part, self._keys) for part in parts])
        bare = StateSpec(self._keys, ())
        wanted = combine(everyone, bare).drop_columns([GONE])
        found, values = state[ROWS].lookup(wanted)
        after, clock = _moment(batch_time.after), _moment(batch_time.clock)
        visits = [
            Visit(key, [], kept if has else None, [], after, clock)
            for key, kept, has in zip(
                wanted.select(list(self.spec.by)).to_pylist(), values.to_pylist(), found,
                strict=True,
            )
        ]  # fmt: skip
        self._deal(visits, wanted, rows, come)
        return visits

    def _deal(
        self, visits: list[Visit], wanted: pa.Table, rows: pa.Table | None, come: Mapping[str, Any]
    ) -> None:
        """Assign rows and timers to the visit of their key."""
        parts: list[tuple[str, pa.Table]] = [(name, part) for name, part in come.items()]
        if rows is not None:
            parts.append((ROWS, rows))
        for name, part in parts:
            owners = _owners(part, wanted, self.spec.by)
            if name == ROWS:
                for owner, row in zip(owners, part.select(self._columns).to_pylist(), strict=True):
                    visits[owner].rows.append(row)
            else:
                for owner, at in zip(owners, orders_of(part).tolist(), strict=True):
                    visits[owner].timers.append((name, _moment(at)))

    def _come(self, timers: View, below: int) -> pa.Table:
        empty = self._timers.visible.empty_table()
        return pa.concat_tables([empty, *timers.scan(MIN_TIME, below)])

    def _visit(self, visit: Visit, batch_time: BatchTime, gathered: _Gathered) -> None:
        had = visit.state is not None
        for _ in range(MOST_ROUNDS):
            gathered.rows += self._called(visit)
            now: list[tuple[str, datetime]] = []
            later: list[tuple[str, datetime]] = []
            for kind, at in visit.wanted:
                due = batch_time.after if kind == EVENT else batch_time.clock + 1
                (now if _micros(at) < due else later).append((kind, at))
            for kind, at in later:
                gathered.timers[kind].append({ORDER: _micros(at), **visit.key})
            if not now or batch_time.after == END_OF_TIME:
                break
            visit.rows, visit.timers, visit.wanted = [], now, []
        else:
            raise InvalidInput(
                f"process needs timers that stop setting new ones within {MOST_ROUNDS} calls",
                got=f"one that sets another in the past, for {visit.key}",
                do="set timers after visit.watermark or visit.clock",
            )
        if had or visit.state is not None:
            gathered.kept.append({**visit.key, GONE: visit.state is None, **(visit.state or {})})

    def _called(self, visit: Visit) -> list[Row]:
        given = self.spec.function(visit)
        rows = [] if given is None else list(given)
        names = set(self._output.names)
        for row in rows:
            if not hasattr(row, "keys") or not set(row) <= names:
                raise InvalidInput(
                    f"process needs rows with the columns {', '.join(self._output.names)}",
                    got=repr(row),
                    do="name them in gives=, or leave them out",
                )
        if visit.state is not None and not set(visit.state) <= {
            column.name for column in self._state.values
        }:
            raise InvalidInput(
                f"process needs a state of {', '.join(c.name for c in self._state.values)}",
                got=", ".join(visit.state),
                do="declare it in state=",
            )
        return [dict(row) for row in rows]

    def _results(self, rows: list[Row]) -> list[pa.Table]:
        if not rows:
            return []
        table = _typed(rows, self._output, "gives")
        times = pa.nulls(len(rows), pa.int64())
        if self._time is not None:
            if table[self._time].null_count:
                raise InvalidInput("process needs an event time in every row it gives",
                                   got=f"a null {self._time}", do="fill it")  # fmt: skip
            times = plain(table[self._time].cast(pa.int64()))
        signs = pa.array(np.ones(len(rows), np.int8))
        return [table.append_column(TIME, times).append_column("_sign", signs)]

    def _as_state(self, kept: list[Row]) -> pa.Table:
        schema = pa.schema([*self._keys, *self._state.value_fields, pa.field(GONE, pa.bool_())])
        table = _typed(kept, schema, "state")
        return combine(self._placed(table, np.zeros(len(kept), np.int64)), self._state)

    def _as_timers(self, timers: list[Row]) -> pa.Table:
        table = _typed(timers, pa.schema([pa.field(ORDER, pa.int64()), *self._keys]), "a timer")
        orders = int_values(plain(table[ORDER])) if timers else np.zeros(0, np.int64)
        return combine(self._placed(table.drop_columns([ORDER]), orders), self._timers)

    def _placed(self, table: pa.Table, orders: Any) -> pa.Table:
        hashes = hash_keys([table[name] for name in self.spec.by], table.num_rows)
        return table.add_column(0, ORDER, pa.array(orders)).add_column(1, HASH, pa.array(hashes))


def _keyed(part: pa.Table, keys: pa.Schema) -> pa.Table:
    zeros = pa.array(np.zeros(part.num_rows, np.int64))
    named = pa.schema([pa.field(ORDER, pa.int64()), pa.field(HASH, pa.uint64()), *keys])
    columns = [zeros, part[HASH], *(part[name] for name in keys.names)]
    return pa.Table.from_arrays(columns, schema=named)


def _by_origin(tables: Sequence[pa.Table]) -> pa.Table | None:
    if not any(table.num_rows for table in tables):
        return None
    rows = pa.concat_tables(tables)
    columns = [int_values(plain(rows[name])) for name in reversed(ORIGIN)]
    return rows.take(pa.array(np.lexsort(columns)))


def _owners(part: pa.Table, wanted: pa.Table, keys: Sequence[str]) -> list[int]:
    """For each row, the index of its key among the wanted ones."""
    count = wanted.num_rows
    both = pa.concat_tables([table.select([HASH, *keys]).cast(wanted.select([HASH, *keys]).schema)
                             for table in (wanted, part)])  # fmt: skip
    hashes = both[HASH].to_numpy()
    rows, starts, _ = arrange(np.zeros(len(both), np.int64), hashes, [plain(both[k]) for k in keys])
    places = np.arange(len(both)) if rows is None else rows
    sizes = np.diff(starts, append=len(both))
    first = np.repeat(places[starts], sizes)  # the wanted row, which is sorted before equal ones
    owner = np.empty(len(both), np.int64)
    owner[places] = first
    return [int(place) for place in owner[count:]]


def _typed(rows: Iterable[Row], schema: pa.Schema, what: str) -> pa.Table:
    try:
        return pa.Table.from_pylist(list(rows), schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"process needs values of the types that {what} declares",
            got=str(error),
            do="give other values, or declare other types",
        ) from error


def _soonest(new: pa.Table, known: View, low: int) -> int:
    soonest = int(orders_of(new)[0]) if new.num_rows else END_OF_TIME
    before = known.next_order(low) if low < END_OF_TIME else None
    return soonest if before is None else min(before, soonest)


def _micros(time: datetime) -> int:
    return (time - EPOCH) // _MICROSECOND


def _moment(micros: int) -> Any:
    """A time as a datetime; None at `MIN_TIME`, the largest datetime at the end of time."""
    if micros == MIN_TIME:
        return None
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return datetime.max.replace(tzinfo=EPOCH.tzinfo)
