"""Invalid windows, triggers and late policies raise while building."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.api.test_refusals import bids, untimed, wrong

import millstream as ms
from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable


def by_auction(window: Any) -> Any:
    return bids().by("auction").window(window)


def kept() -> ms.Stream:
    made: ms.Stream = by_auction(ms.tumbling("1 s")).late(keep="1 minute").agg(n=ms.count())
    return made


TUMBLING = ms.tumbling("10 seconds")
CASES: list[tuple[str, Callable[[], object], str, str]] = [
    ("hopping without a step", lambda: ms.hopping("1 s", every="0 s"), "'0 s'", "above zero"),
    ("hopping with too many slices", lambda: ms.hopping("1 day", every="7 ms"), "1 day", "divides"),
    ("an unknown zone", lambda: ms.tumbling("1 day", zone="Mars/Base"), "Mars", "Berlin"),
    ("hours in a zone", lambda: ms.tumbling("1 hour", zone="Asia/Kolkata"), "1 hour", "zone="),
    ("a third clock", lambda: ms.tumbling("1 s", clock=wrong("wall")), "'wall'", "event time"),
    ("a session without time", lambda: untimed().by("name").window(ms.session(gap="1 s")),
     "without", "time="),
    ("sliding without time", lambda: untimed().by("name").window(ms.sliding("1 s")),
     "without", "time="),
    ("delta of an unknown column", lambda: by_auction(ms.delta("prize", 3)), "'prize'", "'price'"),
    ("punctuated by an unknown column", lambda: by_auction(ms.punctuated("prize > 3")), "'prize'",
     "'price'"),
    ("punctuated by a named condition", lambda: by_auction(ms.punctuated("price > 3 as x")), "as x",
     "leave out"),
    ("each of zero rows", lambda: ms.each(0), "0", "each(100)"),
    ("each of a string", lambda: ms.each(wrong("3")), "'3'", "each(100)"),
    ("every never", lambda: ms.every("0 s"), "'0 s'", "above zero"),
    ("an empty when", lambda: ms.when(""), "''", "when("),
    ("any of nothing", ms.any_of, "()", "any_of("),
    ("all of a string", lambda: ms.all_of(wrong("x")), "'x'", "all_of("),
    ("early as a string", lambda: by_auction(TUMBLING).trigger(early=wrong("1 s")), "'1 s'",
     "ms.every"),
    ("unknown panes", lambda: by_auction(TUMBLING).trigger(panes=wrong("all")), "'all'",
     "accumulating"),
    ("when with an unknown column",
     lambda: by_auction(TUMBLING).trigger(early=ms.when("m > 1")).agg(n=ms.count()), "m", "n"),
    ("when with a function that Arrow lacks",
     lambda: by_auction(TUMBLING).trigger(early=ms.when("sqrt(n) > 1")).agg(n=ms.count()),
     "SQRT", "compute it as another aggregate"),
    ("when with invalid SQL",
     lambda: by_auction(TUMBLING).trigger(late=ms.when("n >")).agg(n=ms.count()), "'n >'",
     "correct"),
    ("a trigger on sliding", lambda: by_auction(ms.sliding("1 s")).trigger(early=ms.each()),
     "sliding", "emitted once per row"),
    ("late panes of rows(…)", lambda: by_auction(ms.rows(3)).trigger(late=ms.each()), "rows(3)",
     "in log order"),
    ("rest of a rows window", lambda: by_auction(ms.rows(3)).late(rest=ms.discard), "rows(3)",
     "in log order"),
    ("keep of a rows window", lambda: by_auction(ms.rows(3)).late(keep="1 s"), "rows(3)",
     "in log order"),
    ("keep of a sliding window", lambda: by_auction(ms.sliding("1 s")).late(keep="1 s"), "sliding",
     "set rest="),
    ("keep of a processing-time window", lambda: by_auction(ms.tumbling("1 s", clock="processing"))
     .late(keep="1 s"), "processing", "no row is late"),
    ("keep below zero", lambda: by_auction(TUMBLING).late(keep="-1 s"), "'-1 s'", "zero or more"),
    ("an alert above two", lambda: by_auction(TUMBLING).late(alert_above=2), "2", "0.01"),
    ("an alert above a string", lambda: by_auction(TUMBLING).late(alert_above=wrong("1")), "'1'",
     "0.01"),
    ("distinct after corrections", lambda: kept().distinct(by="n"), "keep", "leave keep= out"),
    ("ordered after corrections", lambda: kept().ordered(), "keep", "leave keep= out"),
    ("rows(…) corrected", lambda: kept().by("n").window(ms.rows(2)), "keep", "leave keep= out"),
    ("corrections through SQL", lambda: kept().where("n > 1").distinct(by="n"), "keep",
     "leave keep= out"),
    ("a sketch after corrections",
     lambda: kept().by("n").window(TUMBLING).agg(a=ms.approx_distinct("auction")), "keep",
     "exact"),
    ("ordered without time", lambda: untimed().ordered(), "without", "time="),
    ("ordered with an empty name", lambda: bids().ordered(name=""), "''", "leave it out"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "got", "do"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_an_invalid_window_raises_while_building(
    build: Callable[[], object], got: str, do: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        build()

    sentence = str(refused.value)
    assert "needs" in refused.value.need
    assert got in sentence
    assert do in sentence
    assert "\n" not in sentence


def test_a_trigger_or_late_adds_the_pane_columns() -> None:
    plain = by_auction(TUMBLING).agg(n=ms.count())
    late = by_auction(TUMBLING).late(rest=ms.discard).agg(n=ms.count())
    retracting = by_auction(TUMBLING).trigger(panes="retracting").agg(n=ms.count())

    assert plain.columns == ("auction", "window_start", "window_end", "n")
    assert late.columns == ("auction", "window_start", "window_end", "n", "pane", "pane_index")
    assert retracting.columns == (*late.columns, "retract")


@pytest.mark.parametrize(
    ("window", "time"),
    [
        (TUMBLING, ("window_end", -1)),
        (ms.hopping("10 s", every="5 s"), ("window_end", -1)),
        (ms.session(gap="1 s"), ("window_end", -1)),
        (ms.sliding("1 s"), ("window_end", 0)),
        (ms.rows(3), ("window_end", 0)),
        (ms.everything(), ("_time", 0)),
        (ms.tumbling("1 s", clock="processing"), None),
    ],
)
def test_results_have_the_event_time_of_their_window(
    window: Any, time: tuple[str, int] | None
) -> None:
    made = by_auction(window).agg(n=ms.count()).node.time

    assert (None if made is None else (made.column, made.shift)) == time
