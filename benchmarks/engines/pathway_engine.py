"""Pathway on the same topic: two threads, nothing in Python per record.

In its static mode it reads the topic to its end and stops; it still works in steps, one every
`batch`, as it does on a topic without an end. Its last look at the topic waits half a second,
which is in the wall time. A window leaves once, when the largest time has passed its end by the
delay (`exactly_once_behavior`); for this it gathers the rows in one thread, and it does not wait
for the slowest partition: windows are therefore read by one reader, as of two one runs ahead and
the rows of the other are late. No persistence; its sink is at least once. This module runs without
Millstream: it may import nothing of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pathway as pw  # type: ignore[import-not-found]
from pathway.internals.parse_graph import G  # type: ignore[import-not-found]

from benchmarks.engines.librdkafka import FETCHING, PRODUCING, drained, milliseconds
from benchmarks.measure import measured
from benchmarks.processes import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measure import Cost

THREADS = "2"

Row = dict[str, Any]


def q1(bids: Any, _told: Row) -> Any:
    """Every bid in another currency."""
    return bids.select(bids.auction, bids.bidder, price=bids.price * 0.908, ts=_moment(bids.ts))


def q2(bids: Any, _told: Row) -> Any:
    """The bids of a few auctions."""
    return bids.filter(bids.auction % 123 == 0).select(pw.this.auction, pw.this.price)


def tumbling(bids: Any, told: Row) -> Any:
    """Count and sum per auction and window."""
    window = pw.temporal.tumbling(duration=milliseconds(told["window"]))
    return _counted(bids, told, window, total=pw.reducers.sum(pw.this.price))


def hopping(bids: Any, told: Row) -> Any:
    """Count per auction and hopping window."""
    window = pw.temporal.sliding(hop=milliseconds(told["every"]),
                                 duration=milliseconds(told["window"]))  # fmt: skip
    return _counted(bids, told, window)


def _counted(bids: Any, told: Row, window: Any, **more: Any) -> Any:
    once = pw.temporal.exactly_once_behavior(shift=milliseconds(told["delay"]))
    windows = bids.windowby(bids.ts, window=window, instance=bids.auction, behavior=once).reduce(
        auction=pw.this._pw_instance, first=pw.this._pw_window_start,
        last=pw.this._pw_window_end, n=pw.reducers.count(), **more,
    )  # fmt: skip
    return windows.select(pw.this.auction, pw.this.n, *(windows[name] for name in more),
                          window_start=_moment(pw.this.first),
                          window_end=_moment(pw.this.last))  # fmt: skip


def distinct(bids: Any, _told: Row) -> Any:
    """The first row of each auction, as it was read."""
    rest = [name for name in bids.column_names() if name != "auction"]
    row = pw.reducers.earliest(pw.make_tuple(*(bids[name] for name in rest)))
    first = bids.groupby(bids.auction).reduce(bids.auction, row=row)
    return first.select(pw.this.auction,
                        **{name: first.row[place] for place, name in enumerate(rest)})  # fmt: skip


def _moment(at: Any) -> Any:
    return at.dt.from_timestamp(unit="ms").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")


WORKS: dict[str, Callable[[Any, Row], Any]] = {
    "q1": q1, "q2": q2, "tumbling": tumbling, "hopping": hopping, "distinct": distinct,
}  # fmt: skip
WINDOWED = ("tumbling", "hopping")
_TYPES = {"auction": int, "bidder": int, "price": float, "channel": str, "url": str, "ts": int}
_READ = {"q1": ("auction", "bidder", "price", "ts"), "q2": ("auction", "price"),
         "tumbling": ("auction", "price", "ts"), "hopping": ("auction", "ts")}  # fmt: skip


def _run(address: str, told: Row) -> Cost:
    G.clear()
    work = told.get("work", "tumbling")
    columns = {name: _TYPES[name] for name in _READ.get(work, tuple(_TYPES))}
    reading = {**FETCHING, "bootstrap.servers": address, "group.id": told["out"],
               "auto.offset.reset": "earliest"}  # fmt: skip
    bids = pw.io.kafka.read(
        reading, topic=told["topic"], format="json", schema=pw.schema_from_types(**columns),
        mode="static", autocommit_duration_ms=milliseconds(told["batch"]),
        parallel_readers=1 if work in WINDOWED else 2,
    )  # fmt: skip
    pw.io.kafka.write(WORKS[work](bids, told), {**PRODUCING, "bootstrap.servers": address},
                      told["out"], format="json")  # fmt: skip
    with measured() as cost:
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return cost


def drain(address: str, told: Row) -> dict[str, float]:
    """Drain a topic through the work that is told into a topic, at least once."""
    os.environ["PATHWAY_THREADS"] = THREADS
    return drained(address, told, _run)


if __name__ == "__main__":
    main({"drain": drain})
