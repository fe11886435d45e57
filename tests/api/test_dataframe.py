"""`Pipeline.dataframe`: the rows of an output in a notebook."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.errors import InvalidInput
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS = [{"k": n % 3, "n": n, "at": f"2026-01-01 00:00:{n:02d}"} for n in range(30)]
SCHEMA = "k long, n long, at timestamp"


def views(rows: list[dict[str, Any]] = ROWS) -> ms.Stream:
    return ms.read(ms.Memory(rows, schema=SCHEMA), time="at")


def per_window() -> ms.Stream:
    return views().by("k").window(ms.tumbling("10 seconds")).agg(n=ms.count())


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return list(frame.toArrow().to_pylist())


def test_an_output_is_a_dataframe_and_its_sink_gets_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    kept = ms.Memory("kept")
    job = ms.Pipeline("notebook", per_window().to(ms.Files(tmp_path / "out"), name="counts"),
                      views().to(kept))  # fmt: skip
    counts = job.dataframe("counts")
    assert counts.columns == ["k", "window_start", "window_end", "n"]
    assert counts.groupBy("k").sum("n").count() == 3
    assert sum(row["n"] for row in rows_of(counts)) == 30
    assert not (tmp_path / "out").exists()
    assert kept.rows == []
    assert rows_of(job.dataframe("counts")) == rows_of(counts)
    assert not (home_folder() / "jobs" / "notebook").exists()


def test_a_table_has_the_rows_as_they_are_at_the_end(spark: SparkSession) -> None:
    totals = views().by("k").agg(n=ms.sum("n"))
    job = ms.Pipeline("totals", totals.to(ms.Sqlite("x.db", "t", key="k"), name="t"))
    frame = job.dataframe("t")
    assert sorted(rows_of(frame), key=lambda row: row["k"]) == [
        {"k": 0, "n": 135}, {"k": 1, "n": 145}, {"k": 2, "n": 155}]  # fmt: skip


def test_a_table_for_a_function_has_its_own_key(spark: SparkSession) -> None:
    latest = views().latest(by="k")
    frame = ms.Pipeline("latest", latest.to(ms.Function(print))).dataframe("print")
    assert sorted(row["n"] for row in rows_of(frame)) == [27, 28, 29]


def test_no_rows_have_their_columns(spark: SparkSession) -> None:
    job = ms.Pipeline("none", views().where("n > 100").select("n", "at").to(ms.Memory("out")))
    frame = job.dataframe("out", until="caught_up")
    assert frame.dtypes == [("n", "bigint"), ("at", "timestamp")]
    assert frame.isEmpty()


def test_bad_rows_are_counted_in_a_warning(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"k": 1, "n": "x", "at": None}]
    with caplog.at_level(logging.WARNING, "millstream.job"):
        frame = ms.Pipeline("bad", views(rows).to(ms.Memory("out"))).dataframe("out", spark=spark)
    assert frame.count() == 30
    assert [record.getMessage() for record in caplog.records] == [
        "out: 0 late and 1 bad rows are not in the DataFrame"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output": "nothing"}, "an output of the pipeline; got 'nothing'; name one of out"),
        ({"output": "out", "until": None}, 'until="caught_up" or "finished"; got None'),
        ({"output": "out", "checkpoint": "x"}, "needs no checkpoint=: .*; leave it out"),
        ({"output": "out", "take_over": True}, "needs no take_over=: .*; leave it out"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ms.Pipeline("p", views().to(ms.Memory("out"))).dataframe(**arguments)
