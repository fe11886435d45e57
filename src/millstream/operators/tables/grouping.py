"""The keys of a batch of rows, each once, beside what the state holds of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.arrays.numpy_columns import plain
from millstream.state.sorting import arrange, hashes_of
from millstream.state.spec import HASH, ORDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """Rows by key: which group each row is of, and one row to stand for each group."""

    of_row: Ints
    wanted: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, keys: Sequence[str]) -> Groups:
        """The groups of rows that have a `_hash`, in the order of that and the key."""
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
        """The groups the state knows, and their rows in it: keys, `_hash` and values."""
        found, values = state.lookup(self.wanted)
        at = np.flatnonzero(found)
        known = self.wanted.take(pa.array(at))
        values = values.take(pa.array(at))
        for name in values.column_names:
            known = known.append_column(name, values[name])
        return at, known
