"""Steps beyond windows, through whole batches in both lanes: top, process, clock correction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import PLACES, drive_in

import millstream as ms
from millstream.errors import InvalidInput, InvalidSpec
from millstream.testing import Drive

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def bids() -> ms.Stream:
    return ms.read(ms.Topic("bids", schema="auction long, price long, ts timestamp"), time="ts")


def bid(auction: int, price: int, seconds: float) -> dict[str, Any]:
    return {"auction": auction, "price": price, "ts": at(seconds)}


@pytest.mark.parametrize("lane", PLACES)
def test_top_gives_the_hottest_auctions_of_each_window(lane: Any) -> None:
    totals = bids().by("auction").window(ms.tumbling("10 s")).agg(total=ms.sum("price"))
    hottest = totals.top(2, by="total")
    with drive_in(ms.Pipeline("p", hottest.to(ms.Topic("top"))), lane) as drive:
        drive.feed("bids", [bid(1, 5, 1), bid(2, 9, 2), bid(3, 7, 3), bid(1, 5, 4), bid(4, 1, 5)])
        drive.step()
        drive.feed("bids", [bid(9, 1, 12)])
        drive.step()
        drive.restart()
        drive.finish()

        rows = [(r["window_start"], r["auction"], r["total"]) for r in drive.rows("top")]
    assert sorted(rows, key=lambda r: (r[0], -r[2])) == [
        (at(0), 1, 10), (at(0), 2, 9), (at(10), 9, 1),
    ]  # fmt: skip


def quiet_for_five_seconds(visit: Any) -> Any:
    state = visit.state or {"n": 0, "last": START - timedelta(days=1)}
    for row in visit.rows:
        state = {"n": state["n"] + 1, "last": max(state["last"], row["ts"])}
        visit.at(state["last"] + timedelta(seconds=5))
    visit.state = state
    for _, time in visit.timers:
        if time == state["last"] + timedelta(seconds=5):
            visit.state = None
            yield {"auction": visit.key["auction"], "n": state["n"], "ts": time}


@pytest.mark.parametrize("lane", PLACES)
def test_process_keeps_state_and_is_called_by_timers(lane: Any) -> None:
    quiet = bids().process(
        quiet_for_five_seconds, by="auction", state="n long, last timestamp",
        gives="auction long, n long, ts timestamp",
    )  # fmt: skip
    counted = quiet.by("n").window(ms.tumbling("1 minute")).agg(auctions=ms.count())
    pipeline = ms.Pipeline("p", quiet.to(ms.Topic("quiet")), counted.to(ms.Topic("counted")))
    with drive_in(pipeline, lane) as drive:
        drive.feed("bids", [bid(1, 1, 0), bid(1, 1, 2), bid(2, 1, 1)])
        drive.step()
        drive.restart()
        drive.feed("bids", [bid(3, 1, 6.5)])
        drive.step()
        assert [(r["auction"], r["n"], r["ts"]) for r in drive.rows("quiet")] == [(2, 1, at(6))]
        drive.watermark("bids", at(7.1))
        drive.step()
        assert [(r["auction"], r["n"], r["ts"]) for r in drive.rows("quiet")] == [(1, 2, at(7))]
        drive.finish()
        assert [(r["auction"], r["n"]) for r in drive.rows("quiet")] == [(3, 1)]
        assert [(r["n"], r["auctions"]) for r in drive.rows("counted")] == [(1, 2), (2, 1)]


@pytest.mark.parametrize("lane", PLACES)
def test_events_of_wrong_clocks_are_counted_in_the_right_windows(lane: Any) -> None:
    views = ms.read(
        ms.Topic("views", schema="page string, at timestamp, sent timestamp, got timestamp"),
        time="at",
    ).correct_clock(event="at", sent="sent", received="got")
    counts = views.by("page").window(ms.tumbling("10 s")).agg(n=ms.count())
    pipeline = ms.Pipeline("p", counts.to(ms.Topic("n")), views.to(ms.Topic("seen")))
    ahead = timedelta(hours=2)
    with drive_in(pipeline, lane) as drive:
        drive.feed("views", [
            {"page": "a", "at": at(1), "sent": at(3), "got": at(3)},
            {"page": "a", "at": at(2) + ahead, "sent": at(4) + ahead, "got": at(5)},
            {"page": "a", "at": at(4), "sent": at(3), "got": at(9)},
            {"page": "a", "at": at(5), "sent": None, "got": at(9)},
        ])  # fmt: skip
        facts = drive.step()
        drive.finish()

        assert facts.watermarks["views"] == at(5)
        assert [(r["window_start"], r["n"]) for r in drive.rows("n")] == [(at(0), 4)]
        seen = sorted((r["at"], r["clock_flag"], r["clock_offset"]) for r in drive.rows("seen"))
    assert seen == [
        (at(1), False, 0), (at(3), False, -7_199_000_000), (at(4), True, 0), (at(5), True, 0),
    ]  # fmt: skip


def test_top_needs_windows_a_column_and_rows_without_retractions() -> None:
    totals = bids().by("auction").window(ms.tumbling("10 s"))
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: bids().top(3, by="price"), "auction, price, ts"),
        (lambda: totals.agg(n=ms.count()).top(0, by="n"), "0"),
        (lambda: totals.agg(n=ms.count()).top(1, by="m"), "'m'"),
        (lambda: totals.late(keep="1 s").agg(n=ms.count()).top(1, by="n"), "keep"),
    ]
    for build, got in cases:
        with pytest.raises(InvalidSpec) as refused:
            build()
        assert got in str(refused.value)


def test_everything_without_a_trigger_needs_a_run_to_the_finish() -> None:
    all_time = bids().by("auction").window(ms.everything()).agg(n=ms.count())
    pipeline = ms.Pipeline("p", all_time.to(ms.Topic("n")))

    with pytest.raises(InvalidSpec, match="everything") as refused:
        pipeline.run()
    assert "trigger" in str(refused.value)


def test_too_many_late_rows_raise_an_alert() -> None:
    counts = bids().by("auction").window(ms.tumbling("10 s"))
    watched = counts.late(rest=ms.discard, alert_above=0.2).agg(n=ms.count())
    with Drive(ms.Pipeline("p", watched.to(ms.Topic("n"))), lane="narrow") as drive:
        drive.feed("bids", [bid(1, 1, second) for second in (1, 2, 3, 21)])
        assert drive.step().alerts == ()
        drive.feed("bids", [bid(1, 1, 4), bid(1, 1, 25)])
        facts = drive.step()

        assert (facts.late, facts.alerts) == (1, ())
        drive.feed("bids", [bid(1, 1, 5), bid(1, 1, 6)])
        (alert,) = drive.step().alerts
    assert "37.5%" in alert
    assert "tumbling(auction)" in alert


def test_facts_name_the_slowest_partition_and_count_rows_behind_the_watermark() -> None:
    counts = bids().by("auction").window(ms.tumbling("1 minute")).agg(n=ms.count())
    with Drive(ms.Pipeline("p", counts.to(ms.Topic("n"))), lane="narrow") as drive:
        drive.feed("bids", [bid(1, 1, 30)])
        drive.feed("bids", [bid(1, 1, 20)], partition=1)
        first = drive.step()
        drive.feed("bids", [bid(1, 1, 5)])
        second = drive.step()

    assert first.held_by == {"bids": 1}
    assert (first.steps["tumbling(auction)"]["behind"], second.late) == (0, 0)
    assert second.steps["tumbling(auction)"]["behind"] == 1


@pytest.mark.parametrize("lane", PLACES)
def test_windows_at_the_edges_of_the_calendar_have_readable_bounds(lane: Any) -> None:
    read = ms.read(
        ms.Topic("bids", schema="auction long, ts timestamp"), time="ts", ahead=None, idle=None
    )
    windows = read.by("auction").window(ms.tumbling("7 days")).agg(n=ms.count())
    with drive_in(ms.Pipeline("p", windows.to(ms.Topic("n"))), lane) as drive:
        drive.feed("bids", [{"auction": 1, "ts": "0001-01-01 00:00:00"}])
        drive.feed("bids", [{"auction": 1, "ts": "1969-12-31 23:59:59.999999"}])
        drive.feed("bids", [{"auction": 1, "ts": "9999-12-31 23:59:59.999999"}])
        drive.finish()

        rows = [(r["window_start"].year, r["window_end"].year, r["n"]) for r in drive.rows("n")]
    assert rows == [(1, 1, 1), (1969, 1970, 1), (9999, 9999, 1)]


def test_late_rows_of_a_session_are_not_counted_as_used() -> None:
    sessions = bids().by("auction").window(ms.session(gap="5 s")).agg(n=ms.count())
    with Drive(ms.Pipeline("p", sessions.to(ms.Topic("n"))), lane="narrow") as drive:
        drive.feed("bids", [bid(1, 1, 0), bid(1, 1, 100)])
        drive.step()
        drive.feed("bids", [bid(1, 1, 1), bid(1, 1, 97)])
        facts = drive.step()

    step = facts.steps["session(auction)"]
    assert (facts.late, step["late"], step["behind"]) == (1, 1, 1)


def test_each_kind_of_state_is_shown_by_key_without_the_pipeline() -> None:
    from millstream.engine.inspection.inspect import of_key, open_checkpoint, states

    rows = bids()
    made = {
        "sessions": rows.by("auction").window(ms.session(gap="5 s")).agg(n=ms.count()),
        "hops": rows.by("auction").window(ms.hopping("10 s", every="5 s")).agg(n=ms.count()),
        "panes": rows.by("auction").window(ms.tumbling("10 s")).late(keep="1 s")
        .agg(n=ms.count(), top=ms.largest("price", 2)),
        "threes": rows.by("auction").window(ms.rows(3)).agg(n=ms.count()),
        "seen": rows.distinct(by="auction"),
        "own": rows.process(quiet_for_five_seconds, by="auction", state="n long, last timestamp",
                            gives="auction long, n long, ts timestamp"),
        "order": rows.ordered(),
    }  # fmt: skip
    pipeline = ms.Pipeline("p", *(made[name].to(ms.Topic(name)) for name in made))
    with Drive(pipeline, lane="narrow") as drive:
        drive.feed("bids", [bid(1, 4, 11), bid(2, 5, 12), bid(1, 6, 13)])
        drive.step()
        checkpoint = open_checkpoint(drive._folder / "checkpoint")
        kinds = {row["kind"]: row["step"] for row in states(checkpoint).steps}

        def shown(kind: str) -> list[dict[str, Any]]:
            return of_key(checkpoint, kinds[kind], {"auction": "1"}).steps

        assert [row["n"] for row in shown("session")] == [2]
        assert [row["n"] for row in shown("hopping")] == [2, 2]
        assert [(row["n"], row["top"]) for row in shown("tumbling")] == [(2, [6, 4])]
        assert [row["n"] for row in shown("rows")] == [2]
        assert [row["auction"] for row in shown("distinct")] == [1]
        assert [row["n"] for row in shown("process")] == [2]
        with pytest.raises(InvalidInput, match="has none"):
            shown("ordered")
