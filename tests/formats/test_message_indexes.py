"""Confluent's message index, which names the message of a framed Protobuf record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.protobuf_files import several

from millstream.formats.framing import Framing
from millstream.formats.protobuf.format import Protobuf
from millstream.formats.protobuf.schema import message_descriptor

FILES = several()
HEAD = bytes.fromhex("0000000001")
BODY = bytes.fromhex("0811")
BY_CONFLUENT = {
    "m.First": "00000000 01 00 0811",
    "m.Second": "00000000 01 0202 0811",
    "m.Third": "00000000 01 0204 0811",
    "m.First.Left": "00000000 01 040002 0811",
    "m.First.Right": "00000000 01 040004 0811",
    "m.Second.Left.Deep": "00000000 01 06020200 0811",
    "m.Second.Right": "00000000 01 040204 0811",
    "m.More60": "00000000 01 027e 0811",
    "m.More69": "00000000 01 029001 0811",
}
"""`id=17` as the ProtobufSerializer of confluent-kafka 2.16.1 wrote it, schema id 1."""


def framed(name: str) -> Protobuf:
    return Protobuf(FILES, name, Framing.of("confluent:1"))


def table(name: str, ids: list[int]) -> pa.Table:
    kinds = framed(name).row_schema().arrow()
    rows = [{"id": id_, "counts": []} if "counts" in kinds.names else {"id": id_} for id_ in ids]
    return pa.Table.from_pylist(rows, schema=kinds)


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    made = b""
    while value > 0x7F:
        made, value = made + bytes([value & 0x7F | 0x80]), value >> 7
    return made + bytes([value])


@pytest.mark.parametrize("name", BY_CONFLUENT)
def test_encoded_messages_equal_those_of_confluents_serializer(name: str) -> None:
    raw = bytes.fromhex(BY_CONFLUENT[name])
    assert framed(name).encode(table(name, [17])).to_pylist() == [raw]
    kind: Any = message_factory.GetMessageClass(message_descriptor(FILES, name))
    assert kind.FromString(raw[-2:]).id == 17


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("name", BY_CONFLUENT)
def test_records_of_another_message_are_bad_rows_that_name_its_index(name: str, count: int) -> None:
    values = [bytes.fromhex(text) for text in BY_CONFLUENT.values()] * count
    made = framed(name).decode(pa.array(values), framed(name).row_schema())

    mine = [n for n, other in enumerate(list(BY_CONFLUENT) * count) if other == name]
    assert made.good.tolist() == mine
    assert made.table.equals(table(name, [17] * count))
    assert len(made.reasons) == len(values) - count
    assert all(reason.startswith("needs the message index [") for reason in made.reasons)


def test_the_reason_names_both_indexes() -> None:
    values = [BY_CONFLUENT["m.First"], BY_CONFLUENT["m.Second.Left.Deep"]]
    made = framed("m.More69").decode(
        pa.array([bytes.fromhex(text) for text in values]), framed("m.More69").row_schema()
    )
    assert made.reasons == [
        "needs the message index [72]; got [0]",
        "needs the message index [72]; got [1, 1, 0]",
    ]


def test_longer_encodings_of_an_index_are_equal() -> None:
    forms = {"m.First": [b"\0", b"\2\0", b"\x82\0\0", b"\x80\0", b"\2\x80\0"],
             "m.Second": [b"\2\2", b"\x82\0\2", b"\2\x82\x80\0"]}  # fmt: skip
    for name, some in forms.items():
        values = [HEAD + form + BODY for form in some] * 20
        made = framed(name).decode(pa.array(values), framed(name).row_schema())
        assert made.reasons == []
        assert made.table.equals(table(name, [17] * len(values)))


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"", "got nothing"),
        (b"\2", "got nothing"),
        (b"\x82", "got 82"),
        (b"\xff" * 30, "got ffffffffffffffffffff"),
        (b"\1", "got one of -1 numbers"),
        (b"\xd0\x0f", "got one of 1000 numbers"),
    ],
)
def test_an_invalid_index_makes_a_bad_row(head: bytes, says: str) -> None:
    for count in (1, 50):
        made = framed("m.Second").decode(
            pa.array([HEAD + head] * count), framed("m.Second").row_schema()
        )
        expected = f"not framed: needs a message index after the schema id; {says}"
        assert made.reasons == [expected] * count


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-3, 200), min_size=1, max_size=4), st.sampled_from(list(BY_CONFLUENT)))
def test_an_index_either_matches_the_message_or_is_refused(path: list[int], name: str) -> None:
    value = HEAD + varint(len(path)) + b"".join(map(varint, path)) + BODY
    mine = bytes.fromhex(BY_CONFLUENT[name])[5:-2]
    own = mine == value[5:-2] or (name == "m.First" and path == [0])
    made = framed(name).decode(pa.array([value]), framed(name).row_schema())
    assert bool(made.good.size) == own
    if not own:
        assert made.reasons[0].endswith(f"; got {path}")
