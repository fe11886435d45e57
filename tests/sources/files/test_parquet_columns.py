"""Every Arrow type against every type of a schema: values that fit exactly are converted."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schema import Schema
from millstream.sources.files import parquet
from millstream.sources.files.parquet_columns import converted

if TYPE_CHECKING:
    from pathlib import Path

BAD, UNFIT = "bad", "unfit"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WHOLE = {"byte": 2**7, "short": 2**15, "int": 2**31, "long": 2**63}
REAL = {"float": 2**24, "double": 2**53}
WANTED = (
    "boolean", *WHOLE, *REAL, "decimal(20,0)", "decimal(5,2)", "decimal(38,18)", "string", "binary",
    "date", "timestamp", "timestamp_ntz",
)  # fmt: skip
_INTS = (0, 1, -1, 127, 128, 255, 999, 1000, 32767, 65535, 2**24, 2**24 + 1, 2**31 - 1, 2**32 - 1,
         2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1)  # fmt: skip
_BITS = {"int8": (-7, 7), "int16": (-15, 15), "int32": (-31, 31), "int64": (-63, 63),
         "uint8": (None, 8), "uint16": (None, 16), "uint32": (None, 32),
         "uint64": (None, 64)}  # fmt: skip


def _ints(name: str) -> list[Any]:
    least, most = _BITS[name]
    low = 0 if least is None else -(2**-least)
    return [v for v in _INTS if low <= v < 2**most] + [None]


SAMPLES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.null(), [None, None]),
    (pa.bool_(), [True, False, None]),
    *((getattr(pa, name)(), _ints(name)) for name in _BITS),
    (pa.float16(), [np.float16(0.5), np.float16(-2), None]),
    (pa.float32(), [0.5, -2.0, float("inf"), None]),
    (pa.float64(), [0.1, 1e300, None]),
    (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-1234567.89"), Decimal("7.00"), None]),
    (pa.decimal128(38, 10), [Decimal("1.2500000000"), Decimal("0.0000000001"), None]),
    (pa.decimal256(50, 0), [Decimal(7), Decimal(10**45), None]),
    (pa.string(), ["", "x", "é€😀", None]),
    (pa.large_string(), ["x", None]),
    (pa.string_view(), ["x" * 40, None]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a", None]),
    (pa.dictionary(pa.int32(), pa.int64()), [5, 2**40, None]),
    (pa.binary(), [b"", b"\xff", None]),
    (pa.large_binary(), [b"x", None]),
    (pa.binary_view(), [b"x" * 40, None]),
    (pa.binary(3), [b"abc", None]),
    (pa.date32(), [date(1, 1, 1), date(2026, 1, 2), date(9999, 12, 31), None]),
    (pa.date64(), [date(2026, 1, 2), None]),
    (pa.time64("us"), [1, None]),
    (pa.duration("us"), [1, None]),
    *((pa.timestamp(unit, zone), [0, 1, 1_000, -1_000, 1_700_000_000, 10**12, None])
      for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")),
    (pa.timestamp("us", "UTC"), [2**62, -(2**62), 7]),
    (pa.timestamp("ms"), [2**62, 7]),
]  # fmt: skip
_PARTS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def meant(kind: pa.DataType, value: Any, wanted: str) -> Any:
    """The value for a type: itself, `BAD`, or `UNFIT` if its column type is refused."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_integer(kind):
        return _of_whole(value, wanted)
    if pa.types.is_floating(kind):
        short = kind != pa.float64()
        taken = wanted == "double" or (wanted == "float" and short)
        return (None if value is None else float(value)) if taken else UNFIT
    if pa.types.is_decimal(kind):
        return _of_decimal(value, wanted) if wanted.startswith("decimal") else UNFIT
    if pa.types.is_timestamp(kind):
        if wanted != "timestamp" and (wanted != "timestamp_ntz" or kind.tz):
            return UNFIT
        return None if value is None else _instant(kind.unit, value)
    if pa.types.is_date(kind) and wanted == "timestamp_ntz":
        return None if value is None else (value - date(1970, 1, 1)).days * 86_400_000_000
    names = {"bool": "boolean", "date32[day]": "date", "date64[ms]": "date"}
    text = str(kind)
    name = names.get(text) or (
        "string" if "string" in text else "binary" if "binary" in text else ""
    )
    return value if name == wanted else UNFIT


