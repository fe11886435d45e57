"""The lane and the size of a batch, with Spark and before it has started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

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
FEW = {"bids": {0: (0, 100)}}


class Starting:
    """A Spark session that is ready or not; waiting for it makes it ready."""

    def __init__(self, *, ready: bool) -> None:
        self.ready = ready

    def get(self) -> None:
        self.ready = True


def lanes(*, ready: bool, limited: bool = True, **options: Any) -> tuple[Lanes, Starting]:
    spark = Starting(ready=ready)
    sizing = Sizing(1.0, limited=limited, budget=8 * NARROW_BYTES)
    return Lanes(cast("Spark", spark), sizing, **{"forced": None, **options}), spark


def rows(ranges: dict[str, dict[int, tuple[int, int]]]) -> int:
    return sum(b - a for parts in ranges.values() for a, b in parts.values())


def test_large_batches_run_wide_if_spark_is_ready() -> None:
    made, _ = lanes(ready=True)
    lane, chosen, limited = made.choose(MANY)

    assert (lane, limited) == ("wide", True)
    assert rows(chosen) == pytest.approx(8 * NARROW_ROWS, abs=10)


def test_until_spark_is_ready_batches_stay_small() -> None:
    made, spark = lanes(ready=False)
    lane, chosen, limited = made.choose(MANY)

    assert (lane, limited, spark.ready) == ("narrow", True, False)
    assert rows(chosen) == pytest.approx(NARROW_ROWS, abs=10)
    assert all(a == MANY["bids"][p][0] for p, (a, _) in chosen["bids"].items())
    spark.ready = True
    assert made.choose(MANY)[0] == "wide"


def test_a_run_to_the_end_waits_for_spark_only_if_its_input_is_large() -> None:
    made, spark = lanes(ready=False, patient=True)

    assert made.choose(FEW) == ("narrow", FEW, False)
    assert not spark.ready
    assert made.choose(MANY)[0] == "wide"
    assert spark.ready


def test_the_driver_alone_runs_small_batches_whatever_waits() -> None:
    for patient in (False, True):
        made, spark = lanes(ready=False, on_driver=True, patient=patient)
        lane, chosen, limited = made.choose(MANY)

        assert (lane, limited, spark.ready) == ("narrow", True, False)
        assert rows(chosen) == pytest.approx(NARROW_ROWS, abs=10)


@pytest.mark.parametrize(("forced", "limited"), [("wide", True), (None, False)])
def test_a_forced_lane_or_size_is_kept(forced: str | None, limited: bool) -> None:
    made, _ = lanes(ready=False, forced=forced, limited=limited)
    lane, chosen, _ = made.choose(MANY)

    assert lane == "wide"
    assert rows(chosen) > NARROW_ROWS


def intent(ranges: dict[int, tuple[int, int]]) -> Intent:
    source = SourceIntent(ranges=ranges, idle=(), drift=0, declared=0, identity="x")
    return Intent("id", 3, 2, 1, 0, "wide", False, {"bids": source}, None, None)


def test_a_wide_batch_is_redone_without_spark() -> None:
    began = intent(MANY["bids"])

    assert lanes(ready=False)[0].soonest(began).lane == "narrow"
    assert lanes(ready=False)[0].soonest(began).sources == began.sources
    assert lanes(ready=True)[0].soonest(began) is began
    assert lanes(ready=True, on_driver=True)[0].soonest(began).lane == "narrow"
    assert lanes(ready=False, forced="wide")[0].soonest(began) is began


def test_the_stored_lane_name_of_earlier_versions_is_the_narrow_lane() -> None:
    began = Intent("i", 1, 0, 1, 0, "narrow", False, {})
    assert Intent.from_json({**began.to_json(), "lane": "short"}) == began
    assert lane_name("short") == lane_name("narrow") == "narrow"
    assert lane_name("wide") == "wide"
