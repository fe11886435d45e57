"""SQL that runs without Spark, as plain values: expressions over Arrow columns, and steps.

They are compiled by `engine/spark/arrow_steps.py` and sent to Spark's workers; evaluating an
expression never raises, whatever the rows contain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import UserCodeFailed
from millstream.state.arrays.numpy_columns import int_values, spans_to_rows, taken
from millstream.state.keys.equality import list_parts

ELEMENTS = 2**20  # in one row that `explode` accepts: their index is part of the row's origin
TOO_MANY = f"explode needs at most {ELEMENTS} elements in a row"
_PLACE_BITS = (ELEMENTS - 1).bit_length()


class Value(Protocol):
    """An expression: its type, the columns it reads, and its value for each row."""

    @property
    def type(self) -> pa.DataType:
        """The type of its values."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns it reads; none for a constant."""

    @property
    def size(self) -> int:
        """The number of values it consists of, itself included."""

    def of(self, rows: pa.Table) -> Any:
        """Its value for each row; a scalar where it is a constant."""


@dataclass(frozen=True)
class Column:
    """A column."""

    name: str
    type: pa.DataType
    size = 1

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.name})

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        return rows[self.name]


@dataclass(frozen=True)
class Literal:
    """The same value for every row."""

    value: Any
    type: pa.DataType
    columns: frozenset[str] = frozenset()
    size = 1

    def of(self, rows: pa.Table) -> pa.Scalar:
        return pa.scalar(self.value, self.type)


@dataclass(frozen=True)
class _OfOne:
    """A value computed from one other value."""

    value: Value

    @property
    def columns(self) -> frozenset[str]:
        return self.value.columns

    @property
    def size(self) -> int:
        return 1 + self.value.size


@dataclass(frozen=True)
class Cast(_OfOne):
    """A number as a wider one, a long as the nearest double, a list with renamed elements."""

    type: pa.DataType

    def of(self, rows: pa.Table) -> Any:
        return pc.cast(self.value.of(rows), self.type, safe=False)


@dataclass(frozen=True)
class Part(_OfOne):
    """One field of a struct, by its place; null where the struct is."""

    place: int
    type: pa.DataType

    def of(self, rows: pa.Table) -> Any:
        return pc.struct_field(self.value.of(rows), [self.place])


@dataclass(frozen=True)
class Call:
    """One of Arrow's functions, over the values of others."""

    function: str
    operands: tuple[Value, ...]
    type: pa.DataType

    @property
    def columns(self) -> frozenset[str]:
        return frozenset[str]().union(*(operand.columns for operand in self.operands))

    @property
    def size(self) -> int:
        return 1 + sum(operand.size for operand in self.operands)

    def of(self, rows: pa.Table) -> Any:
        return pc.call_function(self.function, [operand.of(rows) for operand in self.operands])


@dataclass(frozen=True)
class OneOf(_OfOne):
    """Whether a value is one of these, none of which is null; null for null."""

    these: tuple[Any, ...]
    type = pa.bool_()

    @property
    def size(self) -> int:
        return len(self.these) + super().size

    def of(self, rows: pa.Table) -> Any:
        value = self.value.of(rows)
        found = pc.is_in(value, value_set=pa.array(self.these, self.value.type))
        return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


@dataclass(frozen=True)
class Filter:
    """Rows for which a condition is true, and the columns that are needed afterwards."""

    condition: Value
    keeps: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        kept = self.condition.of(rows)
        if isinstance(kept, pa.Scalar):
            return rows if kept.as_py() else rows.slice(0, 0)
        return rows.select(self.keeps).filter(kept)


@dataclass(frozen=True)
class ArrowSteps:
    """Stateless steps: filters over the input columns, then the output columns.

    `exploded` runs before them, if it makes several rows of one.
    """

    filters: tuple[Filter, ...]
    values: tuple[Value, ...]
    columns: pa.Schema
    exploded: Exploded | None = None

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows that Spark would return, in the same order.

        Raises:
            UserCodeFailed: an array to be exploded has too many elements.
        """
        if self.exploded is not None:
            rows = self.exploded(rows)
        for keep in self.filters:
            rows = keep(rows)
        made = [self._column(value.of(rows), rows.num_rows) for value in self.values]
        return pa.Table.from_arrays(made, schema=self.columns)

    @staticmethod
    def _column(value: Any, count: int) -> Any:
        return pa.repeat(value, count) if isinstance(value, pa.Scalar) else value


@dataclass(frozen=True)
class Exploded:
    """Steps, then one row per element of an array column.

    If rows have an origin, that of each new row includes the element's index.
    """

    steps: ArrowSteps
    column: str

    def __call__(self, rows: pa.Table) -> pa.Table:
        rows = self.steps(rows)
        begins, lengths, elements = list_parts(rows[self.column].combine_chunks())
        places, owners = spans_to_rows(begins, lengths)
        others = taken(rows.drop_columns([self.column]), owners)
        made = dict(zip(others.column_names, others.columns, strict=True))
        made[self.column] = elements.take(pa.array(places))
        if "_sub" in made:
            if lengths.max(initial=0) > ELEMENTS:
                raise UserCodeFailed(TOO_MANY)
            within = int_values(made["_sub"].combine_chunks()) << _PLACE_BITS
            made["_sub"] = pa.array(within + (places - begins[owners]))
        return pa.table({name: made[name] for name in rows.column_names})
