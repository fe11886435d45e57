"""The columns of session windows: in the shuffle, while they are merged, and at rest.

    piece     the part of a session in one slice of a batch: keys, first, last, parts
    merging   pieces and stored sessions of one key, combined column by column;
              some columns exist only for stored sessions
    session   a stored session
    timer     a time from which a key has a session that may be due

The hash is that of the keys alone, so all sessions of a key are found together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.operators.aggregates.aggregation import Aggregation
from millstream.operators.windows.panes.state import ARRIVED, NEW_PARTS, arrived_part
from millstream.state.spec import ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.windows.trigger import Trigger

TIMERS, SESSIONS, CLOCKS, POINTS = "timers", "sessions", "clocks", "points"
FIRST, LAST = "_first", "_last"
SUSPECT = "_suspect"
DUE, RINGS = "_due", "_rings"  # the watermark and the clock for which timers are set
OPENED, FIRED, PANES = "_opened", "_fired", "_panes"
PANE, PANE_INDEX, RETRACT = "pane", "pane_index", "retract"
SHOWN, FLOWED = "shown", "flowed"

_SPAN = (StateColumn(FIRST, pa.int64(), "min"), StateColumn(LAST, pa.int64(), "max"))
_DUE = StateColumn(DUE, pa.int64(), "min")
_FIRING = (
    StateColumn(RINGS, pa.int64(), "min"),
    StateColumn(OPENED, pa.int64(), "min"),
    StateColumn(FIRED, pa.int64(), "max"),
    StateColumn(PANES, pa.int64(), "max"),
)
_KNOWN_ALONE = (DUE, RINGS, FIRED, PANES)


class Layout:
    """Specs and schemas for these keys and aggregates over rows of a schema.

    With panes, a session also stores the number of rows since its last pane, when it was opened
    and fired, and that pane; with discarding panes, the parts of the rows since then. With
    early panes, the row sent to later operators is stored separately.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        schema: pa.Schema,
        *,
        trigger: Trigger | None = None,
        retractable: bool = False,
    ) -> None:
        self.trigger, self.retractable = trigger, retractable
        more = [] if trigger is None else [arrived_part()]
        self.of = Aggregation(keys, aggregates, schema, more=more, retractable=retractable)
        self.keys = self.of.keys
        parts = self.of.spec.values
        totals = [column for column in parts if column.name != ARRIVED]
        self.totals = [field.name for column in totals for field in column.fields]
        self.piece = StateSpec(self.of.spec.keys, (*_SPAN, *parts))
        firing: tuple[StateColumn, ...] = () if trigger is None else _FIRING
        self.discarding = trigger is not None and trigger.panes == "discarding"
        if self.discarding:
            firing += tuple(replace(column, name=NEW_PARTS + column.name) for column in totals)
        self.merging = _merging(*_SPAN, _DUE, *firing, *parts)
        known = [column for column in self.merging.values if column.name in _KNOWN_ALONE]
        self.known_alone = _merging(*known)
        self.in_both = _merging(*(c for c in self.merging.values if c not in (*known, _SPAN[0])))
        self.output = self.of.output([] if trigger is None else _pane_fields(trigger))
        self.cards = [] if trigger is None else [SHOWN, *([FLOWED] if trigger.early else [])]
        self.session = self._session()
        self.timer = StateSpec(self.of.spec.keys, ())
        self.point = StateSpec(self._with_first(), parts)

    def _session(self) -> StateSpec:
        fields = [field for field in self.merging.value_fields if field.name != FIRST]
        fields += [field for card in self.cards for field in self.card(card)]
        columns = tuple(StateColumn(field.name, field.type, "last") for field in fields)
        return StateSpec(self._with_first(), columns)

    def _with_first(self) -> pa.Schema:
        return pa.schema([*self.of.spec.keys, pa.field(FIRST, pa.int64())])

    def card(self, name: str) -> list[pa.Field]:
        """The columns of a pane as it was emitted: its last time, label, number, results."""
        answers = [self.output.field(answer) for answer in self.of.names]
        fields = [pa.field(LAST, pa.int64()), pa.field(PANE, pa.int8()),
                  pa.field(PANE_INDEX, pa.int64()), *answers]  # fmt: skip
        return [pa.field(f"{name}:{field.name}", field.type) for field in fields]

    @property
    def no_pieces(self) -> pa.Table:
        """The pieces of a batch without rows."""
        return self.piece.visible.empty_table().drop_columns([ORDER])


def _merging(*columns: StateColumn) -> StateSpec:
    return StateSpec(pa.schema([]), columns)


def _pane_fields(trigger: Trigger) -> list[pa.Field]:
    fields = [pa.field(PANE, pa.string()), pa.field(PANE_INDEX, pa.int64())]
    if trigger.panes == "retracting":
        fields.append(pa.field(RETRACT, pa.bool_()))
    return fields
