"""SQL without Spark gives what Spark gives: types, nulls, NaN, signs of zero, rows, order."""

from __future__ import annotations

import math
import pickle
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.engine.arrow_expressions import COMPARED, SCHEMA, Expressions, table

from millstream.sql.arrow.expressions import expression
from millstream.sql.arrow.types import NeedsSpark
from millstream.sql.arrow.values import ArrowSteps, Column, Filter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from millstream.sql.arrow.values import Value

COLUMNS: dict[str, Value] = {field.name: Column(field.name, field.type) for field in SCHEMA}
AT_ONCE = 80


def compiled(text: str) -> Value | None:
    try:
        return expression(text, COLUMNS)
    except NeedsSpark:
        return None


def same(pair: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from pair


def through_a_worker(frame: DataFrame) -> DataFrame:
    """The same rows, hidden from Spark's optimizer."""
    return frame.coalesce(1).mapInArrow(same, frame.schema)


def exactly(column: Any) -> list[Any]:
    """Values as text, in which all NaNs are equal and 0.0 differs from -0.0."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [None if value is None else "NaN" if math.isnan(value)
                else (value, bool(np.signbit(value))) for value in values]  # fmt: skip
    return values


def texts(seed: int, count: int) -> list[str]:
    """`count` random expressions, none of them constant."""
    make, found = Expressions(random.Random(seed)), []
    for _ in range(20 * count):
        text = make.any()
        if compiled(text) is not None:
            found.append(text)
    assert len(found) > 15 * count
    return found[:count]


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(5))
def test_every_expression_gives_what_spark_gives(seed: int, spark: SparkSession) -> None:
    rows = table(random.Random(seed), 150)
    frame = spark.createDataFrame(rows)
    frame = frame if seed % 2 else through_a_worker(frame)
    some = texts(seed, AT_ONCE) if seed else COMPARED
    expected = frame.selectExpr(
        *(f"{text}\n as e{place}" for place, text in enumerate(some))
    ).toArrow()
    for place, text in enumerate(some):
        value = compiled(text)
        assert value is not None
        steps = ArrowSteps((), (value,), pa.schema([("e", value.type)]))
        made = pickle.loads(pickle.dumps(steps))(rows)["e"]
        column = expected[f"e{place}"]
        assert made.type == column.type, text
        assert exactly(made) == exactly(column), text


@pytest.mark.spark
def test_a_filter_keeps_the_rows_that_spark_keeps(spark: SparkSession) -> None:
    rng = random.Random(101)
    rows = table(rng, 300).append_column("row", pa.array(range(300), pa.int64()))
    frame = through_a_worker(spark.createDataFrame(rows)).cache()
    conditions = [text for text in (Expressions(rng).boolean(3) for _ in range(60))
                  if compiled(text) is not None][:20]  # fmt: skip
    for text in conditions:
        condition = compiled(text)
        assert condition is not None
        kept = Filter(condition, ("row",))(rows)["row"].to_pylist()
        assert kept == frame.filter(text).select("row").toArrow()["row"].to_pylist(), text
    frame.unpersist()


@pytest.mark.parametrize(
    "text",
    [
        "l + 1", "i * j", "-l", "l - i", "b + s", "f * f", "f + 1", "x + f * f", "i / j", "x / y",
        "x / 0", "l % 0", "l % i", "x % 3", "l div 3", "l / 1.5", "l % 1.5", "1 + 1", "1 = 1",
        "not true", "l = 0.5", "i > 1.5", "l > 1.5D", "l < x", "f = x", "f > 0.5", "i = '1'",
        "t = 1", "t > 0", "ts > '2026-01-01'", "ts > timestamp '2026-01-01'", "d = ts", "p = 1",
        "p < q", "x = null", "x <=> null", "l in (1, null)", "x in (1, 2)", "l in (i)",
        "p in (true)", "t in (1)", "upper(t)", "t like 'a%'", "t || u", "'a' 'b' = t",
        "t = 'it''s'", r"t = 'a\n'", "t = r'a'", "cast(t as int)", "cast(l as int)",
        "cast(x as bigint)", "cast(x as float)", "cast(l as string)", "cast(1.5 as bigint)", "300Y",
        "1F", "1.5BD", "0x1F", "x'1F'", "+t = u", "+x", "x = 1e400", "x * 1234567890123456.5",
        "-(3)", "-2147483648", "l = 9223372036854775808", "b = -128Y", "-0.0D", "-0.0 + x",
        "x = y = p", "p = (x > y)", "(x > y) = p", "x > y is null", "(x is null) is null",
        "p is true", "x is distinct from y", "x between symmetric 1 and 2", "a.b", "l.x", "nosuch",
        "_partition", "_origin", "now() > ts", "current_date = d", "case i when 1 then 2 end",
        "if(i, 1, 2)",
        "if(p, l, t)", "if(p, f, i)", "coalesce(f, 1)", "coalesce(x, t)", "nullif(t, 1)",
        "nullif(f, x)", "coalesce(null, null)", "greatest(i, j)", "abs(l)", "round(x, 2)",
        "array(i, j)", "interval 1 day", "t collate utf8_lcase = 'a'", "iff(p, i, j)", "~i",
        "i & j", " and ".join(["p"] * 200), "i % 7 % 6 % 5 % 4 % 3 % 2 % 7 % 6 % 5",
    ],
)  # fmt: skip
def test_expressions_that_may_differ_are_left_to_spark(text: str) -> None:
    assert compiled(text) is None


def test_names_match_in_any_case_and_only_if_unambiguous() -> None:
    assert compiled("`TS`") == Column("ts", SCHEMA.field("ts").type)
    odd: dict[str, Value] = {"straße": Column("straße", pa.int64())}
    assert expression("`straße`", odd) == odd["straße"]
    with pytest.raises(NeedsSpark):
        expression("`STRASSE`", odd)
    with pytest.raises(NeedsSpark):
        expression("`STRAßE`", odd)
    with pytest.raises(NeedsSpark):
        expression("a", {"a": Column("a", pa.int64()), "A": Column("A", pa.int64())})


WHO = pa.struct([("a", pa.int32()), ("B", pa.string()), ("deep", pa.struct([("x", pa.float64())])),
                 ("all", pa.list_(pa.string()))])  # fmt: skip
WHOLE = pa.schema([("who", WHO), ("many", pa.list_(WHO)), ("by", pa.map_(pa.string(), WHO))])
NESTED: dict[str, Value] = {field.name: Column(field.name, field.type) for field in WHOLE}
DEEP = {"a": 1, "B": "b", "deep": {"x": math.nan}, "all": ["x", None]}


@pytest.mark.spark
def test_fields_of_structs_give_what_spark_gives(spark: SparkSession) -> None:
    whos = [None, DEEP, {**DEEP, "a": None, "deep": None}, {"deep": {"x": None}}, {"B": ""}, {}]
    halves = [pa.array(whos[3:], WHO), pa.array(whos, WHO)[1:], pa.array([], WHO)]
    rows = pa.table([pa.chunked_array(halves), pa.array([[DEEP]] * 8, WHOLE.field(1).type),
                     pa.nulls(8, WHOLE.field(2).type)], schema=WHOLE)  # fmt: skip
    some = ["who.a", "WHO.b", "`who`.`B`", "who.deep", "who.deep.x", "who.all", "who.a = 1",
            "who.deep.x <=> who.DEEP.X", "who.a is null", "coalesce(who.b, 'none')"]  # fmt: skip
    expected = (
        through_a_worker(spark.createDataFrame(rows))
        .selectExpr(*(f"{text} as e{place}" for place, text in enumerate(some)))
        .toArrow()
    )
    for place, text in enumerate(some):
        value = expression(text, NESTED)
        made = ArrowSteps((), (value,), pa.schema([("e", value.type)]))(rows)["e"]
        assert made.type == expected[f"e{place}"].type, text
        assert repr(made.to_pylist()) == repr(expected[f"e{place}"].to_pylist()), text


@pytest.mark.parametrize(
    "text", ["who.nosuch", "who.a.b", "many.a", "by.a", "who.all.x", "who.*", "nosuch.a",
             "who.deep.x.y", "who.deep.y", "many[0].a"],
)  # fmt: skip
def test_other_parts_of_columns_are_left_to_spark(text: str) -> None:
    with pytest.raises(NeedsSpark):
        expression(text, NESTED)


def test_a_field_needs_an_unambiguous_name() -> None:
    twice = pa.struct([("a", pa.int32()), ("A", pa.int32())])
    same = pa.struct([("a", pa.int32()), ("a", pa.int32())])
    for kind in (twice, same):
        with pytest.raises(NeedsSpark):
            expression("w.a", {"w": Column("w", kind)})
