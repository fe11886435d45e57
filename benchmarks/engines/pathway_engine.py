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

from benchmarks.engines.librdkafka import FETCHING, PRODUCING, drained, milliseconds, topics_of
from benchmarks.measure import measured
from benchmarks.processes import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measure import Cost

THREADS = "2"

Row = dict[str, Any]


def q1(bids: Any, _spec: Row) -> Any:
    """Every bid in another currency."""
    return bids.select(bids.auction, bids.bidder, price=bids.price * 0.908, ts=_moment(bids.ts))


def q2(bids: Any, _spec: Row) -> Any:
    """The bids of a few auctions."""
    return bids.filter(bids.auction % 123 == 0).select(pw.this.auction, pw.this.price)


def tumbling(bids: Any, spec: Row) -> Any:
    """Count and sum per auction and window."""
    window = pw.temporal.tumbling(duration=milliseconds(spec["window"]))
    return _counted(bids, spec, window, total=pw.reducers.sum(pw.this.price))


def hopping(bids: Any, spec: Row) -> Any:
    """Count per auction and hopping window."""
    window = pw.temporal.sliding(hop=milliseconds(spec["every"]),
                                 duration=milliseconds(spec["window"]))  # fmt: skip
    return _counted(bids, spec, window)


def _counted(bids: Any, spec: Row, window: Any, **more: Any) -> Any:
    windows = bids.windowby(bids.ts, window=window, instance=bids.auction,
                            behavior=_once(spec)).reduce(
        auction=pw.this._pw_instance, first=pw.this._pw_window_start,
        last=pw.this._pw_window_end, n=pw.reducers.count(), **more,
    )  # fmt: skip
    return windows.select(pw.this.auction, pw.this.n, *(windows[name] for name in more),
                          window_start=_moment(pw.this.first),
                          window_end=_moment(pw.this.last))  # fmt: skip


def _once(spec: Row) -> Any:
    return pw.temporal.exactly_once_behavior(shift=milliseconds(spec["delay"]))


def q5(bids: Any, spec: Row) -> Any:
    """The most bids an auction has per window of 10 s every 2 s."""
    window = pw.temporal.sliding(hop=2_000, duration=10_000)
    counts = bids.windowby(bids.ts, window=window, instance=bids.auction,
                           behavior=_once(spec)).reduce(
        first=pw.this._pw_window_start, n=pw.reducers.count())  # fmt: skip
    most = counts.groupby(counts.first).reduce(counts.first, n=pw.reducers.max(counts.n))
    return most.select(pw.this.n, window_start=_moment(pw.this.first))


def q7(bids: Any, spec: Row) -> Any:
    """The bids with the highest price of their window of 10 s: joined with it when it closes."""
    windows = bids.windowby(bids.ts, window=pw.temporal.tumbling(duration=10_000),
                            behavior=_once(spec)).reduce(
        first=pw.this._pw_window_start, highest=pw.reducers.max(pw.this.price))  # fmt: skip
    own = bids.with_columns(first=bids.ts - bids.ts % 10_000)
    return own.join(windows, own.first == windows.first, own.price == windows.highest).select(
        own.auction, own.bidder, own.price, ts=_moment(own.ts))  # fmt: skip


def q8(persons: Any, auctions: Any, _spec: Row) -> Any:
    """Persons that opened an auction in the window in which they came."""
    pairs = pw.temporal.window_join(
        persons, auctions, persons.ts, auctions.ts, pw.temporal.tumbling(duration=10_000),
        persons.person == auctions.seller).select(persons.person, persons.name,
                                                  first=pw.this._pw_window_start)  # fmt: skip
    each = pairs.groupby(pairs.first, pairs.person, pairs.name).reduce(
        pairs.first, pairs.person, pairs.name)  # fmt: skip
    return each.select(pw.this.person, pw.this.name, window_start=_moment(pw.this.first))


def join(ours: Any, theirs: Any, spec: Row) -> Any:
    """Pairs of one auction at most so far apart."""
    apart = milliseconds(spec["within"])
    return pw.temporal.interval_join(
        ours, theirs, ours.ts, theirs.ts, pw.temporal.interval(-apart, apart),
        ours.auction == theirs.auction).select(ours.auction, ours.bidder, theirs.price)  # fmt: skip


