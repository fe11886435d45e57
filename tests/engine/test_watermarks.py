"""The watermarks of a step's inputs, from those of their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import millstream as ms
from millstream.engine.watermarks import NodeWatermarks
from millstream.event_time.batch_time import MIN_TIME

if TYPE_CHECKING:
    from millstream.plan.graph import Read, Stateful


def stream(name: str) -> ms.Stream:
    return ms.read(ms.Topic(name, schema="id long, ts timestamp"), time="ts")


def users() -> ms.Table:
    return ms.table(ms.Topic("users", schema="id long, name string"), key="id")


def reach(times: dict[str, int], *idle: str) -> NodeWatermarks:
    def given(step: Stateful) -> int:
        return times[step.label]

    def named(read: Read) -> int:
        return times[read.name]

    return NodeWatermarks(named, given, lambda read: read.name in idle)


def test_each_input_has_the_watermark_of_its_own_sources() -> None:
    left, right = stream("a").where("id > 1").node, stream("b").node

    assert reach({"a": 10, "b": 20}).sides([left, right], [MIN_TIME, 25]) == (10, 25)


def test_an_idle_input_follows_the_others_and_an_idle_side_of_a_union_does_not_delay_it() -> None:
    left, right = stream("a").node, stream("b").node
    both = stream("a").union(stream("b")).node

    assert reach({"a": 10, "b": 20}, "a").sides([left, right], [0, 0]) == (20, 20)
    assert reach({"a": 10, "b": 20}, "a", "b").sides([left, right], [0, 0]) == (10, 20)
    assert reach({"a": 10, "b": 20}, "a").of(both) == 20
    assert reach({"a": 10, "b": 20}).of(both) == 10


def test_a_table_follows_streams_but_does_not_advance_them() -> None:
    clicks, table = stream("clicks").node, users().node

    times = {"clicks": 10, "users": 1_000}
    assert reach(times, "clicks").sides([clicks, table], [0, 0]) == (10, 1_000)
    assert reach({"clicks": 10, "users": 3}, "users").sides([clicks, table], [0, 0]) == (10, 10)
