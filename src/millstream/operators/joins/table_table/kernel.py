"""The join of two tables over Arrow: how a change of either side changes the view.

Rows of both sides are stored by the columns they are joined on. With M the rows that a batch
retracts, P those it adds, and U the unchanged rows of the same keys, the view

    loses  M × U, U × M, M × M    and gains  P × U, U × P, P × P    (left × right)

U is read only for keys that the other side has changed. Products are computed chunk by chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.joins.matching import grouped
from millstream.operators.joins.result_columns import LEFT, RIGHT, result_columns
from millstream.operators.joins.sides import shared_types
from millstream.operators.joins.table_table.sides import Changes, TableSide
from millstream.operators.joins.table_table.view_rows import Some, ViewRows
from millstream.operators.kernel import Outcome, Prepared
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.sorting import hashes_of
from millstream.state.spec import HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.joins.matching import Groups
    from millstream.operators.joins.table_table.spec import TableJoin
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

SIDES = ("left", "right")
COUNTS = ("left_counts", "right_counts")
COUNT = "_count"


@dataclass(frozen=True)
class Half:
    """One side of a batch: rows retracted, rows added, and unchanged rows.

    `before` and `after` are, for each key, whether the side has any row of it; None where this
    is not needed.
    """

    gone: Some
    come: Some
    still: Some
    before: Mask | None
    after: Mask | None


class TableJoinKernel:
    """The rows of two tables that agree in the join columns, updated as either table changes.

    Null matches nothing. Changes are rows added and retracted, in order of origin; only the net
    change of a batch counts. No row is late.

    State: the rows of both tables; for outer joins, the number of rows of each key on the other
    side.
    Emits: at once, the changes of the view in a batch: rows with −1, then rows with +1, with the
    time and the origin of the change that caused them.
    """

    moves_rows = True

    def __init__(self, spec: TableJoin, schemas: Sequence[pa.Schema]) -> None:
        self.spec = spec
        left, right = schemas
        names = [[f.name for f in schema if f.name[:1] != "_"] for schema in schemas]
        columns = result_columns(names[LEFT], names[RIGHT], spec.on, suffix=spec.suffix,
                                 step="table.join")  # fmt: skip
        types = shared_types(left, right, spec.on, step="table.join")
        self._sides = (
            TableSide(left, [ours for ours, _ in spec.on], types, spec.left),
            TableSide(right, [theirs for _, theirs in spec.on], types, spec.right),
        )
        self._rows = ViewRows(self._sides, columns, spec.on)
        self._counts = [
            StateSpec(
                keys=pa.schema([side.spec.keys.field(name) for name in side.on]),
                values=(StateColumn(COUNT, pa.int64(), "sum"),),
            )
            for side in self._sides
        ]

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The rows of both sides; for outer joins, the number of rows per key."""
        rows = {name: side.spec for name, side in zip(SIDES, self._sides, strict=True)}
        asked = [side for side in (LEFT, RIGHT) if self.spec.outer[1 - side]]
        return rows | {COUNTS[side]: self._counts[side] for side in asked}

    def output(self) -> pa.Schema:
        """The columns of the left, then those of the right; the origin of the change."""
        return self._rows.schema

    def due(self, watermark: int) -> int:
        """Nothing is emitted when time advances."""
        return MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Hash the join columns."""
        return Prepared(self._sides[side].exchanged(rows), np.zeros(0, np.int64))

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Apply the changes of both sides, and emit the changes of the view.

        `held` is the end of time: changes are emitted at once.
        """
        changes = [side.taken(tables) for side, tables in zip(self._sides, sides, strict=True)]
        deltas = {}
        for side in (LEFT, RIGHT):
            deltas[SIDES[side]] = self._sides[side].gained(changes[side])
            if COUNTS[side] in state:
                deltas[COUNTS[side]] = self._counted(side, changes[side])
        return Outcome(self._results(changes, state), deltas)

    def _results(self, changes: Sequence[Changes], state: Mapping[str, View]) -> Iterator[pa.Table]:
        both = list(zip(self._sides, changes, strict=True))
        groups, numbers = grouped(
            [hashes_of(changed.rows) for changed in changes],
            [side.joined_on(changed.rows) for side, changed in both],
        )
        if len(groups.hashes) == 0:
            return
        left, right = (self._half(side, groups, changes, numbers, state) for side in (LEFT, RIGHT))
        for sign, ours, theirs in ((-1, left.gone, right.gone), (+1, left.come, right.come)):
            yield from self._rows.products(sign, ours, right.still, cause=LEFT)
            yield from self._rows.products(sign, left.still, theirs, cause=RIGHT)
            yield from self._rows.products(sign, ours, theirs, cause=LEFT)
            yield from self._alone(sign, LEFT, left, right)
            yield from self._alone(sign, RIGHT, right, left)

    def _half(
        self,
        side: int,
        groups: Groups,
        changes: Sequence[Changes],
        numbers: Sequence[Ints],
        state: Mapping[str, View],
    ) -> Half:
        mine, changed, ours = self._sides[side], changes[side], numbers[side]
        asking = np.unique(numbers[1 - side][changes[1 - side].whole])
        owners, kept = mine.found(groups.table(asking, mine.on), state[SIDES[side]])
        same = mine.among(kept, asking[owners], changed.rows, ours)
        still = Some.of(kept.filter(pa.array(~same)), asking[owners][~same])
        before = after = None
        if self.spec.outer[1 - side]:
            count = self._count(side, groups, state[COUNTS[side]])
            before = count > 0
            signs = np.where(changed.given[changed.whole], 1, -1)
            np.add.at(count, ours[changed.whole], signs)
            after = count > 0
        return Half(
            changed.some(~changed.given, ours), changed.some(changed.given, ours), still,
            before, after,
        )  # fmt: skip

    def _alone(self, sign: int, side: int, mine: Half, other: Half) -> Iterator[pa.Table]:
        """Rows of an outer side that are no longer without a match (−1), or are now (+1)."""
        if not self.spec.outer[side]:
            return
        assert other.before is not None
        assert other.after is not None
        had, changed = (other.before, mine.gone) if sign < 0 else (other.after, mine.come)
        yield from self._rows.alone(sign, side, changed.filter(~had[changed.groups]))
        turned = mine.still.filter(~had[mine.still.groups])
        yield from self._rows.alone(sign, side, turned.caused_by(other.gone, other.come))

    def _count(self, side: int, groups: Groups, view: View) -> Ints:
        count = len(groups.hashes)
        wanted = groups.table(np.arange(count), self._sides[side].on)
        wanted = wanted.add_column(0, ORDER, pa.array(np.zeros(count, np.int64)))
        _, values = view.lookup(wanted)
        return int_values(plain(values[COUNT].fill_null(0))).copy()

    def _counted(self, side: int, changed: Changes) -> pa.Table:
        """The change of a side's number of rows per key."""
        names = [HASH, *self._sides[side].on]
        rows = changed.rows.select(names).filter(pa.array(changed.whole))
        signs = np.where(changed.given[changed.whole], 1, -1)
        rows = rows.add_column(0, ORDER, pa.array(np.zeros(rows.num_rows, np.int64)))
        return combine(rows.append_column(COUNT, pa.array(signs)), self._counts[side])
