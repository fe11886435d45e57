"""Delta windows: a row far enough from a window's opening row ends it."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.duration import micros
from millstream.errors import InvalidSpec
from millstream.operators.distinct.non_overlapping import walked
from millstream.operators.windows.by_rows.cut_kernel import Cut, CutKernel
from millstream.state.arrays.numpy_columns import (
    decimal_limbs,
    float_values,
    int_values,
    plain,
    validity,
)
from millstream.state.spec import StateColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.operators.aggregates.functions import Aggregate
    from millstream.operators.windows.by_rows.cut_kernel import Keyed
    from millstream.operators.windows.by_rows.spec import Delta

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Values = NDArray[Any]


OPENED = "_opened"
WIDEST = 18  # digits of a decimal that fits into 64 bits


def delta_kernel(
    spec: Delta,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    input_schema: pa.Schema,
) -> CutKernel:
    """The kernel over rows that have the spec's column."""
    return CutKernel(Moved(spec, input_schema), keys, aggregates, input_schema)


class Moved:
    """A row `by` or more away from the window's opening row opens the next window.

    An open window stores the value it is measured from. The first row with a value writes it;
    it is null in everything added to the window later.
    """

    name = "delta"

    def __init__(self, spec: Delta, input_schema: pa.Schema) -> None:
        self._column = spec.column
        if spec.column not in input_schema.names:
            raise InvalidSpec(
                "delta needs a column of its input",
                got=repr(spec.column),
                do=f"choose one of {', '.join(input_schema.names)}",
            )
        kind = input_schema.field(spec.column).type
        self._values, self._far = _measure(spec, kind)
        self.remembered = (StateColumn(OPENED, kind, "min"),)

    @property
    def carried(self) -> dict[str, pa.DataType]:
        """Nothing in addition to the stored columns."""
        return {}

    def carry(self, rows: pa.Table) -> tuple[dict[str, pa.Array], pa.Table | None, int]:
        """The value of each row, under the name of the opening value."""
        return {OPENED: plain(rows[self._column])}, None, 0

    def cut(self, keyed: Keyed) -> Cut:
        """Opening rows form a path: a key's first value, the next one far from it, and so on."""
        column = plain(keyed.rows[OPENED])
        known = np.flatnonzero(_known(column))
        values = self._values(column)[known]
        key_of = keyed.key_of
        of = key_of[known]
        first = np.ones(len(known), np.bool_)
        first[1:] = of[1:] != of[:-1]
        firsts = np.flatnonzero(first)
        beyond = np.append(firsts[1:], len(known))[np.cumsum(first) - 1]
        steps = first_beyond(values, self._far)
        steps[steps >= beyond] = len(known)
        opening = walked(firsts, steps)
        opens = np.zeros(keyed.rows.num_rows, np.bool_)
        opens[known[opening & ~first]] = True
        numbers = np.cumsum(opens, dtype=np.int64)
        at_start = numbers[keyed.starts]
        at_end = numbers[np.append(keyed.starts[1:], len(opens)) - 1] if len(opens) else numbers
        places = np.zeros(len(opens), np.bool_)
        places[known[opening]] = True
        opened = column.take(pa.array(np.arange(len(opens)), mask=~places))
        return Cut(numbers - at_start[key_of], at_end - at_start, replaced={OPENED: opened})


def _known(column: pa.Array) -> NDArray[np.bool_]:
    """Where a value can be measured from: not null, not NaN."""
    present = validity(column)
    known = np.ones(len(column), np.bool_) if present is None else present
    return known & ~np.isnan(float_values(column)) if pa.types.is_floating(column.type) else known


