"""Verifies tables and files: reads them with other libraries, compares with DuckDB.

    python -m tests.faults.sinks_verifier '{"kafka": …, "topic": …, "database": …, "folder": …}'

It does not import Millstream. It prints JSON, per sink: rows lost, doubled, unexpected (phantom) or
wrong.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from deltalake import DeltaTable
from tests.faults.verifier import SIZE, Log, compared, expected, micros

Rows = list[tuple[Any, Any]]
_START = "(extract(epoch from window_start) * 1000000)::bigint"
_TS = "(extract(epoch from ts) * 1000000)::bigint"


def in_postgres(url: str) -> dict[str, Rows]:
    with psycopg.connect(url) as connection:
        windows = connection.execute(f"select key, {_START}, n, total from windows").fetchall()
        once = connection.execute(f"select id, key, amount, {_TS} from once").fetchall()
    return {"postgres windows": _windows(windows), "postgres once": _once(once)}


def in_sqlite(path: Path) -> dict[str, Rows]:
    connection = sqlite3.connect(path)
    windows = connection.execute("select key, window_start, n, total from windows").fetchall()
    once = connection.execute("select id, key, amount, ts from once").fetchall()
    connection.close()
    return {
        "sqlite windows": _windows([(k, micros(s), n, total) for k, s, n, total in windows]),
        "sqlite once": _once([(i, k, a, micros(ts)) for i, k, a, ts in once]),
    }


def in_files(folder: Path) -> dict[str, Rows]:
    question = f"select key, epoch_us(window_start), n, total from '{folder}/*.parquet'"
    return {"files windows": _windows(duckdb.connect().execute(question).fetchall())}


def in_delta(once: Path, by_key: Path) -> dict[str, Rows]:
    base = duckdb.connect()
    base.register("once", DeltaTable(once).to_pyarrow_table())
    base.register("windows", DeltaTable(by_key).to_pyarrow_table())
    rows = base.execute("select id, key, amount, epoch_us(ts) from once").fetchall()
    panes = base.execute("select key, epoch_us(window_start), n, total from windows").fetchall()
    return {"delta once": _once(rows), "delta windows": _windows(panes)}


def _windows(rows: list[Any]) -> Rows:
    return [((key, int(start)), (n, total)) for key, start, n, total in rows]


def _once(rows: list[Any]) -> Rows:
    return [(i, (key, amount, int(at))) for i, key, amount, at in rows]


def verify(
    kafka: str, topic: str, database: str, folder: str, *, finished: bool = True
) -> dict[str, Any]:
    """The verdict on the tables and files of one job."""
    log, place = Log(kafka), Path(folder)
    records = log.records(topic, log.topics()[topic])
    windows, once, watermark = expected([(r.partition(), r.offset(), r.value()) for r in records])
    early = {key for key in windows if key[1] + SIZE * 1_000_000 > watermark}
    found = {
        **in_postgres(database),
        **in_sqlite(place / "out.db"),
        **in_files(place / "windows"),
        **in_delta(place / "once", place / "by-key"),
    }
    verdict: dict[str, Any] = {
        name: compared(once, rows, set())
        if name.endswith("once")
        else compared(windows, rows, set() if finished else early)
        for name, rows in found.items()
    }
    kinds = ("lost", "doubled", "phantom", "wrong")
    verdict["green"] = not any(part[kind] for part in verdict.values() for kind in kinds)
    return verdict


if __name__ == "__main__":
    print(json.dumps(verify(**json.loads(sys.argv[1]))))
    assert not any(name.partition(".")[0] == "millstream" for name in sys.modules)
