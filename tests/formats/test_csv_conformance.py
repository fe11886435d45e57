"""CSV: fast path == exact path == oracle, for random and hostile records."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats import json_records
from tests.formats.two_ways import same
from tests.oracles import csv_oracle

from millstream.errors import InvalidSpec
from millstream.formats.csv.decode import decode, decode_exactly
from millstream.formats.csv.format import Csv
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.formats.spec import Decoded

TYPES: list[Any] = [*json_records.SCALARS, ("decimal", 12, 2), ("decimal", 38, 10)]
SEEDS = st.integers(0, 2**32).map(Random)
BIDS: csv_oracle.Fields = [
    ("auction", "long", True),
    ("price", "double", True),
    ("channel", "string", True),
    ("ts", "timestamp", True),
    ("d", ("decimal", 9, 2), True),
]


def agreed(values: list[bytes | None], fields: csv_oracle.Fields,
           header: list[str] | None = None) -> Decoded:  # fmt: skip
    schema = Schema.parse(json_records.ddl(fields))
    array = pa.array(values, pa.binary())
    names = tuple(header) if header is not None else None
    expected = [_by_oracle(raw, fields, header) for raw in values]
    return same(
        decode(array, schema, names), decode_exactly(array, schema, names), expected, schema
    )


def _by_oracle(raw: bytes | None, fields: csv_oracle.Fields, header: list[str] | None) -> Any:
    try:
        return csv_oracle.read(raw, fields, header)
    except csv_oracle.Bad:
        return None


def cell(random: Random, type_: Any) -> bytes:
    """A valid value as a cell: as in JSON, without quotes or with CSV's quotes."""
    text = json_records.good(random, type_)
    if text[:1] == b'"':
        text = text[1:-1]
    quoted = random.random() < 0.3 or b"," in text or b'"' in text
    return b'"' + text.replace(b'"', b'""') + b'"' if quoted else text


def row(random: Random, fields: csv_oracle.Fields) -> bytes:
    cells = [b"" if random.random() < 0.1 else cell(random, type_) for _, type_, _ in fields]
    return b",".join(cells) + random.choice((b"", b"", b"\n", b"\r\n"))


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from((5, 40)))
def test_random_records_decode_to_the_same_rows_on_every_path(random: Random, count: int) -> None:
    names = random.sample("abcdef", random.randint(1, 5))
    fields = [(name, random.choice(TYPES), random.random() < 0.8) for name in names]
    made = agreed([row(random, fields) for _ in range(count)], fields)
    assert len(made.good) + len(made.bad) == count


@pytest.mark.parametrize("nullable", [True, False], ids=["nullable", "not null"])
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_every_unusual_cell_decodes_the_same_on_every_path(type_: Any, nullable: bool) -> None:
    random = Random(7)
    fields = [("id", "long", True), ("x", type_, nullable), ("z", "string", True)]
    bare = [text.strip(b'"') for text in json_records.NASTY] + list(json_records.NASTY)
    values = [b"1," + text + b",end" for text in bare]
    values += [b'1,"' + text.replace(b'"', b'""') + b'",end' for text in bare]
    usual = [cell(random, type_) for _ in range(40)]
    made = agreed([*values, *(b"1," + text + b",end" for text in usual)], fields)
    full = {len(values) + place for place, text in enumerate(usual) if text.strip(b'"')}
    assert full <= set(made.good.tolist())


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_damaged_bytes_decode_the_same_on_every_path(random: Random) -> None:
    whole = [row(random, BIDS) for _ in range(30)]
    damaged = [json_records.mutated(random, random.choice(whole)) for _ in range(150)]
    mixed: list[bytes | None] = [*whole, *damaged, None]
    random.shuffle(mixed)
    made = agreed(mixed, BIDS)
    assert mixed.index(None) in made.bad.tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.text('a1,"\r\n\0é', max_size=12).map(str.encode),
                min_size=30, max_size=60))  # fmt: skip
def test_random_bytes_are_rows_or_bad_rows_and_never_a_crash(values: list[bytes]) -> None:
    made = agreed(list(values), [("a", "string", True), ("b", "long", True)])
    assert len(made.good) + len(made.bad) == len(values)


def test_a_header_finds_cells_by_name_and_counts_the_others() -> None:
    fields: csv_oracle.Fields = [("b", "long", False), ("a", "string", True), ("z", "date", True)]
    values: list[bytes | None] = [*[b"x,7,whatever"] * 30, b'"",8,"a,b"', b",9,", b"x,,1", b"x,7"]

    made = agreed(values, fields, ["a", "b", "more"])

    assert made.extra == 32
    assert made.reasons == ["b: needs long; the cell is empty", "needs 3 cells; got 2"]


def test_huge_cells_and_many_cells_are_decoded() -> None:
    schema = Schema.parse("a long, b string")
    huge = [b"1," + b"x" * 1_000_000, b"," * 50_000, b'1,"' + b'""' * 100_000 + b'"']
    array = pa.array([*huge, *[b"1,x"] * 30], pa.binary())
    expected = [{"a": 1, "b": "x" * 1_000_000}, None, {"a": 1, "b": '"' * 100_000}]

    made = same(decode(array, schema), decode_exactly(array, schema),
                [*expected, *[{"a": 1, "b": "x"}] * 30], schema)  # fmt: skip

    assert made.reasons == ["needs 2 cells; got 50001"]


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_encoded_rows_decode_to_the_same_rows(random: Random) -> None:
    names = random.sample("abcdef", random.randint(1, 4))
    fields = [(name, random.choice(TYPES), True) for name in names]
    schema = Schema.parse(json_records.ddl(fields))
    first = decode(pa.array([row(random, fields) for _ in range(40)], pa.binary()), schema).table
    odd = ["", '"', ",", "\r\n", "\ufeffx", "a\nb", " ", "\0", "é", None]
    more = pa.table({"s": pa.array(odd * 4, pa.string())}).slice(0, first.num_rows)
    table = first.slice(0, more.num_rows).append_column("s", more["s"])
    whole = Schema.from_arrow(table.schema)

    again = decode(Csv().encode(table), whole)

    assert again.bad.size == 0
    assert repr(again.table.to_pylist()) == repr(table.to_pylist())


def test_a_cell_cannot_hold_a_nested_type() -> None:
    with pytest.raises(InvalidSpec, match="a CSV cell needs a type without parts; got tags"):
        Csv().check(Schema.parse("id long, tags array<string>"))
