"""Simple SQL runs as Arrow columns: no Spark job, and the same rows as with one."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import PLACES, at, bid, bids, counted, drive

import millstream as ms
from millstream.engine.inspection.sql_placement import in_java
from millstream.engine.kernels import kernels
from millstream.engine.lanes import narrow, wide
from millstream.engine.spark import arrow_steps, frames
from millstream.engine.spark.session import existing_session
from millstream.errors import InvalidSpec
from millstream.plan.stages import cut
from millstream.sql.arrow import values as arrow_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
Patch = pytest.MonkeyPatch

ROWS = [
    bid(1, 1, name="a", price=1.5, n=1),
    bid(2, 2, name="b", price="NaN", n=-2),
    bid(3, 3, name="ä", price=-0.0),
    bid(4, 4, price=30.0, n=4),
    {**bid(5, name="", n=5), "auction": None},
    bid(25, 246, name="z", price=2e300, n=6),
]  # fmt: skip
SIMPLE: dict[str, Callable[[ms.Stream], ms.Stream]] = {
    "where": lambda s: s.where("price > 1 or NAME = 'ä'"),
    "select": lambda s: s.select("price * 0.908 as price", "AUCTION", "ts as at", "1 as one"),
    "every": lambda s: s.select("*", "price <=> n as same").drop("name", "n"),
    "with": lambda s: s.with_columns(Price="-price", half="n / 2").where("half > 0"),
    "last": lambda s: s.with_columns(k="auction % 123").where("k = 0").select("k", "name"),
    "none": lambda s: s.where("false"),
    "all": lambda s: s.where("true").where("n is not null"),
    "step": lambda s: counted(s.where("auction % 2 = 0").select("auction", "ts")),
    "flow": lambda s: counted(s).where("n >= 1").select("auction", "n / 2 as half"),
    "twice": lambda s: counted(s.where("n > 1")).where("auction is not null").by("auction")
    .window(ms.tumbling("1 minute")).agg(n=ms.count()),
    "opened": lambda s: s.by("auction").window(ms.tumbling("10 seconds"))
    .agg(each=ms.collect("price")).explode("each").where("each > 0").select("each", "window_end"),
}  # fmt: skip
SPARKS: dict[str, Callable[[ms.Stream], ms.Stream]] = {
    "upper": lambda s: s.with_columns(name="upper(name)").where("price > 1"),
    "hidden": lambda s: s.where("_offset > 1"),
    "clock": lambda s: s.where("ts >= now()"),
    "union": lambda s: s.where("price > 1").union(s.where("price < 1")),
    "array": lambda s: s.with_columns(all="array(n, n)").explode("all").where("n = 1"),
}


def left(name: str, lane: Any, of: dict[str, Any]) -> list[list[Any]]:
    """The emitted rows, batch by batch, with one NaN and with retractions."""
    seen = []
    with drive(of[name](bids()), lane=lane) as d:
        for some in (ROWS[:4], ROWS[4:], [bid(2, 7, price=3.0)]):
            d.feed("bids", some)
            d.step()
            rows = [tuple(row.items()) for row in d.rows("out")]
            seen.append(sorted(map(repr, rows)))
        d.finish()
        seen.append(sorted(repr(tuple(row.items())) for row in d.rows("out")))
    return seen


def all_in_spark(patch: Patch) -> None:
    patch.setattr(arrow_steps, "compiled", lambda *args: None)


def built(patch: Patch) -> list[Any]:
    """The trees of steps that Spark gets from now on."""
    in_spark: list[Any] = []

    def build(tree: Any, *args: Any) -> Any:
        in_spark.append(tree)
        return frames.build(tree, *args)

    for lane in (narrow, wide):
        patch.setattr(lane, "build", build)
    return in_spark


@pytest.mark.parametrize("lane", PLACES)
@pytest.mark.parametrize("name", SIMPLE)
def test_simple_sql_gives_the_same_rows_without_spark(name: str, lane: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        all_in_spark(patch)
        want = left(name, lane, SIMPLE)
    assert name == "none" or any(want)
    with pytest.MonkeyPatch.context() as patch:
        in_spark = built(patch)
        assert left(name, lane, SIMPLE) == want
        assert in_spark == []


@pytest.mark.parametrize("lane", PLACES)
@pytest.mark.parametrize("name", SPARKS)
def test_other_sql_goes_to_spark(name: str, lane: Any, monkeypatch: Patch) -> None:
    in_spark = built(monkeypatch)
    assert any(left(name, lane, SPARKS))
    assert in_spark


@pytest.mark.parametrize(("place", "sql", "jobs"), [
    ("narrow", "price > 1", 1), ("narrow", "abs(price) > 1", 1),
    ("driver", "price > 1", 0), ("driver", "abs(price) > 1", 1),
])  # fmt: skip
def test_a_small_batch_is_one_spark_job_and_none_in_the_driver_alone(
    place: str, sql: str, jobs: int, spark: SparkSession
) -> None:
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    with drive(bids().where(sql), lane=place) as d:
        d.feed("bids", ROWS)
        before = scheduler.numTotalJobs()
        d.step()

        assert scheduler.numTotalJobs() - before == jobs
        assert [row["auction"] for row in d.rows("out")] == [1, 2, 4, 246]


@pytest.mark.parametrize("lane", PLACES)
def test_retracted_rows_keep_their_sign(lane: Any, monkeypatch: Patch) -> None:
    in_spark = built(monkeypatch)
    panes = bids().by("auction").window(ms.tumbling("10 seconds")).late(keep="1 minute")
    sums = panes.agg(n=ms.count()).where("n > 0").select("auction", "n", "window_end")
    total = sums.by("auction").window(ms.tumbling("1 minute")).agg(n=ms.sum("n"))
    with drive(total, lane=lane) as d:
        d.feed("bids", [bid(1), bid(2), bid(31)])
        d.step()
        d.feed("bids", [bid(3)])
        d.step()
        d.finish()
        assert [(row["auction"], row["n"]) for row in d.rows("out")] == [(1, 4)]
    assert in_spark == []


@pytest.mark.parametrize("lane", PLACES)
def test_nested_columns_pass_unchanged(lane: Any) -> None:
    schema = (
        "id long not null, tags array<string>, parts map<string,int>, deep array<array<int>>, "
        "who struct<a:int, b:array<double>>, cost decimal(10,2), raw binary, ts timestamp"
    )
    rows = [
        {"id": 1, "ts": at(1).isoformat()},
        {"id": 2, "tags": ["x", None], "parts": {"a": 1}, "deep": [[1], []], "raw": "aGk=",
         "who": {"a": 1, "b": [1.5]}, "cost": "1.25", "ts": at(2).isoformat()},
    ]  # fmt: skip
    seen: list[Any] = []
    for spark_only in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if spark_only:
                all_in_spark(patch)
            in_spark = built(patch)
            with drive(bids("odd", schema).where("id > 0").ordered(), lane=lane) as d:
                d.feed("odd", rows)
                d.step()
                d.finish()
                seen.append(d.rows("out"))
            assert bool(in_spark) is spark_only
    assert seen[0] == seen[1]
    assert [row["tags"] for row in seen[1]] == [None, ["x", None]]


@pytest.mark.parametrize("spark_only", [True, False])
@pytest.mark.parametrize("lane", PLACES)
def test_a_row_with_too_many_elements_is_a_dead_row(
    lane: Any, spark_only: bool, monkeypatch: Patch
) -> None:
    """Spark's workers only use the real limit."""
    if spark_only:
        all_in_spark(monkeypatch)
    in_spark = built(monkeypatch)
    most = 8 if spark_only or lane == "driver" else arrow_values.ELEMENTS
    for module in (frames, arrow_values):
        monkeypatch.setattr(module, "ELEMENTS", most)
    opened = ms.read(ms.Topic("lists", schema="id long, tags array<int>")).explode("tags")
    with drive(opened.where("tags = 1"), lane=lane) as d:
        d.feed("lists", [{"id": n, "tags": [0] * more + [1]}
                         for n, more in enumerate([0, most - 1, most, 1])])  # fmt: skip
        facts = d.step()
        assert [row["id"] for row in d.rows("out")] == [0, 1, 3]
        (dead,) = d.dead()
        assert (facts["dead"], dead["offset"]) == (1, 2)
        assert arrow_values.TOO_MANY in dead["reason"]
    assert bool(in_spark) is spark_only


