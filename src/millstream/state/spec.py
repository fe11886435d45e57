"""The state columns of an operator, and how rows of the same key are combined."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    Merge = Callable[[pa.Array, NDArray[np.int64]], pa.Array]

MIN_TIME = -(2**63)
END_OF_TIME = 2**63 - 1

ORDER = "_order"
HASH = "_hash"
GONE = "_gone"
LOW_PART = "__lo"

COUNT = "count"
PEAK_BITS = 6

Combine = Literal["sum", "dsum", "min", "max", "first", "last", "bag", "peaks", "user"]


@dataclass(frozen=True)
class StateColumn:
    """One state column: null means "no value yet", except for `first` and `last`.

    - `sum`: int64 or decimal128, exact; an overflow is an error, never a wrap.
    - `dsum`: float64, held as the pair `name` and `name__lo` (the unevaluated sum of
      both is the value, `name` alone is that value rounded).
    - `min`, `max`: any ordered type; NaN is the largest float.
    - `first`, `last`: by the age of runs, then by row order; null is a value.
    - `bag`: a list of structs, whose last field is a `count` (int64, signed). Entries with
      equal other fields are combined by adding their counts; entries with the count 0 are
      removed. Entries are sorted by their fields. With `keep` = n only the first n of the
      counted items are kept, with -n the last n, which needs counts above 0. Null is empty.
    - `peaks`: a list of int32 at or above 0; of those that differ only in their lowest 6 bits,
      the largest is kept, in ascending order. Null is empty.
    - `user`: combined by `merge`, which takes all values, sorted by group, and where each group
      starts, and returns one value per group. It is not stored in checkpoints.
    """

    name: str
    type: pa.DataType
    combine: Combine
    keep: int | None = None
    merge: Merge | None = None

    def __post_init__(self) -> None:
        if self.combine not in get_args(Combine):
            raise InvalidSpec(
                f"a state column needs one of {', '.join(get_args(Combine))}",
                got=repr(self.combine),
                do=f"correct the column {self.name!r}",
            )
        need = _NEEDS.get(self.combine)
        if need is not None and not need.holds(self.type):
            raise InvalidSpec(
                f"a {self.combine} in state needs {need.type}",
                got=str(self.type),
                do=need.do.format(name=repr(self.name)),
            )
        if (self.combine == "user") != (self.merge is not None):
            raise InvalidSpec(
                "a state column needs a merge function if, and only if, it is user-defined",
                got=f"{self.combine} and merge={self.merge!r}",
                do=f"correct the column {self.name!r}",
            )
        if self.keep is not None and (self.combine != "bag" or self.keep == 0):
            raise InvalidSpec(
                "keep needs a bag, and a number that is not 0",
                got=f"keep={self.keep} of a {self.combine}",
                do=f"correct the column {self.name!r}",
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
    """Keys and values of one step's state; `version` changes when their meaning changes."""

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
        """The columns for readers: all except `_gone`."""
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
        """The spec as a checkpoint stores it; specs with an equal result have compatible state."""
        return {
            "version": self.version,
            "keys": [[field.name, str(field.type)] for field in self.keys],
            "values": [
                [c.name, str(c.type), c.combine, *([] if c.keep is None else [c.keep])]
                for c in self.values
            ],
        }


@dataclass(frozen=True)
class _Need:
    """The type that a combining operation needs: a description, a test, the advice in errors."""

    type: str
    holds: Callable[[pa.DataType], bool]
    do: str = "cast {name}"


def _is_bag(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        return False
    last = kind.value_type[-1] if len(kind.value_type) > 1 else None
    return last is not None and last.name == COUNT and pa.types.is_int64(last.type)


_NEEDS = {
    "sum": _Need(
        "int64 or decimal128",
        lambda kind: pa.types.is_int64(kind) or pa.types.is_decimal128(kind),
        "cast {name}, or use dsum for float64",
    ),
    "dsum": _Need("float64", pa.types.is_float64),
    "bag": _Need("a list of structs that end with count: int64", _is_bag),
    "peaks": _Need("a list of int32", lambda kind: kind == pa.list_(pa.int32())),
}
