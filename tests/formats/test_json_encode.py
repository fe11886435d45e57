"""Encoding columns as JSON and decoding them loses nothing; Python's JSON reads the same."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats import json_records

from millstream.errors import InvalidInput, InvalidSpec
from millstream.formats.json import encode as json_encode
from millstream.formats.json.decode import decode
from millstream.formats.json.encode import encode
from millstream.schema import Schema

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": TEXTS,
    "binary": st.binary(max_size=9),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
}


def values_of(type_: Any) -> st.SearchStrategy[Any]:
    """Valid values of a type, including nulls."""
    if isinstance(type_, str):
        return st.none() | SCALARS[type_]
    if type_[0] == "decimal":
        most = 10 ** type_[1] - 1
        return st.none() | st.integers(-most, most).map(
            lambda number: Decimal((int(number < 0), _digits(number), -type_[2]))
        )
    if type_[0] == "array":
        return st.none() | st.lists(values_of(type_[1]), max_size=3)
    if type_[0] == "map":
        pairs = st.dictionaries(TEXTS, values_of(type_[1]), max_size=3)
        return st.none() | pairs.map(lambda made: list(made.items()))
    parts = {name: values_of(part) for name, part, _ in type_[1]}
    return st.none() | st.fixed_dictionaries(parts)


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    random = Random(draw(st.integers(0, 2**32)))
    fields = _nullable(json_records.random_fields(random))
    row = st.fixed_dictionaries({name: values_of(type_) for name, type_, _ in fields})
    rows = draw(st.lists(row, max_size=8)) * draw(st.sampled_from((1, 9)))
    return pa.Table.from_pylist(rows, Schema.parse(json_records.ddl(fields)).arrow())


def _nullable(fields: json_records.Fields) -> json_records.Fields:
    """The same fields, all of them nullable, nested ones as well."""
    return [(name, _loose(type_), True) for name, type_, _ in fields]


def _loose(type_: Any) -> Any:
    if isinstance(type_, str) or type_[0] == "decimal":
        return type_
    if type_[0] == "struct":
        return ("struct", _nullable(type_[1]))
    return (type_[0], _loose(type_[1]))


@settings(max_examples=100, deadline=None)
@given(tables())
def test_encoded_rows_decode_to_the_same_rows(table: pa.Table) -> None:
    made = encode(table)
    assert made.type == pa.binary()
    assert made.null_count == 0
    again = decode(made, Schema.from_arrow(table.schema))
    assert again.reasons == []
    assert again.extra == 0
    assert again.table.schema == table.schema
    assert repr(again.table.to_pylist()) == repr(table.to_pylist())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), TEXTS), max_size=40))
def test_whole_numbers_and_text_are_byte_for_byte_what_python_writes(
    rows: list[tuple[int, str]],
) -> None:
    names = ["i", 'é"\\']
    arrays = [
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], pa.string()),
    ]
    meant = [
        json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, separators=(",", ":"))
        for row in rows
    ]
    assert [raw.decode() for raw in encode(pa.table(arrays, names)).to_pylist()] == meant


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40))
def test_doubles_are_as_short_as_python_writes_them_and_read_back_the_same(
    numbers: list[float],
) -> None:
    made = encode(pa.table({"f": pa.array(numbers, pa.float64())})).to_pylist()
    read = [json.loads(raw)["f"] for raw in made]
    assert [(type(number), repr(number)) for number in read] == [(float, repr(n)) for n in numbers]
    for raw, number in zip(made, numbers, strict=True):
        mantissa = raw[5:-1].decode().partition("e")[0]
        assert _significant(mantissa) == _significant(repr(number).partition("e")[0])


def _significant(mantissa: str) -> str:
    return mantissa.replace("-", "").replace(".", "").strip("0")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.float64(), 1.0, "1.0"),
        (pa.float64(), -0.0, "-0.0"),
        (pa.float64(), 1e22, "1e+22"),
        (pa.float64(), 0.1, "0.1"),
        (pa.float64(), 5e-324, "5e-324"),
        (pa.float64(), float("nan"), '"NaN"'),
        (pa.float64(), float("-inf"), '"-Infinity"'),
        (pa.float32(), 0.1, "0.1"),
        (pa.int64(), -(2**63), "-9223372036854775808"),
        (pa.bool_(), True, "true"),
        (pa.decimal128(12, 2), Decimal("-0.50"), '"-0.50"'),
        (pa.decimal128(38, 10), Decimal("1E-10"), '"0.0000000001"'),
        (pa.decimal128(38, 10), Decimal("0E-10"), '"0.0000000000"'),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC),
         '"2026-01-01T00:00:00.000000Z"'),
        (pa.timestamp("us", "UTC"), datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01T00:00:00.000000Z"'),
        (pa.timestamp("us", "UTC"), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
         '"1969-12-31T23:59:59.999999Z"'),
        (pa.timestamp("ms", "Europe/Paris"), datetime(2026, 7, 1, tzinfo=UTC),
         '"2026-07-01T00:00:00.000000Z"'),
        (pa.timestamp("us"), datetime(2026, 1, 1, 12, 30), '"2026-01-01T12:30:00.000000"'),
        (pa.date32(), date(9999, 12, 31), '"9999-12-31"'),
        (pa.binary(), b"\x00\xff", '"AP8="'),
        (pa.string(), 'a"\\\n\x01\x7f/é\u2028', '"a\\"\\\\\\n\\u0001\x7f/é\u2028"'),
        (pa.large_string(), "x", '"x"'),
        (pa.list_(pa.string()), [], "[]"),
        (pa.list_(pa.string()), [None, ""], '[null,""]'),
        (pa.map_(pa.string(), pa.int32()), [("a\n", None)], '{"a\\n":null}'),
        (pa.struct([("a", pa.int8()), ("b", pa.list_(pa.bool_()))]), {"a": None, "b": [True]},
         '{"a":null,"b":[true]}'),
    ],
)  # fmt: skip
def test_each_value_is_encoded_as_expected(kind: pa.DataType, value: object, text: str) -> None:
    column = pa.array([None, value, None, value], kind)
    assert encode(pa.table({"x": column.slice(1)})).to_pylist() == [
        f'{{"x":{shown}}}'.encode() for shown in (text, "null", text)
    ]


def test_a_table_without_rows_gives_no_records() -> None:
    assert encode(pa.table({"a": pa.array([], pa.int64())})).to_pylist() == []


def test_many_rows_in_many_chunks_are_written_in_order() -> None:
    column = pa.chunked_array([pa.array(range(20_000)), pa.array(range(20_000, 20_005))])
    made = encode(pa.table({"n": column}))
    assert [json.loads(raw)["n"] for raw in made.to_pylist()] == list(range(20_005))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC")),
        pa.array([-62_135_596_800_000_001], pa.timestamp("us")),
        pa.array([2_932_897], pa.int32()).view(pa.date32()),
    ],
)
def test_a_time_that_iso_text_cannot_represent_is_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidInput, match="times in the years 1 to 9999"):
        encode(pa.table({"t": column}))


def test_a_type_without_a_json_form_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="a column needs a type that Spark holds; got u of Arrow"):
        encode(pa.table({"u": pa.array([1], pa.uint64())}))
    with pytest.raises(InvalidSpec, match="a map in JSON needs string keys"):
        encode(pa.table({"m": pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32()))}))
    with pytest.raises(InvalidInput, match="at least one column"):
        encode(pa.table({}))


@settings(max_examples=400, deadline=None)
@given(tables())
def test_few_rows_are_encoded_like_many(table: pa.Table) -> None:
    few = encode(table.slice(0, json_encode.FEW))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_encode, "FEW", -1)
        many = encode(table.slice(0, len(few)))

    assert few.equals(many)


REALS = [0.0, -0.0, 1e-3, 9.99e-4, 0.1, 1.35, 27.0, -3.5, 1e9, 999999999.5, 1e10, 1e15, 1e-5,
         5e-324, float("nan"), float("inf"), 1 / 3, 2 / 3 * 1e8]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(REALS) | st.floats(1e-4, 1e12) | st.floats(), max_size=24))
def test_few_doubles_are_encoded_like_many(values: list[float]) -> None:
    table = pa.table({"x": pa.array(values, pa.float64())})
    one_by_one = pa.concat_arrays([encode(table.slice(n, 1)) for n in range(len(values))] or
                                  [pa.array([], pa.binary())])  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_encode, "FEW", -1)

        assert one_by_one.equals(encode(table))
