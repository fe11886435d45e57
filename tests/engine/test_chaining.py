"""Chained steps: which rows flow between them, with which times, in which order."""

from __future__ import annotations

import json
import random
from typing import Any

import duckdb
import pytest
from tests.engine.scenes import MICROS, PLACES, at, bid, bids, counted, drive, ran_in, window

import millstream as ms

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LANES = pytest.mark.parametrize("lane", PLACES)


@LANES
def test_the_results_of_a_window_can_be_filtered_and_projected(lane: Any) -> None:
    sums = counted(bids())
    shaped = sums.where("n > 1").select("auction as a", "n * 10 as tens", "window_end as until")
    with drive(sums, shaped, sums.drop("n"), lane=lane, names=("all", "shaped", "short")) as d:
        d.feed("bids", [bid(1), bid(2), bid(3, 2), bid(11)])
        facts = d.step()

        assert ran_in(facts) == lane
        assert facts.outputs == {"all": 2, "shaped": 1, "short": 2}
        assert d.rows("all") == [window(1, 0, 2), window(2, 0, 1)]
        assert d.rows("shaped") == [{"a": 1, "tens": 20, "until": at(10)}]
        assert [row["auction"] for row in d.rows("short")] == [1, 2]


@LANES
def test_windows_of_windows_close_after_the_inner_ones(lane: Any) -> None:
    """A result's time is its window_end - 1 µs: [0,10) [10,20) [20,30) make up [0,30)."""
    inner = counted(bids())
    outer = inner.by("auction").window(ms.tumbling("30 seconds")).agg(
        windows=ms.count(), rows=ms.sum("n"), most=ms.max("n"),
    )  # fmt: skip
    with drive(inner, outer, lane=lane, names=("inner", "outer")) as d:
        d.feed("bids", [bid(1), bid(2), bid(15), bid(29.999999)])
        d.step()
        assert d.rows("inner") == [window(1, 0, 2), window(1, 10, 1)]
        assert d.rows("outer") == []
        d.restart()
        d.feed("bids", [bid(30)])
        d.step()
        assert d.rows("inner") == [window(1, 20, 1)]
        assert d.rows("outer") == [
            {"auction": 1, "window_start": at(0), "window_end": at(30), "windows": 3, "rows": 4,
             "most": 2},
        ]  # fmt: skip
        facts = d.finish()
        assert facts.late == 0
        assert [row["rows"] for row in d.rows("outer")] == [1]


