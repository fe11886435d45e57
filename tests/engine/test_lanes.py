"""Which lane a batch takes, and how much of what waits, with Spark and before it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from millstream.engine.checkpoint.protocol import Intent, SourceIntent
from millstream.engine.lanes.choice import Lanes
from millstream.engine.lanes.planner import NARROW_BYTES, Sizing
from millstream.metrics.facts import lane_name

if TYPE_CHECKING:
    from millstream.engine.spark.session import Spark

RECORD = 200
NARROW_ROWS = NARROW_BYTES // RECORD
MANY = {"bids": {0: (0, 10 * NARROW_ROWS), 1: (5, 5 + 10 * NARROW_ROWS)}}
SOME = {"bids": {0: (0, 3 * NARROW_ROWS)}}
FEW = {"bids": {0: (0, 100)}}


class Starting:
    """A Spark that is there or not, and knows whether it was wanted."""

    def __init__(self, *, there: bool) -> None:
        self.ready, self.wanted = there, False

    def start(self) -> None:
        self.wanted = True


def lanes(
    *, there: bool, forced: str | None = None, limited: bool = True
) -> tuple[Lanes, Starting]:
    spark = Starting(there=there)
    sizing = Sizing(1.0, limited=limited, budget=8 * NARROW_BYTES)
    return Lanes(cast("Spark", spark), sizing, forced=forced), spark


def rows(ranges: dict[str, dict[int, tuple[int, int]]]) -> int:
    return sum(b - a for parts in ranges.values() for a, b in parts.values())


def test_much_goes_wide_where_spark_is() -> None:
    made, _ = lanes(there=True)
    lane, chosen, limited = made.choose(MANY)

    assert (lane, limited) == ("wide", True)
    assert rows(chosen) == pytest.approx(8 * NARROW_ROWS, abs=10)


def test_until_spark_is_there_much_goes_in_small_batches_and_spark_is_wanted() -> None:
    made, spark = lanes(there=False)
    lane, chosen, limited = made.choose(MANY)

    assert (lane, limited, spark.wanted) == ("narrow", True, True)
    assert rows(chosen) == pytest.approx(NARROW_ROWS, abs=10)
    assert all(a == MANY["bids"][p][0] for p, (a, _) in chosen["bids"].items())
    spark.ready = True
    assert made.choose(MANY)[0] == "wide"


def test_what_is_done_before_spark_has_started_does_not_start_it() -> None:
    made, spark = lanes(there=False)
    lane, chosen, limited = made.choose(SOME)

    assert (lane, limited, spark.wanted) == ("narrow", True, False)
    assert rows(chosen) == pytest.approx(NARROW_ROWS, abs=10)


def test_little_needs_no_spark() -> None:
    made, spark = lanes(there=False)

    assert made.choose(FEW) == ("narrow", FEW, False)
    assert not spark.wanted


@pytest.mark.parametrize(("forced", "limited"), [("wide", True), (None, False)])
def test_a_batch_that_was_told_its_lane_or_its_rows_keeps_them(
    forced: str | None, limited: bool
) -> None:
    made, spark = lanes(there=False, forced=forced, limited=limited)
    lane, chosen, _ = made.choose(MANY)

    assert lane == "wide"
    assert rows(chosen) > NARROW_ROWS
    assert not spark.wanted


def intent(ranges: dict[int, tuple[int, int]]) -> Intent:
    told = SourceIntent(ranges=ranges, idle=(), drift=0, declared=0, identity="x")
    return Intent("id", 3, 2, 1, 0, "wide", False, {"bids": told}, None, None)


def test_what_spark_began_runs_again_without_it() -> None:
    began = intent(MANY["bids"])

    assert lanes(there=False)[0].soonest(began).lane == "narrow"
    assert lanes(there=False)[0].soonest(began).sources == began.sources
    assert lanes(there=True)[0].soonest(began) is began
    assert lanes(there=False, forced="wide")[0].soonest(began) is began


def test_the_narrow_lane_is_found_by_the_name_that_earlier_versions_stored() -> None:
    began = Intent("i", 1, 0, 1, 0, "narrow", False, {})
    assert Intent.from_json({**began.to_json(), "lane": "short"}) == began
    assert lane_name("short") == lane_name("narrow") == "narrow"
    assert lane_name("wide") == "wide"
