"""Finds rows that a PostgreSQL table can never take, by the types of its columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.schema import Array, Map, Schema, Struct
from millstream.sinks.postgres.copy import kind
from millstream.sinks.row_checks import Reason, contains_nul, first_reasons, plain_mask, upsert_mask
from millstream.sinks.rows import columns_of
from millstream.sinks.texts import json_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTEGERS = {"smallint": 1 << 15, "integer": 1 << 31, "bigint": 1 << 63}
_REAL = 3.4028235677973366e38  # the first value that rounds to infinity as a real
_YEARS = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # microseconds: the years 1 to 9999
_NUL_IN_JSON = r"(^|[^\\])(\\\\)*\\u0000"
_SIZED = re.compile(
    r"(?P<name>character varying|character|numeric)\((?P<n>\d+)(,(?P<scale>-?\d+))?\)"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an existing table, with its type as `format_type` returns it."""

    type: str
    nullable: bool = True


@dataclass(frozen=True)
class PostgresLimits:
    """The columns of one table, empty if Millstream creates it, and its key."""

    columns: dict[str, Column]
    keys: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> pa.Array | None:
        """As `Check`. Of a delete only the key must be valid."""
        upserts = upsert_mask(rows)
        found = [
            (mask if upserts is None or name in self.keys else pc.and_(mask, upserts), why)
            for name, mask, why in self._invalid(rows)
        ]
        return first_reasons(rows.num_rows, found)

    def _invalid(self, rows: pa.Table) -> Iterator[tuple[str, pa.Array, str]]:
        names = columns_of(rows)
        for field in Schema.from_arrow(rows.select(names).schema):
            known = self.columns.get(field.name)
            type_ = known.type if known else kind(field.type)
            column = rows[field.name]
            nested = isinstance(field.type, Array | Map | Struct)
            for mask, why in _invalid_values(column, type_, nested=nested):
                yield field.name, plain_mask(mask), f"the column {field.name!r} {why}"
            if known and not known.nullable and column.null_count:
                reason = f"the column {field.name!r} is null, which the table does not accept"
                yield field.name, plain_mask(column.is_null()), reason


def _invalid_values(column: pa.ChunkedArray, type_: str, *, nested: bool) -> Iterator[Reason]:
    """Masks of the values that the column type cannot hold."""
    given = column.type
    if nested:
        if type_ != "json" and contains_nul(column):
            yield (pc.match_substring_regex(json_texts(column), _NUL_IN_JSON),
                   "contains a NUL character, which PostgreSQL cannot store in text")  # fmt: skip
    elif pa.types.is_string(given) or pa.types.is_large_string(given):
        yield from _invalid_texts(column, type_)
    elif pa.types.is_timestamp(given) or pa.types.is_date(given):
        yield from _invalid_times(column)
    elif pa.types.is_integer(given) or pa.types.is_floating(given) or pa.types.is_decimal(given):
        yield from _invalid_numbers(column, type_)


def _invalid_texts(column: pa.ChunkedArray, type_: str) -> Iterator[Reason]:
    if contains_nul(column):
        yield (pc.match_substring(column, "\0"),
               "contains a NUL character, which PostgreSQL cannot store in text")  # fmt: skip
    sized = _SIZED.fullmatch(type_)
    if sized and sized["name"] != "numeric":
        length = pc.utf8_length(pc.utf8_rtrim(column, " "))
        yield pc.greater(length, int(sized["n"])), f"is longer than {type_}"


def _invalid_times(column: pa.ChunkedArray) -> Iterator[Reason]:
    micros = column
    if pa.types.is_date(column.type):
        micros = pc.multiply(
            column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 86_400_000_000
        )
    else:
        micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    outside = pc.or_(pc.less(micros, _YEARS[0]), pc.greater(micros, _YEARS[1]))
    yield outside, "is outside the years 1 to 9999"


def _invalid_numbers(column: pa.ChunkedArray, type_: str) -> Iterator[Reason]:
    sized = _SIZED.fullmatch(type_)
    floating = pa.types.is_floating(column.type)
    if type_ in _INTEGERS and pa.types.is_integer(column.type):
        most = _INTEGERS[type_]
        if column.type.bit_width > 8 * {"smallint": 2, "integer": 4, "bigint": 8}[type_]:
            beyond = pc.or_(pc.less(column, -most), pc.greater(column, most - 1))
            yield beyond, f"is too large for {type_}"
    elif type_ == "real" and floating and column.type.bit_width == 64:
        finite = pc.is_finite(column)
        yield pc.and_(finite, pc.greater_equal(pc.abs(column), _REAL)), "is too large for real"
    elif sized and sized["name"] == "numeric":
        digits = int(sized["n"]) - int(sized["scale"] or 0)
        size = pc.abs(column if floating else column.cast(pa.float64()))
        half = 0.5 * 10.0 ** -int(sized["scale"] or 0)
        beyond = pc.greater_equal(size, 10.0**digits - half)
        yield (pc.and_(beyond, pc.invert(pc.is_nan(size))) if floating else beyond,
               f"is too large for {type_}")  # fmt: skip
