"""Figures of other engines, compared with those that a prototype measured on a similar machine.

A figure further than a fifth from the earlier one is explained.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.page_rows import drained_count
from benchmarks.report import right

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.report import Round

    Kept = dict[str, Any]

NEAR = 0.2
_WARM = (
    "measured cold there, with its start of about 3 s; here start and warm-up are excluded, in its "
    "favour"
)
_WRITES = (
    "there nothing was written (`blackhole`); here one session per two bids is written to Kafka "
    "at least once. With `blackhole` here, one round at 4be7eac: {}, within a fifth"
)
_CLOSES = (
    "there the latency of each record was measured, here that of windows of 100 ms: in append mode "
    "Spark closes a window one batch after the watermark has passed its end"
)
_HEAD = """## Comparison with earlier figures

A prototype measured some of these engines before, on the same kind of machine, which shows whether
their figures here are plausible. Differences of more than a fifth are explained.

| row | peer | figure | then | here | |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Before:
    """An earlier figure of an engine, and where to find the current one."""

    row: str
    cell: str
    what: str
    then: tuple[float, float]
    figure: Callable[[Kept, Round], float]
    why: str = ""

    def line(self, kept: Kept) -> str | None:
        """A line of the table; None if the cell is void or was not measured."""
        rounds = kept["cells"].get(self.cell, [])
        if not rounds or not right(rounds):
            return None
        here = statistics.median(self.figure(kept, one) for one in rounds)
        low, high = self.then
        near = (1 - NEAR) * low <= here <= (1 + NEAR) * high
        then = f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"
        verdict = "within a fifth" if near else self.why or "**not explained**"
        peer, _, at = self.cell.partition(", ")
        where = f"[{self.row}](#{self.row})" + (f", {at}" if at else "")
        return f"| {where} | {peer} | {self.what} | {then} | {here:,.0f} | {verdict} |"


def _a_second(kept: Kept, one: Round) -> float:
    return float(drained_count(kept) / one["wall"])


def _batch(percentile: str) -> Callable[[Kept, Round], float]:
    return lambda _, one: float(1000 * one["seconds"][percentile])


def _after(percentile: str) -> Callable[[Kept, Round], float]:
    return lambda _, one: float(one["latency_ms"][percentile])


_SPEED, _MS = "records a second", "ms"
_PACED = "spark-heap, 2,000/s, 4 partitions"
BEFORE = (
    Before("decode", "spark-heap", f"{_SPEED}, `from_json`", (413e3, 413e3), _a_second),
    Before("q2", "flink-heap", f"{_SPEED}; then passed through", (285e3, 285e3), _a_second, _WARM),
    Before("tumbling", "flink-heap", _SPEED, (132e3, 132e3), _a_second, _WARM),
    Before("tumbling", "flink-rocksdb", _SPEED, (85e3, 85e3), _a_second, _WARM),
    Before("session", "flink-heap", _SPEED, (116e3, 116e3), _a_second, _WRITES.format("102,955")),
    Before("session", "flink-rocksdb", _SPEED, (40e3, 40e3), _a_second, _WRITES.format("36,840")),
    Before("growth", "spark-rocksdb, 100,000 keys", f"p50 of a batch, {_MS}", (400, 400),
           _batch("p50"), "the first batches of a cold JVM there"),
    Before("growth", "spark-rocksdb, 1,000,000 keys", f"p50 of a batch, {_MS}", (292, 292),
           _batch("p50")),
    Before("growth", "spark-rocksdb, 10,000,000 keys", f"p50 of a batch, {_MS}", (300, 300),
           _batch("p50")),
    Before("latency", _PACED, f"p50, {_MS}; then with RocksDB", (335, 416), _after("p50"), _CLOSES),
    Before("latency", _PACED, f"p99, {_MS}; then with RocksDB", (738, 767), _after("p99"), _CLOSES),
)  # fmt: skip


def beside(found: dict[str, Kept]) -> str:
    """The section; empty if no row was measured."""
    lines = [line for one in BEFORE if one.row in found and (line := one.line(found[one.row]))]
    return _HEAD + "\n".join(lines) + "\n" if lines else ""
