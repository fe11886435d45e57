"""`Spark` as a source: whatever Spark reads, once, with the same rows at every later read."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.keeping import opening

import millstream as ms
from millstream.errors import DataGone, InvalidSpec, MillstreamError
from millstream.testing import Drive

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.sources.spec import SourceOpening

TYPES = """select cast(1 as tinyint) a, cast(2 as smallint) b, 3 c, 4l d, cast(1.5 as float) e,
    2.5d f, 'x' g, x'00ff' h, true i, date'2026-02-28' j, timestamp'1500-01-01 00:00:00.000001' k,
    timestamp_ntz'2026-01-01 00:00:00' l, cast(1.25 as decimal(20, 2)) m, array(1, null) n,
    map('k', 1l) o, named_struct('p', 1, 'q', array('r')) s"""


def read_all(source: ms.Spark, folder: Path, **options: Any) -> list[dict[str, Any]]:
    kept = ms.Memory()
    ms.Pipeline("p", ms.read(source).to(kept)).run(
        until="finished", checkpoint=folder / "job", **options
    )
    return kept.rows


def opened_in(folder: Path, spark: SparkSession) -> SourceOpening:
    return replace(opening(folder), spark=lambda: spark, folder=folder / "rows of the source")


def test_every_type_comes_as_spark_has_it(tmp_path: Path, spark: SparkSession) -> None:
    spark.sql(TYPES).write.parquet(str(tmp_path / "in"))
    [row] = read_all(ms.Spark("parquet", path=tmp_path / "in"), tmp_path)
    assert row == {
        "a": 1, "b": 2, "c": 3, "d": 4, "e": 1.5, "f": 2.5, "g": "x", "h": b"\x00\xff", "i": True,
        "j": date(2026, 2, 28), "k": datetime(1500, 1, 1, microsecond=1, tzinfo=UTC),
        "l": datetime(2026, 1, 1), "m": Decimal("1.25"), "n": [1, None], "o": [("k", 1)],
        "s": {"p": 1, "q": ["r"]},
    }  # fmt: skip


@pytest.mark.parametrize("lane", ["narrow", "wide"])
def test_the_stream_of_a_table_gives_what_its_rows_give(
    tmp_path: Path, spark: SparkSession, lane: str
) -> None:
    views = spark.range(1000).selectExpr("id % 7 as page", "timestamp_seconds(id) as ts")
    views.repartition(5).write.parquet(str(tmp_path / "in"))
    source = ms.Spark("parquet", path=tmp_path / "in", schema="page long, ts timestamp")
    kept = ms.Memory()
    stream = ms.read(source, time="ts", watermark="1 hour", ahead=None)
    counts = stream.by("page").window(ms.tumbling("100 seconds")).agg(n=ms.count())
    ms.Pipeline("p", counts.to(kept)).run(until="finished", checkpoint=tmp_path / "j", lane=lane)
    wanted = views.groupBy("page", (views.ts.cast("long") / 100).cast("int")).count().collect()
    assert sorted(row["n"] for row in kept.rows) == sorted(row["count"] for row in wanted)


def test_a_table_of_a_database_is_looked_up(
    tmp_path: Path, spark: SparkSession, derby: str
) -> None:
    users = spark.createDataFrame([(1, "Ada"), (2, "Bo")], "id long, name string")
    users.write.format("jdbc").options(url=derby, dbtable="users").save()
    source = ms.Spark("jdbc", url=derby, dbtable="users", schema="id long not null, name string")
    table, kept = ms.table(source, key="id"), ms.Memory()
    events = ms.read(ms.Memory([{"id": 2}, {"id": 1}, {"id": 3}], schema="id long"))
    ms.Pipeline("p", events.lookup(table, on="id").to(kept)).run(
        until="finished", checkpoint=tmp_path / "job"
    )
    assert kept.rows == [{"id": 2, "name": "Bo"}, {"id": 1, "name": "Ada"}]


def test_a_table_of_a_catalog_is_read(tmp_path: Path, spark: SparkSession) -> None:
    spark.sql(f"create table doors_in using parquet location '{tmp_path}/t' as select 1l as n")
    try:
        assert read_all(ms.Spark.table("spark_catalog.default.doors_in"), tmp_path) == [{"n": 1}]
    finally:
        spark.sql("drop table doors_in")


def test_rows_are_those_of_the_first_start(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "in"
    spark.range(0, 10, 1, 3).write.parquet(str(folder))
    source, start = ms.Spark("parquet", path=folder, schema="id long"), opened_in(tmp_path, spark)
    reader = source.reader(start)
    assert reader.extent().end == {0: 10}
    rows = source.opener().open(reader.table({0: (0, 10)}), source.row_schema())
    first = rows.decoded.table["id"].to_pylist()
    assert sorted(first) == list(range(10))

    shutil.rmtree(folder)
    spark.range(99).write.parquet(str(folder))
    again = source.reader(start)
    assert again.extent().end == {0: 10}
    assert again.table({0: (3, 9)}).equals(reader.table({0: (3, 9)}))
    part = source.opener().open(again.table({0: (3, 9)}), source.row_schema())
    assert part.decoded.table["id"].to_pylist() == first[3:9]


def test_a_later_run_needs_no_spark_for_the_rows(tmp_path: Path, spark: SparkSession) -> None:
    spark.range(5).write.parquet(str(tmp_path / "in"))
    source, start = ms.Spark("parquet", path=tmp_path / "in"), opened_in(tmp_path, spark)
    source.reader(start)
    assert source.reader(replace(start, spark=_never)).extent().end == {0: 5}


def _never() -> SparkSession:
    raise AssertionError("a session is requested")


def test_rows_that_were_removed_from_the_checkpoint_stop_the_job(
    tmp_path: Path, spark: SparkSession
) -> None:
    spark.range(5).write.parquet(str(tmp_path / "in"))
    source, start = ms.Spark("parquet", path=tmp_path / "in"), opened_in(tmp_path, spark)
    source.reader(start).extent()
    assert start.folder is not None
    shutil.rmtree(start.folder / "rows")
    with pytest.raises(DataGone, match=r"needs the rows of 'in' in .*; got no such folder"):
        source.reader(start)


def test_a_first_start_that_fails_leaves_nothing(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in.csv").write_text("1\nx\n")
    source = ms.Spark("csv", path=tmp_path / "in.csv", schema="n long")
    start = opened_in(tmp_path, spark)
    with pytest.raises(MillstreamError, match=r"needs rows that Spark can read; got .*x"):
        source.reader(start)
    assert start.folder is not None
    assert list(start.folder.iterdir()) == []


def test_no_rows_are_a_source_without_rows(tmp_path: Path, spark: SparkSession) -> None:
    spark.range(0).write.parquet(str(tmp_path / "in"))
    assert read_all(ms.Spark("parquet", path=tmp_path / "in"), tmp_path) == []


def test_a_header_in_another_order_is_not_swapped(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in.csv").write_text("a,b\n1,2\n")
    source = ms.Spark("csv", path=tmp_path / "in.csv", header=True, schema="b long, a long")
    with pytest.raises(MillstreamError, match=r"can read; got .*header"):
        read_all(source, tmp_path)


def test_drive_reads_it(tmp_path: Path, spark: SparkSession) -> None:
    spark.range(3).write.json(str(tmp_path / "in"))
    rows = ms.read(ms.Spark("json", path=tmp_path / "in", schema="id long"))
    with Drive(ms.Pipeline("p", rows.to(ms.Topic("out"), name="out"))) as drive:
        drive.finish()
        assert sorted(row["id"] for row in drive.rows("out")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": "other long"}, "needs the column 'other', which schema= names; got id, text"),
        ({"schema": "text long"}, "needs text as long, as schema= says; got string; write text"),
        ({"path": "nowhere", "schema": "id long"}, "needs rows that Spark finds; got .*nowhere"),
    ],
)
def test_what_spark_does_not_find_is_refused_before_the_first_batch(
    tmp_path: Path, spark: SparkSession, options: dict[str, Any], message: str
) -> None:
    spark.range(3).selectExpr("id", "'x' as text").write.parquet(str(tmp_path / "in"))
    batches: list[object] = []
    with pytest.raises(InvalidSpec, match=message):
        read_all(ms.Spark("parquet", **{"path": tmp_path / "in", **options}), tmp_path,
                 on_batch=lambda facts, lag: batches.append(facts))  # fmt: skip
    assert not batches


def test_a_format_that_spark_does_not_have_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(InvalidSpec, match="the data source 'glacier'; got no such one; add its"):
        ms.read(ms.Spark("glacier", path=tmp_path))


@pytest.mark.parametrize(
    ("column", "type_"),
    [("interval 1 day", "interval day"), ("parse_json('{}')", "variant"), ("null", "void"),
     ("array(named_struct('a', parse_json('{}')))", "array<struct<a:variant>>"),
     ("time'10:00:00'", "time")],
)  # fmt: skip
def test_a_type_that_millstream_does_not_have_is_refused_by_name(
    tmp_path: Path, spark: SparkSession, column: str, type_: str
) -> None:
    spark.sql(f"select {column} as odd, 1 as n").createOrReplaceTempView("doors_odd")
    with pytest.raises(InvalidSpec, match=f"needs columns of types .*; got odd {type_}"):
        ms.read(ms.Spark.table("doors_odd"))
    assert read_all(ms.Spark.table("doors_odd", schema="n int"), tmp_path) == [{"n": 1}]


def test_a_column_that_the_first_start_did_not_read_is_refused(
    tmp_path: Path, spark: SparkSession
) -> None:
    spark.sql("select 1 as a, 2 as b").write.parquet(str(tmp_path / "in"))
    start = opened_in(tmp_path, spark)
    ms.Spark("parquet", path=tmp_path / "in", schema="a int").reader(start)
    with pytest.raises(InvalidSpec, match="has read 'in' with the columns a; got a schema that ad"):
        ms.Spark("parquet", path=tmp_path / "in", schema="a int, b int").reader(start)


def test_as_of_needs_the_times_of_the_rows(spark: SparkSession) -> None:
    table = ms.table(ms.Spark("parquet", path="in", schema="id long"), key="id")
    events = ms.read(ms.Memory([], schema="id long, at timestamp"), time="at")
    with pytest.raises(InvalidSpec, match="as_of needs a table whose rows have event times"):
        events.as_of(table, on="id")
