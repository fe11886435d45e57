"""The nodes of tables, whose rows are added and retracted, and of their changes as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.plan.graph import Node, Read, Stateful, Where

if TYPE_CHECKING:
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.tables.spec import Current, Folded


@dataclass(frozen=True, eq=False)
class TableWhere(Where):
    """Changes of rows for which the SQL is true; for other rows the key is deleted."""

    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class CurrentRows(Stateful):
    """The current row per key: takes changes, emits rows added and retracted."""

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
    """Aggregates per key over all rows, without a window, updated as rows come and go.

    `of` is the key of the table that is aggregated; empty for a stream.
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
    """The result of a user's function over each key's rows, one after the other."""

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