@pytest.mark.parametrize(
    ("lane", "batches"), [("narrow", 1), ("narrow", 9), ("wide", 1), ("wide", 3)]
)
def test_windows_of_windows_agree_with_duckdb(lane: Any, batches: int) -> None:
    chance = random.Random(batches)
    rows = [(chance.randrange(5), second + chance.random() * 4) for second in range(120)]
    inner = counted(bids(watermark="4 seconds"))
    outer = (
        inner.by("n")
        .window(ms.tumbling("25 seconds"))
        .agg(groups=ms.count(), low=ms.min("auction"))
    )
    with drive(outer, lane=lane) as d:
        for number in range(batches):
            part = rows[len(rows) * number // batches : len(rows) * (number + 1) // batches]
            d.feed("bids", [bid(seconds, auction) for auction, seconds in part])
            assert d.step().late == 0
        d.finish()
        found = {
            (r["n"], r["window_start"].timestamp(), r["groups"], r["low"]) for r in d.rows("out")
        }

    con = duckdb.connect()
    con.execute("create table bids (auction int, ts double)")
    con.executemany("insert into bids values (?, ?)", rows)
    expected = con.execute(
        f"""with inside as (select auction, (floor(ts / 10) * 10 + 10)::bigint as ends,
                                   count(*) as n from bids group by all),
                 timed as (select *, ({MICROS} + ends * 1000000 - 1) // 25000000 * 25 as start
                           from inside)
            select n, start, count(*), min(auction) from timed group by all"""
    ).fetchall()
    assert found == {tuple(row) for row in expected}


@LANES
def test_after_distinct_rows_keep_their_time_and_their_origin(lane: Any) -> None:
    once = bids().distinct(by="name")
    with drive(counted(once), lane=lane) as d:
        d.feed("bids", [bid(1, 1, name="a"), bid(2, 1, name="a"), bid(3, 1, name="b")])
        d.feed("bids", [bid(20, 1, name="c")], partition=1)
        d.step()
        d.feed("bids", [bid(30, 1, name="d")])
        d.step()
        assert d.rows("out") == [window(1, 0, 2)]
        d.feed("bids", [bid(4, 1, name="a"), bid(5, 1, name="e")], partition=1)
        facts = d.step()

        assert facts.late == 1
        (late,) = d.late()
        assert late["step"] == "tumbling(auction)"
        assert late["origin"] == {"source": "bids", "partition": 1, "offset": 2, "index": 0}
        assert json.loads(late["row"])["name"] == "e"


def test_distinct_passes_the_same_result_in_every_lane_and_cut() -> None:
    """One key per window: of the windows with the same number of rows, the first passes.

    If Spark tasks close windows, results are in several files, by keys and not by time.
    """
    rows = [bid(10 * place, place) for place in range(60) for _ in range(1 + place % 6)]
    for lane, batches in (("narrow", 1), ("narrow", 8), ("wide", 1), ("wide", 2), ("driver", 3)):
        with drive(counted(bids()).distinct(by="n"), lane=lane) as d:
            for number in range(batches):
                d.feed(
                    "bids",
                    rows[len(rows) * number // batches : len(rows) * (number + 1) // batches],
                )
                d.step()
            d.finish()

            assert d.rows("out") == [window(n, 10 * n, n + 1) for n in range(6)], (lane, batches)


@LANES
def test_a_source_of_several_steps_is_read_and_counted_once(lane: Any) -> None:
    source = bids()
    streams = [counted(source), source.distinct(by="auction"), source.where("auction > 1"), source]
    with drive(*streams, lane=lane, names=("sums", "once", "some", "all")) as d:
        d.feed("bids", [bid(1), bid(2), bid(12, 2), b"{"])
        facts = d.step()

        assert (facts.rows, facts.dead) == (4, 1)
        assert facts.outputs == {"sums": 1, "once": 2, "some": 1, "all": 3}
        assert len(d.dead()) == 1


@LANES
def test_bad_rows_on_both_sides_of_a_union_of_one_source_are_counted_once(lane: Any) -> None:
    source = bids()
    both = source.where("auction = 1").union(source.where("auction = 2"))
    with drive(counted(both), lane=lane) as d:
        d.feed("bids", [bid(1), bid(2, 2), b"{", bid(3, 3)])
        facts = d.step()
        d.finish()

        assert (facts.rows, facts.dead, facts.bytes) == (4, 1, facts.bytes)
        assert len(d.dead()) == 1
        assert d.rows("out") == [window(1, 0, 1), window(2, 0, 1)]


def test_a_window_over_the_results_of_two_windows_waits_for_both() -> None:
    left, right = counted(bids("a")), counted(bids("b"))
    total = left.union(right).by("auction").window(ms.tumbling("10 seconds")).agg(n=ms.sum("n"))
    with drive(total) as d:
        d.feed("a", [bid(1), bid(12)])
        d.feed("b", [bid(2)])
        d.step()
        assert d.rows("out") == []
        d.feed("b", [bid(3), bid(10)])
        d.step()

        assert d.rows("out") == [window(1, 0, 3)]


def test_late_results_name_the_steps_that_emitted_them() -> None:
    left, right = counted(bids("a")), counted(bids("b"))
    total = (
        left.union(right)
        .by("auction")
        .window(ms.tumbling("10 seconds"))
        .agg(name="total", n=ms.sum("n"))
    )
    with drive(total) as d:
        d.clock(at(0))
        d.feed("a", [bid(1)])
        d.feed("b", [bid(2)])
        d.step()
        d.clock(at(30))
        d.feed("a", [bid(100)])
        d.step()
        d.feed("b", [bid(50), bid(75)])
        d.step()

        assert d.rows("out") == [window(1, 0, 2)]
        late = d.late()
        assert [row["step"] for row in late] == ["total"]
        assert late[0]["origin"]["source"] == "tumbling(auction), tumbling(auction)#2"


@LANES
def test_results_can_be_exploded_and_united_with_themselves(lane: Any) -> None:
    """The last part of a result's origin is a 64-bit hash, which leaves room for elements."""
    windows = bids().by("auction").window(ms.tumbling("10 seconds")).agg(prices=ms.collect("price"))
    prices = windows.explode("prices").by("auction").window(ms.everything())
    both = windows.union(windows.where("auction > 1")).by("auction").window(ms.everything())
    streams = (prices.agg(all=ms.collect("prices")), both.agg(n=ms.count()))
    with drive(*streams, lane=lane, names=("opened", "met")) as d:
        d.feed("bids", [bid(n, n % 3, price=float(n)) for n in range(30)])
        d.step()
        d.finish()
        opened = {row["auction"]: row["all"] for row in d.rows("opened")}
        assert opened == {k: [float(n) for n in range(30) if n % 3 == k] for k in range(3)}
        assert {row["auction"]: row["n"] for row in d.rows("met")} == {0: 3, 1: 3, 2: 6}
