"""`docs/from-structured-streaming.md`: Spark's half runs, and each line of its table is true."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as F

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.testing import Drive

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from millstream.testing.local_broker import ThrowAwayBroker

PAGE = Path(__file__).parents[2] / "docs" / "from-structured-streaming.md"
SPARKS = re.compile(r"^<!-- not run: Spark's half[^\n]*-->\n```python\n(.*?)^```", re.M | re.S)
LINE = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SCHEMA = "auction long, bidder long, price double, ts timestamp"

Row = dict[str, Any]


def bid(auction: int, bidder: int, second: int) -> Row:
    return {"auction": auction, "bidder": bidder, "price": 1.0,
            "ts": f"2026-01-01 00:00:{second:02d}"}  # fmt: skip


BIDS = [bid(1, 7, 3), bid(1, 8, 1), bid(2, 7, 4), bid(1, 7, 12)]
TITLES = [{"auction": 1, "title": "bike"}, {"auction": 9, "title": "book"}]


def bids(topic: str = "bids") -> ms.Stream:
    return ms.read(ms.Topic(topic, schema=SCHEMA), time="ts", watermark="5 seconds")


def windows() -> Any:
    return bids().by("auction").window(ms.tumbling("10 seconds"))


def counts() -> ms.Table:
    return bids().by("auction").agg(n=ms.count())


def drive(rows: ms.Stream | ms.Table, columns: str, **feeds: list[Row]) -> list[tuple[Any, ...]]:
    """These columns of the rows that a pipeline emits before the end of its input, and after."""
    emitted = []
    with Drive(ms.Pipeline("p", rows.to(ms.Topic("out")))) as driven:
        for topic, fed in (feeds or {"bids": BIDS}).items():
            driven.feed(topic, fed, timestamp="2026-01-01 00:00:20")
        driven.step()
        emitted += driven.rows("out")
        driven.finish()
        emitted += driven.rows("out")
    return [tuple(row[name] for name in columns.split()) for row in emitted]


@dataclass(frozen=True)
class Sparks:
    """Streams of a session, and queries over them that run for a moment."""

    spark: SparkSession
    folder: Path

    def bids(self, name: str | None = None) -> DataFrame:
        made = self.spark.readStream.format("rate").load().selectExpr(
            "value % 3 as auction", "value % 5 as bidder", "1.0D as price", "timestamp as ts"
        )  # fmt: skip
        return made.alias(name) if name else made

    def timed(self, name: str | None = None) -> DataFrame:
        return self.bids(name).withWatermark("ts", "5 seconds")

    def start(self, rows: DataFrame, mode: str = "append") -> None:
        writer = rows.writeStream.format("noop").outputMode(mode)
        writer.option("checkpointLocation", str(self.folder)).start().stop()


WITHIN = "b.auction = a.auction and b.ts between a.ts and a.ts + interval 10 seconds"


def in_memory(*, ordered: bool) -> list[int]:
    """The seconds of all bids, in the order in which a sink receives them."""
    found = ms.Memory()
    read = ms.read(ms.Memory(BIDS, schema=SCHEMA), time="ts", watermark="5 seconds")
    rows = read.ordered() if ordered else read
    ms.Pipeline("seconds", rows.to(found)).run(until="finished")
    return [row["ts"].second for row in found.rows]


def refused_while_building() -> str:
    with pytest.raises(InvalidSpec) as raised:
        bids().join(bids("asks"), on="auction", how="full", suffix="_ask")
    return str(raised.value).partition(";")[0]


@dataclass(frozen=True)
class Case:
    """A line of the table: Spark's query, and the pipeline with what it gives."""

    spark: Callable[[Sparks], object]
    ours: Callable[[], object]
    gives: object


