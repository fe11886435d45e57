"""What all rules have in common by which rows, not times, make windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from millstream.operators.kernel import Prepared
from millstream.operators.windows.lifted import ORIGIN, Lifted, require_no_retraction

if TYPE_CHECKING:
    from millstream.state.spec import StateColumn


class RowRule(Protocol):
    """A rule by which rows make windows."""

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def remembered(self) -> tuple[StateColumn, ...]:
        """What it keeps of an open window, beside the aggregates."""

    @property
    def carried(self) -> dict[str, pa.DataType]:
        """Columns it needs of each row after the shuffle, beside what is remembered."""

    def carry(self, rows: pa.Table) -> tuple[dict[str, pa.Array], pa.Table | None, int]:
        """Its columns of each row, what must be seen everywhere, how many rows are outside."""


def prepared(rule: RowRule, lifted: Lifted, rows: pa.Table) -> Prepared:
    """Each row lifted, with what the rule carries along; no row is late."""
    require_no_retraction(rows, rule.name)
    columns, everywhere, outside = rule.carry(rows)
    made = lifted.lift(rows) | {name: rows[name] for name in ORIGIN} | columns
    return Prepared(pa.table(made), np.zeros(0, np.int64), unplaced=outside, everywhere=everywhere)


def columns_beside(rule: RowRule) -> dict[str, pa.DataType]:
    """The columns that rows have beside hash, keys, parts and origin."""
    return {column.name: column.type for column in rule.remembered} | rule.carried
