"""Tables in plain Python, one change after the other: what their kernels must agree with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Key = tuple[Any, ...]
Row = dict[str, Any]
Place = tuple[int, int, int, int]


@dataclass(frozen=True)
class Change:
    """From `time` on a key is this row, or (None) is gone; it stands at `offset` of a partition."""

    key: Key
    row: Row | None
    time: int
    offset: int
    partition: int = 0
    position: int | None = None

    @property
    def place(self) -> Place:
        """What decides which change of a key counts."""
        position = -(2**63) if self.position is None else self.position
        return self.time, position, self.offset, self.partition


@dataclass
class CurrentRows:
    """The row that counts per key, whatever the order in which changes arrive."""

    places: dict[Key, Place] = field(default_factory=dict)
    rows: dict[Key, Row] = field(default_factory=dict)
    changes: list[tuple[str, Key]] = field(default_factory=list)

    def take(self, change: Change) -> None:
        """Apply one change; `changes` records its effect."""
        if change.key in self.places and self.places[change.key] > change.place:
            return
        self.places[change.key] = change.place
        before = self.rows.pop(change.key, None)
        if change.row is not None:
            self.rows[change.key] = change.row
        if before != change.row:
            word = "update" if before and change.row else "insert" if change.row else "delete"
            self.changes.append((word, change.key))

    def truncate(self, place: Place) -> None:
        """Everything that stands before a place is gone, also what is still to arrive."""
        for key in [k for k, at in self.places.items() if at < place and k in self.rows]:
            del self.rows[key]
            self.changes.append(("delete", key))


@dataclass
class MaterializedView:
    """A keyed view made of rows retracted and added: nobody takes back what is not there."""

    rows: dict[Key, Row] = field(default_factory=dict)

    def apply(self, key: Key, row: Row, sign: int) -> None:
        """One row with its sign."""
        if sign < 0:
            assert self.rows.pop(key) == row, f"{key} was not {row}"
        else:
            assert key not in self.rows, f"{key} was there already"
            self.rows[key] = row


def tallied(rows: list[tuple[Row, int]], by: str, value: str) -> dict[Any, Row]:
    """Per group of signed rows: how many, the sum, the mean, the smallest and the largest value."""
    groups: dict[Any, list[int]] = {}
    for row, sign in rows:
        members = groups.setdefault(row[by], [])
        if sign > 0:
            members.append(row[value])
        else:
            members.remove(row[value])
    return {
        group: {"n": len(members), "total": sum(members), "mean": sum(members) / len(members),
                "least": min(members), "most": max(members)}
        for group, members in groups.items() if members
    }  # fmt: skip
