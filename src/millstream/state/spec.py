"""The columns a stateful operator remembers, and how rows of the same key become one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_TIME = -(2**63)
END_OF_TIME = 2**63 - 1

ORDER = "_order"
HASH = "_hash"
GONE = "_gone"
LOW_PART = "__lo"

Combine = Literal["sum", "dsum", "min", "max", "first", "last"]


@dataclass(frozen=True)
class StateColumn:
    """One remembered value: null means "no value yet", except for `first` and `last`.

    - `sum`: int64 or decimal128, exact; an overflow is an error, never a wrap.
    - `dsum`: float64, held as the pair `name` and `name__lo` (the unevaluated sum of
      both is the value, `name` alone is that value rounded).
    - `min`, `max`: any ordered type; NaN is the largest float.
    - `first`, `last`: by the age of runs, then by row order; a null is a value.
    """

    name: str
    type: pa.DataType
    combine: Combine

    def __post_init__(self) -> None:
        if self.combine not in get_args(Combine):
            raise InvalidSpec(
                f"a state column needs one of {', '.join(get_args(Combine))}",
                got=repr(self.combine),
                do=f"correct the column {self.name!r}",
            )
        if self.combine == "sum" and not (
            pa.types.is_int64(self.type) or pa.types.is_decimal128(self.type)
        ):
            raise InvalidSpec(
                "a sum in state needs int64 or decimal128",
                got=str(self.type),
                do=f"cast {self.name!r}, or use dsum for float64",
            )
        if self.combine == "dsum" and not pa.types.is_float64(self.type):
            raise InvalidSpec(
                "a dsum in state needs float64", got=str(self.type), do=f"cast {self.name!r}"
            )

    @cached_property
    def fields(self) -> tuple[pa.Field, ...]:
        """The Arrow fields that hold this column: two for a dsum, else one."""
        own = pa.field(self.name, self.type)
        if self.combine == "dsum":
            return own, pa.field(self.name + LOW_PART, pa.float64())
        return (own,)


@dataclass(frozen=True)
class StateSpec:
    """Keys and values of one step's state; `version` changes when their meaning does."""

    keys: pa.Schema
    values: tuple[StateColumn, ...]
    version: int = 1

    def __post_init__(self) -> None:
        names = self.schema.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidSpec(
                "state needs every column name once", got=", ".join(twice), do="rename one of them"
            )

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns as they are stored: `_order`, `_hash`, keys, values, `_gone`."""
        return pa.schema([*self.visible, pa.field(GONE, pa.bool_(), nullable=False)])

    @cached_property
    def visible(self) -> pa.Schema:
        """The columns a reader sees: all but `_gone`."""
        return pa.schema(
            [
                pa.field(ORDER, pa.int64(), nullable=False),
                pa.field(HASH, pa.uint64(), nullable=False),
                *(pa.field(field.name, field.type) for field in self.keys),
                *self.value_fields,
            ]
        )

    @cached_property
    def value_fields(self) -> tuple[pa.Field, ...]:
        """The value columns, each dsum with its low part."""
        return tuple(field for column in self.values for field in column.fields)

    @cached_property
    def key_names(self) -> list[str]:
        """The names of the key columns."""
        return list(self.keys.names)

    def to_json(self) -> Mapping[str, object]:
        """What a checkpoint stores of it: two specs are the same state if this is equal."""
        return {
            "version": self.version,
            "keys": [[field.name, str(field.type)] for field in self.keys],
            "values": [[c.name, str(c.type), c.combine] for c in self.values],
        }
