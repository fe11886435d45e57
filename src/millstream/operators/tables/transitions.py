"""The keys of a batch with their state, and the changes from row to row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.arrays.numpy_columns import plain
from millstream.state.keys.equality import same_rows
from millstream.state.sorting import arrange, hashes_of
from millstream.state.spec import HASH, ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Groups:
    """Rows by key: the group of each row, and one row of each group."""

    of_row: Ints
    wanted: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, keys: Sequence[str]) -> Groups:
        """The groups of rows with a `_hash`, sorted by hash and key."""
        count = rows.num_rows
        zeros = np.zeros(count, np.int64)
        order, starts, _ = arrange(zeros, hashes_of(rows), [plain(rows[key]) for key in keys])
        places = np.arange(count) if order is None else order
        of_row = np.empty(count, np.int64)
        of_row[places] = np.repeat(np.arange(len(starts)), np.diff(starts, append=count))
        wanted = rows.select([HASH, *keys]).take(pa.array(places[starts]))
        wanted = wanted.add_column(0, ORDER, pa.array(np.zeros(len(starts), np.int64)))
        return cls(of_row, wanted)

    def known(self, state: View) -> tuple[Ints, pa.Table]:
        """The groups that exist in the state, and their rows there: keys, `_hash` and values."""
        found, values = state.lookup(self.wanted)
        at = np.flatnonzero(found)
        known = self.wanted.take(pa.array(at))
        values = values.take(pa.array(at))
        for name in values.column_names:
            known = known.append_column(name, values[name])
        return at, known


SIGN = "_sign"
NONE = -1
CHUNK_BYTES = 64 << 20


@dataclass(frozen=True)
class Transitions:
    """Changes of keys, as indices into a table of rows.

    `old` and `new` are the rows before and after, NONE where the key has none; `cause` is
    the row that caused the change, whose time and origin are those of the results.
    """

    rows: pa.Table
    old: Ints
    new: Ints
    cause: Ints

    def that_matter(self, columns: Sequence[str]) -> Transitions:
        """Without those that change nothing in these columns."""
        both = np.flatnonzero((self.old != NONE) & (self.new != NONE))
        matters = (self.old != NONE) | (self.new != NONE)
        matters[both] = self._differ(self.old[both], self.new[both], columns)
        return Transitions(self.rows, self.old[matters], self.new[matters], self.cause[matters])

    def _differ(self, old: Ints, new: Ints, columns: Sequence[str]) -> Flags:
        parts = [plain(self.rows[name]) for name in columns]
        if any(_holds_maps(part.type) for part in parts):
            return np.ones(len(old), np.bool_)
        left, right = pa.array(old), pa.array(new)
        same = same_rows([p.take(left) for p in parts], [p.take(right) for p in parts], len(old))
        return np.asarray(~same)

    def results(self, columns: Sequence[str], stamps: Sequence[str]) -> Iterator[pa.Table]:
        """The results, in pieces of bounded size: each old row with −1, then the new one with +1.

        `columns` are taken from the row itself, `stamps` from the cause of the change.
        """
        gone, come = np.flatnonzero(self.old != NONE), np.flatnonzero(self.new != NONE)
        order = np.argsort(np.concatenate([gone * 2, come * 2 + 1]))
        own = np.concatenate([self.old[gone], self.new[come]])[order]
        cause = np.concatenate([self.cause[gone], self.cause[come]])[order]
        signs = np.concatenate([np.full(len(gone), -1), np.ones(len(come))]).astype(np.int8)[order]
        width = max(1, self.rows.nbytes // max(1, self.rows.num_rows))
        each = max(2, CHUNK_BYTES // width)
        for first in range(0, len(own), each):
            part = slice(first, first + each)
            yield self._piece(own[part], cause[part], signs[part], columns, stamps)

    def _piece(
        self, own: Ints, cause: Ints, signs: NDArray[np.int8], columns: Sequence[str],
        stamps: Sequence[str],
    ) -> pa.Table:  # fmt: skip
        made = self.rows.select(list(columns)).take(pa.array(own))
        for name, column in zip(
            stamps, self.rows.select(list(stamps)).take(pa.array(cause)).columns, strict=True
        ):
            made = made.append_column(name, column)
        return made.append_column(SIGN, pa.array(signs))


def _holds_maps(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return bool(pa.types.is_nested(kind)) and any(
        _holds_maps(kind.field(place).type) for place in range(kind.num_fields)
    )