CASES = {
    "a count per key, append mode, no watermark": Case(
        lambda s: s.start(s.bids().groupBy("auction").count()),
        lambda: drive(counts(), "auction n"),
        [(1, 3), (2, 1)],
    ),
    "rows in order of time": Case(
        lambda s: s.start(s.bids().orderBy("ts")),
        lambda: in_memory(ordered=True),
        [1, 3, 4, 12],
    ),
    "a count of distinct values": Case(
        lambda s: s.start(s.timed().groupBy(F.window("ts", "10 seconds"))
                          .agg(F.count_distinct("bidder"))),
        lambda: drive(windows().agg(n=ms.count_distinct("bidder")), "auction n"),
        [(1, 2), (1, 1), (2, 1)],
    ),
    "`row_number()` over a key": Case(
        lambda s: s.start(s.bids().withColumn(
            "n", F.row_number().over(Window.partitionBy("auction").orderBy("ts")))),
        lambda: drive(windows().agg(n=ms.count()).top(1, by="n"), "auction n"),
        [(1, 2), (1, 1)],
    ),
    "the first row of each key, no watermark": Case(
        lambda s: s.start(s.bids().dropDuplicatesWithinWatermark(["auction"])),
        lambda: drive(bids().distinct(by="auction"), "auction bidder"),
        [(1, 7), (2, 7)],
    ),
    "early results of sessions (update mode)": Case(
        lambda s: s.start(s.timed().groupBy(F.session_window("ts", "5 seconds"), "auction")
                          .count(), "update"),
        lambda: drive(bids().by("auction").window(ms.session(gap="5 seconds"))
                      .trigger(early=ms.each()).agg(n=ms.count()), "auction n pane"),
        [(1, 2, "early"), (1, 1, "early"), (2, 1, "early"),
         (1, 2, "on_time"), (1, 1, "on_time"), (2, 1, "on_time")],
    ),
    "a left join of streams, update mode": Case(
        lambda s: s.start(s.timed("a").join(s.timed("b"), F.expr(WITHIN),
                                            "left_outer"), "update"),
        lambda: drive(bids().join(bids("asks"), on="auction", within="10 seconds", how="left",
                                  suffix="_ask"), "auction bidder_ask",
                      bids=[bid(1, 7, 3), bid(2, 7, 4)], asks=[bid(1, 9, 5)]),
        [(1, 9), (2, None)],
    ),
    "a table, left joined with a stream": Case(
        lambda s: s.start(s.spark.range(3).withColumnRenamed("id", "auction")
                          .join(s.bids(), "auction", "left_outer")),
        lambda: drive(ms.table(ms.Topic("titles", schema="auction long, title string"),
                               key="auction").join(counts(), on="auction", how="left"),
                      "title n", titles=TITLES, bids=BIDS),
        [("bike", 3), ("book", None)],
    ),
    "early results, then a second window": Case(
        lambda s: s.start(s.timed().groupBy(F.window("ts", "10 seconds"), "auction").count()
                          .groupBy(F.window("window", "1 minute")).agg(F.sum("count")), "update"),
        lambda: drive(windows().trigger(early=ms.each(), panes="retracting").agg(n=ms.count())
                      .by("auction").window(ms.tumbling("1 minute")).agg(n=ms.sum("n")),
                      "auction n"),
        [(1, 3), (2, 1)],
    ),
    "a count of counts": Case(
        lambda s: s.start(s.bids().groupBy("auction").count().groupBy("count")
                          .agg(F.count("*")), "complete"),
        lambda: drive(counts().by("n").agg(auctions=ms.count()), "n auctions"),
        [(1, 1), (3, 1)],
    ),
    "a stream joined with its own counts": Case(
        lambda s: s.start(s.bids().groupBy("auction").count().join(s.bids(), "auction"), "update"),
        lambda: drive(bids().lookup(counts(), on="auction"), "auction n"),
        [(1, 3), (1, 3), (1, 3), (2, 1)],
    ),
    "an outer join of streams without a time bound": Case(
        lambda s: s.start(s.timed("a").join(s.timed("b"), F.expr("a.auction = b.auction"),
                                            "full_outer")),
        refused_while_building,
        "a full join of streams needs a `within`, or a row without a match would wait for ever",
    ),
    "`count()` of a stream": Case(
        lambda s: s.bids().count(), lambda: len(in_memory(ordered=False)), 4
    ),
}  # fmt: skip


def refusals() -> dict[str, str]:
    """Each line of the page's table: the query, and what Spark says."""
    table = PAGE.read_text().partition("\n## What Spark refuses\n")[2]
    return {query: words for query, words, _ in LINE.findall(table)[1:]}


def test_the_table_has_a_case_for_each_line() -> None:
    assert list(refusals()) == list(CASES)


@pytest.mark.parametrize("query", CASES)
def test_spark_refuses_it_with_these_words(query: str, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException) as raised:
        CASES[query].spark(Sparks(spark, tmp_path))

    assert refusals()[query] in str(raised.value)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("query", CASES)
def test_here_it_gives_the_right_rows(query: str) -> None:
    assert CASES[query].ours() == CASES[query].gives


def test_sparks_half_of_the_page_runs(
    spark: SparkSession, broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    halves = SPARKS.findall(PAGE.read_text())
    program = "\n".join(halves).replace("localhost:9092", broker.address)
    program = program.replace("checkpoint-of-spark", str(tmp_path / "checkpoint"))
    program = program.replace("market.", f"{topic}.")
    for name in ("bids", "asks"):
        ms.Topics(broker.address).create(f"{topic}.{name}")

    assert len(halves) == 9
    names: dict[str, Any] = {}
    spark.conf.set(STATE_STORE, ROCKS)
    try:
        exec(compile(program, str(PAGE), "exec"), names)
        for number, name in enumerate(("sessions", "first", "pairs", "titled")):
            Sparks(spark, tmp_path / str(number)).start(names[name])
        Sparks(spark, tmp_path / "state").start(names["totals"], "update")
    finally:
        spark.conf.unset(STATE_STORE)
