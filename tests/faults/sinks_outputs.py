"""Outputs of the job under test to every kind of sink, besides its topics."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import millstream as ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millstream.plan.graph import Output


def outputs_of(folder: str, database: str, windows: ms.Stream, once: ms.Stream) -> list[Output]:
    """Tables with a key, and append-only tables, which show rows that were sent twice."""
    place = Path(folder)
    return [
        windows.to(ms.Postgres("windows", key=["key", "window_start"], url=database),
                   name="postgres-windows"),
        once.to(ms.Postgres("once", url=database), name="postgres-once"),
        windows.to(ms.Sqlite(place / "out.db", "windows"), name="sqlite-windows"),
        once.to(ms.Sqlite(place / "out.db", "once", key="id"), name="sqlite-once"),
        windows.to(ms.Files(place / "windows"), name="files-windows"),
        once.to(ms.Delta(place / "once"), name="delta-once"),
        windows.to(ms.Delta(place / "by-key", key=["key", "window_start"]), name="delta-windows"),
    ]  # fmt: skip


def frames_of(folder: str, windows: ms.Stream, once: ms.Stream) -> list[Output]:
    """Outputs to Spark's writer and to a function of DataFrames, which notes each call."""
    place = Path(folder)

    def note(df: DataFrame, batch_id: int) -> None:
        columns = df.selectExpr("id", "key", "amount", "unix_micros(ts)")
        rows = [list(row) for row in columns.collect()]
        call = place / "calls" / uuid.uuid4().hex
        call.with_suffix(".new").write_text(json.dumps({"batch": batch_id, "rows": rows}))
        call.with_suffix(".new").rename(call.with_suffix(".json"))

    return [
        once.to(ms.Spark("parquet", path=place / "once"), name="spark-once"),
        windows.to(ms.Spark("parquet", path=place / "windows"), name="spark-windows"),
        once.to(ms.ForeachBatch(note), name="function-once"),
    ]


SYSTEMS = ("kafka", "postgres", "sqlite", "files", "delta once", "delta windows")
