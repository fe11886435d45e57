"""Kernels of table steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.aggregates.functions import from_json
from millstream.operators.tables.aggregate_kernel import TableAggregateKernel
from millstream.operators.tables.changelog_kernel import ChangelogKernel
from millstream.operators.tables.current_kernel import CurrentKernel
from millstream.operators.tables.database_kernel import DatabaseKernel
from millstream.operators.tables.fold_kernel import FoldKernel
from millstream.operators.tables.spec import Current, Folded
from millstream.plan.table_graph import CurrentRows, FoldedRows, TableAggregated, TableChanges
from millstream.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from millstream.operators.kernel import Kernel
    from millstream.operators.tables.spec import Row


TABLE_KINDS = ("current", "latest", "agg", "fold", "changes")


def table_kernel(
    step: CurrentRows | TableAggregated | FoldedRows | TableChanges, columns: pa.Schema
) -> Kernel:
    """The kernel of a table step over these columns, with `_time` for event time."""
    if isinstance(step, CurrentRows):
        made = DatabaseKernel if step.spec.database else CurrentKernel
        return made(step.spec, columns)
    if isinstance(step, TableAggregated):
        return TableAggregateKernel(step.by, dict(step.aggregates), columns,
                           retractable=step.input.corrects, of=step.of)  # fmt: skip
    if isinstance(step, FoldedRows):
        return FoldKernel(step.spec, columns)
    return ChangelogKernel(step.by, columns)


def stored_table_kernel(spec: Mapping[str, Any], columns: pa.Schema) -> Kernel:
    """The kernel that wrote a state, from the stored spec; only for reading that state."""
    keys = tuple(spec["keys"])
    if spec["kind"] == "agg":
        aggregates = {name: from_json(body) for name, body in spec["aggregates"]}
        return TableAggregateKernel(keys, aggregates, columns, retractable=spec["corrected"])
    if spec["kind"] == "fold":
        return FoldKernel(Folded(keys, (), _unchanged, Schema.parse(spec["state"])), columns)
    if spec["kind"] == "changes":
        return ChangelogKernel(keys, columns)
    made = DatabaseKernel if spec["database"] else CurrentKernel
    return made(Current(keys, spec["order"], database=spec["database"]), columns)


def _unchanged(state: Row, _row: Row) -> Row:
    """Replaces the user's function, which reading state does not call."""
    return state
