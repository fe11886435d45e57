"""Joins: two topics of bids joined within a second, and bids as of a table of prices.

Each answer is compared with DuckDB's, which joins the same records in SQL. There is no
as-of join in Spark's streaming; Flink calls it a temporal join.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import duckdb

from benchmarks.cells import DELAY, EVENTS, SPAN, WARM, filled, turns
from benchmarks.nexmark import Load, fill
from benchmarks.oracle import chunks, loaded, written
from benchmarks.processes import work
from millstream.testing import broker

if TYPE_CHECKING:
    from benchmarks.oracle import Check
    from benchmarks.report import Round

KEYS = 100_000
WITHIN = 1
CHANGES = 100  # of so many events one changes the table
_FIELDS = """select (value->>'auction')::bigint auction, (value->>'bidder')::bigint bidder,
                    (value->>'price')::double price, (value->>'ts')::bigint ts from piece"""
_GOT = """select (value->>'auction')::bigint auction, (value->>'bidder')::bigint bidder,
                 (value->>'price')::double price from piece"""
_JOIN = f"""select l.auction, l.bidder, r.price from ours l join theirs r
            on l.auction = r.auction and abs(l.ts - r.ts) <= {WITHIN * 1000}"""
_AS_OF = """select l.auction, l.bidder, r.price from ours l
            asof join (select auction, ts, any_value(price) price, count(*) n from theirs
                       group by auction, ts) r on l.auction = r.auction and l.ts >= r.ts
            where l.ts < (select max(ts) from theirs) - {behind} and r.n = 1"""


class Pairs:
    """The expected rows of a join of two topics, and how many of each."""

    def __init__(self, address: str, topics: tuple[str, str], sql: str) -> None:
        self._address, self._db = address, duckdb.connect()
        for name, topic in zip(("ours", "theirs"), topics, strict=True):
            loaded(self._db, name, chunks(address, topic), _FIELDS)
        self._db.execute(f"create table expected as select *, count(*) n from ({sql}) group by all")

    def check(self, out: str, *, more: bool = False) -> Check:
        """Compare an output topic; there may be `more` rows than those that are due."""
        self._db.execute("drop table if exists got")
        loaded(self._db, "got", written(self._address, out), _GOT)
        self._db.execute("create or replace table counted as "
                         "select *, count(*) n from got group by all")  # fmt: skip
        both = "from expected e full join counted c using (auction, bidder, price) where"
        faults = {"missing": self._one(f"{both} coalesce(c.n, 0) < coalesce(e.n, 0)")}
        if not more:
            faults["phantom"] = self._one(f"{both} coalesce(c.n, 0) > coalesce(e.n, 0)")
        return {"checked": self._one("from got"), "faults": faults}

    def _one(self, sql: str) -> int:
        return int(self._db.execute(f"select count(*) {sql}").fetchall()[0][0])


def join(engines: tuple[str, ...]) -> bool:
    """Two topics of bids, 100 k keys: pairs of one auction at most a second apart."""
    with broker() as running:
        topic, warm = filled(running.address, Load(0, keys=KEYS))
        other, _ = fill(running.address, _other(EVENTS, 1))
        warm_other, _ = fill(running.address, _other(WARM, 1))
        expected = Pairs(running.address, (topic, other), _JOIN)

        def cell(engine: str) -> Round:
            out = f"out-{uuid.uuid4().hex[:8]}"
            spec = {
                "topic": topic, "other": other, "warm": warm, "warm_other": warm_other, "out": out,
                "work": "join", "within": f"{WITHIN} second", "delay": f"{DELAY} seconds",
                "batch": "3 seconds", "rows": 500_000,
            }  # fmt: skip
            figures = work(engine, "drain", running.address, spec)
            return {**figures, "check": expected.check(out)}

        return turns("join", engines, cell, KEYS)


def as_of(engines: tuple[str, ...]) -> bool:
    """Bids with the price that a table of 100 k keys, one change in 100 events, had then.

    The changes lie in one partition: of changes that come out of order Flink's view, which keeps
    the last row of a key, drops the older ones, and its answer lacks those versions.
    """
    with broker() as running:
        topic, warm = filled(running.address, Load(0, keys=KEYS))
        other, _ = fill(running.address, _other(EVENTS, CHANGES), partitions=1)
        warm_other, _ = fill(running.address, _other(WARM, CHANGES), partitions=1)
        sql = _AS_OF.format(behind=2 * DELAY * 1000)
        expected = Pairs(running.address, (topic, other), sql)

        def cell(engine: str) -> Round:
            out = f"out-{uuid.uuid4().hex[:8]}"
            spec = {
                "topic": topic, "other": other, "warm": warm, "warm_other": warm_other, "out": out,
                "work": "as_of", "delay": f"{DELAY} seconds", "batch": "3 seconds",
                "rows": 500_000,
            }  # fmt: skip
            figures = work(engine, "drain", running.address, spec)
            return {**figures, "check": expected.check(out, more=True)}

        return turns("as_of", engines, cell, KEYS)


def _other(events: int, one_in: int) -> Load:
    """Another topic of bids over the same span of event time, with one in so many events."""
    count = max(1, events // one_in)
    density = max(1, min(100_000, events // SPAN) // one_in)
    return Load(count, keys=KEYS, density=density, seed=9)
