"""A world without a broker: topics in memory, a sink with a ledger, crashes on command.

The engine, its checkpoint and its files are the real ones, and so is Spark. A crash is an
exception that nothing catches, thrown at a step of the protocol; what the process held in
its hands is dropped, what is on disk and in the sink stays.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tests.faults import verifier
from tests.faults.driver import DELAY, SCHEMA, SIZE

import millstream as ms
from millstream.engine import batch
from millstream.engine.checkpoint import checkpoint
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.engine import Engine
from millstream.engine.spark.session import Spark
from millstream.sinks.memory import visible
from millstream.sources.spec import Extent
from millstream.testing.memory_log import MemoryLog, MemoryReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

    from millstream.engine.lanes.planner import Sizing
    from millstream.plan.graph import Read
    from millstream.sinks.spec import Sink, Staged

TOPIC = "rows"


class Crash(BaseException):
    """The process is gone."""


@dataclass
class Log(MemoryLog):
    """Topics in memory, which can be made anew and lose what is old."""

    identity: str = "first"
    first: int = 0


class LogReader(MemoryReader):
    """Reads a `Log`."""

    def __init__(self, log: Log, topic: str) -> None:
        super().__init__(log, topic)
        self._whole = log

    def extent(self) -> Extent:
        there = super().extent()
        return Extent(dict.fromkeys(there.end, self._whole.first), there.end, self._whole.identity)


@dataclass
class Sinks:
    """What lies outside and outlives every run: rows by batch, and one mark per system."""

    rows: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)


class LedgerWriter:
    """Rows and mark in one step, as a transaction would have them."""

    def __init__(self, sinks: Sinks, name: str, tell: Callable[[str], None]) -> None:
        self._sinks, self._name, self._tell = sinks, name, tell

    def recover(self, expected: str | None) -> str | None:
        return self._sinks.marks.get(self._name)

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        rows = [
            (self._name, staged.output if staged.kind == "result" else staged.kind, row)
            for staged in outputs
            for table in staged.tables()
            for row in visible(table.to_pylist())
        ]
        self._tell("before a sink's commit")
        self._sinks.rows.extend(rows)
        self._sinks.marks[self._name] = intent
        self._tell("after a sink's commit")

    def close(self) -> None:
        """Nothing is held."""


class Environment:
    """What the engine sees of it: one topic, sinks named after the first word of their name."""

    def __init__(self) -> None:
        self.log, self.sinks = Log(), Sinks()
        self.now = 1_767_225_600_000_000
        self.at: dict[str, Callable[[], None]] = {}

    def tell(self, point: str) -> None:
        """A point is reached: what was planned for it happens, once."""
        self.at.pop(point, lambda: None)()

    def reader(self, name: str, read: Read) -> LogReader:
        return LogReader(self.log, name)

    def writer_of(self, sink: Sink) -> str:
        return sink.name.partition(".")[0]

    def writer(self, name: str, job: str) -> LedgerWriter:
        return LedgerWriter(self.sinks, name, self.tell)

    def clock(self) -> int:
        return self.now

    def ahead(self, read: Read) -> int | None:
        return None


def windows(name: str = "small", *sinks: str) -> ms.Pipeline:
    """Count and sum by key and window, to one topic or several."""
    rows = ms.read(ms.Topic(TOPIC, schema=SCHEMA), time="ts", watermark=DELAY, idle=None)
    panes = rows.by("key").window(ms.tumbling(SIZE)).agg(n=ms.count(), total=ms.sum("amount"))
    return ms.Pipeline(name, *(panes.to(ms.Topic(sink)) for sink in sinks or ("out",)))


class Small:
    """One job in the small world, with as many runs as it takes."""

    def __init__(self, folder: Path, spark: SparkSession, pipeline: ms.Pipeline | None = None,
                 lane: Literal["narrow", "wide"] = "narrow") -> None:  # fmt: skip
        self.folder, self._spark = folder, spark
        self.lane: Literal["narrow", "wide"] = lane
        self.sizing: Sizing | None = None
        self.pipeline = pipeline or windows()
        self.environment = Environment()

    def feed(self, rows: int = 12, *, more: int = 0) -> None:
        """So many rows more in each of two partitions, a second apart, amounts from `more` on."""
        fed = len(self.environment.log.records.get(TOPIC, {}).get(0, ()))
        for place in range(fed, fed + rows):
            for partition in (0, 1):
                minute, second = divmod(place, 60)
                ts = f"2026-01-01T00:{minute:02d}:{second:02d}Z"
                row = {"id": place, "key": place % 3, "amount": place + more, "ts": ts}
                value = json.dumps(row)
                record = {"key": None, "value": value.encode(), "headers": None, "timestamp": None}
                self.environment.log.append(TOPIC, partition, record)

    @contextmanager
    def run(self, *, take_over: bool = False) -> Iterator[Engine]:
        """A run from start to end; however it ends, its lock is free then."""
        engine = Engine(
            self.pipeline,
            Checkpoint(self.folder),
            Spark.of(self._spark),
            self.environment,
            lane=self.lane,
            sizing=self.sizing,
        )
        try:
            engine.open(take_over=take_over)
            yield engine
            engine.close()
        finally:
            if hasattr(engine, "_ahead"):
                engine._prefetcher.close()  # threads end with the process they belong to
            engine.checkpoint.close()

    def step(self) -> None:
        """A run of one batch, or up to a crash."""
        with suppress(Crash), self.run() as engine:
            engine.step()

    def finish(self) -> None:
        """A run that reads everything and closes everything, or ends in a crash."""
        with suppress(Crash), self.run() as engine:
            while engine.step() is not None:
                pass
            engine.step(finish=True)

    def crash_at(self, point: str) -> None:
        """The next run that comes by this point ends there."""

        def crash() -> None:
            raise Crash

        self.environment.at[point] = crash

    def verdict(self, sink: str = "out") -> Mapping[str, Any]:
        """What lies in the sink, compared with what DuckDB makes of the input."""
        parts = self.environment.log.records[TOPIC]
        records = [(p, r["offset"], r["value"]) for p, part in parts.items() for r in part]
        wanted, _, _ = verifier.expected(records)
        got = [_pane(row) for system, output, row in self.environment.sinks.rows if output == sink]
        return verifier.compared(wanted, got, set())

    def green(self, sink: str = "out") -> bool:
        """Whether nothing is lost, doubled, never asked for or wrong."""
        verdict = self.verdict(sink)
        return not any(verdict[kind] for kind in ("lost", "doubled", "phantom", "wrong"))


def _pane(row: Mapping[str, Any]) -> tuple[Any, Any]:
    shown = {name: row[name].isoformat() for name in ("window_start", "window_end")}
    return verifier.window_of({**row, **shown})


def tell_the_world(environment: Environment, patch: pytest.MonkeyPatch) -> None:
    """Let the engine's own points be heard by the world."""

    def heard(point: str, number: int) -> None:
        environment.tell(point)

    patch.setattr(checkpoint, "reached", heard)
    patch.setattr(batch, "reached", heard)
