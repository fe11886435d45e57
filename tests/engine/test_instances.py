"""Facts by instance, in both lanes: they add up to those of the whole step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import PLACES, at, bid, bids, counted, drive

import millstream as ms
from millstream.metrics import instances

if TYPE_CHECKING:
    from millstream.metrics.facts import Facts
    from millstream.testing import Drive

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
STEP = "tumbling(auction)"


def summed(facts: Facts, count: str, prefix: str, step: str = STEP) -> Any:
    found = facts.steps[step]["instances"]
    return sum(one[count] for one in found if one["instance"].startswith(prefix))


def fed(d: Drive) -> Facts:
    """One batch of two partitions; the second has a bad row."""
    d.feed("bids", [bid(second, second % 5) for second in range(20)])
    d.feed("bids", [bid(25, 1), b"{"], partition=1)
    return d.step()


@pytest.mark.parametrize("place", ["narrow", "driver"])
def test_in_the_narrow_lane_a_step_has_one_instance(place: str) -> None:
    with drive(counted(bids()), lane=place) as d:
        facts = fed(d)

    [one] = facts.steps[STEP]["instances"]
    step = facts.steps[STEP]
    assert one["instance"] == "buckets 0-255"
    assert (one["where"] == "driver") == (place == "driver")
    for count in ("in", "out", "late", "dead", "state_rows", "state_bytes"):
        assert one[count] == step[count], count
    assert (one["in"], one["dead"]) == (21, 1)
    assert 0 < one["seconds"] <= step["seconds"]


def test_in_the_wide_lane_the_output_of_tasks_is_the_input_of_the_parts_of_the_state() -> None:
    with drive(counted(bids()), lane="wide") as d:
        facts = fed(d)

    step = facts.steps[STEP]
    assert summed(facts, "in", "take") == step["in"] == 21
    assert summed(facts, "dead", "take") == step["dead"] == 1
    assert summed(facts, "out", "take") == summed(facts, "in", "buckets") > 0
    assert summed(facts, "out", "buckets") == step["out"] > 0
    assert summed(facts, "state_rows", "buckets") == step["state_rows"] > 0
    assert summed(facts, "state_bytes", "buckets") == step["state_bytes"]
    assert all(one["where"] != "driver" and one["seconds"] > 0 for one in step["instances"])


@pytest.mark.parametrize("lane", PLACES)
def test_a_source_has_an_instance_per_partition_and_the_slowest_holds_it_back(lane: Any) -> None:
    with drive(counted(bids(watermark="5 seconds", idle="1 minute")), lane=lane) as d:
        facts = fed(d)
        assert facts.held_by == {"bids": 0}
        [first, second] = facts.sources["bids"]["instances"]
        shown = ("instance", "in", "out", "dead", "watermark", "idle")
        assert [first[name] for name in shown] == ["0", 20, 20, 0, at(14).isoformat(), False]
        assert [second[name] for name in shown] == ["1", 2, 1, 1, at(20).isoformat(), False]
        assert facts.watermarks == {"bids": at(14)}

        d.clock(at(100))
        d.feed("bids", [bid(40, 1)], partition=1)
        d.step()
        d.clock(at(200))
        d.feed("bids", [bid(41, 1)], partition=1)
        facts = d.step()
        assert facts.held_by == {"bids": 1}
        assert (facts.sources["bids"]["idle"], facts.sources["bids"]["partitions"]) == ([0], 2)
        assert [one["idle"] for one in facts.sources["bids"]["instances"]] == [True, False]
        assert (facts.watermarks, facts.clock) == ({"bids": at(36)}, at(200))


@pytest.mark.parametrize("lane", PLACES)
def test_used_rows_behind_the_watermark_are_not_counted_as_late(
    lane: Any,
) -> None:
    with drive(counted(bids()), lane=lane) as d:
        d.feed("bids", [bid(25)])
        d.step()
        d.feed("bids", [bid(22), bid(24), bid(1), bid(26)])
        facts = d.step()

    assert (facts.behind, facts.late, facts.steps[STEP]["behind"]) == (2, 1, 2)
    assert sum(one["late"] for one in facts.steps[STEP]["instances"]) == 1


@pytest.mark.parametrize("lane", PLACES)
def test_stages_without_a_step_have_instances_too(lane: Any) -> None:
    with drive(bids().where("auction > 0"), lane=lane) as d:
        facts = fed(d)

    assert summed(facts, "in", "take", "out") == summed(facts, "out", "take", "out") == 17
    assert facts.steps["out"]["in"] == 17


def test_the_number_of_instances_is_limited() -> None:
    many = [instances.instance(f"take {n}", **{"in": n, "seconds": 0.5}) for n in range(100)]

    kept = instances.bounded(many)

    assert len(kept) == instances.MOST
    assert kept[-1]["instance"] == instances.OTHERS
    assert sum(one["in"] for one in kept) == sum(range(100))
    assert {one["instance"] for one in kept} >= {"take 99", "take 69"}


def test_a_source_of_many_partitions_shows_the_active_and_the_slowest_ones() -> None:
    stream = ms.read(ms.Topic("bids", schema="auction long, ts timestamp"), time="ts", idle=None)
    with drive(counted(stream)) as d:
        for partition in range(100):
            d.feed("bids", [bid(1000 - partition)], partition=partition)
        d.step()
        d.feed("bids", [bid(2000)], partition=7)
        d.feed("bids", [bid(2000)], partition=93)
        facts = d.step()

    shown = {one["instance"]: one["in"] for one in facts.sources["bids"]["instances"]}
    assert len(shown) == instances.MOST
    assert (shown["7"], shown["93"], shown["99"]) == (1, 1, 0)
    assert facts.held_by == {"bids": 99}
    assert facts.sources["bids"]["partitions"] == 100
