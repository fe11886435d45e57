"""The spec of `table.join(table)`: a kept view of two tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.operators.joins.on import On, Pairs, check_how, pairs, said, said_suffix
from millstream.operators.joins.result_columns import LEFT, RIGHT, check_suffix

How = Literal["inner", "left", "right", "full"]


@dataclass(frozen=True, slots=True)
class TableJoin:
    """Rows of two tables that agree in `on`; `left` and `right` are the keys of the tables.

    `on` may name other columns than keys: a foreign key, or any columns at all. `suffix` is added
    to names of the right that the left has, too.
    """

    on: Pairs
    left: tuple[str, ...]
    right: tuple[str, ...]
    how: How = "inner"
    suffix: str | None = None

    def __post_init__(self) -> None:
        check_how(self.how, How, step="table.join")
        check_suffix(self.suffix, step="table.join")

    @property
    def outer(self) -> tuple[bool, bool]:
        """Whether rows of the left and of the right are there without a match."""
        return self.how in ("left", "full"), self.how in ("right", "full")

    @property
    def key(self) -> tuple[tuple[int, str], ...]:
        """What tells the rows of the result apart: columns of sides.

        It is the key of the side of which no row matches twice, and of both sides where a
        row may match several, or where rows of the other may be there alone.
        """
        ours, theirs = ({pair[side] for pair in self.on} for side in (0, 1))
        if theirs >= set(self.right) and not self.outer[1]:
            return tuple((LEFT, name) for name in self.left)
        if ours >= set(self.left) and not self.outer[0]:
            return tuple((RIGHT, name) for name in self.right)
        again = {name for name in self.left if (name, name) in self.on}
        rights = (name for name in self.right if name not in again)
        return (*((LEFT, name) for name in self.left), *((RIGHT, name) for name in rights))

    def __str__(self) -> str:
        how = "" if self.how == "inner" else f', how="{self.how}"'
        return f"join(on={said(self.on)}{how}{said_suffix(self.suffix)})"


def table_join(
    on: On,
    left: tuple[str, ...],
    right: tuple[str, ...],
    how: How = "inner",
    suffix: str | None = None,
) -> TableJoin:
    """The spec from what a user writes; `left` and `right` are the keys of the two tables.

    >>> print(table_join({"customer": "id"}, ("order",), ("id",), how="left"))
    join(on={'customer': 'id'}, how="left")

    Raises:
        InvalidSpec: no columns, an unknown `how`, or a suffix that is empty.
    """
    return TableJoin(pairs(on, step="table.join"), left, right, how, suffix)
