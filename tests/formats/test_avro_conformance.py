"""Avro: fast path == exact path == oracle, for random and hostile records."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.two_ways import same
from tests.oracles import avro_oracle

from millstream.errors import InvalidInput, InvalidSpec
from millstream.formats.avro.decode import decode, decode_exactly
from millstream.formats.avro.format import Avro
from millstream.formats.avro.schema import parse_schema, row_schema
from millstream.formats.framing import BARE
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.formats.spec import Decoded

SEEDS = st.integers(0, 2**32).map(Random)
START = datetime(2026, 1, 1, tzinfo=UTC)
PLAIN = ("boolean", "int", "long", "float", "double", "string", "bytes")
LOGICAL: tuple[Any, ...] = (
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "int", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 3},
)
EDGES = (0, 1, -1, 63, 64, -65, 2**31 - 1, -(2**31), 2**53, 2**62, 2**63 - 1, -(2**63))


def agreed(values: list[bytes | None], schema: dict[str, Any]) -> Decoded:
    text = json.dumps(schema)
    node, kinds = parse_schema(text), row_schema(text)
    array = pa.array(values, pa.binary())
    expected = [_by_oracle(raw, schema) for raw in values]
    return same(decode(array, kinds, node), decode_exactly(array, kinds, node), expected, kinds)


def _by_oracle(raw: bytes | None, schema: dict[str, Any]) -> Any:
    try:
        return avro_oracle.read(raw, schema)
    except avro_oracle.Bad:
        return None


def written(row: dict[str, Any], schema: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


class Made:
    """Random schemas and rows; names of types are used once."""

    def __init__(self, random: Random) -> None:
        self.random, self.names = random, 0

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def kind(self, depth: int = 0) -> Any:
        random = self.random
        choice = random.random()
        if depth < 2 and choice < 0.1:
            return {"type": "array", "items": self.kind(depth + 1)}
        if depth < 2 and choice < 0.16:
            return {"type": "map", "values": self.kind(depth + 1)}
        if depth < 2 and choice < 0.26:
            return self.record(depth + 1)
        if choice < 0.3:
            return {"type": "enum", "name": self.name(), "symbols": ["RED", "BLUE"]}
        if choice < 0.34:
            return {"type": "fixed", "name": self.name(), "size": 3}
        if choice < 0.6:
            inner = random.choice((*PLAIN, *LOGICAL))
            return ["null", inner] if random.random() < 0.7 else [inner, "null"]
        return random.choice((*PLAIN, *LOGICAL))

    def record(self, depth: int = 0) -> dict[str, Any]:
        fields = [{"name": f"f{place}", "type": self.kind(depth)}
                  for place in range(self.random.randint(1, 5))]  # fmt: skip
        return {"type": "record", "name": self.name(), "fields": fields}

    def value(self, kind: Any) -> Any:
        random = self.random
        if isinstance(kind, list):
            return self.value(random.choice(kind))
        if isinstance(kind, str):
            return self.plain(kind)
        word = kind["type"]
        if word == "record":
            return {field["name"]: self.value(field["type"]) for field in kind["fields"]}
        count = random.choice((0, 0, 1, 3, 70)) if random.random() < 0.2 else random.randint(0, 3)
        if word == "array":
            return [self.value(kind["items"]) for _ in range(count)]
        if word == "map":
            return {f"k{place}": self.value(kind["values"]) for place in range(count)}
        if word == "enum":
            return random.choice(kind["symbols"])
        if word == "fixed":
            return random.randbytes(kind["size"])
        return self.logical(kind)

    def plain(self, kind: str) -> Any:
        random = self.random
        return {
            "null": None,
            "boolean": random.random() < 0.5,
            "int": random.choice((*EDGES[:8], random.randint(-(2**31), 2**31 - 1))),
            "long": random.choice((*EDGES, random.randint(-(2**63), 2**63 - 1))),
            "float": random.choice((0.5, -0.0, float("inf"))),
            "double": random.choice((0.1, -0.0, 1e308, float("nan"))),
            "string": random.choice(("", "a", "é", "\0", "x" * random.randint(0, 200), "😀")),
            "bytes": random.randbytes(random.randint(0, 5)),
        }[kind]

    def logical(self, kind: dict[str, Any]) -> Any:
        word = kind["logicalType"]
        at = START + timedelta(milliseconds=self.random.randint(-(10**12), 10**12))
        if word == "date":
            return at.date()
        if word == "decimal":
            whole = self.random.randint(-(10 ** kind["precision"]) + 1, 10 ** kind["precision"] - 1)
            return Decimal(f"{whole}E-{kind['scale']}")
        return at.replace(tzinfo=None) if word.startswith("local") else at


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from((5, 40)))
def test_random_records_decode_to_the_same_rows_on_every_path(random: Random, count: int) -> None:
    made = Made(random)
    schema = made.record()
    values: list[bytes | None] = [written(made.value(schema), schema) for _ in range(count)]
    assert agreed(values, schema).bad.size == 0


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_damaged_bytes_decode_the_same_on_every_path(random: Random) -> None:
    made = Made(random)
    schema = made.record()
    whole = [written(made.value(schema), schema) for _ in range(20)]
    values: list[bytes | None] = [*whole, None, b""]
    for _ in range(120):
        raw = bytearray(random.choice(whole))
        for _ in range(random.randint(1, 3)):
            place = random.randint(0, len(raw))
            cut = random.random()
            if cut < 0.3:
                del raw[place:]
            elif cut < 0.6 and raw:
                raw[place % len(raw)] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            else:
                raw[place:place] = random.randbytes(random.randint(1, 11))
        values.append(bytes(raw))
    made_of_it = agreed(values, schema)
    assert set(range(20)) <= set(made_of_it.good.tolist())
    assert {20, 21} <= set(made_of_it.bad.tolist())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=30), min_size=30, max_size=60))
def test_random_bytes_are_rows_or_bad_rows_and_never_a_crash(values: list[bytes]) -> None:
    fields = [("a", "long"), ("b", ["null", "string"]), ("c", {"type": "array", "items": "int"}),
              ("d", {"type": "map", "values": "boolean"}), ("e", LOGICAL[0])]  # fmt: skip
    schema = {"type": "record", "name": "r",
              "fields": [{"name": name, "type": kind} for name, kind in fields]}  # fmt: skip
    made = agreed(list(values), schema)
    assert len(made.good) + len(made.bad) == len(values)


def test_numbers_at_every_edge_are_read_and_longer_ones_refused() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
    good = [written({"a": edge}, schema) for edge in EDGES]
    odd = [
        b"\x80" * 9 + b"\x01",
        b"\x80" * 9 + b"\x02",
        b"\x80" * 10 + b"\x00",
        b"\x80\x00",
        b"\x80",
    ]

    made = agreed([*good * 3, *odd], schema)

    assert made.table["a"].to_pylist()[: len(EDGES)] == list(EDGES)
    assert made.bad.size == 3


def test_an_array_that_claims_more_than_its_bytes_is_refused_at_once() -> None:
    kind = {"type": "array", "items": "long"}
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    bomb = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"

    made = agreed([bomb, b"\x00", *[b"\x02\x04\x00"] * 30], schema)

    assert made.bad.tolist() == [0]
    assert made.reasons[0].endswith("elements; got 0 bytes")


def test_a_long_array_is_read_among_short_ones() -> None:
    kind = {"type": "array", "items": "long"}
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    many = written({"a": list(range(50_000))}, schema)

    made = agreed([many, *[b"\x02\x04\x00"] * 30], schema)

    assert len(made.table["a"][0]) == 50_000


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_fastavro_reads_the_encoded_records(random: Random) -> None:
    made = Made(random)
    schema = made.record()
    text, node = json.dumps(schema), row_schema(json.dumps(schema))
    rows = [written(made.value(schema), schema) for _ in range(30)]
    bare = Avro(text, BARE)
    table = bare.decode(pa.array(rows, pa.binary()), node).table

    again = bare.encode(table).to_pylist()

    assert [repr(_by_oracle(raw, schema)) for raw in again] == [
        repr(_by_oracle(raw, schema)) for raw in rows
    ]


def test_rows_without_a_schema_are_written_with_one_of_their_columns() -> None:
    schema = Schema.parse(
        "a array<long>, m map<string,double>, s struct<x: int, y: array<string>>, t timestamp, "
        "d decimal(12,2), e decimal(38,5), b binary, n timestamp_ntz, f float, o boolean"
    )
    full = {"a": [1, None], "m": [("k", 1.5), ("j", None)], "s": {"x": 1, "y": ["é", None]},
            "t": START, "d": Decimal("-1.25"), "e": Decimal("1E+30"), "b": b"\0",
            "n": datetime(1999, 1, 1), "f": 1.5, "o": True}  # fmt: skip
    rows = [full, dict.fromkeys(full), {**full, "a": [], "m": [], "s": {"x": None, "y": None}}]
    table = pa.Table.from_pylist(rows * 12, schema=schema.arrow())

    bare = Avro(None, BARE)

    assert bare.decode(bare.encode(table), schema).table.equals(table)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (["int", "string"], "an Avro union needs to be of null and one other type"),
        ("null", "a column needs a type; got f: only null"),
        ("nonsense", "an Avro schema needs a known type at f; got nonsense"),
        ({"type": "array", "items": {"type": "fixed", "name": "z", "size": 0}}, "least one byte"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "1 to 38 digits"),
        ({"type": "record", "name": "r", "fields": []}, "r twice"),
        ({"type": "array", "items": "r"}, "r contains itself"),
    ],
)  # fmt: skip
def test_a_schema_without_columns_is_refused_while_building(kind: Any, says: str) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "f", "type": kind}]}
    with pytest.raises(InvalidSpec, match=says):
        parse_schema(json.dumps(schema))


@pytest.mark.parametrize("text", ["{", '"long"', '{"type": "record", "name": "r", "fields": []}'])
def test_a_schema_that_is_not_a_record_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="an Avro schema needs"):
        parse_schema(text)


def test_a_row_that_does_not_fit_the_avro_schema_is_refused_by_encode() -> None:
    kind = {"type": "enum", "name": "e", "symbols": ["A"]}
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    with pytest.raises(InvalidInput, match="the Avro field a needs one of A; got 'B'"):
        Avro(json.dumps(schema)).encode(pa.table({"a": ["A", "B"]}))
    with pytest.raises(InvalidInput, match="the Avro field a needs a value in every row"):
        Avro(json.dumps(schema)).encode(pa.table({"a": ["A", None]}))
    with pytest.raises(InvalidInput, match="rows need the fields of the Avro schema; got a, b"):
        Avro(json.dumps(schema)).encode(pa.table({"b": ["A"]}))
