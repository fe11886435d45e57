"""The two halves of a stateful step, the same in every lane: before the shuffle, and after it."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.engine.checkpoint.staging import unstage
from millstream.engine.dead_letters import envelopes
from millstream.engine.lanes.results import StageResult
from millstream.formats.times import GREATEST, LEAST
from millstream.metrics.instances import buckets_name, instance
from millstream.operators.kernel import Late, MovesRows
from millstream.plan.stages import POSITION
from millstream.sources.decode import ORIGIN
from millstream.state.keys.hashing import hash_keys
from millstream.state.runs.runs import write_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.engine.lanes.work import Files, Step
    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.kernel import Prepared

FLOW = -1  # the source number of results; the last of `Work.source_names` names their steps


def with_time(rows: pa.Table, time: tuple[str, int] | None) -> pa.Table:
    """The rows with `_time`, the event time in microseconds, if the stream has one."""
    if time is None or "_time" in rows.column_names:
        return rows
    column = rows[time[0]].cast(pa.int64())
    if time[1]:
        column = pc.add(column, time[1])
    return rows.append_column("_time", column)


def prepare(
    step: Step,
    rows: pa.Table,
    batch_time: BatchTime,
    files: Files,
    sources: Sequence[str],
    side: int = 0,
) -> tuple[Prepared, StageResult]:
    """Before the shuffle: the partial results of some rows; late rows are staged.

    Changes of a table behind its watermark are counted as late but applied.
    """
    rows = with_time(rows, step.times[side])
    prepared = step.kernel.prepare(rows, batch_time, side)
    result = StageResult(rows_in=rows.num_rows, unplaced=prepared.unplaced)
    if "_time" in rows.column_names:
        behind = int(np.count_nonzero(rows["_time"].to_numpy() < batch_time.before_of(side)))
        used = behind - len(prepared.late)
        if POSITION in rows.column_names:
            result.applied = used
        else:
            result.behind = used
    if len(prepared.late):
        late = Late(rows.take(pa.array(prepared.late)), prepared.late_windows)
        _stage_late(result, step, [late], batch_time, files, sources)
    return prepared, result


def _stage_late(
    result: StageResult,
    step: Step,
    late: Sequence[Late],
    batch_time: BatchTime,
    files: Files,
    sources: Sequence[str],
) -> None:
    """Stage late rows for `rest`, or only count them if the user discards them."""
    if not step.rest:
        result.discarded += sum(part.rows.num_rows for part in late)
        return
    tables = (envelopes.late(part, step=step.name, sources=list(sources), batch_time=batch_time)
              for part in late)  # fmt: skip
    result.late += files.stage("late", tables)


def execute(
    step: Step,
    sides: Sequence[Sequence[pa.Table]],
    buckets: tuple[int, int],
    batch_time: BatchTime,
    files: Files,
    sources: Sequence[str],
) -> StageResult:
    """After the shuffle: run the kernel over a range of buckets; stage its results, write state."""
    began = time.perf_counter()
    outcome = step.kernel.run(sides, step.views(buckets), batch_time)
    result = _staged(step, outcome.results, files)
    if step.feeds:
        result.flow = ([*result.retracted, *result.results] if outcome.flow is None
                       else files.stage("flow", map(_within_years, outcome.flow)))  # fmt: skip
    if outcome.late:
        _stage_late(result, step, outcome.late, batch_time, files, sources)
        result.behind = -sum(late.rows.num_rows for late in outcome.late)
    result.held, result.wake, result.floors = outcome.held, outcome.wake, dict(outcome.floors)
    result.segments = {
        table: [write_segment(step.folders[table], files.name("run"), delta, buckets=buckets,
                              of=step.buckets)]
        for table, delta in outcome.deltas.items() if delta.num_rows
    }  # fmt: skip
    name = buckets_name(buckets)
    counts = {"in": sum(table.num_rows for side in sides for table in side),
              "out": result.rows_out, "late": result.late_rows,
              "seconds": time.perf_counter() - began}  # fmt: skip
    result.instances = {name: {**instance(name, **counts), "buckets": list(buckets)}}
    return result


def _staged(step: Step, results: Iterable[pa.Table], files: Files) -> StageResult:
    """Stage results; retractions apart where the new row of a key may be in another task."""
    rows = filter(len, map(_within_years, results))
    if not isinstance(step.kernel, MovesRows):
        return files.stage_results((table, table) for table in rows)
    result = StageResult()
    for retracted, tables in groupby(rows, lambda table: table["_sign"][0].as_py() < 0):
        part = files.stage_results((table, table) for table in tables)
        if retracted:
            part.retracted, part.results = part.results, []
        result.add(part)
    return result


def _within_years(results: pa.Table) -> pa.Table:
    """Clip the bounds of windows to the years 1 to 9999, the range that all sinks support."""
    for name in ("window_start", "window_end"):
        if name in results.column_names and results.num_rows:
            column = results[name].cast(pa.int64())
            ends = pc.min_max(column).as_py()
            if ends["min"] is not None and (ends["min"] < LEAST or ends["max"] > GREATEST):
                clipped = pc.min_element_wise(pc.max_element_wise(column, LEAST), GREATEST)
                clipped = pc.if_else(pc.is_null(column), column, clipped)
                place = results.column_names.index(name)
                kind = results.schema.field(place).type
                results = results.set_column(place, name, clipped.cast(kind))
    return results


def read_flow(
    files: Files, entry: str, columns: pa.Schema, keys: Sequence[str]
) -> Iterator[pa.Table]:
    """The rows that an earlier stage of this batch emitted into one file, each with its origin.

    A row that passed a step unchanged keeps its origin. The origin of a result is built from its
    time and its keys: the same in every lane, however the batches are cut.
    """
    for table in unstage(files.staged, entry):
        rows = table if "_source" in table.column_names else _with_origin(table, keys)
        yield rows.select(columns.names).cast(columns)


def _with_origin(results: pa.Table, keys: Sequence[str]) -> pa.Table:
    count = results.num_rows
    hashes = hash_keys([results[key] for key in keys], count)
    return (
        results.append_column("_source", pa.array(np.full(count, FLOW, np.int32)))
        .append_column("_partition", pa.array(np.zeros(count, np.int32)))
        .append_column("_offset", pc.fill_null(results["_time"], 0))
        .append_column("_sub", pa.array(hashes.view(np.int64)))
    )


def without_origin(names: Iterable[str]) -> tuple[str, ...]:
    """The user columns among these."""
    return tuple(name for name in names if name not in ORIGIN and not name.startswith("_"))


def leaving(rows: pa.Table, time: tuple[str, int] | None, columns: Sequence[str]) -> pa.Table:
    """The columns of an output without a stateful step, with the event time beside them."""
    more = [name for name in ("_time", "_sign") if name in rows.column_names]
    rows = with_time(rows, time)
    names = dict.fromkeys([*columns, *(["_time"] if time else []), *more])
    return rows.select(list(names))
