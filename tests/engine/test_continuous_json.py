"""The conformance suite of JSON, for decoding by Spark in continuous mode.

The oracle is the one for the decoder's other two paths.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.formats import json_records
from tests.oracles import json_oracle

import millstream as ms
from millstream.engine.continuous.frames import SourceFrame, as_json, output_frame
from millstream.engine.continuous.json import EXTRA, GOOD, JsonColumns
from millstream.errors import InvalidSpec
from millstream.formats.json.decode import decode
from millstream.formats.json.encode import encode
from millstream.plan.graph import Read
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.formats.json_records import Fields

DECIMALS = [("decimal", 12, 2), ("decimal", 4, 4), ("decimal", 18, 0), ("decimal", 38, 10)]
NESTED: list[Any] = [
    ("array", "long"),
    ("map", "double"),
    ("struct", [("a", "long", False), ("b", "string", True)]),
    ("array", ("struct", [("d", ("decimal", 9, 2), True), ("t", "timestamp", True)])),
]


def agreed(spark: SparkSession, values: list[bytes | None], fields: Fields) -> int:
    """Fail if Spark and the oracle differ; returns the number of good rows."""
    schema = Schema.parse(json_records.ddl(fields))
    raw = pa.table({"_value": pa.array(values, pa.binary()), "place": range(len(values))})
    frame = JsonColumns(schema).decoded(spark.createDataFrame(raw))
    found = sorted(frame.toArrow().to_pylist(), key=lambda row: row["place"])
    good = 0
    for value, row in zip(values, found, strict=True):
        expected = _expected(value, fields)
        assert row[GOOD] is (expected is not None), (value, row)
        if expected is not None:
            good += 1
            made = {name: row[name] for name, _, _ in fields}
            assert shown(made, fields) == shown(expected[0], fields), value
            assert row[EXTRA] is expected[1], value
    return good


def _expected(raw: bytes | None, fields: Fields) -> tuple[dict[str, Any], bool] | None:
    try:
        return json_oracle.read(raw, fields)
    except json_oracle.Bad:
        return None


def shown(row: dict[str, Any], fields: Fields) -> str:
    """`repr` distinguishes -0.0 from 0.0; the entries of a map have no order."""
    made = {name: _sorted(row[name], type_) for name, type_, _ in fields}
    return repr(made).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


def _sorted(value: Any, type_: Any) -> Any:
    if value is None or isinstance(type_, str) or type_[0] == "decimal":
        return value
    if type_[0] == "map":
        return sorted((key, _sorted(part, type_[1])) for key, part in value)
    if type_[0] == "array":
        return [_sorted(part, type_[1]) for part in value]
    return {name: _sorted(value[name], part) for name, part, _ in type_[1]}


def test_every_nasty_value_is_read_the_same_for_every_type(spark: SparkSession) -> None:
    types = [*json_records.SCALARS, *DECIMALS, *NESTED]
    fields: Fields = [(f"x{n}", type_, True) for n, type_ in enumerate(types)]
    random, values = Random(7), list[bytes | None]()
    for name, type_, _ in fields:
        usual = [json_records.good(random, type_) for _ in range(20)]
        values += [b'{"%s":%s,"id":1}' % (name.encode(), text) for text in usual]
        values += [b'{"%s":%s}' % (name.encode(), text) for text in json_records.NASTY]
    values += [b'{"q":' + text + b"}" for text in json_records.NASTY]
    assert agreed(spark, values, fields) > 20 * len(types)


@pytest.mark.parametrize("seed", range(16))
def test_random_records_are_read_the_same(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    fields = json_records.random_fields(random)
    assert 0 < agreed(spark, json_records.records(random, fields, 400), fields) < 400


def test_damaged_bytes_are_never_read_as_a_value(spark: SparkSession) -> None:
    random = Random(11)
    fields: Fields = [
        ("auction", "long", False), ("price", "double", True), ("channel", "string", True),
        ("ts", "timestamp", True), ("ok", "boolean", True), ("d", ("decimal", 9, 2), True),
    ]  # fmt: skip
    whole = [
        json_records.record(random, [(name, json_records.good(random, t)) for name, t, _ in fields])
        for _ in range(60)
    ]
    damaged = [json_records.mutated(random, random.choice(whole)) for _ in range(3000)]
    assert agreed(spark, [*whole, *damaged], fields) > 60


@pytest.mark.parametrize("nullable", [True, False])
def test_records_that_are_not_objects_and_missing_fields(
    spark: SparkSession, nullable: bool
) -> None:
    long = b'{"x":1,"s":"' + b'\\"' * 20_000 + b'"}'
    values: list[bytes | None] = [
        None, b"", b"   ", b"\xef\xbb\xbf{}", b'{"x":"\xff"}', b'{"x":1', b'{"x":1}{"x":2}',
        b'{"x":1}\n{"x":2}', b'{"x":01}', b'{"x":NaN}', b'{"x":1,"x":1}', b'{"x":1,"\\u0078":1}',
        b'{"x":1,"q":{"z":1,"z":2}}', b'{"x":1,"q":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"x":1,"q":' + b"[" * 99 + b"]" * 99 + b"}", b'{"x":1,"q":"a\x00"}', b'{"x":1}\x00',
        b'["x"]', b'"x"', b"null", b"7", b"{}", b'{"x":null}', b'{"X":1}', b'{"\\u0078":1}',
        b' \r\n{\n\t"x" :\n 1 }\n ', b'{"x":1,"s":"' + b"[{" * 200 + b'\\""}', b'{"x":1,"":[{}]}',
        b'{1:2,"x":1}', b'{"x":1,"q":{2:3}}', b'{"x":1},"e"]', b'{"x":1}]', b'{"x":1},{"x":2}',
        b'{"x":1,"\\ud800":1,"\\ud801":2}', b'{"x":1,"s":"\\\\ud800"}', b'{"x":1,"s":"\\ud800"}',
        b'{"x":1,"q":"\\ud800 \\\\ \\udc00"}', b'{"x":1,"s":"\\ud83d\\ude00"}', long,
    ]  # fmt: skip
    good = agreed(spark, values, [("x", "long", nullable), ("s", "string", True)])
    assert 0 < good < len(values)


ALL = (
    "flag boolean, b byte, s short, i int, l long, f float, d double, t string, x binary, "
    "day date, at timestamp, wall timestamp_ntz, m decimal(12,2), tiny decimal(38,20), "
    "list array<decimal(9,2)>, bag map<string,timestamp>, "
    "nest struct<a: decimal(4,1), deep: array<struct<at: timestamp, n: double>>>"
)
ROWS: list[dict[str, Any]] = [
    {},
    {
        "flag": True, "b": -128, "s": 32767, "i": -1, "l": 2**63 - 1, "f": 0.1, "d": -0.0,
        "t": 'é"\\\n\u0001😀', "x": "AP8=", "day": "0001-01-01",
        "at": "9999-12-31T23:59:59.999999Z",
        "wall": "2026-01-01T00:00:00", "m": "-0.10", "tiny": "0.00000000000000000001",
        "list": ["1.5", None], "bag": {"k": "2026-01-01T00:00:00.000001Z", "n": None},
        "nest": {"a": "1.5", "deep": [{"at": 0, "n": 1e300}, None]},
    },
    {"d": "NaN", "f": "-Infinity", "x": "", "t": "", "list": [], "bag": {}, "nest": {}},
]  # fmt: skip


def test_spark_writes_what_the_encoder_writes(spark: SparkSession) -> None:
    schema = Schema.parse(ALL)
    decoded = decode(pa.array([json.dumps(row).encode() for row in ROWS], pa.binary()), schema)
    assert decoded.bad.size == 0
    given = spark.createDataFrame(decoded.table)  # which reads a wall clock as an instant
    frame = given.withColumn("wall", given["wall"].cast("timestamp_ntz"))
    made = frame.selectExpr(f"{as_json(frame.columns, schema)} as value").toArrow()
    meant = [json.loads(value) for value in encode(decoded.table).to_pylist()]
    found = [json.loads(value) for value in made["value"].to_pylist()]
    assert [list(row) for row in found] == [list(row) for row in meant]
    assert repr(found) == repr(meant)


def test_a_time_out_of_range_for_json_raises(spark: SparkSession) -> None:
    frame = spark.sql("select timestamp_micros(253402300800000000) as at")
    with pytest.raises(Exception, match="years 1 to 9999"):
        frame.selectExpr(f"{as_json(['at'], Schema.parse('at timestamp'))} as value").collect()


def doubled(frame: Any) -> Any:
    return frame.withColumn("twice", frame["x"] * 2)


def in_python(frame: Any) -> Any:
    from pyspark.sql.functions import udf

    return frame.withColumn("twice", udf(lambda x: x, "long")(frame["x"]))


def in_arrow(frame: Any) -> Any:
    return frame.mapInArrow(lambda batches: batches, frame.schema)


def test_a_transform_that_needs_python_is_refused(spark: SparkSession) -> None:
    stream = ms.read(ms.Topic("rows", schema="x long"))
    raw = spark.sql(
        "select cast('{\"x\":4}' as binary) as value, cast(null as binary) as key, 0 as partition, "
        "0L as offset, timestamp'2026-01-01' as timestamp, 'rows' as topic"
    )

    def made(function: Any) -> Any:
        output, read = stream.transform(function).to(ms.Topic("out")), stream.node
        assert isinstance(read, Read)
        return output_frame(output, {read: SourceFrame("rows", read, 0).rows(raw)})

    assert made(doubled).collect()[0]["value"] == '{"x":4,"twice":8}'
    for function in (in_python, in_arrow):
        with pytest.raises(InvalidSpec, match="got a Python function in a transform"):
            made(function)