@pytest.mark.parametrize("lane", PLACES)
def test_bad_rows_and_rows_for_which_sql_fails_are_dead_rows(lane: Any) -> None:
    risky = bids().where("price > 0").select("auction", "n", "100 / n as share", "ts")
    with drive(risky, lane=lane) as d:
        d.feed("bids", [bid(1, n=4, price=1.0), b"nothing", bid(2, n=0, price=1.0),
                        bid(3, n=0, price=-1.0)])  # fmt: skip
        facts = d.step()
        assert [(row["n"], row["share"]) for row in d.rows("out")] == [(4, 25.0)]
        assert facts["dead"] == 2


@pytest.mark.parametrize(("name", "value"), [
    ("spark.sql.ansi.enabled", "false"), ("spark.sql.caseSensitive", "true"),
    ("spark.sql.session.timeZone", "Asia/Tokyo"),
])  # fmt: skip
def test_a_session_with_which_sql_gives_other_answers_is_refused(
    name: str, value: str, spark: SparkSession
) -> None:
    usual = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        with pytest.raises(InvalidSpec, match=f"got {name}={value}; "):
            drive(bids().where("n > 1"))
    finally:
        spark.conf.unset(name)
        if usual is not None:
            spark.conf.set(name, usual)


def test_a_session_is_found_from_every_thread(spark: SparkSession) -> None:
    """A job may run in another thread than the one that created the session."""
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(existing_session).result()

    assert found is not None
    assert found.sparkContext is spark.sparkContext


