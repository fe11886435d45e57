"""Schemas: Spark's column text in, names and types out."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats import json_records

from millstream.errors import InvalidSpec
from millstream.schema import Array, Decimal, Field, Map, Scalar, Schema, Struct, check_names

EVERYTHING = (
    "auction long, bidder bigint not null, price double, ts timestamp, d decimal(12,2), "
    "tags array<string>, who struct<id:long, name string not null>, m map<string,int>, "
    "raw binary, day date, ok boolean, `we``ird n` varchar(3), n timestamp_ntz"
)


def test_every_type_becomes_its_arrow_type() -> None:
    assert Schema.parse(EVERYTHING).arrow() == pa.schema(
        [
            pa.field("auction", pa.int64()),
            pa.field("bidder", pa.int64(), nullable=False),
            pa.field("price", pa.float64()),
            pa.field("ts", pa.timestamp("us", "UTC")),
            pa.field("d", pa.decimal128(12, 2)),
            pa.field("tags", pa.list_(pa.string())),
            pa.field(
                "who",
                pa.struct(
                    [pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)]
                ),
            ),
            pa.field("m", pa.map_(pa.string(), pa.int32())),
            pa.field("raw", pa.binary()),
            pa.field("day", pa.date32()),
            pa.field("ok", pa.bool_()),
            pa.field("we`ird n", pa.string()),
            pa.field("n", pa.timestamp("us")),
        ]
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("BIGINT", Scalar("long")),
        ("integer", Scalar("int")),
        ("smallint", Scalar("short")),
        ("tinyint", Scalar("byte")),
        ("real", Scalar("float")),
        ("char(5)", Scalar("string")),
        ("timestamp_ltz", Scalar("timestamp")),
        ("decimal", Decimal(10, 0)),
        ("numeric(7)", Decimal(7, 0)),
        ("dec(38, 38)", Decimal(38, 38)),
        ("array<array<int>>", Array(Array(Scalar("int")))),
        ("map<string, array<date>>", Map(Scalar("string"), Array(Scalar("date")))),
        ("struct<`a b`: int>", Struct((Field("a b", Scalar("int")),))),
    ],
)
def test_a_type_has_the_names_that_spark_gives_it(written: str, meant: object) -> None:
    assert Schema.parse(f"x {written}")["x"].type == meant


def test_a_comment_and_the_case_of_words_do_not_matter() -> None:
    assert Schema.parse("a LONG Not Null COMMENT 'the lot'") == (
        Schema((Field("a", Scalar("long"), nullable=False),))
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32).map(Random))
def test_text_and_arrow_forms_lead_back_to_the_same_schema(random: Random) -> None:
    schema = Schema.parse(json_records.ddl(json_records.random_fields(random)))
    assert Schema.parse(schema.ddl()) == schema
    assert Schema.from_arrow(schema.arrow()) == schema
    assert hash(Schema.parse(schema.ddl())) == hash(schema)


def test_a_schema_is_a_sequence_of_fields() -> None:
    schema = Schema.parse("a int, b string not null")
    assert schema.names == ("a", "b")
    assert [field.nullable for field in schema] == [True, False]
    assert len(schema) == 2
    with pytest.raises(KeyError):
        schema["c"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a lng", "'lng' at position 3 of 'a lng'; did you mean long?"),
        ("a timestmp", "did you mean timestamp?"),
        ("a qqqq", "choose among boolean"),
        ("a", "needs a type here; got the end of the text"),
        ("a long b int", "a comma or the end of the schema here; got 'b int' at position 8"),
        ("a long,, b int", "a column name here; got ', b int' at position 8"),
        ("a array<long", "`>` to end the array here; got the end of the text"),
        ("a array long", "`<` after array here; got 'long'"),
        ("a map<int>", "a comma between the map's key and value here; got '>'"),
        ("a decimal(39,2)", "1 to 38 digits"),
        ("a decimal(2,3)", "a scale that is not larger"),
        ("a decimal(x)", "a precision, a whole number here; got 'x)'"),
        ("a long not", "`null` after `not` here; got the end of the text"),
        ("a long comment x", "a comment in single quotes here; got 'x'"),
        ("a long; b int", "such as `auction long`; got '; b int' at position 7"),
        ("a int, A long", "different column names; got `a` 2 times"),
        ("s struct<x:int, X:int>", "different column names; got `x` 2 times"),
        ("", "a schema needs columns; got ''"),
    ],
)
def test_an_invalid_schema_text_is_refused_with_its_position(text: str, sentence: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        Schema.parse(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "meant"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.large_list(pa.large_binary()), "array<binary>"),
        (pa.binary(4), "binary"),
        (pa.timestamp("ms", "Europe/Paris"), "timestamp"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.date64(), "date"),
    ],
)
def test_equivalent_arrow_types_are_accepted(kind: pa.DataType, meant: str) -> None:
    assert Schema.from_arrow(pa.schema([("x", kind)])) == Schema.parse(f"x {meant}")


@pytest.mark.parametrize("kind", [pa.uint64(), pa.float16(), pa.time64("us"), pa.null()])
def test_an_arrow_type_that_spark_lacks_is_refused_by_its_path(kind: pa.DataType) -> None:
    with pytest.raises(InvalidSpec, match=r"got s\.x of Arrow type"):
        Schema.from_arrow(pa.schema([("s", pa.struct([("x", kind)]))]))


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a", "b", "A"], "select needs different column names; got `a` 2 times"),
        (["a", "_offset"], "select needs column names that are not reserved; got `_offset`"),
        (["Window_Start"], "not reserved; got `Window_Start`"),
        (["pane"], "not reserved; got `pane`"),
        (["pane_index"], "not reserved"),
        (["window_end"], "not reserved"),
        (["retract"], "not reserved"),
    ],
)
def test_names_that_repeat_or_are_reserved_are_refused(names: list[str], sentence: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        check_names(names, "select")
    assert sentence in str(refused.value)


def test_other_names_are_accepted() -> None:
    check_names(["a", "b_", "window", "panes"], "select")


def test_reading_a_schema_imports_neither_spark_nor_arrow() -> None:
    program = (
        "import sys; from millstream.schema import Schema, check_names;"
        "Schema.parse('a long, b array<int>').ddl(); check_names(['a'], 'x');"
        "sys.exit(bool({'pyarrow', 'pyspark', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
