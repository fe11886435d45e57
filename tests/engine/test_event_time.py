"""Watermarks, late rows, bad rows and idleness through whole batches, counted exactly."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.engine.scenes import PLACES, at, bid, bids, counted, drive, out, ran_in, window

import millstream as ms
from millstream.testing import Drive

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LANES = pytest.mark.parametrize("lane", PLACES)


@LANES
def test_a_row_at_the_watermark_is_on_time_and_one_whose_window_is_closed_is_late(
    lane: Any,
) -> None:
    with drive(counted(bids(watermark="5 seconds")), lane=lane) as d:
        d.feed("bids", [bid(15)])
        assert d.step().watermarks == {"bids": at(10)}
        d.feed("bids", [bid(10), bid(9.999999), bid(3, 2), bid(17)])
        facts = d.step()

        assert (facts.rows, facts.late, facts.dead, ran_in(facts)) == (4, 2, 0, lane)
        early, old = sorted(d.late(), key=lambda row: int(row["origin"]["offset"]))
        assert early == {
            "step": "tumbling(auction)", "reason": "late", "watermark": at(10),
            "windows": [{"start": at(0), "end": at(10)}],
            "origin": {"source": "bids", "partition": 0, "offset": 2, "index": 0},
            "row": early["row"],
        }  # fmt: skip
        assert json.loads(early["row"]) == {
            "auction": 1, "name": None, "price": None, "n": None,
            "ts": "2026-01-01T00:00:09.999999Z",
        }  # fmt: skip
        assert old["origin"]["offset"] == 3
        d.finish()
        assert d.rows("out") == [window(1, 10, 3)]


@LANES
def test_discarded_late_rows_are_counted_and_not_kept(lane: Any) -> None:
    with drive(counted(bids(), rest=ms.discard), lane=lane) as d:
        d.feed("bids", [bid(15)])
        d.step()
        d.feed("bids", [bid(1), bid(2)])

        assert d.step().late == 2
        assert d.late() == []


def test_a_window_open_at_the_watermark_accepts_rows_behind_it() -> None:
    """Lateness depends on the window: a row behind the watermark enters an open one."""
    with drive(counted(bids())) as d:
        d.feed("bids", [bid(17)])
        d.step()
        d.feed("bids", [bid(11)])

        assert d.step().late == 0
        d.finish()
        assert d.rows("out") == [window(1, 10, 2)]


@LANES
def test_distinct_within_treats_older_rows_as_late(lane: Any) -> None:
    step = bids().distinct(by="auction", within="10 seconds", rest=ms.Topic("old"), name="once")
    with drive(step, lane=lane) as d:
        d.feed("bids", [bid(100, 1), bid(100, 1), bid(95, 1), bid(50, 2)])
        assert d.step().late == 0
        d.feed("bids", [bid(90, 3), bid(89.999999, 4), bid(90, 1), bid(111, 1), bid(109, 3)])
        facts = d.step()

        assert facts.late == 1
        (late,) = d.late()
        assert (late["step"], late["windows"], late["watermark"]) == ("once", None, at(100))
        assert json.loads(late["row"])["auction"] == 4
        assert [(r["auction"], r["ts"]) for r in d.rows("out")] == [
            (1, at(100)), (2, at(50)), (1, at(111)), (3, at(90)), (3, at(109)),
        ]  # fmt: skip


@LANES
def test_distinct_without_a_time_keeps_keys_forever(lane: Any) -> None:
    stream = ms.read(ms.Topic("t", schema="k string, v long"))
    with drive(stream.distinct(by="k"), lane=lane) as d:
        for values in ([("a", 1), ("b", 2), ("a", 3)], [("b", 4), (None, 5), ("c", 6)],
                       [(None, 7), ("a", 8)]):  # fmt: skip
            d.feed("t", [{"k": k, "v": v} for k, v in values])
            assert d.step().late == 0
            d.restart()

        assert [(r["k"], r["v"]) for r in d.rows("out")] == [
            ("a", 1),
            ("b", 2),
            (None, 5),
            ("c", 6),
        ]


@LANES
def test_bad_rows_are_emitted_unchanged_with_a_reason(lane: Any) -> None:
    raw: dict[str, bytes | None] = {
        "not JSON": b'{"auction": 1',
        "null": b'{"auction": 1, "ts": null}',
        "event time": b'{"auction": 1}',
        "auction": b'{"auction": "5", "ts": "2026-01-01"}',
        "value": None,
    }
    with drive(counted(bids()), lane=lane) as d:
        d.feed("bids", [bid(1)])
        d.feed("bids", list(raw.values()), partition=2, key=b"k", headers=[("h", b"\xff")])
        facts = d.step()
        dead = d.dead()

        assert (facts.rows, facts.dead, facts.late) == (6, 5, 0)
        assert [row["value"] for row in dead] == list(raw.values())
        for word, row in zip(raw, dead, strict=True):
            assert word in row["reason"] or "null" in row["reason"], row["reason"]
        assert [(r["topic"], r["partition"], r["offset"], r["step"], r["key"]) for r in dead] == [
            ("bids", 2, offset, "bids", b"k") for offset in range(5)
        ]
        assert all(row["headers"] == [{"key": "h", "value": b"\xff"}] for row in dead)


@LANES
def test_a_row_from_the_far_future_is_bad_and_does_not_advance_the_watermark(lane: Any) -> None:
    with drive(counted(bids(ahead="1 hour")), lane=lane) as d:
        d.feed("bids", [bid(3600), bid(3600.000001)], timestamp=at(0))
        d.feed("bids", [bid(10**6)])
        facts = d.step()
        assert (facts.dead, facts.watermarks) == (1, {"bids": at(10**6)})
        (row,) = d.dead()
        assert row["reason"].startswith("future")
        assert row["timestamp"] == at(0)


def test_ahead_none_accepts_any_time() -> None:
    with drive(counted(bids(ahead=None))) as d:
        d.feed("bids", [bid(10**8)], timestamp=at(0))

        assert d.step().dead == 0


def test_a_source_without_an_event_time_has_no_watermark() -> None:
    with drive(bids(time=None).where("auction > 0")) as d:
        d.feed("bids", [{"auction": 1}])

        assert d.step().watermarks == {"bids": None}


def test_every_partition_counts_and_one_without_rows_delays_the_watermark() -> None:
    with drive(counted(bids(watermark="1 second"))) as d:
        d.feed("bids", [bid(30)])
        d.feed("bids", [], partition=1)
        assert d.step().watermarks == {"bids": None}
        d.feed("bids", [bid(12)], partition=1)
        assert d.step().watermarks == {"bids": at(11)}
        d.feed("bids", [bid(5)], partition=2)
        d.feed("bids", [bid(40)], partition=1)
        facts = d.step()

        assert facts.watermarks == {"bids": at(11)}
        assert facts.late == 1
        d.feed("bids", [bid(35)], partition=2)
        assert d.step().watermarks == {"bids": at(29)}


def test_idleness_counts_by_the_batch_clock_within_a_run() -> None:
    with drive(counted(bids(idle="30 seconds"))) as d:
        d.clock(at(0))
        d.feed("bids", [bid(100)])
        d.feed("bids", [bid(50)], partition=1)
        assert d.step().watermarks == {"bids": at(50)}
        d.restart()
        d.clock(at(1000))
        d.feed("bids", [bid(101)])
        assert d.step().watermarks == {"bids": at(50)}
        d.clock(at(1030))
        d.feed("bids", [bid(102)])
        assert d.step().watermarks == {"bids": at(102)}
        d.clock(at(1060))
        assert d.step().watermarks == {"bids": at(132)}
        d.clock(at(1061.5))
        assert d.step().watermarks == {"bids": at(133.5)}
        d.feed("bids", [bid(51)], partition=1)
        facts = d.step()
        assert (facts.late, facts.watermarks) == (1, {"bids": at(133.5)})


def test_idle_none_waits_forever() -> None:
    with drive(counted(bids(idle=None))) as d:
        d.clock(at(0))
        d.feed("bids", [bid(1)])
        d.step()
        d.clock(at(10**6))

        assert d.step().watermarks == {"bids": at(1)}
        assert d.rows("out") == []


def two(**options: Any) -> ms.Stream:
    return bids("a", **options).union(bids("b", **options))


@LANES
def test_a_union_waits_for_the_slower_side(lane: Any) -> None:
    with drive(counted(two()), lane=lane) as d:
        d.feed("a", [bid(100)])
        d.feed("b", [bid(5)])
        facts = d.step()
        assert facts.watermarks == {"a": at(100), "b": at(5)}
        assert d.rows("out") == []
        d.feed("b", [bid(15)])
        d.step()

        assert d.rows("out") == [window(1, 0, 1)]


def test_a_side_without_rows_delays_a_union_until_it_is_idle() -> None:
    with drive(counted(two())) as d:
        d.clock(at(0))
        d.feed("a", [bid(100)])
        d.step()
        d.feed("a", [bid(200)])
        d.step()
        assert d.rows("out") == []
        d.clock(at(30))
        d.feed("a", [bid(300)])
        d.step()

        assert d.rows("out") == [window(1, 100, 1), window(1, 200, 1)]


def test_an_idle_side_is_ignored_and_does_not_move_a_union_back() -> None:
    with drive(counted(two())) as d:
        d.clock(at(0))
        d.feed("a", [bid(100)])
        d.feed("b", [bid(5)])
        d.step()
        d.clock(at(30))
        d.feed("a", [bid(200)])
        d.step()
        assert d.rows("out") == [window(1, 0, 1), window(1, 100, 1)]
        d.feed("b", [bid(6), bid(110, 2)])
        facts = d.step()
        assert facts.watermarks == {"a": at(200), "b": at(110)}
        assert facts.late == 2, "windows [0, 10) and [110, 120) are closed"
        d.restart()
        d.feed("b", [bid(150, 2)])
        assert d.step().late == 1
        d.finish()
        assert d.rows("out") == [window(1, 200, 1)]


def test_facts_have_the_counts_of_the_batch() -> None:
    source = bids()
    pipeline = out(counted(source, rest=ms.discard), source.where("auction = 1"),
                   names=("sums", "ones"))  # fmt: skip
    with Drive(pipeline, lane="narrow") as d:
        d.feed("bids", [bid(1), bid(25, 2), {**bid(3), "more": 1}, b"x"])
        facts = d.step()

        assert (facts.batch, facts.rows, facts.late, facts.dead) == (1, 4, 0, 1)
        assert facts.extra == 1
        assert facts.outputs == {"sums": 1, "ones": 2}
        assert facts["rows"] == 4
        d.feed("bids", [bid(1)])
        again = d.step()
        assert (again.batch, again.rows, again.late, again.outputs) == (2, 1, 1, {"ones": 1})


def test_windows_before_1970_and_in_the_far_future_work() -> None:
    old, far = "1907-03-04T05:06:07Z", "9999-12-30T23:59:59.999999Z"
    with drive(counted(bids(), "1 day")) as d:
        d.feed("bids", [{"auction": 1, "ts": old}])
        d.feed("bids", [{"auction": 2, "ts": far}])
        d.finish()

        (first, second) = d.rows("out")
        assert first["window_start"] == datetime(1907, 3, 4, tzinfo=UTC)
        assert second["window_end"] == datetime(9999, 12, 31, tzinfo=UTC)
        assert second["window_end"] - second["window_start"] == timedelta(days=1)
