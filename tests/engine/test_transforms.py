"""`transform` with every kind of function that PySpark has, in three places, against an oracle."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator  # noqa: TC003  # PySpark reads the annotations of UDFs
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]  # noqa: TC002
import pyarrow as pa
import pytest
from pyspark.sql import Window, functions
from tests.engine.scenes import PLACES, at, bid, bids, drive, ran_in

import millstream as ms
from millstream.errors import InvalidSpec, UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

F: Any = functions
Row = dict[str, Any]
NAMES = (None, "", "a", "Ünï", "日本", "x" * 300, "'; drop", "\n")


def mirrored(name: str | None) -> str | None:
    return None if name is None else name[::-1].upper()


def on_pandas(names: pd.Series) -> pd.Series:
    return names.map(mirrored, na_action="ignore")


def piece_by_piece(parts: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for names in parts:
        yield on_pandas(names)


def on_arrow(names: pa.Array) -> pa.Array:
    return pa.array([mirrored(name) for name in names.to_pylist()], pa.string())


def of_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(name=on_pandas(frame["name"]))


def of_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        place = batch.schema.get_field_index("name")
        yield batch.set_column(place, "name", on_arrow(batch.column(place)))


def with_column(name: str, make: Callable[[], Any]) -> Callable[[DataFrame], DataFrame]:
    return lambda df: df.withColumn(name, make()("name"))


SCALAR: dict[str, Callable[[], Any]] = {
    "functions": lambda: lambda name: F.upper(F.reverse(name)),
    "python": lambda: F.udf(mirrored, "string", useArrow=False),
    "python_on_arrow": lambda: F.udf(mirrored, "string", useArrow=True),
    "pandas": lambda: F.pandas_udf(on_pandas, "string"),
    "pandas_pieces": lambda: F.pandas_udf(piece_by_piece, "string"),
    "arrow": lambda: F.arrow_udf(on_arrow, "string"),
}


def with_every_kind(stream: ms.Stream) -> ms.Stream:
    """A column from each kind of scalar function, each in a `transform` of its own."""
    for name, make in SCALAR.items():
        stream = stream.transform(with_column(name, make))
    return stream


def random_rows(seed: int, count: int = 60) -> list[Row]:
    draw = random.Random(seed)
    return [bid(second, draw.randrange(4), name=draw.choice(NAMES),
                n=draw.choice((None, -1, 0, 7))) for second in range(count)]  # fmt: skip


def cheap(df: DataFrame) -> DataFrame:
    """Filters, and a UDF over a value of another UDF."""
    twice = F.udf(lambda n: None if n is None else 2 * n, "int")
    plus = F.pandas_udf(one_more, "long")
    return df.where(F.col("n").isNotNull()).withColumn("m", plus(twice("n"))).where("m > -1")


def squared(n):  # type: ignore[no-untyped-def]
    return n * n


def one_more(numbers: pd.Series) -> pd.Series:
    return numbers + 1


@pytest.mark.parametrize("place", PLACES)
def test_each_kind_of_function_gives_the_rows_of_the_oracle(place: str) -> None:
    """The same random rows in every place, in batches of different sizes."""
    rows = random_rows(20_260_101)
    names = ("scalar", "pandas", "arrow", "cheap", "windows")
    on_names = bids().transform(with_column("name", SCALAR["pandas"])).by("name")
    windows = on_names.window(ms.tumbling("20 seconds")).agg(n=ms.count())
    streams = (
        with_every_kind(bids()).select("auction", *SCALAR),
        bids().transform(lambda df: df.mapInPandas(of_pandas, df.schema)).select("name"),
        bids().transform(lambda df: df.mapInArrow(of_arrow, df.schema)).select("name"),
        bids().transform(cheap).select("auction", "m"),
        windows.transform(
            lambda df: df.withColumn("square", F.udf(squared, "long", useArrow=False)("n"))
        ),
    )
    with drive(*streams, lane=place, names=names) as d:
        for part in (rows[:1], rows[1:]):
            d.feed("bids", part)
            facts = d.step()
            assert ran_in(facts) == place
            assert facts.dead == 0
        d.finish()
        found = {name: d.rows(name) for name in names}

    assert found["scalar"] == [
        {"auction": row["auction"], **dict.fromkeys(SCALAR, mirrored(row["name"]))} for row in rows
    ]
    assert found["pandas"] == found["arrow"] == [{"name": mirrored(row["name"])} for row in rows]
    doubled = [(row["auction"], 2 * row["n"] + 1) for row in rows if row["n"] is not None]
    assert [(row["auction"], row["m"]) for row in found["cheap"]] == [
        (auction, m) for auction, m in doubled if m > -1
    ]
    counts = Counter((mirrored(row["name"]), at(number // 20 * 20))
                     for number, row in enumerate(rows))  # fmt: skip
    squares = {(row["name"], row["window_start"]): (row["n"], row["square"])
               for row in found["windows"]}  # fmt: skip
    assert squares == {key: (n, n * n) for key, n in counts.items()}


def chance(numbers: pd.Series) -> pd.Series:
    return numbers


def with_r(make: Callable[[], Any]) -> Callable[[DataFrame], DataFrame]:
    return lambda df: df.withColumn("r", make())


def summed(prices: pd.Series) -> float:
    return float(prices.sum())


NOT_REPEATABLE = {
    "rand()": with_r(F.rand), "randn()": with_r(F.randn), "uuid()": with_r(F.uuid),
    "monotonically_increasing_id()": with_r(F.monotonically_increasing_id),
    "SPARK_PARTITION_ID()": with_r(F.spark_partition_id),
    "input_file_name()": with_r(F.input_file_name),
    "shuffle()": with_r(lambda: F.shuffle(F.array("n", "n"))),
    "reflect()": with_r(lambda: F.reflect(F.lit("java.util.UUID"), F.lit("randomUUID"))),
    "rand() in a lambda": with_r(lambda: F.transform(F.array("n"), lambda _: F.rand())),
    "rand() in a filter": lambda df: df.where(F.rand() > 0.5),
    "chance() of Python": with_r(lambda: F.udf(chance, "int").asNondeterministic()("n")),
    "chance() on Arrow": with_r(
        lambda: F.udf(chance, "int", useArrow=True).asNondeterministic()("n")),
    "chance() of pandas": with_r(lambda: F.pandas_udf(chance, "int").asNondeterministic()("n")),
    "chance() of Arrow": with_r(
        lambda: F.arrow_udf(lambda n: n, "int").asNondeterministic()("n")),
}  # fmt: skip
NOT_ROW_WISE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "Window": lambda df: df.withColumn("r", F.sum("n").over(Window.partitionBy("auction"))),
    "Window of pandas": lambda df: df.withColumn(
        "r", F.pandas_udf(summed, "double")("price").over(Window.partitionBy("auction"))),
    "FlatMapGroupsInPandas": lambda df: df.groupBy("n").applyInPandas(lambda rows: rows, df.schema),
    "Sort": lambda df: df.sortWithinPartitions("n"),
    "Repartition": lambda df: df.coalesce(1),
    "Offset": lambda df: df.offset(1),
    "Intersect": lambda df: df.intersect(df),
    "Join": lambda df: df.join(df.sparkSession.range(3), F.lit(True)),
    "LateralJoin": lambda df: df.lateralJoin(twice(F.col("n").outer())),
    "Expand": lambda df: df.withColumn("w", F.window("ts", "10 seconds", "5 seconds")),
    "Generate": lambda df: df.selectExpr("*", "stack(2, 1, 2) as r"),
    "LogicalRDD": lambda df: df.localCheckpoint(),
    "a subquery": lambda df: df.where("n in (select 1)"),
}  # fmt: skip


def twice(column: Any) -> Any:
    class Twice:
        def eval(self, n: int) -> Iterator[tuple[int]]:
            yield (n,)
            yield (n,)

    return F.udtf(Twice, returnType="m int")(column)


@pytest.mark.parametrize("case", NOT_REPEATABLE)
def test_a_function_that_is_not_deterministic_is_refused_by_name(case: str) -> None:
    at_fault = "<lambda>()" if case == "chance() of Arrow" else case.partition(" ")[0]
    with pytest.raises(InvalidSpec) as refused:
        drive(bids().transform(NOT_REPEATABLE[case]))

    assert "needs to return the same rows when a batch is repeated" in str(refused.value)
    assert f"; got {at_fault}, which is not deterministic; " in str(refused.value)


@pytest.mark.parametrize("case", NOT_ROW_WISE)
def test_what_spans_rows_is_refused_with_the_reason(case: str) -> None:
    with pytest.raises(InvalidSpec, match="needs a row-wise function; got ") as refused:
        drive(bids().transform(NOT_ROW_WISE[case]))

    assert case.partition(" of ")[0] in str(refused.value)


def test_an_aggregate_is_refused_with_sparks_reason() -> None:
    with pytest.raises(UserCodeFailed, match=r"MISSING_GROUP_BY.*test_transforms\.py"):
        drive(bids().transform(with_r(lambda: F.sum("n"))))


def test_a_registered_function_that_is_not_deterministic_is_refused_in_sql(
    spark: SparkSession,
) -> None:
    spark.udf.register("lucky", F.udf(lambda n: n, "int").asNondeterministic())
    steps = {
        "select": bids().where("n > 0").select("lucky(n) as r"),
        "where": bids().where("lucky(n) > 0").select("n"),
        "with_columns": bids().union(bids("others").with_columns(n="lucky(n)")),
    }
    for name, stream in steps.items():
        with pytest.raises(InvalidSpec, match=rf"^{name} lucky\(n\)[^;]* needs to return the same "
                           r"rows[^;]*; got lucky\(\), .*test_transforms\.py:"):  # fmt: skip
            drive(stream)


@pytest.mark.parametrize("place", PLACES)
def test_a_registered_function_works_in_sql(place: str, spark: SparkSession) -> None:
    spark.udf.register("mirrored", F.udf(mirrored, "string", useArrow=False))
    with drive(bids().select("mirrored(name) as name"), lane=place) as d:
        d.feed("bids", [bid(1, name="abc"), bid(2)])
        d.step()
        assert d.rows("out") == [{"name": "CBA"}, {"name": None}]
