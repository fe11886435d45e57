"""Types as Spark's SQL sees them: the simple ones, which holds which, what is common to several."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.sql.arrow.values import Cast, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.arrow.values import Value

BOOL, DOUBLE, FLOAT, TEXT, NULL = pa.bool_(), pa.float64(), pa.float32(), pa.string(), pa.null()
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
ORDERED = (*INTEGERS, DOUBLE, FLOAT, TEXT, pa.timestamp("us", "UTC"), pa.date32())
SIMPLE = (*ORDERED, BOOL)


class NeedsSpark(Exception):
    """An expression, or a step, that is left to Spark."""


def widened(value: Value, kind: pa.DataType) -> Value:
    """A value as one of a type that holds it: no cast here can raise."""
    if value.type == kind:
        return value
    if isinstance(value, Literal) and value.value is None:
        return Literal(None, kind)
    doubled = kind == DOUBLE and (value.type in (*INTEGERS, FLOAT) or is_point(value))
    both = value.type in INTEGERS and kind in INTEGERS
    if not doubled and not (both and value.type.bit_width < kind.bit_width):
        raise NeedsSpark
    if isinstance(value, Literal):
        return Literal(float(value.value) if doubled else value.value, kind)
    return Cast(value, kind)


def is_point(value: Value) -> bool:
    """Whether it is a literal with a point, which Spark takes for a decimal."""
    return isinstance(value, Literal) and isinstance(value.value, Decimal)


def common(values: Sequence[Value]) -> pa.DataType:
    """The type that Spark gives values of these types when they stand for one another."""
    kinds = {value.type for value in values if value.type != NULL}
    if kinds and kinds <= set(INTEGERS):
        return max(kinds, key=lambda kind: kind.bit_width)
    if DOUBLE in kinds:
        return DOUBLE
    if len(kinds) != 1 or not kinds <= set(SIMPLE):
        raise NeedsSpark
    return kinds.pop()
