"""Nexmark queries from topic to topic: filter and map (q1, q2), hot items (q5), the window's
highest bid (q7), new sellers (q8). Each answer is compared with DuckDB's.

q5 gives the largest number of bids an auction has per window (10 s every 2 s), q7 the bids whose
price is the largest of their window of 10 s, q8 the persons that have opened an auction in the
same window of 10 s in which they came.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from benchmarks.cells import DELAY, EVENTS, density, filled, turns
from benchmarks.nexmark import Load, fill
from benchmarks.oracle import chunks, loaded, written
from benchmarks.processes import work
from millstream.testing import broker

if TYPE_CHECKING:
    from benchmarks.oracle import Check
    from benchmarks.report import Round

_BIDS = """select partition, (value->>'auction')::bigint auction,
                  (value->>'bidder')::bigint bidder, (value->>'price')::double price,
                  (value->>'ts')::bigint ts from piece"""
_PERSONS = """select partition, (value->>'id')::bigint id, value->>'name' as name,
                     (value->>'ts')::bigint ts from piece"""
_AUCTIONS = """select partition, (value->>'seller')::bigint seller, (value->>'ts')::bigint ts
               from piece"""
_WINDOW = "ts // 10000 * 10000"


@dataclass(frozen=True)
class Query:
    """Its topics by kind, what the answer is, what of it must have left, how it is read.

    `{mark}` in `due` is the smallest watermark of its topics' partitions; a query without
    windows lets everything out.
    """

    topics: dict[str, str]
    answer: str
    got: str
    due: str = "true"


_START = "epoch_ms((value->>'window_start')::timestamptz) first"
QUERIES = {
    "q1": Query(
        {"bids": _BIDS},
        "select auction, bidder, price * 0.908 as price, ts from bids",
        """select (value->>'auction')::bigint auction, (value->>'bidder')::bigint bidder,
                  (value->>'price')::double price, epoch_ms((value->>'ts')::timestamptz) ts
           from piece""",
    ),
    "q2": Query(
        {"bids": _BIDS},
        "select auction, price from bids where auction % 123 = 0",
        "select (value->>'auction')::bigint auction, (value->>'price')::double price from piece",
    ),
    "q5": Query(
        {"bids": _BIDS},
        """select first, max(n) n from (
               select auction, (ts // 2000 - hop) * 2000 first, count(*) n
               from bids, range(5) hops(hop) group by 1, 2) group by 1""",
        f"select {_START}, (value->>'n')::bigint n from piece",
        "first + 10000 < {mark}",
    ),
    "q7": Query(
        {"bids": _BIDS},
        f"""select {_WINDOW} first, auction, bidder, price from bids
            qualify price = max(price) over (partition by {_WINDOW})""",
        """select epoch_us((value->>'ts')::timestamptz) // 10000000 * 10000 first,
                   (value->>'auction')::bigint auction, (value->>'bidder')::bigint bidder,
                   (value->>'price')::double price from piece""",
        "first + 10000 < {mark}",
    ),
    "q8": Query(
        {"persons": _PERSONS, "auctions": _AUCTIONS},
        f"""select distinct p.first, id, name from (select *, {_WINDOW} first from persons) p
            join (select *, {_WINDOW} first from auctions) a
            on id = seller and p.first = a.first""",
        f"""select {_START}, coalesce(value->>'id', value->>'person')::bigint id,
                   value->>'name' as name from piece""",
        "first + 10000 < {mark}",
    ),
}  # fmt: skip


class Answer:
    """The rows of a query: those that are allowed, and those that are due."""

    def __init__(self, address: str, query: Query, topics: dict[str, str]) -> None:
        self._address, self._query, self._db = address, query, duckdb.connect()
        marks = []
        for kind, columns in query.topics.items():
            loaded(self._db, kind, chunks(address, topics[kind]), columns)
            marks.append(f"(select min(t) from (select max(ts) t from {kind} group by partition))")
        due = query.due.format(mark=f"(least({', '.join(marks)}) - {DELAY * 1000})")
        self._db.execute(f"create table expected as {query.answer}")
        self._db.execute(f"create table due as from expected where {due}")

    def check(self, out: str) -> Check:
        """Compare an output topic row by row, with counts; doubles to twelve digits."""
        self._db.execute("drop table if exists got")
        loaded(self._db, "got", written(self._address, out), self._query.got)
        return {
            "checked": self._count("from got"),
            "faults": {"missing": self._count(f"({_less('due', 'got', self._db)})"),
                       "phantom": self._count(f"({_less('got', 'expected', self._db)})")},
        }  # fmt: skip

    def _count(self, what: str) -> int:
        source = what if what.startswith("from") else f"from {what}"
        return int(self._db.execute(f"select count(*) {source}").fetchall()[0][0])


def _less(these: str, those: str, db: duckdb.DuckDBPyConnection) -> str:
    """Rows of one table that the other lacks, or has less often."""
    described = db.execute(f"describe {these}").fetchall()
    columns = ", ".join(
        f"format('{{:.12g}}', {name})" if kind == "DOUBLE" else name for name, kind, *_ in described
    )
    return f"select {columns} from {these} except all select {columns} from {those}"


def query(name: str, engines: tuple[str, ...]) -> bool:
    """Run one query on the engines in turns."""
    asked = QUERIES[name]
    with broker() as running:
        topics, warm = _filled(running.address, asked)
        expected = Answer(running.address, asked, topics)

        def cell(engine: str) -> Round:
            out = f"out-{uuid.uuid4().hex[:8]}"
            first, *rest = topics
            spec: dict[str, Any] = {
                "topic": topics[first], "warm": warm[first], "out": out, "work": name,
                "delay": f"{DELAY} seconds", "batch": "3 seconds", "rows": 500_000,
                **({"other": topics[rest[0]], "warm_other": warm[rest[0]]} if rest else {}),
            }  # fmt: skip
            figures = work(engine, "drain", running.address, spec)
            return {**figures, "check": expected.check(out)}

        return turns(name, engines, cell, kinds=tuple(asked.topics))


def _filled(address: str, asked: Query) -> tuple[dict[str, str], dict[str, str]]:
    """The topics of a query and those to warm up on, by kind of events.

    One that reads few of the events warms up on as many as it is measured with: on fewer, not
    every part of an engine would be warm.
    """
    if "bids" in asked.topics:
        topic, warm = filled(address)
        return {"bids": topic}, {"bids": warm}
    loads = (Load(EVENTS, density=density(EVENTS)), Load(EVENTS, density=density(EVENTS), seed=8))
    made = [{kind: fill(address, load, kind)[0] for kind in asked.topics} for load in loads]
    return made[0], made[1]
