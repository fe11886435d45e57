"""`ForeachBatch`: the suite of all sinks, and its own tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.sinks.batches import opened, staged

import millstream as ms
from millstream.errors import UserCodeFailed
from millstream.testing.sink_suite import SinkSuite

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from millstream.sinks.spec import Opening, OpenSink


class TestForeachBatch(SinkSuite):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, spark: SparkSession) -> None:
        self.folder, self.spark = tmp_path, spark
        self.calls: list[tuple[list[dict[str, Any]], int]] = []

    def sink(self) -> ms.ForeachBatch:
        return ms.ForeachBatch(self.take)

    def take(self, df: DataFrame, batch_id: int) -> None:
        self.calls.append((df.toArrow().to_pylist(), batch_id))

    def opening(self, sink: OpenSink, **options: Any) -> Opening:
        mine = {"spark": lambda: self.spark, "folder": self.folder / "ledger"}
        return super().opening(sink, **mine, **options)

    def rows(self) -> list[dict[str, Any]]:
        return [row for rows, _ in self.calls for row in rows]

    def test_the_function_gets_the_rows_and_the_number_of_the_batch(self) -> None:
        writer, _ = self.recovered()
        writer.write("one", 1, self.numbers(1, 2))
        writer.write("two", 5, self.numbers(3))
        assert self.calls == [([{"n": 1}, {"n": 2}], 1), ([{"n": 3}], 5)]


def second_by_second(*numbers: int) -> ms.Stream:
    rows = [{"k": 1, "n": n, "at": f"2026-01-01 00:00:{n:02d}"} for n in numbers]
    return ms.read(ms.Memory(rows, schema="k long, n long, at timestamp"), time="at")


CALLS: list[tuple[int, int]] = []


def flaky(df: DataFrame, batch_id: int) -> None:
    CALLS.append((batch_id, df.count()))
    if len(CALLS) == 1:
        raise OSError("the disk is gone")


def test_a_batch_that_failed_is_passed_again_with_the_same_id(
    tmp_path: Path, spark: SparkSession
) -> None:
    CALLS.clear()
    job = ms.Pipeline("p", second_by_second(1, 2, 3).to(ms.ForeachBatch(flaky)))
    with pytest.raises(UserCodeFailed, match=r"'flaky' of the output 'flaky' raised OSError: the "
                       r"disk is gone; see .*test_foreach_batch\.py:"):  # fmt: skip
        job.run(until="finished", checkpoint=tmp_path / "job")
    job.run(until="finished", checkpoint=tmp_path / "job")
    assert CALLS[0] == CALLS[1]
    assert sum(count for _, count in CALLS[1:]) == 3
    job.run(until="finished", checkpoint=tmp_path / "job")
    assert len(CALLS) == 2


def test_the_dataframe_can_be_written_as_in_structured_streaming(
    tmp_path: Path, spark: SparkSession
) -> None:
    def save(df: DataFrame, batch_id: int) -> None:
        df.persist()
        df.write.mode("overwrite").parquet(str(tmp_path / "out" / f"batch={batch_id}"))
        df.unpersist()

    counts = (
        second_by_second(*range(30)).by("k").window(ms.tumbling("10 seconds")).agg(n=ms.count())
    )
    ms.Pipeline("p", counts.to(ms.ForeachBatch(save))).run(
        until="finished", checkpoint=tmp_path / "job"
    )
    found = spark.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()
    assert [row["n"] for row in found] == [10, 10, 10]
    assert {"k", "window_start", "window_end", "n", "batch"} == set(found[0])


def test_retractions_have_their_sign(tmp_path: Path, spark: SparkSession) -> None:
    seen: list[dict[str, Any]] = []
    sink = ms.ForeachBatch(lambda df, batch_id: seen.extend(df.toArrow().to_pylist()))
    table = pa.table({"n": [1, 2], "_time": [0, 0], "_sign": pa.array([-1, 1], pa.int8())})
    writer = opened(sink, spark=lambda: spark, folder=tmp_path / "ledger")
    writer.write("one", 1, [staged(sink, table=table)])
    writer.write("two", 2, [staged(sink, table=table.slice(1))])
    assert seen == [{"n": 1, "_sign": -1}, {"n": 2, "_sign": 1}, {"n": 2}]


def test_many_rows_of_the_wide_lane_arrive_once(tmp_path: Path, spark: SparkSession) -> None:
    counts: list[int] = []
    sink = ms.ForeachBatch(lambda df, batch_id: counts.append(df.count()), name="counted")
    spark.range(100_000).write.parquet(str(tmp_path / "in"))
    rows = ms.read(ms.Files(tmp_path / "in" / "*.parquet", schema="id long"))
    ms.Pipeline("p", rows.by("id").agg(n=ms.count()).to(sink)).run(
        until="finished", checkpoint=tmp_path / "job", lane="wide"
    )
    assert sum(counts) == 100_000
