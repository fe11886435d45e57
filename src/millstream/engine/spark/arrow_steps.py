"""Stateless steps without Spark: a chain of them over one leaf as a function of an Arrow table.

    where, select, with_columns, drop, explode -- compiled --> ArrowSteps, or None: Spark's

No expression in the subset can raise and all of it is deterministic, so filters are taken
first, whatever stands before them in the chain, back to the last `explode`.
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
from millstream.sql.arrow.values import ArrowSteps, Cast, Column, Filter, Opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.plan.graph import Node
    from millstream.plan.stages import Side
    from millstream.sql.arrow.values import Value

_NOT_THE_USERS = frozenset((*ORIGIN, *HIDDEN, SIGN, TIME, POSITION))
_NEVER_NULL = "not null"  # within a column: how Spark takes those is not ours to say


def compiled(side: Side, leaf: pa.Schema, gives: pa.Schema | None = None) -> ArrowSteps | None:
    """The steps of a side over rows of these columns, or None where only Spark can run them.

    `gives` are the columns as Spark has derived them: they must be the very same, but for what
    the elements of a list are called.
    """
    try:
        steps = _compiled(side, leaf)
    except NeedsSpark:
        return None
    if gives is None:
        return steps
    return _named(steps, gives) if steps.columns == gives else None


def _named(steps: ArrowSteps, gives: pa.Schema) -> ArrowSteps:
    """The same columns, with the parts of nested ones called as Spark calls them."""
    values = tuple(value if str(value.type) == str(one.type) else Cast(value, one.type)
                   for value, one in zip(steps.values, gives, strict=True))  # fmt: skip
    return replace(steps, values=values, columns=gives)


def as_spark_calls(columns: pa.Schema) -> pa.Schema:
    """The same columns, with the parts of nested ones called as Spark calls them."""
    return pa.schema([pa.field(one.name, _called(one.type)) for one in columns])


def _called(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _called(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _called(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_called(kind.key_type), _called(kind.item_type))
    return kind


@dataclass
class _Stretch:
    """The steps from the leaf, or from an `explode`, to the next one: `opens` its column."""

    there: dict[str, Value]
    conditions: list[Value] = field(default_factory=list)
    opens: str | None = None

    def needs(self) -> frozenset[str]:
        """The columns that it reads of what comes in."""
        of_each = (value.columns for value in (*self.conditions, *self.there.values()))
        return frozenset[str]().union(*of_each)

    def keep(self, names: frozenset[str]) -> None:
        """Give these columns, and the one that is opened."""
        self.there = {name: value for name, value in self.there.items()
                      if name in names or name == self.opens}  # fmt: skip

    def compiled(self, opened: Opened | None) -> ArrowSteps:
        """As steps behind what was opened before them."""
        values = tuple(self.there.values())
        schema = pa.schema([pa.field(name, value.type) for name, value in self.there.items()])
        filters = tuple(_filters(self.conditions, values))
        return ArrowSteps(filters, values, schema, opened)


def _compiled(side: Side, leaf: pa.Schema) -> ArrowSteps:
    if len(side.leaves) != 1 or any(_NEVER_NULL in str(one.type) for one in leaf):
        raise NeedsSpark
    if not {*ORIGIN, *side.carried} <= set(leaf.names):
        raise NeedsSpark
    there: dict[str, Value] = {name: Column(name, leaf.field(name).type) for name in leaf.names}
    beside = {name: there[name] for name in (*ORIGIN, *side.carried)}
    users = {name: value for name, value in there.items() if name not in _NOT_THE_USERS}
    *before, last = _stretches(_chain(side), users)
    for stretch in (*before, last):
        stretch.there |= beside
    for behind, stretch in pairwise((last, *reversed(before))):
        stretch.keep(behind.needs())
    opened = None
    for stretch in before:
        assert stretch.opens is not None
        opened = Opened(stretch.compiled(opened), stretch.opens)
    return last.compiled(opened)


def _stretches(steps: Sequence[Node], there: dict[str, Value]) -> list[_Stretch]:
    """What the steps make of these columns, cut at each `explode`."""
    rows = _Stretch(there)
    stretches = [rows]
    for step in steps:
        if isinstance(step, Explode):
            rows = _Stretch(_opened(step, rows))
            stretches.append(rows)
        elif isinstance(step, Where):
            rows.conditions.append(_condition(step, rows.there))
        else:
            rows.there = _columns(step, rows.there)
    return stretches


def _opened(step: Explode, rows: _Stretch) -> dict[str, Value]:
    """The columns behind a step that opens one of those there are."""
    value = rows.there.get(step.column)
    if value is None or not pa.types.is_list(value.type):
        raise NeedsSpark
    rows.opens = step.column
    kinds = {name: one.type for name, one in rows.there.items()}
    kinds[step.column] = value.type.value_type
    return {name: Column(name, kind) for name, kind in kinds.items()}


def _chain(side: Side) -> list[Node]:
    """The steps above the leaf, the first one first."""
    steps: list[Node] = []
    node = side.tree
    while node not in side.leaves:
        if type(node) not in (Where, Select, WithColumns, Drop, Explode):
            raise NeedsSpark
        steps.append(node)
        (node,) = node.inputs
    return steps[::-1]


def _condition(step: Where, there: dict[str, Value]) -> Value:
    condition = expression(step.sql, there)
    if condition.type != BOOL:
        raise NeedsSpark
    return condition


def _columns(step: Node, there: dict[str, Value]) -> dict[str, Value]:
    """What a step makes of the columns there are."""
    if isinstance(step, Drop):
        if not set(step.names) <= there.keys():
            raise NeedsSpark
        return {name: value for name, value in there.items() if name not in step.names}
    assert isinstance(step, Select | WithColumns)
    made: list[tuple[str, Value]] = []
    for name, text in step.items:
        made += there.items() if text == EVERY else [_item(name, text, there)]
    if isinstance(step, WithColumns):
        new = {name.lower(): (name, value) for name, value in made}
        made = [new.pop(old.lower(), (old, value)) for old, value in there.items()]
        made += new.values()
    if len({name.lower() for name, _ in made}) != len(made):
        raise NeedsSpark
    return dict(made)


def _item(name: str, text: str, there: dict[str, Value]) -> tuple[str, Value]:
    value = expression(text, there)
    if not value.columns and value.type not in SIMPLE:
        raise NeedsSpark
    return (sql.alias(text, step="select")[0] if sql.has_alias(text) else name), value


def _filters(conditions: Sequence[Value], values: Sequence[Value]) -> list[Filter]:
    """The filters, each with the columns that those after it and the result need."""
    needed = frozenset[str]().union(*(value.columns for value in values))
    filters: list[Filter] = []
    for condition in reversed(conditions):
        filters.append(Filter(condition, tuple(sorted(needed))))
        needed |= condition.columns
    if sum(value.size for value in (*conditions, *values)) > 10 * MOST:
        raise NeedsSpark
    return filters[::-1]
