"""Retractions in sinks: a retracted row is never written as a new row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import at, bid, bids, drive

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.sinks.keys import accepts_retractions
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
def test_a_sink_that_only_appends_refuses_unmarked_retractions(sink: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"never retracted.*; got .*keep=.*retracting") as refused:
        shaped().to(sink)
    assert type(sink).__name__ in str(refused.value)
    with pytest.raises(InvalidSpec, match="never retracted"):
        kept().where("n = 1").to(sink)
    with pytest.raises(InvalidSpec, match="never retracted"):
        kept("retracting").drop("retract").to(sink)


@pytest.mark.parametrize("sink", APPENDING, ids=lambda sink: type(sink).__name__)
def test_panes_and_marked_retractions_are_accepted(sink: Any) -> None:
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
def test_a_sink_that_can_delete_accepts_retractions(sink: Any) -> None:
    assert accepts_retractions(sink)
    assert shaped().to(sink).input.corrects


def test_retractions_after_a_transform_are_refused_before_the_first_batch(spark: object) -> None:
    def renamed(frame: Any) -> Any:
        return frame.withColumnRenamed("n", "many")

    with (
        pytest.raises(InvalidSpec, match="never retracted"),
        Drive(ms.Pipeline("p", kept().transform(renamed).to(ms.Topic("out")))),
    ):
        pass


def corrected(stream: ms.Stream, sink: Any) -> list[dict[str, Any]]:
    """The rows emitted when a window gets another row after its result."""
    with Drive(ms.Pipeline("p", stream.to(sink, name="out")), lane="narrow") as d:
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
def test_a_retracted_row_is_emitted_with_its_mark(
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


def test_a_window_that_loses_all_its_rows_is_deleted_from_a_keyed_sink(spark: object) -> None:
    """The late row moves the result of the first window from one group of the second to another."""
    sizes = kept().by("n").window(ms.tumbling("1 minute"))
    many = sizes.late(keep="1 hour").agg(windows=ms.count()).select("n", "windows", "window_start")
    shown = sizes.late(keep="1 hour").agg("by size", windows=ms.count())
    keyed = ms.Postgres("sizes", key=["n", "window_start"], url="unused")
    pipeline = ms.Pipeline(
        "p",
        many.to(ms.Postgres("many", key=["n", "window_start"], url="unused"), name="many"),
        shown.to(keyed, name="keyed"),
        shown.to(ms.Topic("appended")),
    )
    with Drive(pipeline, lane="narrow") as d:
        d.feed("bids", [bid(1), bid(75)])
        d.step()
        for output in ("many", "keyed", "appended"):
            assert [(row["n"], row["windows"]) for row in d.rows(output)] == [(1, 1)]
        d.feed("bids", [bid(2)])
        d.step()
        place = {"windows": 1, "window_start": at(0)}
        gone, given = {"n": 1, **place, "_sign": -1}, {"n": 2, **place}
        assert d.rows("many") == [gone, given]
        keyed_rows = [{name: row[name] for name in gone if name in row} for row in d.rows("keyed")]
        assert keyed_rows == [gone, given]
        assert [(row["n"], row["pane"]) for row in d.rows("appended")] == [(2, "late")]


def test_an_early_pane_is_retracted_when_its_rows_are(
    spark: object,
) -> None:
    sizes = kept().by("n").window(ms.tumbling("1 minute")).trigger(early=ms.each())
    keyed = ms.Postgres("sizes", key=["n", "window_start"], url="unused")
    with Drive(ms.Pipeline("p", sizes.agg(windows=ms.count()).to(keyed)), lane="narrow") as d:
        d.feed("bids", [bid(1), bid(15)])
        d.step()
        assert [(row["n"], row["pane"]) for row in d.rows("sizes")] == [(1, "early")]
        d.feed("bids", [bid(2)])
        d.step()
        panes = [(row["n"], row["pane"], row.get("_sign", 1)) for row in d.rows("sizes")]
        assert panes == [(1, "early", -1), (2, "early", 1)]
