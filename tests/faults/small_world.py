"""An environment without a broker: topics in memory, a sink with a ledger, planned crashes.

The engine, its checkpoint, its files and Spark are real. A crash is an exception that nothing
catches, raised at a step of the protocol: memory is lost, files and sinks stay.
"""

from __future__ import annotations

import copy
import json
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tests.faults import verifier
from tests.faults.driver import DELAY, SCHEMA, SIZE

import millstream as ms
from millstream.engine import batch
from millstream.engine.checkpoint import checkpoint, durable, housekeeping
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.records import appending, archive, compaction, migration
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
    """The process has crashed."""


@dataclass
class Log(MemoryLog):
    """Topics in memory, which can be recreated and lose old records."""

    identity: str = "first"
    first: int = 0


class LogReader(MemoryReader):
    """Reads a `Log`."""

    def __init__(self, log: Log, topic: str) -> None:
        super().__init__(log, topic)
        self._whole = log

    def extent(self) -> Extent:
        extent = super().extent()
        return Extent(
            dict.fromkeys(extent.end, self._whole.first), extent.end, self._whole.identity
        )


@dataclass
class Sinks:
    """The sinks, which outlive every run: rows, and one ledger mark per system."""

    rows: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)


class LedgerWriter:
    """Writes rows and mark in one step, like a transaction."""

    def __init__(self, sinks: Sinks, name: str, on_point: Callable[[str], None]) -> None:
        self._sinks, self._name, self._on_point = sinks, name, on_point

    def recover(self, expected: str | None) -> str | None:
        return self._sinks.marks.get(self._name)

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        rows = [
            (self._name, staged.output if staged.kind == "result" else staged.kind, row)
            for staged in outputs
            for table in staged.tables()
            for row in visible(table.to_pylist())
        ]
        self._on_point("before a sink's commit")
        self._sinks.rows.extend(rows)
        self._sinks.marks[self._name] = intent
        self._on_point("after a sink's commit")

    def close(self) -> None:
        """Nothing is held."""


class Environment:
    """The environment of the engine: one topic, and writers named by the prefix of their sinks."""

    def __init__(self) -> None:
        self.log, self.sinks = Log(), Sinks()
        self.now = 1_767_225_600_000_000
        self.at: dict[str, Callable[[], None]] = {}

    def reach(self, point: str) -> None:
        """Run the action planned for a point, once."""
        self.at.pop(point, lambda: None)()

    def reader(self, name: str, read: Read) -> LogReader:
        return LogReader(self.log, name)

    def writer_of(self, sink: Sink) -> str:
        return sink.name.partition(".")[0]

    def writer(self, name: str, job: str) -> LedgerWriter:
        return LedgerWriter(self.sinks, name, self.reach)

    def clock(self) -> int:
        return self.now

    def ahead(self, read: Read) -> int | None:
        return None


def windows(name: str = "small", *sinks: str) -> ms.Pipeline:
    """Count and sum by key and window, to one topic or several.

    Batches run in the driver, whose points of the protocol tests can reach; in the wide lane they
    run on Spark.
    """
    rows = ms.read(ms.Topic(TOPIC, schema=SCHEMA), time="ts", watermark=DELAY, idle=None)
    panes = rows.by("key").window(ms.tumbling(SIZE)).agg(n=ms.count(), total=ms.sum("amount"))
    return ms.Pipeline(name, *(panes.to(ms.Topic(sink)) for sink in sinks or ("out",)),
                       engine="driver")  # fmt: skip


class Small:
    """One job in this environment, over any number of runs."""

    def __init__(self, folder: Path, spark: SparkSession, pipeline: ms.Pipeline | None = None,
                 lane: Literal["narrow", "wide"] = "narrow") -> None:  # fmt: skip
        self.folder, self._spark = folder, spark
        self.lane: Literal["narrow", "wide"] = lane
        self.sizing: Sizing | None = None
        self.pipeline = pipeline or windows()
        self.environment = Environment()

    def feed(self, rows: int = 12, *, more: int = 0) -> None:
        """Add rows to each of two partitions, a second apart, with amounts from `more` on."""
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
        """A run from start to end, which always releases its lock."""
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
            for part in ("_prefetcher", "_merger"):
                if hasattr(engine, part):
                    getattr(engine, part).close()  # a killed process would take its threads with it
            engine.checkpoint.close()

    def step(self) -> None:
        """Run one batch, or up to a crash."""
        with suppress(Crash), self.run() as engine:
            engine.step()

    def finish(self) -> None:
        """Run to the finish, or up to a crash."""
        with suppress(Crash), self.run() as engine:
            while engine.step() is not None:
                pass
            engine.step(finish=True)

    def crash_at(self, point: str) -> None:
        """Crash the next run that reaches this point."""

        def crash() -> None:
            raise Crash

        self.environment.at[point] = crash

    def verdict(self, sink: str = "out") -> Mapping[str, Any]:
        """The rows in the sink compared with the results of DuckDB."""
        parts = self.environment.log.records[TOPIC]
        records = [(p, r["offset"], r["value"]) for p, part in parts.items() for r in part]
        wanted, _, _ = verifier.expected(records)
        got = [_pane(row) for system, output, row in self.environment.sinks.rows if output == sink]
        return verifier.compared(wanted, got, set())

    def green(self, sink: str = "out") -> bool:
        """Whether no row is lost, doubled, unexpected or wrong."""
        verdict = self.verdict(sink)
        return not any(verdict[kind] for kind in ("lost", "doubled", "phantom", "wrong"))


def _pane(row: Mapping[str, Any]) -> tuple[Any, Any]:
    shown = {name: row[name].isoformat() for name in ("window_start", "window_end")}
    return verifier.window_of({**row, **shown})


def install_fault_points(environment: Environment, patch: pytest.MonkeyPatch) -> None:
    """Connect the engine's fault points to the environment."""

    def reached(point: str, number: int) -> None:
        environment.reach(point)

    for module in (
        checkpoint,
        batch,
        durable,
        appending,
        archive,
        compaction,
        migration,
        housekeeping,
    ):
        patch.setattr(module, "reached", reached)


@dataclass
class Scene:
    """A checkpoint whose run ended in the middle of its third batch, and its environment."""

    folder: Path
    environment: Environment
    spark: SparkSession

    def copy(self, folder: Path) -> Small:
        """A copy, to be damaged."""
        shutil.copytree(self.folder, folder)
        small = Small(folder, self.spark)
        small.environment = copy.deepcopy(self.environment)
        return small
