"""Stateless steps over real rows, with their expected results."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from tests.engine.scenes import PLACES, at, bid, bids, drive, ran_in

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.testing import Drive

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

TREE = "id long, tags array<string>, deep array<array<int>>, ts timestamp"


def tree() -> ms.Stream:
    return bids("tree", TREE)


def node(id_: int, tags: list[str | None] | None = None, deep: Any = None) -> dict[str, Any]:
    return {"id": id_, "tags": tags, "deep": deep, "ts": at(id_).isoformat()}


@pytest.mark.parametrize("lane", PLACES)
def test_every_step_gives_its_rows(lane: Any) -> None:
    source = bids()
    parts = source.split(cheap="price < 10 -- euros", even="auction % 2 = 0")
    streams = {
        "where": source.where("price > 2 or price is null"),
        "select": source.select("price * 2 as twice", "ts as at", "AUCTION"),
        "every": source.select("*", "price as again").drop("name", "n", "price"),
        "with": source.with_columns(n="n + 1", Name="upper(name)").select("n", "Name"),
        "cheap": parts["cheap"].select("auction"),
        "even": parts["even"].select("auction"),
        "rest": parts["rest"].select("auction"),
        "transform": source.transform(
            lambda df: df.withColumn("d", F.col("price") + F.col("n")).where("auction < 3")
        ).select("auction", "d"),
        "open": source.transform(lambda df: df.select("_origin", "auction", "ts")).select("*"),
    }
    rows = [
        bid(1, 1, name="a", price=1.0, n=1),
        bid(2, 2, name="b", price=20.0, n=2),
        bid(3, 3, name="c", price=30.0, n=3),
        bid(4, 4, name="d", n=4),
    ]
    with drive(*streams.values(), lane=lane, names=tuple(streams)) as d:
        d.feed("bids", rows)
        facts = d.step()

        assert (ran_in(facts), facts.rows, facts.dead) == (lane, 4, 0)
        assert [r["auction"] for r in d.rows("where")] == [2, 3, 4]
        assert d.rows("select")[:2] == [
            {"twice": 2.0, "at": at(1), "AUCTION": 1}, {"twice": 40.0, "at": at(2), "AUCTION": 2},
        ]  # fmt: skip
        assert d.rows("every")[3] == {"auction": 4, "ts": at(4), "again": None}
        assert d.rows("with")[0] == {"n": 2, "Name": "A"}
        assert [r["auction"] for r in d.rows("cheap")] == [1]
        assert [r["auction"] for r in d.rows("even")] == [2, 4]
        assert [r["auction"] for r in d.rows("rest")] == [3]
        assert d.rows("transform") == [{"auction": 1, "d": 2.0}, {"auction": 2, "d": 22.0}]
        assert d.rows("open") == [{"auction": n, "ts": at(n)} for n in (1, 2, 3, 4)]


def test_the_first_true_condition_wins_and_nulls_go_to_the_rest() -> None:
    parts = bids().split(a="price > 1", b="price > 0", c="n > 0")
    with drive(*parts.values(), names=tuple(parts)) as d:
        d.feed("bids", [bid(1, 1, price=5.0, n=1), bid(2, 2, price=1.0, n=1), bid(3, 3, n=1),
                        bid(4, 4), bid(5, 5, price=-1.0)])  # fmt: skip
        d.step()

        found = {name: [row["auction"] for row in d.rows(name)] for name in parts}
        assert found == {"a": [1], "b": [2], "c": [3], "rest": [4, 5]}


@pytest.mark.parametrize("lane", PLACES)
def test_explode_gives_a_row_per_element_with_its_own_origin(lane: Any) -> None:
    """Distinct orders rows by origin: of equal elements the first of the first row passes."""
    opened = tree().explode("tags")
    deep = tree().explode("deep").explode("deep").distinct(by="deep")
    with drive(opened, deep, lane=lane, names=("tags", "deep")) as d:
        d.feed("tree", [node(1, ["b", None, "a"], [[1, 2], [3, 1]]), node(2, [], None),
                        node(3, None, [[2], [], [4, 3]]), node(4, ["a"])])  # fmt: skip
        d.step()

        assert [(r["id"], r["tags"]) for r in d.rows("tags")] == [
            (1, "b"), (1, None), (1, "a"), (4, "a"),
        ]  # fmt: skip
        assert [(r["deep"], r["id"]) for r in d.rows("deep")] == [(1, 1), (2, 1), (3, 1), (4, 3)]


@pytest.mark.parametrize("lane", PLACES)
def test_rows_of_one_origin_on_both_sides_of_a_union_stay_distinct(lane: Any) -> None:
    source = bids()
    left = source.select("auction", "ts", "'left' as side")
    right = source.select("auction", "ts", "'right' as side")
    both = left.union(right)
    windows = both.by("side").window(ms.tumbling("10 seconds")).agg(n=ms.count())
    with drive(both, both.distinct(by="auction"), windows, lane=lane,
               names=("all", "once", "windows")) as d:  # fmt: skip
        d.feed("bids", [bid(n, n) for n in range(1, 40)])
        facts = d.step()
        d.feed("bids", [bid(2, 41)])
        late = d.step().late

        assert (facts.rows, late) == (39, 2)
        assert len(d.rows("all")) == 80
        assert [r["side"] for r in d.rows("once")] == ["left"] * 40
        assert [r["origin"] for r in d.late()] == [
            {"source": "bids", "partition": 0, "offset": 39, "index": side} for side in (0, 1)
        ]


def test_a_union_matches_columns_by_name() -> None:
    left = ms.read(ms.Topic("a", schema="x long, y string"))
    right = ms.read(ms.Topic("b", schema="y string, x long"))
    with drive(left.union(right)) as d:
        d.feed("b", [{"x": 1, "y": "b"}])
        d.feed("a", [{"x": 2, "y": "a"}])
        d.step()

        assert d.rows("out") == [{"x": 2, "y": "a"}, {"x": 1, "y": "b"}]


def test_every_clock_function_returns_the_batch_clock() -> None:
    words = ["now()", "current_timestamp", "current_timestamp()", "localtimestamp()",
             "current_date()", "curdate()", "unix_timestamp()"]  # fmt: skip
    stream = bids().select(*(f"{word} as c{n}" for n, word in enumerate(words)))
    with drive(stream.where("c0 = now()")) as d:
        d.clock(at(0))
        d.feed("bids", [bid(1)])
        d.step()

        noon = datetime(2026, 1, 1, tzinfo=UTC)
        (row,) = d.rows("out")
        assert list(row.values()) == [noon, noon, noon, noon.replace(tzinfo=None), noon.date(),
                                      noon.date(), int(noon.timestamp())]  # fmt: skip


def test_hidden_columns_of_one_step_are_not_in_another() -> None:
    source = bids()
    seen: list[list[str]] = []

    def spy(df: DataFrame) -> DataFrame:
        seen.append(df.columns)
        return df

    streams = {
        "keys": source.select("_key as k").where("k is not null"),
        "same": source,
        "once": source.distinct(by="auction"),
        "next": source.distinct(by="auction").where("auction > 0"),
        "spied": source.transform(spy),
    }
    with drive(*streams.values(), names=tuple(streams)) as d:
        d.feed("bids", [bid(1, 7)], key=b"k")
        d.step()

        assert d.rows("keys") == [{"k": b"k"}]
        columns = ["auction", "name", "price", "n", "ts"]
        for name in ("same", "once", "next", "spied"):
            assert [list(row) for row in d.rows(name)] == [columns], name
        assert {tuple(c) for c in seen} == {(*columns, "_origin")}


def first_rows(df: DataFrame) -> DataFrame:
    return df.limit(1)


def rows_twice(df: DataFrame) -> DataFrame:
    return df.union(df)


def late_by_a_day(df: DataFrame) -> DataFrame:
    return df.withColumn("ts", F.col("ts") - F.expr("interval 1 day"))


REFUSED: dict[str, tuple[Callable[[DataFrame], Any], str]] = {
    "limit": (first_rows, "row-wise"),
    "sort": (lambda df: df.orderBy("price"), "row-wise"),
    "shuffle": (lambda df: df.repartition(3), "row-wise"),
    "aggregate": (lambda df: df.groupBy("_origin", "ts").count(), "row-wise"),
    "distinct": (lambda df: df.dropDuplicates(["auction"]), "row-wise"),
    "join": (lambda df: df.crossJoin(df.sparkSession.range(2)), "row-wise"),
    "sample": (lambda df: df.sample(0.5), "row-wise"),
    "union": (rows_twice, r"\.union\("),
    "explode": (lambda df: df.withColumn("x", F.explode(F.array("n", "n"))), r"\.explode\("),
    "a window of rows": (lambda df: df.selectExpr("*", "row_number() over (order by n) as r"),
                         "row-wise"),
    "rand": (lambda df: df.withColumn("r", F.rand()), "same rows"),
    "a random udf": (lambda df: df.withColumn("r", F.udf(lambda n: n).asNondeterministic()("n")),
                     "same rows"),
    "the wall clock": (lambda df: df.withColumn("r", F.current_timestamp()), "wall clock"),
    "no origin": (lambda df: df.select("auction", "ts"), "keep the column _origin"),
    "another origin": (lambda df: df.withColumn("_origin", F.struct(F.lit(1))), "unchanged"),
    "no event time": (lambda df: df.drop("ts"), "keep the column ts, which holds the event time"),
    "another event time": (late_by_a_day, "leave the column ts unchanged"),
    "a hidden name": (lambda df: df.withColumn("_x", F.lit(1)), "not reserved"),
    "a reserved name": (lambda df: df.withColumn("pane", F.lit(1)), "not reserved"),
    "no frame": (lambda df: 5, "return a DataFrame; got 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_transform_that_is_not_row_wise_or_not_repeatable_is_refused(name: str) -> None:
    function, sentence = REFUSED[name]
    with pytest.raises(InvalidSpec, match=sentence):
        Drive(ms.Pipeline("p", bids().transform(function).to(ms.Topic("o"))), lane="narrow")


def test_a_transform_may_run_python_functions() -> None:
    def shouted(df: DataFrame) -> DataFrame:
        shout = F.udf(lambda text: text and f"{text}!", "string")
        return df.filter(F.col("auction") > 0).withColumn("loud", shout("name"))

    with drive(
        bids().transform(shouted).by("loud").window(ms.tumbling("1 s")).agg(n=ms.count())
    ) as d:
        d.feed("bids", [bid(1, 1, name="a"), bid(1.5, 2, name="a"), bid(1.2, 0, name="a")])
        d.finish()

        assert [(r["loud"], r["n"]) for r in d.rows("out")] == [("a!", 2)]


WRONG_TYPES: dict[str, tuple[Callable[[], ms.Stream], str]] = {
    "where": (lambda: bids().where("price + 1"), r"where price \+ 1 needs types that fit"),
    "select": (lambda: bids().select("size(name) as x"), "select size"),
    "with": (lambda: bids().with_columns(x="nosuch(price)"), "with_columns nosuch"),
    "explode": (lambda: bids().with_columns(x="price").explode("x"), "explode x needs types"),
    "drop": (lambda: bids().transform(lambda df: df).drop("x"), "drop needs columns that exist"),
    "record key": (lambda: bids().transform(lambda df: df).select("*"), "the record key of 'out'"),
    "key": (lambda: bids().transform(lambda df: df).by("x").window(ms.tumbling("1 s"))
            .agg(n=ms.count()), "keys of a window"),
    "sum": (lambda: bids().with_columns(x="name").by("n").window(ms.tumbling("1 s"))
            .agg(s=ms.sum("x")), "sum"),
    "union": (lambda: bids().transform(lambda df: df).union(bids().drop("n")), "same columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(WRONG_TYPES))
def test_types_are_checked_before_the_first_batch_and_the_step_is_named(name: str) -> None:
    stream, sentence = WRONG_TYPES[name]
    sink = ms.Topic("out", key="nosuch" if name == "record key" else None)
    with pytest.raises(InvalidSpec, match=sentence) as refused:
        Drive(ms.Pipeline("p", stream().to(sink)), lane="narrow")

    assert "\n" not in str(refused.value)
