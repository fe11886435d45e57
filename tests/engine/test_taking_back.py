"""Corrections on their way out: a row that is taken back never looks like one more row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import at, bid, bids, drive

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.sinks.keys import takes_back
from millstream.testing import Drive

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = ["auction", "window_start"]
Panes = Any


def kept(panes: Panes = "accumulating") -> ms.Stream:
    windows = bids(watermark="0 seconds").by("auction").window(ms.tumbling("10 seconds"))
    return windows.trigger(panes=panes).late(keep="1 hour").agg(n=ms.count())


def shaped(panes: Panes = "accumulating") -> ms.Stream:
    return kept(panes).select("auction", "window_start", "n")


APPENDING: list[ms.sinks.spec.Sink] = [
    ms.Topic("out", key="auction"),
    ms.Files("out"),
    ms.Memory([]),
    ms.Postgres("out"),
    ms.Sqlite("out.db", "out"),
    ms.Delta("out"),
]


@pytest.mark.parametrize("sink", APPENDING, ids=lambda sink: type(sink).__name__)
def test_a_sink_that_only_appends_refuses_corrections_that_do_not_say_so(sink: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"never taken back.*; got .*keep=.*retracting") as told:
        shaped().to(sink)
    assert type(sink).__name__ in str(told.value)
    with pytest.raises(InvalidSpec, match="never taken back"):
        kept().where("n = 1").to(sink)
    with pytest.raises(InvalidSpec, match="never taken back"):
        kept("retracting").drop("retract").to(sink)


@pytest.mark.parametrize("sink", APPENDING, ids=lambda sink: type(sink).__name__)
def test_what_a_window_shows_by_itself_and_rows_that_say_so_are_taken(sink: Any) -> None:
    for stream in (kept(), kept("retracting"), kept("retracting").where("n > 1")):
        assert stream.to(sink).input is stream.node


@pytest.mark.parametrize(
    "sink",
    [
        ms.Postgres("out", key=KEY), ms.Sqlite("out.db", "out", key=KEY), ms.Delta("out", key=KEY),
        ms.Chart("out", y="n"), ms.LiveTable("out"), ms.Function(print),
    ],
    ids=lambda sink: type(sink).__name__,
)  # fmt: skip
def test_a_sink_that_can_take_back_takes_corrections(sink: Any) -> None:
    assert takes_back(sink)
    assert shaped().to(sink).input.corrects


def test_corrections_behind_a_transform_are_refused_before_the_first_batch(spark: object) -> None:
    def renamed(frame: Any) -> Any:
        return frame.withColumnRenamed("n", "many")

    with (
        pytest.raises(InvalidSpec, match="never taken back"),
        Drive(ms.Pipeline("p", kept().transform(renamed).to(ms.Topic("out")))),
    ):
        pass


def corrected(stream: ms.Stream, sink: Any) -> list[dict[str, Any]]:
    """What leaves when a window that has left gets one more row."""
    with Drive(ms.Pipeline("p", stream.to(sink, name="out")), lane="short") as d:
        d.feed("bids", [bid(1), bid(15)])
        d.step()
        assert [row["n"] for row in d.rows("out")] == [1]
        d.feed("bids", [bid(2)])
        d.step()
        return d.rows("out")


@pytest.mark.parametrize(
    ("stream", "sink", "expected"),
    [
        (shaped, ms.Function(print),
         [{"n": 1, "_sign": -1}, {"n": 2}]),
        (shaped, ms.Chart("out", y="n"),
         [{"n": 1, "_sign": -1}, {"n": 2}]),
        (lambda: kept("retracting").drop("pane", "pane_index", "window_end"), ms.Topic("out"),
         [{"n": 1, "retract": True}, {"n": 2, "retract": False}]),
        (lambda: kept().where("n = 1").select("auction", "window_start", "n"),
         ms.Postgres("out", key=KEY, url="unused"),
         [{"n": 1, "_sign": -1}]),
    ],
    ids=["Function", "Chart", "Topic", "Postgres"],
)  # fmt: skip
def test_a_row_that_is_taken_back_leaves_with_its_mark(
    spark: object, stream: Callable[[], ms.Stream], sink: Any, expected: list[dict[str, Any]]
) -> None:
    place = {"auction": 1, "window_start": at(0)}
    assert corrected(stream(), sink) == [{**place, **row} for row in expected]


def test_late_panes_of_a_window_are_results_for_every_sink(spark: object) -> None:
    with drive(kept()) as d:
        d.feed("bids", [bid(1), bid(15)])
        d.step()
        d.feed("bids", [bid(2)])
        d.step()
        assert [(row["n"], row["pane"]) for row in d.rows("out")] == [(1, "on_time"), (2, "late")]
