"""Cells of the drain rows: one row of work on one engine, each answer checked.

Engines take turns, so that a noisy machine disturbs all of them; start-up and a warm-up
run are outside the measurement; figures are events per CPU-second of the whole process
tree, and ratios within one round.
"""

from __future__ import annotations

import os
import statistics
import uuid
from typing import TYPE_CHECKING, Any

from benchmarks import oracle
from benchmarks.abilities import why_not
from benchmarks.nexmark import SHARES, Load, fill
from benchmarks.processes import work
from benchmarks.report import keep, right, spread, verdict
from benchmarks.unfinished import Unfinished
from millstream.testing import broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.report import Round

EVENTS = int(os.environ.get("EVENTS", "4000000"))
WARM = int(os.environ.get("WARM", "600000"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
ONCE = tuple(filter(None, os.environ.get("ONCE", "").split(",")))
SPAN = 40
DENSEST = 100_000
WINDOW, DELAY = 10, 5


def tumbling(engines: tuple[str, ...], row: str = "tumbling", keys: int = 100_000) -> bool:
    """Count and sum per key in windows of 10 s, topic to topic."""
    with broker() as running:
        topic, warm = filled(running.address, Load(0, keys=keys))
        expected = oracle.Windows(running.address, topic, window_ms=WINDOW * 1000,
                                  delay_ms=DELAY * 1000)  # fmt: skip

        def cell(engine: str) -> Round:
            if engine == "duckdb":
                return oracle.duckdb_tumbling(running.address, topic, expected)
            out = f"out-{uuid.uuid4().hex[:8]}"
            spec = {"topic": topic, "warm": warm, "out": out, "window": f"{WINDOW} seconds",
                    "delay": f"{DELAY} seconds", "batch": "3 seconds", "rows": 500_000}  # fmt: skip
            figures = work(engine, "drain", running.address, spec)
            return {**figures, "check": expected.check(out)}

        return turns(row, engines, cell, keys)


def decode(engines: tuple[str, ...]) -> bool:
    """A topic's JSON records of six fields to columns."""
    with broker() as running:
        topic, warm = filled(running.address)
        sums = oracle.column_sums(running.address, topic)

        def cell(engine: str) -> Round:
            if engine == "duckdb":
                figures = oracle.duckdb_decode(running.address, topic)
            else:
                out = f"out-{uuid.uuid4().hex[:8]}"
                spec = {"topic": topic, "warm": warm, "out": out}
                figures = work(engine, "decode", running.address, spec)
                if "sums" not in figures:
                    figures["sums"] = oracle.sums_in(running.address, out)
            return {**figures, "check": oracle.check_sums(figures["sums"], sums)}

        return turns("decode", engines, cell)


def bids(events: int) -> int:
    """The number of bids among `events` events."""
    return drained_of(events, ["bids"])


def drained_of(events: int, kinds: Iterable[str]) -> int:
    """The number of events of these kinds."""
    return sum(events * SHARES[kind] // sum(SHARES.values()) for kind in kinds)


def filled(address: str, like: Load | None = None) -> tuple[str, str]:
    """The topic and the warm-up topic, over the same span of event time."""
    keys = (like or Load(0)).keys
    topic, rate = fill(address, Load(EVENTS, keys=keys, density=density(EVENTS)))
    warm, _ = fill(address, Load(WARM, keys=keys, density=density(WARM), seed=8))
    print(f"generated {bids(EVENTS):,} bids into Kafka at {rate:,.0f} a second", flush=True)
    return topic, warm


def density(events: int) -> int:
    """Events per second of event time, so that every size spans the same time."""
    return max(1, min(DENSEST, events // SPAN))


def turns(
    row: str,
    engines: tuple[str, ...],
    cell: Callable[[str], Round],
    keys: int = Load(0).keys,
    kinds: tuple[str, ...] = ("bids",),
) -> bool:
    """Run the engines of a row in turns; return whether every cell is right.

    Those in `ONCE`, which take minutes for what others do in seconds, have the first round only.
    """
    count = drained_of(EVENTS, kinds)
    absent = {name: why for name in engines if (why := why_not(row, name))}
    rounds: dict[str, list[Round]] = {name: [] for name in engines if name not in absent}
    settings: dict[str, Any] = {"EVENTS": EVENTS, "WARM": WARM, "ROUNDS": ROUNDS,
                                "density": density(EVENTS), "keys": keys,
                                "kinds": list(kinds)}  # fmt: skip
    unfinished = Unfinished(row, settings)
    for number in range(ROUNDS):
        for name, measured in rounds.items():
            if number and name in ONCE:
                continue
            figures = unfinished.round(name, number)
            if figures is None:
                figures = {**cell(name), "load": os.getloadavg()[0]}
                unfinished.add(name, figures)
            measured.append(figures)
            print(f"  {row} {name}, round {number + 1}: {figures['cpu']:.2f} CPU-seconds, "
                  f"{figures['wall']:.2f} s", flush=True)  # fmt: skip
    what = " and ".join(kinds)
    print(f"\n{row}: {count:,} {what}, {ROUNDS} rounds, median (smallest–largest)")
    for name, found in rounds.items():
        print(f"  {name:14} {_speed(found, count)}{_ratio(name, rounds)}  {verdict(found)}")
    for name, why in absent.items():
        print(f"  {name:14} {why}")
    unfinished.end()
    return keep(row, settings, rounds, absent)


def _speed(rounds: list[Round], count: int) -> str:
    per_cpu = spread([count / one["cpu"] for one in rounds], ",.0f")
    per_second = statistics.median(count / one["wall"] for one in rounds)
    return f"{per_cpu} events per CPU-second, {per_second:,.0f} a second"


def _ratio(name: str, rounds: dict[str, list[Round]]) -> str:
    """How much millstream processes in the CPU-seconds of this engine, if both are right."""
    ours, theirs = rounds.get("millstream", []), rounds[name]
    if name == "millstream" or not ours or not (right(ours) and right(theirs)):
        return ""
    ratios = [one["cpu"] / mine["cpu"] for mine, one in zip(ours, theirs, strict=False)]
    return f"; millstream does {spread(ratios, '.2f')}×"
