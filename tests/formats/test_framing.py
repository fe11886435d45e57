"""The framing of Avro records: framed, bare, or either."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidInput
from millstream.formats.avro.format import Avro
from millstream.formats.framing import BARE, Framing
from millstream.schema import Schema

SCHEMA = Schema.parse("a string, b string")
FIELDS = [{"name": name, "type": "string"} for name in "ab"]
TEXT = json.dumps({"type": "record", "name": "r", "fields": FIELDS})
HEAD = b"\0\0\0\0\x07"
BOTH = b"\0\x0aabc\0\0"
VALUES = st.lists(
    st.none() | st.binary(max_size=12) | st.binary(max_size=8).map(lambda raw: HEAD + raw)
    | st.sampled_from([b"\0\0", HEAD + b"\0\0", BOTH, b"\x02x\0"]),
    max_size=60,
)  # fmt: skip


def good(value: bytes | None, framing: str) -> bool:
    made = Avro(TEXT, Framing.of(framing)).decode(pa.array([value], pa.binary()), SCHEMA)
    return bool(made.good.size)


@settings(max_examples=80, deadline=None)
@given(VALUES, st.sampled_from((pa.binary(), pa.large_binary())))
def test_without_framing_a_value_is_read_in_the_only_valid_way(
    values: list[bytes | None], kind: pa.DataType
) -> None:
    made = Avro(TEXT).decode(pa.array(values, kind), SCHEMA)

    framed = [good(value, "confluent") for value in values]
    bare = [good(value, "bare") for value in values]
    unambiguous = [n for n in range(len(values)) if framed[n] != bare[n]]
    assert made.good.tolist() == unambiguous
    assert sorted([*unambiguous, *made.bad.tolist()]) == list(range(len(values)))
    for number, row in zip(unambiguous, made.table.to_pylist(), strict=True):
        body = values[number] or b""
        once = Avro(TEXT, BARE).decode(pa.array([body[5:] if framed[number] else body]), SCHEMA)
        assert once.table.to_pylist() == [row]
    for number, reason in zip(made.bad.tolist(), made.reasons, strict=True):
        assert ("may be framed or bare" in reason) == (framed[number] and bare[number])


def test_an_ambiguous_value_is_refused_unless_framing_is_set() -> None:
    assert good(BOTH, "bare")
    assert good(BOTH, "confluent")
    made = Avro(TEXT).decode(pa.array([BOTH], pa.binary()), SCHEMA)
    assert made.reasons == ['may be framed or bare; set framing="confluent" or framing="bare"']


def test_framing_can_require_one_schema_id() -> None:
    only = Avro(TEXT, Framing.of("confluent:7"))
    table = pa.table({"a": ["x"], "b": ["y"]})
    [value] = only.encode(table).to_pylist()
    assert value == HEAD + b"\x02x\x02y"
    made = only.decode(pa.array([value, b"\0\0\0\0\x08" + value[5:], b"\0"]), SCHEMA)
    assert made.table.to_pylist() == [{"a": "x", "b": "y"}]
    assert made.reasons == [
        "needs the schema id 7; got 8",
        "not framed: needs a zero byte and four of a schema id; got 00",
    ]


def test_encoding_framed_records_needs_the_schema_id() -> None:
    table = pa.table({"a": ["x"], "b": ["y"]})
    with pytest.raises(InvalidInput, match='writing needs the schema id in framing="confluent:'):
        Avro(TEXT, Framing.of("confluent")).encode(table)
    assert Avro(TEXT).encode(table).to_pylist() == [b"\x02x\x02y"]
