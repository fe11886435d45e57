"""JSON: fast path == exact path == oracle, for random, unusual and damaged records."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats import json_records
from tests.formats.agreement import agreed

from millstream.formats.json.decode import decode
from millstream.schema import Schema

DECIMALS = [("decimal", 12, 2), ("decimal", 4, 4), ("decimal", 18, 0), ("decimal", 38, 10)]
SEEDS = st.integers(0, 2**32).map(Random)
NESTED = [
    ("array", "long"),
    ("map", "double"),
    ("struct", [("a", "long", False), ("b", "string", True)]),
]


@settings(max_examples=80, deadline=None)
@given(SEEDS, st.sampled_from((10, 30, 80)))
def test_random_records_decode_to_the_same_rows_on_every_path(random: Random, count: int) -> None:
    fields = json_records.random_fields(random)
    made = agreed(json_records.records(random, fields, count), fields)
    assert len(made.good) + len(made.bad) == count


@pytest.mark.parametrize("nullable", [True, False], ids=["nullable", "not null"])
@pytest.mark.parametrize("type_", [*json_records.SCALARS, *DECIMALS, *NESTED], ids=str)
def test_every_unusual_value_decodes_the_same_on_every_path(type_: object, nullable: bool) -> None:
    random = Random(7)
    fields = [("id", "long", True), ("x", type_, nullable), ("z", "string", True)]
    usual = [json_records.good(random, type_) for _ in range(40)]
    nested = [b'{"id":1,"x":' + text + b',"z":"end"}' for text in [*usual, *json_records.NASTY]]
    alone = [b'{"x":' + text + b"}" for text in [*usual, *json_records.NASTY]]
    ignored = [b'{"x":' + usual[0] + b',"q":' + text + b"}" for text in json_records.NASTY]
    made = agreed([*nested, *alone, *ignored], fields)
    assert len(made.good) >= 80


@settings(max_examples=200, deadline=None)
@given(
    SEEDS,
    st.sampled_from(["byte", "int", "long", "float", "double", "timestamp", *DECIMALS]),
    st.sampled_from(["0123456789", "05.", "0123456789.", "0123456789./:eE", "0123456789.-"]),
    st.integers(0, 3),
)
def test_short_numbers_decode_to_the_same_value_on_every_path(
    random: Random, type_: object, letters: str, odd: int
) -> None:
    fields = [("id", "long", True), ("x", type_, True), ("z", "string", True)]
    texts = [str(random.randrange(10 ** random.randint(1, 8))) for _ in range(20)]
    if random.random() < 0.7:
        texts += [f"{random.randrange(10**5) / 100:.{random.randint(1, 2)}f}" for _ in range(20)]
    texts += [
        "".join(random.choice(letters) for _ in range(random.randint(1, 8))) for _ in range(odd)
    ]
    random.shuffle(texts)
    values: list[bytes | None] = [
        b'{"id":%d,"x":%s,"z":"end"}' % (random.randrange(99), text.encode())
        for text in ["1", *texts, "2", "3", "4", "5", "6"]
    ]
    made = agreed(values, fields)
    assert len(made.good) + len(made.bad) == len(values)


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_damaged_bytes_decode_the_same_on_every_path(random: Random) -> None:
    fields: json_records.Fields = [
        ("auction", "long", True),
        ("price", "double", True),
        ("channel", "string", True),
        ("ts", "timestamp", True),
        ("ok", "boolean", True),
        ("d", ("decimal", 9, 2), True),
    ]
    whole = [
        json_records.record(random, [(name, json_records.good(random, t)) for name, t, _ in fields])
        for _ in range(30)
    ]
    damaged = [json_records.mutated(random, random.choice(whole)) for _ in range(150)]
    mixed: list[bytes | None] = [*whole, *damaged]
    random.shuffle(mixed)
    made = agreed(mixed, fields)
    unhurt = [place for place, value in enumerate(mixed) if value in whole]
    assert set(unhurt) <= set(made.good.tolist())


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(0, 40), st.integers(1, 120))
def test_slices_chunks_and_large_offsets_change_nothing(
    random: Random, start: int, size: int
) -> None:
    fields = json_records.random_fields(random)
    values = json_records.records(random, fields, 160)
    whole = agreed(values, fields, pa.large_binary())
    schema = Schema.parse(json_records.ddl(fields))
    array = pa.array(values, pa.binary())
    pieces = [array.slice(0, start), array.slice(start, size), array.slice(start + size)]
    cut = pa.chunked_array(pieces)
    again = decode(cut, schema)
    assert again.good.tolist() == whole.good.tolist()
    assert (again.reasons, again.extra) == (whole.reasons, whole.extra)
    assert repr(again.table.to_pylist()) == repr(whole.table.to_pylist())
