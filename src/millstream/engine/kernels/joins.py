"""Kernels of joins, and what of a join its state depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.engine.checkpoint.stored_specs import IS, spec_from_json, spec_to_json
from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.joins.interval.kernel import SIDES, IntervalKernel
from millstream.operators.joins.interval.spec import Interval
from millstream.operators.joins.stream_table.as_of_kernel import VERSIONS, WAITING, AsOfKernel
from millstream.operators.joins.stream_table.lookup_kernel import CURRENT, LookupKernel
from millstream.operators.joins.stream_table.spec import AsOf, Lookup
from millstream.operators.joins.table_table.kernel import TableJoinKernel
from millstream.plan.join_graph import Enriched, Join, Joined, JoinedTables
from millstream.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.operators.joins.table_table.spec import TableJoin
    from millstream.operators.kernel import Kernel
    from millstream.plan.graph import Node
    from millstream.state.runs.view import View

    Spec = Interval | AsOf | Lookup | TableJoin

TIME = pa.field("_time", pa.int64())
KEEPS = "keeps"
_LEFT, _RIGHT = (SIDES[0], WAITING), (SIDES[1], VERSIONS, CURRENT)


def join_kernel(step: Join, sides: Sequence[pa.Schema]) -> Kernel:
    """The kernel of a join over these columns, left and right, with `_time` for event time."""
    assert isinstance(step, Joined | Enriched | JoinedTables)
    return _kernel(step.spec, sides, [_time(node) for node in step.inputs])


def join_spec(step: Join, sides: Sequence[pa.Schema]) -> dict[str, Any]:
    """What a join's state depends on, as stored beside the state."""
    assert isinstance(step, Joined | Enriched | JoinedTables)
    left, right = (Schema.from_arrow(_users(columns)).ddl() for columns in sides)
    body = spec_to_json(step.spec)
    body.pop("plan", None)  # every plan has the same state
    if step.spec.suffix is None:
        del body["suffix"]
    times = [spec_to_json(_time(node)) for node in step.inputs]
    every = {KEEPS: "every column"} if isinstance(step, Joined) and all(times) else {}
    return {
        "kind": step.kind,
        "keys": [ours for ours, _ in step.spec.on],
        "join": body,
        "input": left,
        "other": right,
        "times": times,
        **every,
    }


def join_kernel_from(spec: Mapping[str, Any]) -> Kernel:
    """The kernel that wrote a join's state, from the stored spec.

    Raises:
        InvalidSpec: an earlier version wrote it, with other columns.
    """
    times = spec_from_json(spec["times"])
    if spec["join"][IS] == Interval.__name__ and all(times) and KEEPS not in spec:
        raise InvalidSpec("reading the state of a join needs every column of both sides in it",
                          got="state of an earlier version, which kept one time for both",
                          do="run the pipeline from another --checkpoint")  # fmt: skip
    sides = [
        pa.schema([*Schema.parse(spec[side]).arrow(), *([TIME] if time else [])])
        for side, time in zip(("input", "other"), times, strict=True)
    ]
    return _kernel(spec_from_json(spec["join"]), sides, times)


def kept_rows(spec: Mapping[str, Any], views: Mapping[str, View]) -> Iterator[pa.Table]:
    """The rows a join keeps, with their side; keys have the names of the left side."""
    join = spec_from_json(spec["join"])
    names = {theirs: ours for ours, theirs in join.on}
    lefts = Schema.parse(spec["input"]).names
    for name in Schema.parse(spec["other"]).names:
        if name in lefts:
            names.setdefault(name, f"{name}{join.suffix}")
    for table, view in views.items():
        if table not in (*_LEFT, *_RIGHT):
            continue
        side = "left" if table in _LEFT else "right"
        for rows in view.scan(MIN_TIME, None):
            kept = rows
            if side == "right":
                kept = rows.rename_columns([names.get(name, name) for name in rows.column_names])
            kept = kept.append_column("side", pa.repeat(side, kept.num_rows))
            if "_at" in kept.column_names:
                at = kept["_at"].cast(pa.timestamp("us", "UTC"))
                kept = kept.append_column("at", at)
            yield kept


def _kernel(
    spec: Spec, sides: Sequence[pa.Schema], times: Sequence[tuple[str, int] | None]
) -> Kernel:
    if isinstance(spec, Interval):
        return IntervalKernel(spec, sides, times)
    if isinstance(spec, AsOf):
        return AsOfKernel(spec, sides, times)
    if isinstance(spec, Lookup):
        return LookupKernel(spec, sides)
    return TableJoinKernel(spec, sides)


def _users(columns: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in columns if not field.name.startswith("_")])


def _time(node: Node) -> tuple[str, int] | None:
    return None if node.time is None else (node.time.column, node.time.shift)
