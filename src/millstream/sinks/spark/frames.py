"""The rows of a staged output as a DataFrame, read from their files by Spark's tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.schema import Schema
from millstream.sinks.rows import SIGN, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from millstream.sinks.spec import Staged


def frame_of(staged: Staged, spark: SparkSession, *, signed: bool) -> DataFrame | None:
    """The user's columns of a batch; None without rows.

    If `signed` and there are retractions, the column `_sign` has −1 for them.
    """
    parts = staged.parts or (staged.tables,)
    first = next(staged.tables(), None)
    if first is None:
        return None
    rows = _Rows(parts, signed=signed and _retracts(staged))
    columns = Schema.from_arrow(rows.shown(first.slice(0, 0)).schema).ddl()
    numbers = spark.range(0, len(parts), 1, len(parts))
    return numbers.mapInArrow(rows, columns)


@dataclass(frozen=True)
class _Rows:
    """Reads the staged files with these numbers, in a task."""

    parts: tuple[Callable[[], Iterator[pa.Table]], ...]
    signed: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in self.parts[number]():
                    yield from self.shown(table).to_batches()

    def shown(self, table: pa.Table) -> pa.Table:
        """The columns of the DataFrame."""
        rows = visible(table)
        return rows.append_column(SIGN, table[SIGN]) if self.signed else rows


def _retracts(staged: Staged) -> bool:
    """Whether a batch has retractions."""
    return any(SIGN in table.column_names and pc.min(table[SIGN]).as_py() == -1
               for table in staged.tables())  # fmt: skip
