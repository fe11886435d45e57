"""The event-time rows: hopping windows, sessions, distinct, drained from topic to topic.

Each answer is compared with DuckDB's, which groups the same records in SQL.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import duckdb

from benchmarks.cells import DELAY, filled, turns
from benchmarks.nexmark import Load
from benchmarks.oracle import chunks, loaded, written
from benchmarks.processes import work
from millstream.testing import broker

if TYPE_CHECKING:
    from benchmarks.oracle import Check
    from benchmarks.report import Round

SIZE, EVERY, GAP = 10, 1, 1
_BIDS = """select partition, (value->>'auction')::bigint auction,
                  (value->>'bidder')::bigint bidder, (value->>'ts')::bigint ts from piece"""
_MARK = f"(select min(t) from (select max(ts) t from bids group by partition)) - {DELAY * 1000}"
_GOT = """select (value->>'{key}')::bigint key, (value->>'n')::bigint n,
                 epoch_ms((value->>'window_start')::timestamptz) first,
                 epoch_ms((value->>'window_end')::timestamptz) last from piece"""
_HOPPING = f"""
    select key, first, first + {SIZE * 1000} last, count(*) n
    from (select auction key, (ts // {EVERY * 1000} - hop) * {EVERY * 1000} first
          from bids, range({SIZE // EVERY}) hops(hop))
    group by key, first"""
_SESSION = f"""
    with apart as (select bidder, ts, ts - lag(ts) over each > {GAP * 1000} as new
                   from bids window each as (partition by bidder order by ts)),
         numbered as (select bidder, ts, count(*) filter (where new) over
                      (partition by bidder order by ts rows unbounded preceding) as place
                      from apart)
    select bidder key, min(ts) first, max(ts) + {GAP * 1000} last, count(*) n
    from numbered group by bidder, place"""


class Expected:
    """Every window of a topic, and whether its result is due."""

    def __init__(self, address: str, topic: str, sql: str, key: str) -> None:
        self._address, self._key, self._db = address, key, duckdb.connect()
        loaded(self._db, "bids", chunks(address, topic), _BIDS)
        self._db.execute(f"create table expected as {sql}")
        self._db.execute(f"create table due as from expected where last < {_MARK}")

    def check(self, out: str) -> Check:
        """Compare an output topic: every window right and once, no due window missing."""
        self._db.execute("drop table if exists got")
        loaded(self._db, "got", written(self._address, out), _GOT.format(key=self._key))
        return {
            "checked": self._one("from got"),
            "faults": {
                "missing": self._one("from due anti join got using (key, first)"),
                "twice": self._one("from (from got select key, first "
                                   "group by 1, 2 having count(*) > 1)"),
                "wrong": self._one("from got anti join expected using (key, first, last, n)"),
            },
        }  # fmt: skip

    def _one(self, sql: str) -> int:
        return int(self._db.execute(f"select count(*) {sql}").fetchall()[0][0])


class Once:
    """The keys of a topic, each of which is expected once, with one of its rows."""

    def __init__(self, address: str, topic: str) -> None:
        self._address, self._db = address, duckdb.connect()
        loaded(self._db, "bids", chunks(address, topic), _BIDS)

    def check(self, out: str) -> Check:
        """Compare an output topic."""
        columns = """select (value->>'auction')::bigint auction,
                            (value->>'bidder')::bigint bidder from piece"""
        self._db.execute("drop table if exists got")
        loaded(self._db, "got", written(self._address, out), columns)
        asked = {
            "missing": "select count(distinct auction) from bids anti join got using (auction)",
            "twice": "select count(*) - count(distinct auction) from got",
            "wrong": "select count(*) from got anti join bids using (auction, bidder)",
        }
        rows = self._db.execute("select count(*) from got").fetchall()[0][0]
        return {"checked": rows, "faults": {name: self._db.execute(sql).fetchall()[0][0]
                                            for name, sql in asked.items()}}  # fmt: skip


def hopping(engines: tuple[str, ...]) -> bool:
    """Count per key (10 k keys) in windows of 10 s every second."""
    return _drained("hopping", engines, keys=10_000, sql=_HOPPING, key="auction")


def session(engines: tuple[str, ...]) -> bool:
    """Count per key (50 k keys) in sessions with a gap of one second."""
    return _drained("session", engines, keys=100_000, sql=_SESSION, key="bidder")


def distinct(engines: tuple[str, ...]) -> bool:
    """The first row of each of a million keys."""
    return _drained("distinct", engines, keys=1_000_000, sql=None, key="auction")


def _drained(row: str, engines: tuple[str, ...], *, keys: int, sql: str | None, key: str) -> bool:
    with broker() as running:
        topic, warm = filled(running.address, Load(0, keys=keys))
        expected: Expected | Once = (
            Once(running.address, topic) if sql is None
            else Expected(running.address, topic, sql, key)
        )  # fmt: skip

        def cell(engine: str) -> Round:
            out = f"out-{uuid.uuid4().hex[:8]}"
            spec: dict[str, Any] = {
                "topic": topic, "warm": warm, "out": out, "work": row, "batch": "3 seconds",
                "window": f"{SIZE} seconds", "every": f"{EVERY} seconds", "gap": f"{GAP} seconds",
                "delay": f"{DELAY} seconds", "rows": 500_000,
            }  # fmt: skip
            figures = work(engine, "drain", running.address, spec)
            return {**figures, "check": expected.check(out)}

        return turns(row, engines, cell, keys)
