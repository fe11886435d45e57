"""The spec of `table.join(table)`: a maintained view of two tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.operators.joins.on import On, Pairs, check_how, pairs, said, said_suffix
from millstream.operators.joins.result_columns import LEFT, RIGHT, check_suffix

How = Literal["inner", "left", "right", "full"]


@dataclass(frozen=True, slots=True)
class TableJoin:
    """Rows of two tables that agree in `on`; `left` and `right` are the keys of the tables.

    `on` may contain other columns than keys: a foreign key, or any columns. `suffix` is added to
    names of right columns that the left has, too.
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
        """Whether rows of the left and of the right are included without a match."""
        return self.how in ("left", "full"), self.how in ("right", "full")

    @property
    def key(self) -> tuple[tuple[int, str], ...]:
        """The key of the result: columns of one or both sides.

        It is the key of the side whose rows match at most once. If rows may match several times,
        or rows of the other side may be unmatched, it is the keys of both.
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
    """The spec from the user's arguments; `left` and `right` are the keys of the two tables.

    >>> print(table_join({"customer": "id"}, ("order",), ("id",), how="left"))
    join(on={'customer': 'id'}, how="left")

    Raises:
        InvalidSpec: no columns, an unknown `how`, or an empty suffix.
    """
    return TableJoin(pairs(on, step="table.join"), left, right, how, suffix)
