"""The rules of the JSON format, one by one, with the reasons of bad rows.

Every case is decoded alone, and again among forty ordinary records of the same shape, which take
the fast path.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.formats.agreement import agreed

from millstream.errors import InvalidInput, InvalidSpec
from millstream.formats.json import exact
from millstream.formats.json.decode import check, decode
from millstream.formats.json.format import Json
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.formats.spec import Decoded, Format

Type = Any


def read(
    text: bytes | None, type_: Type, *, nullable: bool = True, usual: bytes = b"null"
) -> Decoded:
    """Decode a record among others whose `x` is `usual`; all three ways must agree."""
    plain = b'{"x":' + usual + b"}"
    return agreed([*[plain] * 20, text, *[plain] * 20], [("x", type_, nullable)])


def value(text: bytes, type_: Type) -> Any:
    """The value of the field, alone, among nulls and among equal records."""
    raw = b'{"x":' + text + b"}"
    for usual in (b"null", text):
        made = read(raw, type_, usual=usual)
        assert made.reasons == []
        assert len(made.good) == 41
    return made.table["x"][20].as_py()


def reason(raw: bytes | None, type_: Type = "long", *, nullable: bool = True) -> str:
    """Why the record is a bad row; the others must be good."""
    made = read(raw, type_, nullable=nullable, usual=_USUAL.get(str(type_), b"1"))
    assert made.bad.tolist() == [20]
    return made.reasons[0]


_USUAL = {"boolean": b"true", "string": b'"s"', "binary": b'"QQ=="', "date": b'"2026-01-01"'}


@pytest.mark.parametrize(
    ("text", "type_", "meant"),
    [
        (b"5", "long", 5),
        (b"-0", "long", 0),
        (b"9223372036854775807", "long", 2**63 - 1),
        (b"-9223372036854775808", "long", -(2**63)),
        (b"-128", "byte", -128),
        (b"5", "double", 5.0),
        (b"1e3", "double", 1000.0),
        (b"0.1000000000000000055511151231257827", "double", 0.1),
        (b"9007199254740993", "double", 9007199254740992.0),
        (b"1e-400", "double", 0.0),
        (b'"Infinity"', "double", float("inf")),
        (b'"-Infinity"', "float", float("-inf")),
        (b"16777217", "float", 16777216.0),
        (b"true", "boolean", True),
        (b'"\\u0000\\n\\ud83d\\ude00\\/"', "string", "\x00\n😀/"),
        ('"é\u2028\x7f"'.encode(), "string", "é\u2028\x7f"),
        (b'""', "string", ""),
        (b'"AP8="', "binary", b"\x00\xff"),
        (b'"2024-02-29"', "date", date(2024, 2, 29)),
        (b"12.5", ("decimal", 12, 2), Decimal("12.50")),
        (b'"12.5"', ("decimal", 12, 2), Decimal("12.50")),
        (b"1.2500e1", ("decimal", 12, 2), Decimal("12.50")),
        (b"0.1234567890123456789012345678901234567", ("decimal", 38, 37),
         Decimal("0.1234567890123456789012345678901234567")),
        (b"1767225600001", "timestamp", datetime(2026, 1, 1, 0, 0, 0, 1000, UTC)),
        (b'"2026-01-01T00:00:01"', "timestamp", datetime(2026, 1, 1, 0, 0, 1, 0, UTC)),
        (b'"2026-01-01 00:00:01.5Z"', "timestamp", datetime(2026, 1, 1, 0, 0, 1, 500000, UTC)),
        (b'"2026-01-01T02:00:00.000001+02:00"', "timestamp", datetime(2026, 1, 1, 0, 0, 0, 1, UTC)),
        (b'"2026-01-01T00:00:00-0130"', "timestamp", datetime(2026, 1, 1, 1, 30, tzinfo=UTC)),
        (b'"2026-01-01T00:00:00.1230000Z"', "timestamp",
         datetime(2026, 1, 1, 0, 0, 0, 123000, UTC)),
        (b'"2026-01-01T10:30"', "timestamp", datetime(2026, 1, 1, 10, 30, tzinfo=UTC)),
        (b'"2026-01-01"', "timestamp", datetime(2026, 1, 1, tzinfo=UTC)),
        (b'"2026-01-01 00:00:01"', "timestamp_ntz", datetime(2026, 1, 1, 0, 0, 1)),
        (b"[1,null]", ("array", "long"), [1, None]),
        (b'{"k":1.5,"l":null}', ("map", "double"), [("k", 1.5), ("l", None)]),
        (b'{"a":1}', ("struct", [("a", "int", False), ("b", "string", True)]), {"a": 1, "b": None}),
        (b"null", ("struct", [("a", "int", False)]), None),
    ],
)  # fmt: skip
def test_a_value_is_read_exactly(text: bytes, type_: Type, meant: object) -> None:
    read_value = value(text, type_)
    assert type(read_value) is type(meant)
    assert read_value == meant


def test_a_minus_before_zero_is_kept_for_doubles() -> None:
    assert np.signbit(value(b"-0.0", "double"))
    assert np.signbit(value(b"-0", "double"))


@pytest.mark.parametrize(
    ("text", "type_", "sentence"),
    [
        (b'"5"', "long", "x: needs a long; got a string"),
        (b"5.5", "long", "x: needs a long; got 5.5"),
        (b"1.0", "long", "x: needs a long; got 1.0"),
        (b"1e3", "int", "x: needs an int; got 1e3"),
        (b"true", "long", "x: needs a long; got a boolean"),
        (b"9223372036854775808", "long",
         "x: needs a long; got 9223372036854775808, beyond its range"),
        (b"128", "byte", "x: needs a byte; got 128, beyond its range"),
        (b"[1]", "long", "x: needs a long; got an array"),
        (b'"5"', "double", "x: needs a double; got a string"),
        (b'"nan"', "double", "x: needs a double; got a string"),
        (b"1e400", "double", "x: needs a double; got 1e400, beyond its range"),
        (b"3.5e38", "float", "x: needs a float; got 3.5e38, beyond its range"),
        (b"5", "string", "x: needs a string; got a number"),
        (b'"\\ud800"', "string", "x: needs a string; got half of a surrogate pair"),
        (b"1", "boolean", "x: needs a boolean; got a number"),
        (b'"QR=="', "binary", "x: needs a binary; got text that is not base64"),
        (b'"2026-02-29"', "date", "x: needs a date; got a day that does not exist"),
        (b"20000", "date", "x: needs a date; got a number"),
        (b"1.234", ("decimal", 12, 2), "x: needs a decimal(12,2); got 1.234, which does not fit"),
        (b"100", ("decimal", 4, 2), "x: needs a decimal(4,2); got 100, which does not fit"),
        (b'"1,5"', ("decimal", 4, 2), 'x: needs a decimal(4,2); got the text "1,5"'),
        (b"1767225600000.5", "timestamp",
         "x: needs a timestamp; got 1767225600000.5, no whole milliseconds"),
        (b"1767225600000000", "timestamp",
         "x: needs a timestamp; got a time outside the years 1 to 9999"),
        (b'"yesterday"', "timestamp", "x: needs a timestamp; got text that is not an ISO time"),
        (b'"2026-01-01T00:00:00.1234567Z"', "timestamp",
         "x: needs a timestamp; got a time finer than a microsecond"),
        (b'"2026-01-01T24:00:00Z"', "timestamp",
         "x: needs a timestamp; got an hour, minute or second that does not exist"),
        (b'"2026-01-01T00:00:00Z"', "timestamp_ntz",
         "x: needs a timestamp_ntz; got a time with a zone"),
        (b"1", "timestamp_ntz", "x: needs a timestamp_ntz; got a number"),
        (b'[1,"2"]', ("array", "long"), "x[1]: needs a long; got a string"),
        (b'{"k":{"a":"b"}}', ("map", ("struct", [("a", "int", True)])),
         'x["k"].a: needs an int; got a string'),
        (b"{}", ("struct", [("a", "int", False)]), "x.a: needs an int; it is missing"),
    ],
)  # fmt: skip
def test_an_invalid_value_makes_a_bad_row_that_names_the_field(
    text: bytes, type_: Type, sentence: str
) -> None:
    raw = b'{"x":' + text + b"}"
    made = agreed([raw] * 30, [("x", type_, True)])
    assert made.reasons == [sentence] * 30
    if isinstance(type_, str) and type_ not in ("timestamp_ntz", "timestamp"):
        assert reason(raw, type_) == sentence


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (None, "value is null"),
        (b"", "not JSON: the value is empty"),
        (b"   ", "not JSON: expecting value at character 4"),
        (b"\xef\xbb\xbf{}", "not JSON: it begins with a byte order mark"),
        (b'{"x":"\xff"}', "not JSON: invalid UTF-8 at byte 7"),
        (b'{"x":\xc3\xa9}', "not JSON: expecting value at character 6"),
        (b'{"x":1', "not JSON: expecting ',' delimiter at character 7"),
        (b'{"x":1}{"x":2}', "not JSON: extra data at character 8"),
        (b'{"x":1}\n{"x":2}', "not JSON: extra data at character 9"),
        (b'{"x":01}', "not JSON: expecting ',' delimiter at character 7"),
        (b'{"x":NaN}', "not JSON: NaN is not a JSON number"),
        (b'{"x":-Infinity}', "not JSON: -Infinity is not a JSON number"),
        (b'{"x":1,"x":1}', 'not JSON: the name "x" occurs twice in one object'),
        (b'{"x":1,"\\u0078":1}', 'not JSON: the name "x" occurs twice in one object'),
        (b'{"x":1,"q":{"z":1,"z":2}}', 'not JSON: the name "z" occurs twice in one object'),
        (b'{"x":1,"q":' + b"[" * 100 + b"]" * 100 + b"}",
         "not JSON: nested deeper than 100 levels"),
        (b'{"x":1,"q":"a\x00"}', "not JSON: invalid control character at character 14"),
        (b'{"x":1,"q":"a\n"}', "not JSON: invalid control character at character 14"),
        (b'{"x":1}\x00', "not JSON: extra data at character 8"),
        (b'["x"]', "needs a JSON object; got an array"),
        (b'"x"', "needs a JSON object; got a string"),
        (b"null", "needs a JSON object; got null"),
        (b"7", "needs a JSON object; got a number"),
    ],
)  # fmt: skip
def test_a_record_that_is_not_a_json_object_is_a_bad_row(raw: bytes | None, sentence: str) -> None:
    assert reason(raw) == sentence


def test_a_missing_required_field_is_named() -> None:
    assert reason(b"{}", nullable=False) == "x: needs a long; it is missing"
    assert reason(b'{"x":null}', nullable=False) == "x: needs a long; got null"
    assert reason(b'{"X":1}', nullable=False) == "x: needs a long; it is missing"


def test_blanks_and_newlines_between_tokens_are_ignored() -> None:
    made = read(b' \r\n{\n\t"x" :\n 1 }\n ', "long", usual=b"1")
    assert made.table["x"].to_pylist() == [1] * 41


def test_a_hundred_levels_of_nesting_are_read() -> None:
    raw = b'{"x":1,"q":' + b"[" * 99 + b"]" * 99 + b"}"
    assert read(raw, "long").extra == 1


def test_brackets_inside_a_string_do_not_count_as_nesting() -> None:
    raw = b'{"x":"' + b"[{" * 200 + b'\\""}'
    assert read(raw, "string", usual=b'"s"').bad.size == 0


@pytest.mark.parametrize(
    "raw",
    [b'{"x":1,"q":null}', b'{"q":{"x":2},"x":1}', b'{"x":1,"":[{}]}', b'{"x":1,"X":1}'],
)
def test_rows_with_fields_outside_the_schema_are_counted(raw: bytes) -> None:
    assert read(raw, "long", usual=b"1").extra == 1
    assert agreed([raw] * 50, [("x", "long", True)]).extra == 50


def test_an_unknown_field_inside_a_struct_counts_its_row_once() -> None:
    fields = [("s", ("array", ("struct", [("a", "int", True)])), True)]
    assert agreed([b'{"s":[{"a":1,"b":2},{"c":3}]}'] * 3, fields).extra == 3
    inner = [("s", ("struct", [("a", "int", True)]), True)]
    assert agreed([b'{"s":{"a":1,"b":2},"t":1}'] * 30, inner).extra == 30


def test_bad_rows_do_not_count_as_rows_with_extra_fields() -> None:
    assert agreed([b'{"x":"no","q":1}'] * 30, [("x", "long", True)]).extra == 0


def test_times_as_text_and_as_numbers_may_be_mixed_in_a_block() -> None:
    mixed = [b'{"x":"2026-01-01T00:00:00Z"}', b'{"x":1767225600000}', b'{"x":null}'] * 40
    made = agreed(list(mixed), [("x", "timestamp", True)])
    assert made.table["x"].null_count == 40
    assert len(set(made.table["x"].to_pylist())) == 2


def test_an_empty_input_decodes_to_an_empty_table_with_the_schema() -> None:
    schema = Schema.parse("a long, b array<string>")
    for empty in (pa.array([], pa.binary()), pa.chunked_array([], pa.binary())):
        made = decode(empty, schema)
        assert made.table.schema == schema.arrow()
        assert (made.table.num_rows, made.good.size, made.bad.size, made.extra) == (0, 0, 0, 0)


def test_only_binary_values_are_decoded() -> None:
    with pytest.raises(InvalidInput, match="needs a binary array; got Arrow type string"):
        decode(pa.array(["{}"]), Schema.parse("a long"))


def test_a_map_whose_keys_are_not_strings_is_refused_while_building() -> None:
    with pytest.raises(InvalidSpec, match=r"string keys; got s\.m map<int,long>; declare it as"):
        check(Schema.parse("s struct<m: map<int,long>>"))
    check(Schema.parse("s array<map<string,map<string,long>>>"))


def test_json_implements_the_format_protocol() -> None:
    made: Format = Json()
    assert made.name == "json"
    schema = Schema.parse("a long")
    made.check(schema)
    values = made.encode(pa.table({"a": [1, None]}))
    assert values.to_pylist() == [b'{"a":1}', b'{"a":null}']
    assert made.decode(values, schema).table["a"].to_pylist() == [1, None]


BIDS = Schema.parse(
    "auction long, bidder long, price double, channel string, url string, ts timestamp"
)


def _bids(count: int) -> list[bytes]:
    return [
        b'{"auction":%d,"bidder":%d,"price":%d.25,"channel":"c-%d","url":"u?%d","ts":%d}'
        % (number, number * 7, number, number % 9, number, 1767225600000 + number)
        for number in range(count)
    ]


def _slow_reads(monkeypatch: pytest.MonkeyPatch, values: list[bytes]) -> int:
    """The number of records that a `decode` reads one at a time."""
    count = 0
    read_exactly = exact.Records.read

    def counted(records: exact.Records, raw: bytes | None) -> tuple[list[object], bool]:
        nonlocal count
        count += 1
        return read_exactly(records, raw)

    monkeypatch.setattr(exact.Records, "read", counted)
    decode(pa.array(values, pa.binary()), BIDS)
    return count


def test_the_shape_is_learned_from_one_record_and_the_others_are_read_in_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _slow_reads(monkeypatch, _bids(30_000)) == 1


def test_only_bad_records_take_the_exact_path(monkeypatch: pytest.MonkeyPatch) -> None:
    values = _bids(30_000)
    for number in range(50, 30_000, 100):
        values[number] = values[number].replace(b'"price":', b'"price":"no","was":')
    assert _slow_reads(monkeypatch, values) <= 300 + 10 * (30_000 // 10_000 + 1)


def test_records_of_a_few_shapes_are_all_read_in_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = _bids(12_000)
    values[1::3] = [value.replace(b",", b", ").replace(b":", b": ", 1) for value in values[1::3]]
    values[2::3] = [value.replace(b'"u?', b'"\\u00e9\\"') for value in values[2::3]]
    assert _slow_reads(monkeypatch, values) == 2


def test_two_damaged_rows_whose_quote_counts_cancel_out_are_both_found() -> None:
    fields = [("a", "string", True), ("b", "string", True)]
    lacking, excess = b'{"a":","b":"x"}', b'{"a":"x"y","b":"z"}'
    values: list[bytes | None] = [b'{"a":"x","b":"y"}'] * 30
    values[20] = excess
    assert agreed(values, fields).bad.tolist() == [20]
    values[10] = lacking
    assert agreed(values, fields).bad.tolist() == [10, 20]


def test_a_backslash_before_a_literal_is_detected() -> None:
    values: list[bytes | None] = [b'{"a":"q\\n","b":"y"}'] * 40
    values[20] = b'{"a":"x\\","b":"y"}'
    made = agreed(values, [("a", "string", True), ("b", "string", True)])
    assert made.bad.tolist() == [20]


def test_rows_with_as_many_names_and_quotes_but_another_order_are_read_by_name() -> None:
    values: list[bytes | None] = [b'{"a":1,"b":2}'] * 40
    values[20] = b'{"b":3,"a":4}'
    made = agreed(values, [("a", "long", True), ("b", "long", True)])
    assert made.table["a"].to_pylist() == [1] * 20 + [4] + [1] * 19


def test_a_name_with_escapes_equals_the_name_without() -> None:
    made = agreed([b'{"\\u0061":1}'] * 40, [("a", "long", True)])
    assert (made.table["a"].to_pylist(), made.extra) == ([1] * 40, 0)


def test_damage_across_two_rows_is_found() -> None:
    values: list[bytes | None] = [b'{"a":"x","b":"y"}'] * 30
    values[10:12] = [b'{"a":"x","b":"y', b'"}{"a":"x","b":"y"}']
    values[20:22] = [b'{"a":"x","b":"y"}\\', b'"{"a":"x","b":"y"}']
    made = agreed(values, [("a", "string", True), ("b", "string", True)])
    assert made.bad.tolist() == [10, 11, 20, 21]


def test_a_null_with_bytes_in_its_buffer_is_null() -> None:
    valid, offsets, data = pa.array([b'{"x":1}'] * 40, pa.binary()).buffers()
    valid = pa.py_buffer(b"\xff\xff\xfb\xff\xff")
    values = pa.Array.from_buffers(pa.binary(), 40, [valid, offsets, data])
    made = decode(values, Schema.parse("x long"))
    assert (made.bad.tolist(), made.reasons) == ([18], ["value is null"])


def test_decoding_in_several_threads_gives_the_same_rows() -> None:
    values = [pa.array(_bids(4_000 + 500 * number), pa.binary()) for number in range(4)]
    meant = [decode(value, BIDS).table for value in values]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda value: decode(value, BIDS).table, values * 4))
    assert all(table.equals(meant[number % 4]) for number, table in enumerate(made))


def test_a_record_larger_than_a_block_is_read_like_any_other() -> None:
    large = b'{"x":"' + b"y" * 9_000_000 + b'"}'
    values: list[bytes | None] = [b'{"x":"s"}'] * 40
    values[20] = large
    made = decode(pa.array(values, pa.binary()), Schema.parse("x string"))
    assert made.bad.size == 0
    assert [len(text) for text in made.table["x"].to_pylist()] == [1] * 20 + [9_000_000] + [1] * 19
