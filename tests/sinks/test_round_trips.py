"""Our sources and other tools read what our file sinks and formats write."""

from __future__ import annotations

import csv
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.formats.protobuf_files import descriptor_set
from tests.sources.test_files_listing import reader

from millstream.formats.avro.format import Avro
from millstream.formats.avro.schema import derive_schema
from millstream.formats.choice import format_of
from millstream.formats.framing import BARE, Framing
from millstream.formats.protobuf.format import Protobuf
from millstream.schema import Schema
from millstream.sinks.files.formats import SUFFIX, write
from millstream.sources.files import lines
from millstream.sources.files.files import Files

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.formats.spec import Format

ODD = ["", " ", "\n", "\r\n", "\r", 'a"b', '"', '""', ",", "a\n\"b\",\n", "\0", "\ufeff",
       "\u2028\x85\x0b", "null", "NaN", "\\", '\\"', "x" * 5000, "é€😀", "'", "#", ";", "\t", "1",
       "true"]  # fmt: skip
TEXT = st.none() | st.sampled_from(ODD) | st.text(
    st.characters(codec="utf-8"), max_size=12
) | st.text('",\r\n\\ x', max_size=8)  # fmt: skip
ROWS = st.lists(st.tuples(TEXT, st.none() | st.integers(-(2**63), 2**63 - 1), TEXT), min_size=1,
                max_size=30)  # fmt: skip
SCHEMA = "text string, id long, more string"
ALL = "a string, b long, c double, d boolean, e binary, f date, g timestamp, h decimal(20,3)"


def table_of(rows: Any, schema: str = SCHEMA) -> pa.Table:
    kinds = Schema.parse(schema).arrow()
    columns = zip(zip(*rows, strict=True), kinds.types, strict=True)
    return pa.table([pa.array(column, kind) for column, kind in columns], schema=kinds)


def written(folder: Path, format_: str, table: pa.Table) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    path = folder / "in" / f"x{SUFFIX[format_]}"
    assert write(path, format_, [table]) is not None
    return path


def read_back(folder: Path, format_: Any, schema: str) -> pa.Table:
    made = reader(folder, format_, schema)
    end = made.extent().end[0]
    opened = Files("x", format=format_, schema=schema).opener().open(
        made.table({0: (0, end)}), Schema.parse(schema))  # fmt: skip
    assert opened.decoded.reasons == []
    return opened.decoded.table


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
@settings(max_examples=120, deadline=None)
@given(rows=ROWS, chunk=st.sampled_from([7, 1 << 22]))
@example(rows=[(text, None, text) for text in ODD], chunk=7)
def test_any_text_in_our_files_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, format_: str, rows: Any, chunk: int
) -> None:
    folder, table = tmp_path_factory.mktemp("files"), table_of(rows)
    written(folder, format_, table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK", chunk)
        assert read_back(folder, format_, SCHEMA).equals(table)


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_a_file_with_one_column_is_read_back(tmp_path: Path, format_: str) -> None:
    table = table_of([(text,) for text in [*ODD, None, "", None]], "text string")
    written(tmp_path, format_, table)
    assert read_back(tmp_path, format_, "text string").equals(table)


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_every_type_in_our_files_is_read_back(tmp_path: Path, format_: str) -> None:
    table = table_of(EVERY, ALL)
    written(tmp_path, format_, table)
    assert read_back(tmp_path, format_, ALL).equals(table)


EVERY = [
    (text, number, real, flag, raw, day, instant, Decimal("-1.250"))
    for text, number, real, flag, raw, day, instant in [
        ("a\nb", 2**63 - 1, 0.1, True, b"", date(1, 1, 1), datetime(1, 1, 1, tzinfo=UTC)),
        ("", -(2**63), float("inf"), False, b"\0\n\",", date(9999, 12, 31),
         datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        ("\r", 0, -0.0, None, None, None, None),
        (None, None, 5e-324, None, b"\xff", date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
    ]
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(ROWS)
@example([(text, 1, text) for text in ODD])
def test_pythons_csv_reads_our_files(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = written(tmp_path_factory.mktemp("files"), "csv", table_of(rows))
    with path.open(newline="", encoding="utf-8") as file:
        [header, *found] = csv.reader(file)
    assert header == ["text", "id", "more"]
    assert found == [["" if cell is None else str(cell) for cell in row] for row in rows]


def test_polars_reads_our_files(tmp_path: Path) -> None:
    rows = [(text, number, text) for number, text in enumerate([*ODD, None])]
    path = written(tmp_path, "csv", table_of(rows))
    kinds = {"text": pl.String, "id": pl.Int64, "more": pl.String}
    found = pl.read_csv(path, schema=kinds)
    assert found.rows() == rows


def test_spark_reads_our_files(tmp_path: Path, spark: Any) -> None:
    rows = [(text, number, text) for number, text in enumerate([*ODD, None])]
    path = written(tmp_path, "csv", table_of(rows))
    found = spark.read.csv(str(path), SCHEMA, header=True, multiLine=True, escape='"',
                           nullValue="\ufffe").collect()  # fmt: skip
    assert [tuple(row) for row in found] == rows


FORMATS: dict[str, tuple[Format, str]] = {
    "csv": (format_of("csv"), SCHEMA),
    "json": (format_of("json"), SCHEMA),
    "avro": (Avro(derive_schema(Schema.parse(SCHEMA)), BARE), SCHEMA),
    "avro, framed": (Avro(derive_schema(Schema.parse(SCHEMA)), Framing.of("confluent:7")), SCHEMA),
    "text": (format_of("text"), "value string"),
    "bytes": (format_of("bytes"), "value binary"),
}


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=120, deadline=None)
@given(rows=ROWS)
@example(rows=[(text, None, text) for text in ODD])
def test_any_text_in_our_records_is_read_back(name: str, rows: Any) -> None:
    format_, ddl = FORMATS[name]
    schema = Schema.parse(ddl)
    if ddl == SCHEMA:
        table = table_of(rows)
    else:
        texts = [text or "" for text, _, _ in rows]
        table = pa.table([pa.array(texts).cast(schema.arrow().types[0])], schema=schema.arrow())
    made = format_.decode(format_.encode(table), schema)
    assert made.reasons == []
    assert made.table.equals(table)


@pytest.mark.parametrize("framing", ["bare", "confluent:7"])
@settings(max_examples=80, deadline=None)
@given(rows=ROWS)
def test_any_text_in_protobuf_records_is_read_back(framing: str, rows: Any) -> None:
    format_ = Protobuf(descriptor_set(), "shop.Bid", Framing.of(framing))
    bids = [(number or 0, 1, 0.5, text or "", more or "", datetime(2026, 1, 1, tzinfo=UTC))
            for text, number, more in rows]  # fmt: skip
    table = table_of(bids, format_.row_schema().ddl())
    made = format_.decode(format_.encode(table), format_.row_schema())
    assert made.reasons == []
    assert made.table.equals(table)


def test_json_lines_end_only_at_newlines(tmp_path: Path) -> None:
    path = written(tmp_path, "json", table_of([(text, 1, text) for text in ODD]))
    found = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    assert [row["text"] for row in found] == ODD