def _measure(spec: Delta, kind: pa.DataType) -> tuple[Callable[[pa.Array], NDArray[Any]], Far]:
    """The column as numbers that can be subtracted, and the test whether two are far apart."""
    by = spec.by
    if isinstance(by, timedelta):
        if pa.types.is_timestamp(kind) and kind.unit == "us":
            return int_values, far_integers(micros(by))
        raise _unfit(spec, "a column of timestamps for a duration", kind)
    if pa.types.is_floating(kind):
        return float_values, far_floats(float(by))
    if pa.types.is_signed_integer(kind):
        return int_values, far_integers(math.ceil(by))
    if pa.types.is_decimal128(kind) and kind.precision <= WIDEST:
        units = Decimal(repr(by)) if isinstance(by, float) else Decimal(by)
        return _unscaled, far_integers(math.ceil(units.scaleb(kind.scale)))
    need = f"a column of integers, floats or decimals of at most {WIDEST} digits for a number"
    raise _unfit(spec, need, kind)


def _unscaled(column: pa.Array) -> NDArray[np.int64]:
    return np.ascontiguousarray(decimal_limbs(column)[:, 0]).view(np.int64)


def _unfit(spec: Delta, need: str, kind: pa.DataType) -> InvalidSpec:
    return InvalidSpec(
        f"delta needs {need}",
        got=f"{spec.column!r} of type {kind}",
        do="cast it first, or name another column",
    )


class Far(Protocol):
    """Whether a span of values, given by its smallest and largest, has a value far from another."""

    def __call__(self, least: Values, most: Values, value: Values) -> Mask:
        """True where it has one."""


def first_beyond(values: Values, far: Far) -> Ints:
    """For each index, the first later one that is far away, or `len(values)`."""
    count = len(values)
    found = np.full(count, count, np.int64)
    if count < 2:
        return found
    levels = _spans(values)
    rows, nodes = np.arange(count, dtype=np.int64), np.arange(count, dtype=np.int64)
    hits: list[tuple[Ints, Ints]] = []
    for least, most in levels:
        right = np.where(nodes & 1 == 0, nodes + 1, nodes)
        hit = (nodes & 1 == 0) & far(least[right], most[right], values[rows])
        hits.append((rows[hit], right[hit]))
        climbing = ~hit & (right + 1 < len(least))
        rows, nodes = rows[climbing], nodes[climbing] >> 1
    rows, nodes = rows[:0], nodes[:0]
    for level in reversed(range(len(levels))):
        least, most = levels[level]
        if level + 1 < len(levels):
            nodes = 2 * nodes
            nodes += ~far(least[nodes], most[nodes], values[rows])
        rows = np.concatenate([rows, hits[level][0]])
        nodes = np.concatenate([nodes, hits[level][1]])
    found[rows] = np.minimum(nodes, count)
    return found


def far_integers(by: int) -> Far:
    """Integers at least `by` apart, over the whole range of 64 bits."""

    def far(least: Values, most: Values, value: Values) -> Mask:
        if by >= 2**64:
            return np.zeros(len(value), np.bool_)
        # Unsigned differences are exact over the whole range of 64-bit values.
        words = value.view(np.uint64)
        above = (most > value) & (most.view(np.uint64) - words >= np.uint64(by))
        below = (least < value) & (words - least.view(np.uint64) >= np.uint64(by))
        return np.asarray(above | below)

    return far


def far_floats(by: float) -> Far:
    """Floats whose rounded difference is at least `by`; a difference that is NaN is not."""

    def far(least: Values, most: Values, value: Values) -> Mask:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray((most - value >= by) | (value - least >= by))

    return far


def _spans(values: Values) -> list[tuple[Values, Values]]:
    """The values, then the spans of their pairs, of pairs of those, … up to one pair."""
    levels = [(_even(values), _even(values))]
    while len(levels[-1][0]) > 2:
        least, most = levels[-1]
        levels.append(
            (
                _even(np.minimum(least[::2], least[1::2])),
                _even(np.maximum(most[::2], most[1::2])),
            )
        )
    return levels


def _even(values: Values) -> Values:
    """An even number of values: an odd number repeats the last one, which changes no span."""
    return values if len(values) % 2 == 0 else np.append(values, values[-1:])
