"""Groups that wait for the batch clock: a table ordered by the clock at which each may fire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.state.sorting import orders_of
from millstream.state.spec import HASH, ORDER, StateSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from millstream.state.runs.view import View

TIMERS = "timers"


class ClockTimers:
    """One row per timer: its clock, and the keys of the waiting group.

    A timer means "check again", not "fire": groups that have fired or grown meanwhile are checked
    again, so a timer is never retracted, only dropped when its clock has passed.
    """

    def __init__(self, keys: pa.Schema) -> None:
        self.spec = StateSpec(keys, ())

    def asked(self, timers: View, clock: int) -> pa.Table:
        """Hash and keys of the timers that are due at the clock."""
        tables = [self.spec.visible.empty_table(), *timers.scan(MIN_TIME, clock + 1)]
        return pa.concat_tables(tables).drop_columns([ORDER])

    def waiting(self, those: pa.Table, at: NDArray[np.int64]) -> pa.Table:
        """A timer at a clock for each row of hash and keys."""
        columns = {name: those[name] for name in (HASH, *self.spec.key_names)}
        return pa.table({ORDER: pa.array(at)} | columns)

    def floor(self, clock: int) -> dict[str, int]:
        """The clock below which timers are dropped; none at the end of time."""
        return {TIMERS: clock + 1} if clock < END_OF_TIME else {}

    def wake(self, new: pa.Table, timers: View, clock: int) -> int:
        """The next clock at which a timer is due, new ones included."""
        known = timers.next_order(clock + 1) if clock < END_OF_TIME else None
        soonest = int(orders_of(new)[0]) if new.num_rows else END_OF_TIME
        return soonest if known is None else min(known, soonest)