def as_of(ours: Any, theirs: Any, spec: Row) -> Any:
    """Bids with the price of that moment; a bid waits for prices for the configured delay."""
    waiting = pw.temporal.common_behavior(delay=milliseconds(spec["delay"]))
    found = pw.temporal.asof_join(
        ours, theirs, ours.ts, theirs.ts, ours.auction == theirs.auction,
        how=pw.JoinMode.LEFT, behavior=waiting).select(ours.auction, ours.bidder,
                                                       price=theirs.price)  # fmt: skip
    return found.filter(found.price.is_not_none())


def distinct(bids: Any, _spec: Row) -> Any:
    """The first row of each auction, as it was read."""
    rest = [name for name in bids.column_names() if name != "auction"]
    row = pw.reducers.earliest(pw.make_tuple(*(bids[name] for name in rest)))
    first = bids.groupby(bids.auction).reduce(bids.auction, row=row)
    return first.select(pw.this.auction,
                        **{name: first.row[place] for place, name in enumerate(rest)})  # fmt: skip


def _moment(at: Any) -> Any:
    return at.dt.from_timestamp(unit="ms").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")


WORKS: dict[str, Callable[..., Any]] = {
    "q1": q1, "q2": q2, "tumbling": tumbling, "hopping": hopping, "distinct": distinct,
    "q5": q5, "q7": q7, "q8": q8, "join": join, "as_of": as_of,
}  # fmt: skip
ONE_READER = ("tumbling", "hopping", "q5", "q7", "as_of")
_TYPES = {"auction": int, "bidder": int, "price": float, "channel": str, "url": str, "ts": int,
          "person": int, "name": str, "seller": int}  # fmt: skip
_PATHS = {"person": "/id"}  # no column may be called id
_BID = ("auction", "bidder", "price", "channel", "url", "ts")
_SIDES = {"q1": [("auction", "bidder", "price", "ts")], "q2": [("auction", "price")],
          "tumbling": [("auction", "price", "ts")], "hopping": [("auction", "ts")],
          "distinct": [_BID], "q5": [("auction", "ts")],
          "q7": [("auction", "bidder", "price", "ts")],
          "q8": [("person", "name", "ts"), ("seller", "ts")],
          "join": [("auction", "bidder", "ts"), ("auction", "price", "ts")],
          "as_of": [("auction", "bidder", "ts"), ("auction", "price", "ts")]}  # fmt: skip


def _run(address: str, spec: Row) -> Cost:
    G.clear()
    work = spec.get("work", "tumbling")
    sides = [_read(address, topic, columns, spec)
             for topic, columns in zip(topics_of(spec), _SIDES[work], strict=True)]  # fmt: skip
    pw.io.kafka.write(WORKS[work](*sides, spec), {**PRODUCING, "bootstrap.servers": address},
                      spec["out"], format="json")  # fmt: skip
    with measured() as cost:
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return cost


def _read(address: str, topic: str, columns: tuple[str, ...], spec: Row) -> Any:
    reading = {**FETCHING, "bootstrap.servers": address, "group.id": f"{topic}-{spec['out']}",
               "auto.offset.reset": "earliest"}  # fmt: skip
    return pw.io.kafka.read(
        reading, topic=topic, format="json",
        schema=pw.schema_from_types(**{name: _TYPES[name] for name in columns}),
        json_field_paths={name: path for name, path in _PATHS.items() if name in columns},
        mode="static", autocommit_duration_ms=milliseconds(spec["batch"]),
        parallel_readers=1 if spec.get("work", "tumbling") in ONE_READER else 2,
    )  # fmt: skip


def drain(address: str, spec: Row) -> dict[str, float]:
    """Drain a topic through the given workload into a topic, at least once."""
    os.environ["PATHWAY_THREADS"] = THREADS
    return drained(address, spec, _run)


if __name__ == "__main__":
    main({"drain": drain})
