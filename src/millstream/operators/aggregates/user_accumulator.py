"""How user-defined aggregates are computed, and the checks of what their functions return."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput, InvalidSpec, UserCodeFailed
from millstream.operators.aggregates.bags import refuse_signs
from millstream.operators.aggregates.parts import Accumulator, Part
from millstream.schema import arrow_type
from millstream.state.arrays.numpy_columns import plain
from millstream.state.spec import StateColumn

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from millstream.operators.aggregates.user_aggregate import UserAggregate


def user_accumulator(
    aggregate: UserAggregate, schema: pa.Schema, *, retractable: bool = False
) -> Accumulator:
    """The accumulator of a user-defined aggregate; its state is one struct."""
    if retractable:
        raise InvalidSpec(
            f"the aggregate {aggregate.name!r} needs rows that are never retracted",
            got="rows that later panes or versions correct",
            do="use built-in aggregates, or turn off late corrections in the step before it",
        )
    chosen = aggregate.chosen or tuple(n for n in schema.names if not n.startswith("_"))
    states = _state_schema(aggregate, pa.schema([schema.field(name) for name in chosen]))
    answer = _answer_type(aggregate, states)
    kept = pa.struct(list(states))

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        refuse_signs(signs, f"the aggregate {aggregate.name!r}")
        given = _called(aggregate, "partial", rows.select(chosen))
        return _struct(_states(aggregate, "partial", given, states, rows.num_rows), kept)

    def merge(array: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
        sizes = np.diff(starts, append=len(array))
        groups = np.repeat(np.arange(len(starts), dtype=np.int64), sizes)
        given = _called(aggregate, "merge", _table(array, states), groups, len(starts))
        return _struct(_states(aggregate, "merge", given, states, len(starts)), kept)

    part = Part(StateColumn(f"_:{aggregate.name}", kept, "user", merge=merge), lift, aggregate)

    def finish(state: pa.Table) -> pa.Array:
        array = plain(state[part.column.name])
        return _answers(aggregate, _table(array, states), answer)

    return Accumulator((part,), answer, finish)


def _state_schema(aggregate: UserAggregate, rows: pa.Schema) -> pa.Schema:
    if aggregate.state is not None:
        found = aggregate.state.arrow()
    else:
        given = _called(aggregate, "partial", rows.empty_table())
        found = _require_table(aggregate, "partial", given).schema
    return pa.schema([pa.field(field.name, field.type) for field in found])


def _answer_type(aggregate: UserAggregate, states: pa.Schema) -> pa.DataType:
    if aggregate.returns is not None:
        return arrow_type(aggregate.returns)
    return _require_array(aggregate, _called(aggregate, "finish", states.empty_table())).type


def _called(aggregate: UserAggregate, word: str, *arguments: Any) -> Any:
    function: Callable[..., Any] = getattr(aggregate, word)
    try:
        return function(*arguments)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UserCodeFailed(
            f"{word} of the aggregate {aggregate.name!r} raised {type(error).__name__}: {error}",
            do=f"see {frame.filename}:{frame.lineno}",
        ) from error


def _states(
    aggregate: UserAggregate, word: str, given: object, states: pa.Schema, count: int
) -> pa.Table:
    table = _require_table(aggregate, word, given)
    if table.num_rows != count:
        raise _wrong(aggregate, word, f"{count} states", f"{table.num_rows}")
    if table.column_names != states.names:
        need, got = ", ".join(states.names), ", ".join(table.column_names)
        raise _wrong(aggregate, word, f"states of {need}", got)
    try:
        return table.cast(states)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        need = ", ".join(f"{field.name} {field.type}" for field in states)
        raise _wrong(aggregate, word, f"states of {need}", str(error)) from error


def _answers(aggregate: UserAggregate, states: pa.Table, answer: pa.DataType) -> pa.Array:
    given = _require_array(aggregate, _called(aggregate, "finish", states))
    if len(given) != states.num_rows:
        raise _wrong(aggregate, "finish", f"{states.num_rows} answers", str(len(given)))
    try:
        return given.cast(answer)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _wrong(aggregate, "finish", f"answers of {answer}", str(error)) from error


def _require_table(aggregate: UserAggregate, word: str, given: object) -> pa.Table:
    if not isinstance(given, pa.Table):
        raise _wrong(aggregate, word, "a pyarrow.Table", type(given).__name__)
    return given


def _require_array(aggregate: UserAggregate, given: object) -> pa.Array:
    if not isinstance(given, pa.Array | pa.ChunkedArray):
        raise _wrong(aggregate, "finish", "a pyarrow.Array", type(given).__name__)
    return plain(given)


def _wrong(aggregate: UserAggregate, word: str, need: str, got: str) -> InvalidInput:
    return InvalidInput(
        f"{word} of the aggregate {aggregate.name!r} needs to give {need}",
        got=got,
        do=f"correct the function {getattr(getattr(aggregate, word), '__name__', word)}",
    )


def _struct(states: pa.Table, kept: pa.DataType) -> pa.Array:
    columns = [plain(states[name]) for name in states.column_names]
    return pa.StructArray.from_arrays(columns, fields=list(kept))


def _table(array: pa.Array, states: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([plain(field) for field in array.flatten()], schema=states)
