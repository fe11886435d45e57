"""The nodes of tables: steps that give rows and take them back, and what reads them as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.plan.graph import Node, Read, Stateful, Where

if TYPE_CHECKING:
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.tables.spec import Current, Folded


@dataclass(frozen=True, eq=False)
class TableWhere(Where):
    """Changes of rows for which the SQL is true; for others, the key is gone."""

    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class CurrentRows(Stateful):
    """The row that counts, per key: changes in, rows added and retracted out."""

    corrects = True

    spec: Current

    @property
    def kind(self) -> str:
        return "latest" if self.spec.order == "origin" else "current"

    @property
    def keys(self) -> tuple[str, ...]:
        return self.spec.keys


@dataclass(frozen=True, eq=False)
class TableAggregated(Stateful):
    """Aggregates per key, of all rows there are: they change as rows come and go.

    `of` is the key of the table whose rows they are; rows of a stream have none.
    """

    kind = "agg"
    corrects = True
    replaces_columns = True

    by: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    of: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return self.by


@dataclass(frozen=True, eq=False)
class FoldedRows(Stateful):
    """What a function makes of each key's rows, one after the other."""

    kind = "fold"
    corrects = True
    replaces_columns = True

    spec: Folded

    @property
    def keys(self) -> tuple[str, ...]:
        return self.spec.by


@dataclass(frozen=True, eq=False)
class TableChanges(Stateful):
    """The changes of a table as events: insert, update, delete."""

    kind = "changes"
    corrects = False

    by: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.by


def is_table_of_changes(node: Node) -> bool:
    """Whether a node's rows are sets and deletes by key, not rows added and retracted."""
    while not isinstance(node, Read | Stateful):
        node = node.inputs[0]
    return isinstance(node, Read)
