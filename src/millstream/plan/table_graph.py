"""The nodes of tables: steps that give rows and take them back, and what reads them as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.plan.graph import Node, Read, Stateful, Where

if TYPE_CHECKING:
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.tables.spec import Current, Folded


@dataclass(frozen=True, eq=False)
class KeptWhere(Where):
    """Changes of rows for which the SQL is true; for others, the key is gone."""

    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Upheld(Stateful):
    """The row that counts, per key: changes in, rows added and retracted out."""

    spec: Current

    @property
    def kind(self) -> str:
        return "latest" if self.spec.order == "origin" else "current"

    @property
    def keys(self) -> tuple[str, ...]:
        return self.spec.keys

    @property
    def corrects(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Tallied(Stateful):
    """Aggregates per key, of all rows there are: they change as rows come and go.

    `of` is the key of the table whose rows they are; rows of a stream have none.
    """

    by: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    of: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "agg"

    @property
    def keys(self) -> tuple[str, ...]:
        return self.by

    @property
    def corrects(self) -> bool:
        return True

    @property
    def made_anew(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class FoldedRows(Stateful):
    """What a function makes of each key's rows, one after the other."""

    spec: Folded

    @property
    def kind(self) -> str:
        return "fold"

    @property
    def keys(self) -> tuple[str, ...]:
        return self.spec.by

    @property
    def corrects(self) -> bool:
        return True

    @property
    def made_anew(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Told(Stateful):
    """The changes of a table as events: insert, update, delete."""

    by: tuple[str, ...]

    @property
    def kind(self) -> str:
        return "changes"

    @property
    def keys(self) -> tuple[str, ...]:
        return self.by

    @property
    def corrects(self) -> bool:
        return False


def is_table_of_changes(node: Node) -> bool:
    """Whether a node's rows are sets and deletes by key, not rows added and retracted."""
    while not isinstance(node, Read | Stateful):
        node = node.inputs[0]
    return isinstance(node, Read)
