"""Stateless steps without Spark: a chain of them over one leaf as a function of an Arrow table.

    where, select, with_columns, drop, explode -- compiled --> ArrowSteps, or None: Spark runs them

No expression in the subset can raise, and all are deterministic. So filters run first, before all
other steps back to the last `explode`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.plan.columns import EVERY
from millstream.plan.graph import Drop, Explode, Select, Where, WithColumns
from millstream.plan.stages import POSITION, SIGN, TIME
from millstream.sources.decode import ORIGIN
from millstream.sources.spec import HIDDEN
from millstream.sql import columns as sql
from millstream.sql.arrow.expressions import MOST, expression
from millstream.sql.arrow.types import BOOL, SIMPLE, NeedsSpark
from millstream.sql.arrow.values import ArrowSteps, Cast, Column, Exploded, Filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.plan.graph import Node
    from millstream.plan.stages import Side
    from millstream.sql.arrow.values import Value

_INTERNAL = frozenset((*ORIGIN, *HIDDEN, SIGN, TIME, POSITION))
_NEVER_NULL = "not null"  # nested: Spark's handling of these is not reproduced


def compiled(side: Side, leaf: pa.Schema, gives: pa.Schema | None = None) -> ArrowSteps | None:
    """The steps of a side over rows of these columns, or None if only Spark can run them.

    `gives` are the columns that Spark has derived: they must be equal, except for the names of the
    elements of lists.
    """
    try:
        steps = _compiled(side, leaf)
    except NeedsSpark:
        return None
    if gives is None:
        return steps
    return _named(steps, gives) if steps.columns == gives else None


def _named(steps: ArrowSteps, gives: pa.Schema) -> ArrowSteps:
    """The same steps, whose nested columns have the field names that Spark gives."""
    values = tuple(value if str(value.type) == str(one.type) else Cast(value, one.type)
                   for value, one in zip(steps.values, gives, strict=True))  # fmt: skip
    return replace(steps, values=values, columns=gives)


def with_spark_names(columns: pa.Schema) -> pa.Schema:
    """The same columns, with the names that Spark gives to nested fields."""
    return pa.schema([pa.field(one.name, _with_spark_names(one.type)) for one in columns])


def _with_spark_names(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _with_spark_names(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _with_spark_names(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_spark_names(kind.key_type), _with_spark_names(kind.item_type))
    return kind


@dataclass
class _Segment:
    """The steps from the leaf or an `explode` to the next `explode`, of the column `opens`."""

    columns: dict[str, Value]
    conditions: list[Value] = field(default_factory=list)
    opens: str | None = None

    def needs(self) -> frozenset[str]:
        """The input columns that it reads."""
        of_each = (value.columns for value in (*self.conditions, *self.columns.values()))
        return frozenset[str]().union(*of_each)

    def keep(self, names: frozenset[str]) -> None:
        """Return these columns and the exploded one."""
        self.columns = {name: value for name, value in self.columns.items()
                      if name in names or name == self.opens}  # fmt: skip

    def compiled(self, exploded: Exploded | None) -> ArrowSteps:
        """Its steps, after an earlier `explode`."""
        values = tuple(self.columns.values())
        schema = pa.schema([pa.field(name, value.type) for name, value in self.columns.items()])
        filters = tuple(_filters(self.conditions, values))
        return ArrowSteps(filters, values, schema, exploded)


def _compiled(side: Side, leaf: pa.Schema) -> ArrowSteps:
    if len(side.leaves) != 1 or any(_NEVER_NULL in str(one.type) for one in leaf):
        raise NeedsSpark
    if not {*ORIGIN, *side.carried} <= set(leaf.names):
        raise NeedsSpark
    columns: dict[str, Value] = {name: Column(name, leaf.field(name).type) for name in leaf.names}
    beside = {name: columns[name] for name in (*ORIGIN, *side.carried)}
    users = {name: value for name, value in columns.items() if name not in _INTERNAL}
    *before, last = _segments(_chain(side), users)
    for segment in (*before, last):
        segment.columns |= beside
    for behind, segment in pairwise((last, *reversed(before))):
        segment.keep(behind.needs())
    exploded = None
    for segment in before:
        assert segment.opens is not None
        exploded = Exploded(segment.compiled(exploded), segment.opens)
    return last.compiled(exploded)


def _segments(steps: Sequence[Node], columns: dict[str, Value]) -> list[_Segment]:
    """The columns after the steps, divided at each `explode`."""
    rows = _Segment(columns)
    segments = [rows]
    for step in steps:
        if isinstance(step, Explode):
            rows = _Segment(_opened(step, rows))
            segments.append(rows)
        elif isinstance(step, Where):
            rows.conditions.append(_condition(step, rows.columns))
        else:
            rows.columns = _columns(step, rows.columns)
    return segments


def _opened(step: Explode, rows: _Segment) -> dict[str, Value]:
    """The columns after an `explode`."""
    value = rows.columns.get(step.column)
    if value is None or not pa.types.is_list(value.type):
        raise NeedsSpark
    rows.opens = step.column
    kinds = {name: one.type for name, one in rows.columns.items()}
    kinds[step.column] = value.type.value_type
    return {name: Column(name, kind) for name, kind in kinds.items()}


def _chain(side: Side) -> list[Node]:
    """The steps above the leaf, first to last."""
    steps: list[Node] = []
    node = side.tree
    while node not in side.leaves:
        if type(node) not in (Where, Select, WithColumns, Drop, Explode):
            raise NeedsSpark
        steps.append(node)
        (node,) = node.inputs
    return steps[::-1]


def _condition(step: Where, columns: dict[str, Value]) -> Value:
    condition = expression(step.sql, columns)
    if condition.type != BOOL:
        raise NeedsSpark
    return condition


def _columns(step: Node, columns: dict[str, Value]) -> dict[str, Value]:
    """The columns after a step."""
    if isinstance(step, Drop):
        if not set(step.names) <= columns.keys():
            raise NeedsSpark
        return {name: value for name, value in columns.items() if name not in step.names}
    assert isinstance(step, Select | WithColumns)
    made: list[tuple[str, Value]] = []
    for name, text in step.items:
        made += columns.items() if text == EVERY else [_item(name, text, columns)]
    if isinstance(step, WithColumns):
        new = {name.lower(): (name, value) for name, value in made}
        made = [new.pop(old.lower(), (old, value)) for old, value in columns.items()]
        made += new.values()
    if len({name.lower() for name, _ in made}) != len(made):
        raise NeedsSpark
    return dict(made)


def _item(name: str, text: str, columns: dict[str, Value]) -> tuple[str, Value]:
    value = expression(text, columns)
    if not value.columns and value.type not in SIMPLE:
        raise NeedsSpark
    return (sql.alias(text, step="select")[0] if sql.has_alias(text) else name), value


def _filters(conditions: Sequence[Value], values: Sequence[Value]) -> list[Filter]:
    """The filters, each with the columns that later filters and the result need."""
    needed = frozenset[str]().union(*(value.columns for value in values))
    filters: list[Filter] = []
    for condition in reversed(conditions):
        filters.append(Filter(condition, tuple(sorted(needed))))
        needed |= condition.columns
    if sum(value.size for value in (*conditions, *values)) > 10 * MOST:
        raise NeedsSpark
    return filters[::-1]
