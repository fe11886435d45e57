"""`Spark` as a sink: the suite of all sinks, and its own tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.errors import InvalidSpec, Unavailable
from millstream.sinks.spark.sink import SparkSink
from millstream.testing.sink_suite import SinkSuite

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.sinks.spec import Opening, OpenSink

SPARK: Any = ms.Spark
FOREACH: Any = ms.ForeachBatch


class TestSpark(SinkSuite):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, spark: SparkSession) -> None:
        self.folder, self.spark = tmp_path, spark

    def sink(self) -> SparkSink:
        return SparkSink(ms.Spark("parquet", path=self.folder / "out"))

    def opening(self, sink: OpenSink, **options: Any) -> Opening:
        mine = {"spark": lambda: self.spark, "folder": self.folder / "ledger"}
        return super().opening(sink, **mine, **options)

    def rows(self) -> list[dict[str, Any]]:
        if not (self.folder / "out").exists():
            return []
        rows = self.spark.read.parquet(str(self.folder / "out"))
        return list(rows.toArrow().to_pylist())

    def test_a_batch_that_was_sent_but_not_recorded_is_sent_again(self) -> None:
        writer, _ = self.recovered()
        writer.write("one", 1, self.numbers(1))
        ledger = self.folder / "ledger" / "_millstream"
        before = {path.name: path.read_bytes() for path in ledger.iterdir()}
        writer.write("two", 2, self.numbers(2))
        for path in ledger.iterdir():
            path.unlink()
        for name, body in before.items():
            (ledger / name).write_bytes(body)
        writer, found = self.recovered("one", epoch=2)
        assert found == "one"
        writer.write("two", 2, self.numbers(2))
        assert self.counted() == {1: 1, 2: 2}

    def test_the_ledger_stays_small(self) -> None:
        writer, _ = self.recovered()
        for batch in range(1, 5):
            writer.write(str(batch), batch, self.numbers(batch))
        assert len(list((self.folder / "ledger" / "_millstream").iterdir())) == 1


def numbers(*values: int) -> ms.Stream:
    return ms.read(ms.Memory([{"n": value} for value in values], schema="n long"))


def pipeline(sink: ms.Spark, *values: int) -> ms.Pipeline:
    return ms.Pipeline("numbers", numbers(*values).to(sink))


def test_a_finished_job_that_runs_again_writes_nothing(tmp_path: Path, spark: SparkSession) -> None:
    job = pipeline(ms.Spark("json", path=tmp_path / "out"), 1, 2, 3)
    for _ in range(2):
        job.run(until="finished", checkpoint=tmp_path / "job")
    assert sorted(row.n for row in spark.read.json(str(tmp_path / "out")).collect()) == [1, 2, 3]


def test_a_table_of_a_catalog_is_created_and_appended_to(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ms.Spark.table("doors_numbers")
    spark.sql(f"create table doors_numbers (n bigint) using parquet location '{tmp_path}/table'")
    try:
        pipeline(sink, 1, 2).run(until="finished", checkpoint=tmp_path / "job")
        assert spark.table("doors_numbers").count() == 2
    finally:
        spark.sql("drop table doors_numbers")


def test_rows_go_to_a_database_by_jdbc(tmp_path: Path, spark: SparkSession, derby: str) -> None:
    sink = ms.Spark("jdbc", url=derby, dbtable="numbers", name="numbers")
    pipeline(sink, 4, 5).run(until="finished", checkpoint=tmp_path / "job")
    found = spark.read.format("jdbc").options(url=derby, dbtable="numbers").load()
    assert sorted(row.n for row in found.collect()) == [4, 5]


def test_a_format_that_spark_does_not_have_is_refused_before_the_first_batch(
    tmp_path: Path, spark: SparkSession
) -> None:
    job = pipeline(ms.Spark("glacier", path=tmp_path / "out"), 1)
    batches: list[object] = []
    with pytest.raises(InvalidSpec, match="Spark needs the data source 'glacier'; got no such one"):
        job.run(until="finished", checkpoint=tmp_path / "job",
                on_batch=lambda facts, lag: batches.append(facts))  # fmt: skip
    assert not batches


def test_a_target_that_refuses_rows_stops_the_job_without_secrets(
    tmp_path: Path, spark: SparkSession, derby: str
) -> None:
    sink = ms.Spark("jdbc", url="jdbc:derby:memory:none", dbtable="t", password="hunter2")
    with pytest.raises(Unavailable, match=r"needs to take batch 1 of the output 't'; got .*none"
                       ) as error:  # fmt: skip
        pipeline(sink, 1).run(until="finished", checkpoint=tmp_path / "job")
    assert "hunter2" not in str(error.value)


def test_columns_that_do_not_fit_stop_the_job(
    tmp_path: Path, spark: SparkSession, derby: str
) -> None:
    spark.range(1).selectExpr("id as other").write.format("jdbc").options(
        url=derby, dbtable="others").save()  # fmt: skip
    with pytest.raises(InvalidSpec, match="needs to take batch 1 of the output 'others'; got "):
        pipeline(ms.Spark("jdbc", url=derby, dbtable="others"), 1).run(
            until="finished", checkpoint=tmp_path / "job"
        )


def test_rows_that_are_retracted_are_refused_while_building(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="needs rows that stay; got a table"):
        numbers(1).latest(by="n").to(ms.Spark("parquet", path=tmp_path))


def test_the_driver_alone_is_refused_while_building(tmp_path: Path) -> None:
    for place in (ms.Spark("parquet", path="out"), ms.ForeachBatch(print)):
        with pytest.raises(InvalidSpec, match='engine="driver" needs sources and sinks that work'):
            ms.Pipeline("p", numbers(1).to(place), engine="driver")
    rows = ms.read(ms.Spark("parquet", path="in", schema="n long"))
    with pytest.raises(InvalidSpec, match='engine="driver" needs sources and sinks that work'):
        ms.Pipeline("p", rows.to(ms.Memory()), engine="driver")


def test_plans_and_reprs_show_no_secret() -> None:
    sink = ms.Spark("jdbc", url="jdbc:x://me:hunter2@db/shop?password=hunter2", dbtable="shop.t",
                    password="hunter2", user="${env:SHOP_USER}")  # fmt: skip
    text = pipeline(sink, 1).plan()
    assert "hunter2" not in text + repr(sink) + sink.system
    assert "${env:SHOP_USER}" in repr(sink)
    assert "at least once" in text


def test_a_missing_variable_is_named_before_the_first_batch(
    tmp_path: Path, spark: SparkSession, derby: str
) -> None:
    sink = ms.Spark("jdbc", url=derby, dbtable="t", password="${env:DOORS_PASSWORD}")
    with pytest.raises(InvalidSpec, match="needs the environment variable DOORS_PASSWORD"):
        pipeline(sink, 1).run(until="finished", checkpoint=tmp_path / "job")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ms.Spark(""), "Spark needs the name of a format; got ''"),
        (lambda: ms.Spark.table("a..b"), "Spark.table needs the name of a table; got 'a..b'"),
        (lambda: SPARK("csv", header=None), "header=…. needs a text, a number or a boolean"),
        (lambda: SPARK("csv", schema=7), "schema=…. needs columns as text; got 7"),
        (lambda: ms.Spark("csv", name=""), "name=…. needs a name; got ''"),
        (lambda: FOREACH("f"), "ForeachBatch needs a callable; got 'f'"),
    ],
)
def test_a_bad_value_is_refused_while_building(make: Any, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        make()


def test_a_rewind_into_new_outputs_renames_path_or_table() -> None:
    assert dict(ms.Spark("parquet", path="out/").into("-2").options) == {"path": "out-2"}
    assert ms.Spark.table("a.b").into("_2").catalog_table == "a.b_2"
    with pytest.raises(InvalidSpec, match="new outputs need sinks with a path or a table"):
        ms.Spark("noop").into("-2")
