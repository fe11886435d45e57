"""When groups fire; evaluated for all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.windows.trigger import AllOf, AnyOf, Each, Every, When, conditions
from millstream.sql.condition import condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from millstream.operators.windows.trigger import Firing
    from millstream.sql.condition import Value

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Groups:
    """The values that a trigger evaluates.

    `new` counts the rows since the last pane, `since` is the batch clock of the last
    firing or, before it, of the first row; `answers` has the aggregates so far, where the
    trigger is `conditional`.
    """

    new: Ints
    since: Ints
    answers: pa.Table | None


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision for each group at the end of a batch.

    `fires` and, for those, `labels`: the kind of pane; `stays`: whether the group stays in
    state; `at`: the batch clock from which it fires without new rows.
    """

    fires: Mask
    labels: Ints
    stays: Mask
    at: Ints

    @property
    def waits(self) -> Ints:
        """The indices of groups that will fire by the clock without new rows."""
        return np.flatnonzero(self.stays & ~self.fires & (self.at < END_OF_TIME))


class Ready:
    """A trigger compiled for rows of these aggregates."""

    def __init__(self, firing: Firing | None, columns: tuple[str, ...]) -> None:
        self.firing = firing
        self._conditions = {sql: condition(sql, columns) for sql in conditions(firing)}

    @property
    def conditional(self) -> bool:
        """Whether it depends on the aggregates."""
        return bool(self._conditions)

    def at(self, groups: Groups) -> Ints:
        """The batch clock from which each group fires without new rows.

        `END_OF_TIME` where it never would: nothing is new, or more rows are needed.
        """
        if self.firing is None:
            return np.full(len(groups.new), END_OF_TIME)
        at = _at(self.firing, groups, self._conditions)
        return np.where(groups.new > 0, at, END_OF_TIME)


def _at(firing: Firing, groups: Groups, compiled: Mapping[str, Value]) -> Ints:
    match firing:
        case Every(period):
            beyond = groups.since > END_OF_TIME - period
            return np.where(beyond, END_OF_TIME, groups.since + period)
        case Each(rows):
            return np.where(groups.new >= rows, MIN_TIME, END_OF_TIME)
        case When(sql):
            assert groups.answers is not None
            true = compiled[sql](groups.answers)
            return np.where(_known(true, len(groups.new)), MIN_TIME, END_OF_TIME)
        case AnyOf(firings):
            return np.asarray(np.minimum.reduce([_at(one, groups, compiled) for one in firings]))
        case AllOf(firings):
            return np.asarray(np.maximum.reduce([_at(one, groups, compiled) for one in firings]))


def _known(true: pa.ChunkedArray | pa.Scalar, count: int) -> NDArray[np.bool_]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(true, pa.Scalar):
        return np.full(count, bool(true.as_py()))
    known = pc.fill_null(true, False)  # noqa: FBT003
    return np.asarray(known.to_numpy(zero_copy_only=False), np.bool_)