def test_the_rows_of_this_file_have_edge_cases() -> None:
    with drive(bids()) as d:
        d.feed("bids", ROWS)
        d.step()
        prices = [row["price"] for row in d.rows("out")]
    assert math.isnan(prices[1])
    assert math.copysign(1, prices[2]) == -1
    assert at(25).isoformat() == ROWS[-1]["ts"]


@pytest.mark.parametrize("name", [*SIMPLE, *SPARKS])
def test_whether_rows_pass_through_java_is_known(name: str) -> None:
    made = {**SIMPLE, **SPARKS}[name](bids())

    assert in_java(cut(ms.Pipeline("p", made.to(ms.Memory("out"))).outputs)) == (name in SPARKS)


NESTED = "auction long, tags array<string>, deep struct<a: array<long>>, ts timestamp"


@pytest.mark.parametrize("name", [*SIMPLE, "nested"])
def test_types_are_the_same_with_and_without_spark(name: str, spark: SparkSession) -> None:
    nested = ms.read(ms.Topic("t", schema=NESTED), time="ts").where("auction > 1")
    made = nested if name == "nested" else SIMPLE[name](bids())
    stages = cut(ms.Pipeline("p", made.to(ms.Memory("out"))).outputs)

    with_spark, without = kernels.Typed(stages, spark), kernels.Typed(stages, None)
    for stage in stages.stages:
        assert str(without.columns[stage]) == str(with_spark.columns[stage])
        assert str(without.output(stage)) == str(with_spark.output(stage))
        assert [steps is None for steps in without.arrow[stage]] == [
            steps is None for steps in with_spark.arrow[stage]
        ]