def _of_whole(value: int | None, wanted: str) -> Any:
    if wanted not in WHOLE and wanted not in REAL and not wanted.startswith("decimal"):
        return UNFIT
    if value is None:
        return None
    if wanted in WHOLE:
        return value if -WHOLE[wanted] <= value < WHOLE[wanted] else BAD
    if wanted in REAL:
        return float(value) if abs(value) <= REAL[wanted] else BAD
    return _of_decimal(Decimal(value), wanted)


def _of_decimal(value: Decimal | None, wanted: str) -> Any:
    if value is None:
        return None
    precision, scale = (int(part) for part in wanted[8:-1].split(","))
    _, digits, exponent = value.as_tuple()
    unscaled = Decimal((0, digits, int(exponent) + scale))
    whole = unscaled == int(unscaled) and abs(int(unscaled)) < 10**precision
    return value if whole else BAD


def _instant(unit: str, value: int) -> Any:
    if unit == "ns" and value % 1000:
        return BAD
    micros = value // 1000 if unit == "ns" else value * _PARTS[unit]
    try:
        EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return BAD
    return micros


def read(path: Path, column: pa.Array, wanted: str) -> tuple[list[Any], list[int]]:
    """The good values and the indexes of bad ones.

    Raises:
        parquet.Unreadable: the column has another type.
    """
    pq.write_table(pa.table({"x": column}), path / "x")
    schema = Schema.parse(f"x {wanted}")
    rows, _ = parquet.count(path / "x", schema)
    made = parquet.read(path / "x", 0, 0, rows, schema)
    made.table.validate(full=True)
    assert made.table.schema.equals(schema.arrow())
    needs = f"x: needs {schema['x'].type.ddl()}; got "
    assert all(reason.startswith(needs) for reason in made.reasons)
    return plain(made.table["x"]), made.bad.tolist()


def plain(column: Any) -> list[Any]:
    """Times as microseconds, so that the years 1 and 9999 and all zones compare equal."""
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


def made_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


@pytest.mark.parametrize("wanted", WANTED)
def test_each_column_type_is_converted_value_by_value_or_refused(
    tmp_path: Path, wanted: str
) -> None:
    for kind, values in SAMPLES:
        try:
            column = made_of(kind, values)
            pq.write_table(pa.table({"x": column}), tmp_path / "can")
        except pa.ArrowNotImplementedError:
            assert kind == pa.decimal256(50, 0), kind
            continue
        stored = pq.read_schema(tmp_path / "can").field("x").type
        expected = [meant(kind, value, wanted) for value in values]
        if UNFIT in expected:
            with pytest.raises(parquet.Unreadable, match="x: needs"):
                read(tmp_path, column, wanted)
            continue
        good, bad = read(tmp_path, column, wanted)
        assert good == [value for value in expected if value is not BAD], (kind, stored)
        assert bad == [place for place, value in enumerate(expected) if value is BAD], kind


@pytest.mark.parametrize("shape", ["array", "struct", "map", "deep"])
def test_nested_values_are_converted_like_top_level_values(tmp_path: Path, shape: str) -> None:
    for kind, values in SAMPLES:
        if kind == pa.decimal256(50, 0):
            continue
        column = made_of(kind, values)
        inner, type_ = nested(shape, column)
        for wanted in WANTED:
            expected = [meant(kind, value, wanted) for value in values]
            schema = type_.replace("?", wanted)
            if UNFIT in expected:
                with pytest.raises(parquet.Unreadable):
                    read(tmp_path, inner, schema)
                continue
            good, bad = read(tmp_path, inner, schema)
            assert bad == [place for place, value in enumerate(expected) if value is BAD], (
                kind,
                wanted,
            )
            assert len(good) == len(expected) - len(bad)
            alone, _ = read(tmp_path, column, wanted)
            assert [unwrapped(shape, value) for value in good] == _again(alone, wanted)


