"""The parts of accumulators: state columns, and the value that each row adds to them.

Aggregates share equal parts; parts are equal if their names are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidSpec
from millstream.state.arrays.numpy_columns import plain
from millstream.state.spec import StateColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.operators.aggregates.spec import Aggregate

Lift = Callable[[pa.Table, "NDArray[np.int64] | None"], pa.Array]
Finish = Callable[[pa.Table], pa.Array]

ROWS = "_rows"


@dataclass(frozen=True, slots=True)
class Part:
    """One state column, and the value that each row adds to it.

    `lift` takes the rows and their signs (None: all +1) and returns one value per row.
    `owner` is set for a part that belongs to one aggregate and cannot be shared.
    """

    column: StateColumn
    lift: Lift
    owner: Aggregate | None = None


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The parts of an aggregate, the type of its result, and the result from the parts.

    `empty` is the result for no rows.
    """

    parts: tuple[Part, ...]
    type: pa.DataType
    finish: Finish
    empty: int | list[object] | None = None

    def empty_answers(self, count: int) -> pa.Array:
        """The result for no rows, `count` times."""
        return pa.repeat(pa.scalar(self.empty, self.type), count)


def rows_part() -> Part:
    """The number of rows of a group; a group without rows does not exist."""

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        return pa.array(np.ones(rows.num_rows, np.int64) if signs is None else signs)

    return Part(StateColumn(ROWS, pa.int64(), "sum"), lift)


def valid_part(column: str) -> Part:
    """The number of values of a column that are not null."""

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        valid = plain(pc.is_valid(rows[column])).cast(pa.int8()).cast(pa.int64())
        return valid if signs is None else pa.array(valid.to_numpy() * signs)

    return Part(StateColumn(f"_{column}:count", pa.int64(), "sum"), lift)


def values_of(state: pa.Table, part: Part) -> NDArray[np.int64]:
    """The integers (or floats) of a part that is never null."""
    return np.asarray(plain(state[part.column.name]).to_numpy())


def only_where(known: NDArray[np.bool_], values: NDArray[np.generic]) -> pa.Array:
    """The values as Arrow, null where not known."""
    return pa.array(values, mask=~known)


def wrong_type(aggregate: Aggregate, need: str, of: pa.DataType) -> InvalidSpec:
    """The error for a column of an unsupported type."""
    return InvalidSpec(
        f"{aggregate.kind} needs {need}",
        got=f"{aggregate.column!r} of type {of}",
        do="cast it first, or name another column",
    )


def is_number(of: pa.DataType) -> bool:
    """Whether a type is a signed integer, a float or a decimal."""
    return bool(
        pa.types.is_signed_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal128(of)
    )


def is_ordered(of: pa.DataType) -> bool:
    """Whether a type is ordered and not nested: numbers, text, bytes, times, booleans."""
    return not (pa.types.is_nested(of) or pa.types.is_null(of) or pa.types.is_dictionary(of))


def is_comparable(of: pa.DataType) -> bool:
    """Whether values of a type can be compared: all types except maps and nulls, also nested."""
    if pa.types.is_null(of) or pa.types.is_map(of):
        return False
    if pa.types.is_nested(of):
        return all(is_comparable(of.field(at).type) for at in range(of.num_fields))
    return True
