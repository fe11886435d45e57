"""Protobuf: fast path == exact path == oracle, for random and hostile records."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.protobuf_files import descriptor_set, older, recursive
from tests.formats.two_ways import same
from tests.oracles import protobuf_oracle

from millstream.errors import InvalidInput, InvalidSpec
from millstream.formats.framing import Framing
from millstream.formats.protobuf.decode import decode, decode_exactly
from millstream.formats.protobuf.format import Protobuf
from millstream.formats.protobuf.schema import message_descriptor, row_schema

if TYPE_CHECKING:
    from millstream.formats.spec import Decoded

FILES = descriptor_set()
WIDE = "shop.Wide"
SEEDS = st.integers(0, 2**32).map(Random)


def agreed(values: list[bytes | None], message: str = WIDE) -> Decoded:
    schema = row_schema(FILES, message)
    array = pa.array(values, pa.binary())
    expected = [_by_oracle(raw, message) for raw in values]
    fast = decode(array, schema, FILES, message)
    exact = decode_exactly(array, schema, FILES, message)
    rows = [None if found is None else found[0] for found in expected]
    assert fast.extra == sum(found[1] for found in expected if found is not None)
    return same(fast, exact, rows, schema)


def _by_oracle(raw: bytes | None, message: str) -> Any:
    try:
        return protobuf_oracle.read(raw, message_descriptor(FILES, message))
    except protobuf_oracle.Bad:
        return None


def _inner(random: Random) -> dict[str, Any]:
    made: dict[str, Any] = {"x": random.randint(-(2**31), 2**31 - 1)}
    made["names"] = random.choices(("", "é", "abc"), k=random.randint(0, 3))
    if random.random() < 0.5:
        made["at"] = {"seconds": random.randint(-(10**10), 10**10), "nanos": 1_000}
    return made


def wide(random: Random) -> bytes:
    """A message in which each field may be absent."""
    signed, bits = random.randint(-(2**63), 2**63 - 1), random.choice((1, 7, 8, 31, 32))
    all_ = {
        "double": random.choice((0.0, -0.0, 1.5, float("nan"))), "float": 0.5, "int64": signed,
        "uint64": random.getrandbits(random.choice((1, 63, 64))), "int32": -random.getrandbits(31),
        "fixed64": random.getrandbits(64), "fixed32": random.getrandbits(32), "bool": True,
        "string": random.choice(("", "x", "é" * 50)), "bytes": random.randbytes(3),
        "uint32": random.getrandbits(bits), "sfixed32": -5, "sfixed64": signed, "sint32": -7,
        "sint64": signed, "color": random.choice((0, 5, -1)), "inner": _inner(random),
        "inners": [_inner(random) for _ in range(random.randint(0, 3))],
        "numbers": [random.randint(-(2**31), 2**31 - 1) for _ in range(random.randint(0, 4))],
        "reals": [0.5, -0.0], "colors": [5, -1, 0], "texts": ["a", "", "é"],
        "at": {"seconds": random.randint(-62135596800, 253402300799), "nanos": 999_999_000},
        "perhaps": 0,
    }  # fmt: skip
    kept = {name: value for name, value in all_.items() if random.random() < 0.5}
    kept |= random.choice(({}, {"left": 0}, {"right": ""}))
    if random.random() < 0.1:
        kept["counts"] = {"b": 1, "a": -1}
    kind = message_factory.GetMessageClass(message_descriptor(FILES, WIDE))
    return bytes(kind(**kept).SerializeToString(deterministic=True))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from((5, 40)))
def test_random_messages_decode_to_the_same_rows_on_every_path(random: Random, count: int) -> None:
    assert agreed([wide(random) for _ in range(count)]).bad.size == 0


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_damaged_bytes_decode_the_same_on_every_path(random: Random) -> None:
    whole = [wide(random) for _ in range(20)]
    values: list[bytes | None] = [*whole, None, b""]
    for _ in range(100):
        raw = bytearray(random.choice(whole))
        for _ in range(random.randint(1, 3)):
            place, cut = random.randint(0, len(raw)), random.random()
            if cut < 0.25:
                del raw[place:]
            elif cut < 0.5 and raw:
                raw[place % len(raw)] = random.choice((0, 1, 8, 0x7A, 0x7F, 0x80, 0xFF))
            elif cut < 0.75:
                raw[place:place] = random.randbytes(random.randint(1, 11))
            else:
                raw += random.choice(whole)
        values.append(bytes(raw))

    made = agreed(values)

    assert made.table.num_rows + made.bad.size == len(values)
    assert made.table.num_rows >= len(whole)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=30), min_size=30, max_size=60))
def test_random_bytes_are_rows_or_bad_rows_and_never_a_crash(values: list[bytes]) -> None:
    for message in (WIDE, "shop.Bid"):
        made = agreed(list(values), message)
        assert made.table.num_rows + made.bad.size == len(values)


def test_fields_that_occur_twice_follow_protobufs_rules() -> None:
    inner = bytes([0xAA, 1, 2, 8, 2])
    names = bytes([0xAA, 1, 3, 0x12, 1, 97])
    left, right = bytes([0xE8, 1, 7]), bytes([0xF2, 1, 1, 97])
    usual = bytes([0x18, 5])

    made = agreed([inner + names, left + right, right + left, usual * 2, *[usual] * 30])

    rows = made.table.to_pylist()
    assert (rows[0]["inner"]["x"], rows[0]["inner"]["names"]) == (1, ["a"])
    assert [(row["left"], row["right"]) for row in rows[1:3]] == [(None, "a"), (7, None)]


def test_unknown_fields_are_counted_at_every_level() -> None:
    unknown = bytes([0xF8, 7, 1])
    inside = bytes([0xAA, 1, 3]) + unknown
    made = agreed([b"", unknown, inside, *[unknown] * 30, *[b"\x18\x05"] * 30])
    assert made.extra == 32


def test_an_undeclared_enum_value_is_a_bad_row() -> None:
    made = agreed([bytes([0xA0, 1, 9]), *[bytes([0xA0, 1, 5])] * 30])
    assert made.reasons == ["color: needs a value of the enum; got 9"]


def test_proto2_messages_have_required_fields_and_closed_enums() -> None:
    files, message = older(), "shop.Old"
    schema = row_schema(files, message)
    one = b"\x08\x01"
    odd = [one, b"", one + b"\x12\x01\xff", one + b"\x20\x02", one + b"\x20\x09",
           one + b"\x28\x05\x28\x06\x2a\x02\x07\x08"]  # fmt: skip
    array = pa.array([*odd, *[one] * 30], pa.binary())
    row: dict[str, Any] = {"id": 1, "s": None, "n": None, "color": None, "numbers": []}
    expected = [row, None, None, {**row, "color": "BLUE"}, row, {**row, "numbers": [5, 6, 7, 8]}]

    fast = decode(array, schema, files, message)
    exact = decode_exactly(array, schema, files, message)
    made = same(fast, exact, [*expected, *[row] * 30], schema)

    assert made.extra == 1
    assert made.reasons == [
        "id: is required; it is missing",
        "s: needs a string; got invalid UTF-8",
    ]


def test_huge_and_deep_messages_are_decoded() -> None:
    many = bytes([0xBA, 1]) + bytes([0x90, 0x4E]) + bytes([1]) * 10_000
    long = bytes([0x4A]) + bytes([0xC0, 0x84, 0x3D]) + b"x" * 1_000_000
    deep = bytes([0xAA, 1, 100]) * 10_000

    made = agreed([many, long, deep, *[b"\x18\x05"] * 30])

    assert len(made.table["numbers"][0]) == 10_000
    assert made.reasons == ["not Protobuf: no shop.Wide"]


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_protobuf_reads_the_encoded_messages(random: Random) -> None:
    format_ = Protobuf(FILES, WIDE)
    rows = [wide(random) for _ in range(30)]
    table = decode(pa.array(rows, pa.binary()), format_.row_schema(), FILES, WIDE).table

    again = format_.encode(table).to_pylist()

    assert [repr(_by_oracle(raw, WIDE)) for raw in again] == [
        repr(_by_oracle(raw, WIDE)) for raw in rows
    ]


def test_confluents_frame_names_the_schema_and_the_message() -> None:
    framed = Protobuf(FILES, WIDE, Framing.of("confluent:7"))
    rows = [wide(Random(1)) for _ in range(30)]
    table = decode(pa.array(rows, pa.binary()), framed.row_schema(), FILES, WIDE).table

    values = framed.encode(table)
    other = pa.array([b"\0\0\0\0\x08\0", b"\0\0\0\0\x07\x02\x02", b"\x18\x05", None], pa.binary())
    made = framed.decode(pa.concat_arrays([values, other]), framed.row_schema())

    assert values[0].as_py()[:7] == b"\0\0\0\0\x07\x02\x04"
    assert repr(made.table.to_pylist()) == repr(table.to_pylist())
    assert made.reasons == [
        "needs the schema id 7; got 8",
        "needs the message index [2]; got [1]",
        "not framed: needs a zero byte and four of a schema id; got 1805",
        "value is null",
    ]


def test_an_invalid_descriptor_set_or_message_is_refused_while_building() -> None:
    with pytest.raises(InvalidSpec, match="needs a descriptor set; got 3 other bytes"):
        row_schema(b"abc", WIDE)
    with pytest.raises(InvalidSpec, match=r"got 'shop.Nothing'; name one of shop.Bid, shop.Inner"):
        row_schema(FILES, "shop.Nothing")
    with pytest.raises(InvalidSpec, match=r"not recursive; got shop.Tree contains itself"):
        row_schema(recursive(), "shop.Tree")


def test_a_row_that_does_not_fit_the_message_is_refused_by_encode() -> None:
    format_ = Protobuf(FILES, "shop.Inner")
    row = {"x": 1, "names": ["a"], "at": None}
    kinds = format_.row_schema().arrow()
    for odd, says in (
        ({"x": None}, "the field x needs a value in every row; got 1 nulls"),
        ({"names": [None]}, "the field names needs elements that are not null"),
    ):
        with pytest.raises(InvalidInput, match=says):
            format_.encode(pa.Table.from_pylist([{**row, **odd}], schema=kinds))