def nested(shape: str, column: pa.Array) -> tuple[pa.Array, str]:
    """Each value in a list, struct, map, or a list of structs of lists; and the type's text."""
    count = len(column)
    bounds = pa.array(range(count + 1), pa.int32())
    if shape == "array":
        return pa.LargeListArray.from_arrays(bounds.cast(pa.int64()), column), "array<?>"
    if shape == "struct":
        more = pa.array(range(count))
        return pa.StructArray.from_arrays([more, column], ["more", "a"]), "struct<a: ?, b: int>"
    if shape == "map":
        keys = pa.array(["k"] * count)
        return pa.MapArray.from_arrays(bounds, keys, column), "map<string,?>"
    lists = pa.ListArray.from_arrays(bounds, column)
    struct = pa.StructArray.from_arrays([lists], ["a"])
    return pa.ListArray.from_arrays(bounds, struct), "array<struct<a: array<?>>>"


def unwrapped(shape: str, value: Any) -> Any:
    if shape == "array":
        return value[0]
    if shape == "struct":
        assert value["b"] is None
        return value["a"]
    return value[0][1] if shape == "map" else value[0]["a"][0]


def _again(values: list[Any], wanted: str) -> list[Any]:
    if not wanted.startswith("timestamp"):
        return values
    kind = pa.timestamp("us", None if wanted.endswith("ntz") else "UTC")
    return list(pa.array(values, pa.int64()).cast(kind).to_pylist())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4)),
    st.integers(0, 3), st.sampled_from(("byte", "int", "double", "decimal(18,0)")),
)  # fmt: skip
def test_slices_and_nulls_of_lists_change_nothing(
    lists: list[list[int | None] | None], skip: int, wanted: str
) -> None:
    column = pa.array(lists, pa.list_(pa.int64())).slice(min(skip, len(lists)))
    made, wrong = converted(column, Schema.parse(f"x array<{wanted}>")["x"].type)
    made.validate(full=True)
    expected = [None if one is None else [_of_whole(v, wanted) for v in one]
            for one in column.to_pylist()]  # fmt: skip
    assert wrong.tolist() == [one is not None and BAD in one for one in expected]
    for value, one, lost in zip(made.to_pylist(), expected, wrong.tolist(), strict=True):
        assert lost or value == one


def test_the_columns_of_a_reported_issue_are_read(tmp_path: Path) -> None:
    table = pa.table({
        "a": pa.nulls(2), "b": pa.array([7, 2**32 - 1], pa.uint32()),
        "c": pa.array([2**53, 2**53 + 1], pa.int64()), "d": pa.array([[1], [2, None]],
        pa.list_(pa.int32())), "e": pa.array([2**64 - 1, 0], pa.uint64()),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x")
    schema = Schema.parse("a string, b long, c double, d array<long>, e decimal(20,0)")
    assert parquet.count(tmp_path / "x", schema)[0] == 2
    made = parquet.read(tmp_path / "x", 0, 0, 2, schema)
    assert made.table.to_pylist() == [
        {"a": None, "b": 7, "c": 2.0**53, "d": [1], "e": Decimal(2**64 - 1)}
    ]
    assert made.reasons == ["c: needs double; got 9007199254740993"]


def test_duplicate_columns_and_missing_not_null_fields_make_a_file_unreadable(
    tmp_path: Path,
) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(twice, tmp_path / "x")
    with pytest.raises(parquet.Unreadable, match="x: needs one such column; the file has 2"):
        parquet.count(tmp_path / "x", Schema.parse("x long"))
    pq.write_table(pa.table({"x": [{"a": 1}]}), tmp_path / "x")
    with pytest.raises(parquet.Unreadable, match=r"x: needs struct<.*NOT NULL>; the file"):
        parquet.count(tmp_path / "x", Schema.parse("x struct<a: long, b: int not null>"))
    pq.write_table(pa.table({"x": [{"a": None}, {"a": 1}, None]}), tmp_path / "x")
    made = parquet.read(tmp_path / "x", 0, 0, 3, Schema.parse("x struct<a: long not null>"))
    assert made.table.to_pylist() == [{"x": {"a": 1}}, {"x": None}]


def test_invalid_utf8_is_a_bad_row(tmp_path: Path) -> None:
    raw = pa.array([b"x", b"\xff\xfe", None, "é".encode()])
    text = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    good, bad = read(tmp_path, text, "string")
    assert (good, bad) == (["x", None, "é"], [1])
