"""Rows of every kind a window may meet, and windows' answers in a form that compares."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

Row = dict[str, Any]

VALUES = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(12, 3)),
        ("s", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("b", pa.bool_()),
    ]
)
ENGINE = {
    "_time": pa.int64(),
    "_sign": pa.int8(),
    "_source": pa.int32(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_sub": pa.int64(),
}
KEY_TYPES = {
    "long": pa.int64(),
    "text": pa.string(),
    "double": pa.float64(),
    "decimal": pa.decimal128(25, 2),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "nested": pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))]),
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

exact_floats = st.integers(-(2**40), 2**40).map(lambda n: n / 2**20)
special_floats = st.sampled_from([math.nan, math.inf, -math.inf, -0.0])


def keys(kind: str) -> st.SearchStrategy[Any]:
    """Few different keys of a kind, so that rows meet; null among them."""
    choices: dict[str, list[Any]] = {
        "long": [0, 1, -(2**63), 2**63 - 1],
        "text": ["", "a", "a\x00", "é", "€", "\U0001f30a"],
        "double": [0.0, -0.0, math.nan, math.inf, 1.5],
        "decimal": [Decimal("0.00"), Decimal("-1.10"), Decimal("12345678901234567890123.45")],
        "boolean": [True, False],
        "date": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
        "nested": [{"a": -0.0, "b": ["x", None]}, {"a": None, "b": []}, {"a": math.nan, "b": None}],
    }
    return st.sampled_from([None, *choices[kind]])


def rows(kind: str, times: st.SearchStrategy[int], *, specials: bool = True) -> Any:
    """Rows with a key of a kind, a second key, and a value of every type."""
    floats = exact_floats | special_floats if specials else exact_floats
    values = {
        "i": st.integers(-(2**31), 2**31 - 1),
        "l": st.integers(-(2**58), 2**58),
        "d": floats,
        "f": st.integers(-(2**20), 2**20).map(lambda n: n / 2**4),
        "m": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
        "s": st.text(max_size=2),
        "at": st.integers(-(10**15), 10**15).map(lambda n: EPOCH + timedelta(microseconds=n)),
        "b": st.booleans(),
    }
    columns = {name: st.none() | value for name, value in values.items()}
    return st.fixed_dictionaries(
        {"k": keys(kind), "k2": st.sampled_from([None, "x", "y"]), **columns, "_time": times}
    )


def schema(kind: str) -> pa.Schema:
    """The user's columns of such rows."""
    return pa.schema([("k", KEY_TYPES[kind]), ("k2", pa.string()), *VALUES])


def table(rows: list[Row], columns: pa.Schema) -> pa.Table:
    """Rows as the engine hands them to a kernel."""
    present = {name for row in rows for name in row} if rows else set(ENGINE) - {"_sign"}
    engine = [pa.field(name, kind) for name, kind in ENGINE.items() if name in present]
    return pa.Table.from_pylist(rows, schema=pa.schema([*columns, *engine]))


def plain(value: Any) -> Any:
    """A value that equals its equals: one NaN, no negative zero, nested ones hashable."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, plain(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return tuple(map(plain, value))
    return value
