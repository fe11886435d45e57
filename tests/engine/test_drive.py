"""`Drive`, exactly as DESIGN §10 has it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import PLACES, at, bid, bids, counted, drive, drive_in, out, ran_in, window

import millstream as ms
from millstream.errors import InvalidInput, InvalidSpec
from millstream.testing import Drive

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize("lane", ["wide", "narrow", None])
def test_the_example_of_the_design(lane: Any) -> None:
    source = ms.read(
        ms.Topic("bids", schema="auction long, bidder long, price double, ts timestamp"),
        time="ts", watermark="5 seconds",
    )  # fmt: skip
    hot = (
        source.by("auction")
        .window(ms.tumbling("10 seconds"))
        .late(rest=ms.Topic("bids.late"))
        .agg(n=ms.count(), total=ms.sum("price"))
    )
    with drive_in(ms.Pipeline("hot-auctions", hot.to(ms.Topic("hot"))), lane) as drive:
        drive.feed("bids", [{"auction": 1, "bidder": 7, "price": 5.0, "ts": "2026-01-01 00:00:01"}])
        first = drive.step()
        drive.watermark("bids", "2026-01-01 00:00:20")
        drive.clock("2026-01-01 00:00:30")
        second = drive.step()
        rows = drive.rows("hot")
        drive.restart()
        drive.finish()

        assert (first.rows, first.late, first.dead) == (1, 0, 0)
        assert first.watermarks == {"bids": at(-4)}
        assert second.watermarks == {"bids": at(20)}
        assert {first.lane, second.lane} == {lane or "narrow"}
        assert rows == [{"auction": 1, "window_start": at(0), "window_end": at(10), "n": 1,
                         "total": 5.0, "pane": "on_time", "pane_index": 0}]  # fmt: skip
        assert rows[0]["window_start"].tzinfo is not None
        assert drive.rows("hot") == drive.late() == drive.dead() == []


@pytest.mark.parametrize(
    "time",
    [
        "2026-01-01 00:00:01",
        "2026-01-01T00:00:01Z",
        "2026-01-01T02:00:01+02:00",
        1_767_225_601_000,
        datetime(2026, 1, 1, 0, 0, 1),
        datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 3, 0, 1, tzinfo=timezone(timedelta(hours=3))),
    ],
)
def test_times_go_in_as_text_datetime_or_milliseconds_and_come_out_as_datetimes(time: Any) -> None:
    with drive(bids()) as d:
        d.feed("bids", [{"auction": 1, "ts": time}], timestamp=time)
        d.watermark("bids", time)
        facts = d.step()

        (row,) = d.rows("out")
        assert row["ts"] == at(1)
        assert row["ts"].utcoffset() == timedelta(0)
        assert facts.watermarks == {"bids": at(1)}


def test_rows_are_those_since_the_last_call_per_output_and_kind() -> None:
    stream = bids()
    with drive(stream, counted(stream), names=("raw", "sums")) as d:
        d.feed("bids", [bid(1), b"junk"])
        d.step()
        d.feed("bids", [bid(12)])
        d.step()

        assert [row["ts"] for row in d.rows("raw")] == [at(1), at(12)]
        assert d.rows("raw") == []
        assert d.rows("sums") == [window(1, 0, 1)]
        assert len(d.dead()) == 1
        assert d.dead() == []


@pytest.mark.parametrize("lane", PLACES)
def test_rows_are_sorted_by_batch_key_and_window_or_keep_the_order_of_feed(
    lane: Any,
) -> None:
    stream = bids()
    sums = counted(stream).select("n as how_many", "window_end", "auction as a")
    with drive(stream, sums, lane=lane, names=("raw", "sums")) as d:
        auctions = [5, 3, None, 4, 1, 5, 3]
        d.feed("bids", [{**bid(place * 3), "auction": a} for place, a in enumerate(auctions)])
        d.feed("bids", [bid(500, 2)])
        assert ran_in(d.step()) == lane
        d.feed("bids", [bid(600, 0)])
        d.step()

        assert [row["auction"] for row in d.rows("raw")] == [*auctions, 2, 0]
        assert [(row["a"], row["window_end"]) for row in d.rows("sums")] == [
            (None, at(10)), (1, at(20)), (3, at(10)), (3, at(20)), (4, at(10)), (5, at(10)),
            (5, at(20)), (2, at(510)),
        ]  # fmt: skip


def test_a_step_processes_everything_fed_however_much() -> None:
    rows = [bid(1, n, name="x" * 100) for n in range(30_000)]
    with drive(counted(bids()), lane=None) as d:
        d.feed("bids", rows)
        facts = d.step()
        d.finish()

        assert facts.rows == 30_000
        assert facts.lane == "wide"
        assert len(d.rows("out")) == 30_000


def test_feed_takes_bytes_partitions_timestamps_keys_and_headers() -> None:
    hidden = bids().select("_key as k", "_headers as h", "_timestamp as t", "_topic as s",
                           "_partition as p", "_offset as o", "auction")  # fmt: skip
    with drive(hidden) as d:
        d.feed("bids", [b'{"auction": 1, "ts": "2026-01-01"}', bid(2)], partition=3,
               timestamp=at(1), key=b"\x00k", headers=[("a", b"1"), ("a", None)])  # fmt: skip
        d.feed("bids", [bid(7)])
        d.step()

        headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
        first = {"k": b"\x00k", "h": headers, "t": at(1), "s": "bids", "p": 3, "auction": 1}
        assert d.rows("out") == [
            {"k": None, "h": None, "t": at(7), "s": "bids", "p": 0, "o": 0, "auction": 1},
            {**first, "o": 0},
            {**first, "o": 1},
        ]


def test_feed_encodes_decimals_bytes_and_dates_as_json() -> None:
    stream = ms.read(ms.Topic("t", schema="d decimal(5,2), b binary, day date"))
    with Drive(out(stream), lane="narrow") as d:
        d.feed("t", [{"d": Decimal("1.50"), "b": b"\x00\xff", "day": at(0).date()}])
        assert d.step().dead == 0

        assert d.rows("out") == [{"d": Decimal("1.50"), "b": b"\x00\xff", "day": at(0).date()}]


def test_the_clock_starts_at_the_epoch_and_only_moves_by_clock() -> None:
    with drive(bids().with_columns(seen="now()", day="current_date")) as d:
        d.feed("bids", [bid(1)])
        d.step()
        d.clock("1970-01-02 00:00:07")
        d.feed("bids", [bid(2)])
        d.step()

        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        later = epoch + timedelta(days=1, seconds=7)
        assert [(row["seen"], row["day"]) for row in d.rows("out")] == [
            (epoch, epoch.date()), (later, later.date()),
        ]  # fmt: skip
        with pytest.raises(InvalidInput, match="not behind it"):
            d.clock("1970-01-02 00:00:06")


def test_setting_the_clock_for_the_first_time_makes_nothing_idle() -> None:
    with drive(counted(bids())) as d:
        d.feed("bids", [bid(1)])
        d.step()
        d.clock(at(100))
        assert d.step().watermarks == {"bids": at(1)}

        d.clock(at(131))
        assert d.step().watermarks == {"bids": at(32)}
        assert d.rows("out") == [window(1, 0, 1)]


def test_a_declared_watermark_holds_from_the_next_step_on_and_rows_may_pass_it() -> None:
    with drive(counted(bids())) as d:
        d.feed("bids", [bid(1)])
        d.step()
        d.watermark("bids", at(10))
        d.feed("bids", [bid(2)])
        facts = d.step()
        assert facts.late == 0
        assert d.rows("out") == [window(1, 0, 2)]

        d.feed("bids", [bid(3), bid(25)])
        facts = d.step()
        assert facts.late == 1
        assert facts.watermarks == {"bids": at(25)}


def test_finish_closes_everything_whatever_the_partitions_hold() -> None:
    with drive(counted(bids(watermark="1 hour"))) as d:
        d.feed("bids", [bid(1), bid(99)])
        d.feed("bids", [], partition=1)
        d.step()
        assert d.rows("out") == []

        d.feed("bids", [bid(50)], partition=1)
        facts = d.finish()
        assert facts.rows == 1
        assert facts.watermarks["bids"] == datetime.max.replace(tzinfo=UTC)
        assert d.rows("out") == [window(1, 0, 1), window(1, 50, 1), window(1, 90, 1)]
        assert d.finish().late == 0


def test_a_topic_that_is_read_twice_gives_its_rows_to_both() -> None:
    with drive(counted(bids()), bids().where("auction > 1"), names=("sums", "some")) as d:
        d.feed("bids", [bid(1, 1), bid(2, 2)])
        d.watermark("bids", at(60))
        facts = d.step()

        assert facts.rows == 4
        assert facts.watermarks == {"bids": at(60), "bids#2": at(60)}
        assert [row["auction"] for row in d.rows("some")] == [2]
        assert d.rows("sums") == [window(1, 0, 1), window(2, 0, 1)]


def test_rows_for_a_memory_are_in_its_list_too() -> None:
    kept = ms.Memory("kept")
    with Drive(ms.Pipeline("p", bids().select("auction").to(kept)), lane="narrow") as d:
        d.feed("bids", [bid(1)])
        d.step()

        assert kept.rows == [{"auction": 1}]
        assert d.rows("kept") == [{"auction": 1}]


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with drive(bids()) as d:
        d.feed("bids", [bid(1)])
        d.step()
    with pytest.raises(InvalidSpec):
        drive(bids().where("price > 'a' + array(1)"))

    assert list(tmp_path.iterdir()) == []


def test_mistakes_raise_errors_with_one_sentence() -> None:
    wrong: Any = "nothing"
    with pytest.raises(InvalidInput, match="Drive needs a Pipeline"):
        Drive(wrong)
    with pytest.raises(InvalidInput, match="lane needs"):
        Drive(out(bids()), lane=wrong)
    with drive(bids()) as d:
        for mistake, sentence in (
            (lambda: d.feed("bid", []), "source of the pipeline; got 'bid'; name one of bids"),
            (lambda: d.watermark("bid", 0), "needs a source of the pipeline"),
            (lambda: d.rows("bids"), "output of the pipeline; got 'bids'; name one of out"),
            (lambda: d.feed("bids", wrong), "needs rows as dicts"),
            (lambda: d.feed("bids", [{"auction": object()}]), "needs rows of JSON values"),
            (lambda: d.feed("bids", [], partition=-1), "partition from 0"),
            (lambda: d.clock("soon"), "a time needs ISO text"),
            (lambda: d.watermark("bids", 1.5), "a time needs ISO text"),  # type: ignore[arg-type]
        ):  # fmt: skip
            with pytest.raises(InvalidInput, match=sentence):
                mistake()
