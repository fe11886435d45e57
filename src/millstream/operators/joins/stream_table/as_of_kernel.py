"""The join of a stream with the versions of a table over Arrow.

Events wait, ordered by time, until the table's watermark is beyond their time: then every change
up to that time has arrived. A version is kept as long as an event may need it. It is dropped
because of its successor: the batch of the successor sets a timer for its time, and when no event
can be older than that, the timer's key is checked, and no other.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.joins.matching import grouped, moved
from millstream.operators.joins.result_columns import LEFT, RIGHT
from millstream.operators.joins.sides import AT, Side, present, shared_types
from millstream.operators.joins.stream_table.enriched import CHUNK_BYTES, NOWHERE, Enriched
from millstream.operators.joins.stream_table.versions import ALIVE, FORGET, History, Versions
from millstream.operators.kernel import Outcome, Prepared
from millstream.operators.lateness import part_late
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine, conform
from millstream.state.sorting import hashes_of
from millstream.state.spec import GONE, HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.joins.stream_table.spec import AsOf
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]

WAITING, VERSIONS, TIMERS = "waiting", "versions", "timers"
EVENTS, TABLE, EVERYWHERE = LEFT, RIGHT, 2


class AsOfKernel:
    """Each event with the row of its key that the table had at the event's own time.

    An event is late when both watermarks are beyond its time: versions are kept from the
    smaller one on. A change behind the table's watermark is applied, and corrects no emitted
    event. A key deleted at that time, a null key and a key the table never had match nothing:
    the event is emitted with nulls for the table's columns (`left`), or not at all.

    Versions are stored by key. Events go to the bucket of their key or, if the table is
    replicated, to any: each range of buckets receives every change and reads all versions.

    State: events, until the table's watermark is beyond their time; per key the versions that
    an event may still need; a timer for each that has not replaced the previous version yet.
    Emits: each event once, when the table's watermark is beyond it, with its time and origin.
    """

    shared = (VERSIONS,)

    def __init__(
        self, spec: AsOf, schemas: Sequence[pa.Schema], times: Sequence[tuple[str, int] | None]
    ) -> None:
        if times[EVENTS] is None:
            raise InvalidSpec(
                "as_of needs a stream with an event time",
                got="a stream without one",
                do="give read(…) a time=, or use lookup for the table as it is now",
            )
        self.spec, self._replicated = spec, spec.replicated(0)
        self._broadcasts = self._replicated
        stream, table = schemas
        types = shared_types(stream, table, spec.on, step="as_of")
        self._events = Side(stream, [left for left, _ in spec.on], types, step="as_of")
        self._versions = Versions(table, [right for _, right in spec.on], types)
        self._enriched = Enriched(
            self._events.columns, self._versions.columns, spec.on, suffix=spec.suffix,
            step="as_of",
        )  # fmt: skip

    @property
    def tables(self) -> dict[str, StateSpec]:
        """Waiting events by time, versions by key, and timers for versions to drop."""
        return {
            WAITING: self._events.spec,
            VERSIONS: self._versions.spec,
            TIMERS: self._versions.timer_spec,
        }

    def planned(self, sizes: Mapping[str, int]) -> AsOfKernel:
        """The kernel for one batch: a small table is replicated, unless the user chose a plan.

        While events wait, changes are broadcast: by an earlier plan, any range may hold the events.
        """
        made = copy(self)
        made._replicated = self.spec.replicated(sizes[VERSIONS])
        made._broadcasts = made._replicated or sizes[WAITING] > 0
        return made

    def output(self) -> pa.Schema:
        """The columns of the stream, then those of the table; the origin of the event."""
        return self._enriched.schema

    def due(self, watermark: int) -> int:
        """Events before the table's watermark are emitted."""
        return watermark

    def dues(self, sides: Sequence[int]) -> dict[str, int]:
        """Events wait for the table's watermark."""
        return {WAITING: sides[TABLE]}

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Separate the late events; the others, and changes, go to the bucket of their keys."""
        if side == TABLE:
            changes = self._versions.exchanged(rows)
            broadcast = changes if self._broadcasts else None
            return Prepared(changes, np.zeros(0, np.int64), broadcast=broadcast)
        self._events.require(rows, timed=True)
        rows, _, late = part_late(rows, batch_time.before)
        exchange = self._events.exchanged(rows, timed=True, spread=self._replicated)
        return Prepared(exchange, late)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Add changes and events; emit the events that the table's watermark has passed.

        `held` is the end of time: waiting events are not behind the table's watermark.
        """
        changes = self._versions.taken(sides[TABLE])
        events = self._events.taken(sides[EVENTS])
        times = int_values(plain(events[AT]))
        events = self._events.numbered(events, times, state[WAITING])
        after = batch_time.after_of(TABLE)
        waits = times >= after if after < END_OF_TIME else np.zeros(len(times), np.bool_)
        waits &= present(self._events.shared_keys(events), len(times))
        staying, leaving = (events.filter(pa.array(which)) for which in (waits, ~waits))
        deltas = {WAITING: self._events.kept(staying, times[waits])}
        deltas[VERSIONS], deltas[TIMERS] = self._settled(changes, state, batch_time.after)
        floors = {WAITING: after, TIMERS: min(batch_time.after, END_OF_TIME - 1) + 1}
        everyones = self._versions.taken(sides[EVERYWHERE]) if len(sides) > EVERYWHERE else changes
        results = self._results(leaving, everyones, state, after)
        return Outcome(results, deltas, floors)

    def _results(
        self, leaving: pa.Table, changes: pa.Table, state: Mapping[str, View], after: int
    ) -> Iterator[pa.Table]:
        yield from self._answers(leaving, changes, state[VERSIONS])
        high = None if after == END_OF_TIME else after
        for waited in state[WAITING].scan(MIN_TIME, high, max_bytes=CHUNK_BYTES):
            yield from self._answers(waited, changes, state[VERSIONS])

    def _answers(self, events: pa.Table, changes: pa.Table, view: View) -> Iterator[pa.Table]:
        """Events with the version of their key and time, in chunks."""
        if events.num_rows == 0:
            return
        history, groups = self._histories(events, changes, view)
        at = history.at(groups, int_values(plain(events[AT])))
        at[~present(self._events.shared_keys(events), len(at))] = NOWHERE
        yield from self._enriched.results(events, history.rows, at, every=self.spec.how == "left")

    def _histories(self, events: pa.Table, changes: pa.Table, view: View) -> tuple[History, Ints]:
        """All versions of the keys of events, and the number of each event's key."""
        groups, (asked, changed) = grouped(
            [self._events.key_hashes(events), hashes_of(changes)],
            [self._events.shared_keys(events), self._versions.shared_keys(changes)],
        )
        wanted = np.unique(asked)
        owners, kept = self._versions.found(groups.table(wanted, self._versions.keys), view)
        new = np.flatnonzero(np.isin(changed, wanted))
        every = pa.concat_tables([kept, changes.take(pa.array(new))])
        numbers = np.concatenate([wanted[owners], changed[new]])
        return History(every, numbers, len(groups.hashes)), asked

    def _settled(
        self, changes: pa.Table, state: Mapping[str, View], bound: int
    ) -> tuple[pa.Table, pa.Table]:
        """The deltas of versions and timers: changes that apply, versions to drop."""
        versions = [self._versions.spec.schema.empty_table()]
        timers = [self._versions.timer_spec.schema.empty_table()]
        if changes.num_rows:
            groups, (changed,) = grouped(
                [hashes_of(changes)], [self._versions.shared_keys(changes)]
            )
            wanted = groups.table(np.arange(len(groups.hashes)), self._versions.keys)
            gained, fresh = self._gained(wanted, changes, changed, state[VERSIONS], bound)
            versions.append(gained)
            timers.append(self._timers(fresh, bound))
        high = None if bound == END_OF_TIME else bound + 1
        for due in state[TIMERS].scan(MIN_TIME, high):
            wanted = self._unchanged(due, changes)
            nothing, nobody = changes.slice(0, 0), np.zeros(0, np.int64)
            gained, _ = self._gained(wanted, nothing, nobody, state[VERSIONS], bound)
            versions.append(gained)
        return (
            combine(pa.concat_tables(versions), self._versions.spec),
            combine(pa.concat_tables(timers), self._versions.timer_spec),
        )

    def _gained(
        self, wanted: pa.Table, changes: pa.Table, changed: Ints, view: View, bound: int
    ) -> tuple[pa.Table, pa.Table]:
        """The versions that some keys gain and lose, and which changes are kept."""
        owners, kept = self._versions.found(wanted, view)
        every = pa.concat_tables([kept, changes])
        history = History(every, np.concatenate([owners, changed]), wanted.num_rows)
        needless, fresh = history.needless(bound), history.order >= kept.num_rows
        matters = np.flatnonzero(needless != fresh)
        rows = history.rows.take(pa.array(matters))
        rows = rows.add_column(0, ORDER, pa.array(np.zeros(len(matters), np.int64)))
        rows = rows.append_column(GONE, pa.array(needless[matters]))
        stays = history.rows.filter(pa.array(fresh & ~needless))
        return conform(rows, self._versions.spec), stays

    def _timers(self, fresh: pa.Table, bound: int) -> pa.Table:
        """When new versions end their predecessors, and when deletes may be dropped."""
        times = int_values(plain(fresh[AT]))
        alive = plain(fresh[ALIVE]).to_numpy(zero_copy_only=False)
        later, deleted = np.flatnonzero(times > bound), np.flatnonzero(~alive)
        orders = np.concatenate([times[later], moved(times[deleted], FORGET)])
        rows = fresh.select([HASH, *self._versions.keys])
        rows = rows.take(pa.array(np.concatenate([later, deleted])))
        return conform(rows.add_column(0, ORDER, pa.array(orders)), self._versions.timer_spec)

    def _unchanged(self, due: pa.Table, changes: pa.Table) -> pa.Table:
        """The keys with a timer that is due, without those already processed."""
        keys = self._versions.shared_keys
        groups, (asked, changed) = grouped(
            [hashes_of(due), hashes_of(changes)], [keys(due), keys(changes)]
        )
        left = np.setdiff1d(asked, changed)
        return groups.table(left, self._versions.keys)
