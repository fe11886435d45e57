"""Late corrections: a table with a key holds the last result of each window."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from tests.faults import verifier
from tests.faults.driver import DELAY, SCHEMA, SIZE
from tests.faults.small_world import TOPIC, Small
from tests.faults.test_sinks_delivery import Outside

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KEY = ["key", "window_start"]


def add_late(small: Small, seconds: range) -> None:
    """Add rows for windows that were already emitted."""
    for second in seconds:
        row = {"id": 0, "key": second % 3, "amount": 1000, "ts": f"2026-01-01T00:00:{second:02d}Z"}
        record = {"key": None, "value": json.dumps(row).encode(), "headers": None,
                  "timestamp": None}  # fmt: skip
        small.environment.log.append(TOPIC, 0, record)


@pytest.mark.parametrize("panes", ["accumulating", "retracting"])
def test_a_table_with_a_key_holds_the_last_result_of_every_window(
    tmp_path: Path, spark: SparkSession, database: str,
    panes: Literal["accumulating", "retracting"],
) -> None:  # fmt: skip
    rows = ms.read(ms.Topic(TOPIC, schema=SCHEMA), time="ts", watermark=DELAY, idle=None)
    windows = (
        rows.by("key").window(ms.tumbling(SIZE)).trigger(late=ms.each(), panes=panes)
        .late(keep="1 hour").agg(n=ms.count(), total=ms.sum("amount"))
    )  # fmt: skip
    pipeline = ms.Pipeline(
        "small",
        windows.to(ms.Postgres("windows", key=KEY, url=database)),
        windows.to(ms.Sqlite(tmp_path / "out.db", "windows", key=KEY), name="sqlite"),
        windows.to(ms.Delta(tmp_path / "lake", key=KEY)),
        windows.select("key", "window_start", "window_end", "n * 2 as twice").to(
            ms.Postgres("twice", key=KEY, url=database)
        ),
    )
    small = Small(tmp_path / "checkpoint", spark, pipeline)
    small.environment = Outside("exactly_once")
    for _ in range(2):
        small.feed(24)
        small.step()
        add_late(small, range(3, 20, 4))
        small.step()
    small.finish()

    parts = small.environment.log.records[TOPIC]
    wanted, _, _ = verifier.expected(
        [(p, r["offset"], r["value"]) for p in parts for r in parts[p]]
    )
    for place, found in tables(database, tmp_path).items():
        verdict = verifier.compared(wanted, found, set())
        assert not any(verdict[k] for k in ("lost", "doubled", "phantom", "wrong")), place
    twice = {key: (2 * n,) for key, (n, _) in wanted.items()}
    assert dict(asked(database, "twice", "twice")) == twice
    password = database.partition("@")[0].rpartition(":")[2].encode()
    files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if password in path.read_bytes()]


def tables(database: str, folder: Path) -> dict[str, list[tuple[Any, Any]]]:
    base = duckdb.connect()
    base.execute("SET TimeZone = 'UTC'")
    base.register("lake", DeltaTable(folder / "lake").to_pyarrow_table())
    connection = sqlite3.connect(folder / "out.db")
    lite = connection.execute("select key, window_start, n, total from windows").fetchall()
    connection.close()
    delta = base.execute("select key, epoch_us(window_start), n, total from lake").fetchall()
    return {
        "postgres": asked(database, "windows", "n, total"),
        "sqlite": [((k, verifier.micros(at)), (n, t)) for k, at, n, t in lite],
        "delta": [((k, at), (n, t)) for k, at, n, t in delta],
    }


def asked(database: str, table: str, values: str) -> list[tuple[Any, Any]]:
    start = "(extract(epoch from window_start) * 1000000)::bigint"
    with psycopg.connect(database) as connection:
        found = connection.execute(f"select key, {start}, {values} from {table}".encode())
        return [((key, at), tuple(rest)) for key, at, *rest in found.fetchall()]


def test_late_rows_go_to_a_table_given_as_rest(tmp_path: Path, spark: SparkSession) -> None:
    rows = ms.read(ms.Topic(TOPIC, schema=SCHEMA), time="ts", watermark=DELAY, idle=None)
    path = tmp_path / "out.db"
    windows = (
        rows.by("key").window(ms.tumbling(SIZE)).late(rest=ms.Sqlite(path, "late"))
        .agg(n=ms.count())
    )  # fmt: skip
    small = Small(tmp_path / "checkpoint", spark,
                  ms.Pipeline("small", windows.to(ms.Sqlite(path, "windows"))))  # fmt: skip
    small.environment = Outside("exactly_once")
    small.feed(24)
    small.step()
    add_late(small, range(3, 6))
    small.step()

    connection = sqlite3.connect(path)
    late = connection.execute("select reason, row from late").fetchall()
    marks = dict(connection.execute("select target, intent from millstream_ledger").fetchall())
    connection.close()
    assert sorted(json.loads(row)["ts"] for _, row in late) == [
        f"2026-01-01T00:00:0{second}.000000Z" for second in (3, 4, 5)
    ]
    assert marks["late"] == marks["windows"]
