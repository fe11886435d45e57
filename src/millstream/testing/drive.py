"""`Drive`: runs a pipeline step by step, with topics in memory and a manual clock."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.source_notes import SourceNotes
from millstream.engine.engine import Engine
from millstream.engine.inspection.without_spark import without_spark
from millstream.engine.lanes.planner import Sizing
from millstream.engine.spark.rdd_jobs import check_workers
from millstream.engine.spark.session import Spark, session
from millstream.errors import InvalidInput
from millstream.metrics.facts import lane_name
from millstream.plan.stages import cut
from millstream.sources.plain_json import as_json
from millstream.sources.spec import OpenSource, SourceOpening, log_name
from millstream.testing.memory_log import Emitted, MemoryLog, MemoryReader, RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from millstream.api.pipeline import Pipeline
    from millstream.metrics.facts import Facts
    from millstream.plan.graph import Output, Read
    from millstream.sinks.spec import Sink, Writer
    from millstream.sources.spec import Reader

Time = str | int | datetime
_DAY = 86_400_000_000


class Drive:
    """Runs a pipeline step by step, one batch at a time.

    >>> with Drive(pipeline) as drive:                            # doctest: +SKIP
    ...     drive.feed("bids", [{"auction": 1, "ts": "2026-01-01 00:00:01"}])
    ...     drive.step()
    ...     drive.finish()
    ...     drive.rows("hot")
    """

    def __init__(
        self,
        pipeline: Pipeline,
        lane: Literal["wide", "narrow"] | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> None:
        _need_pipeline(pipeline)
        self._spark = spark
        if lane not in (None, "wide", "narrow", "short"):
            raise InvalidInput('lane needs "wide", "narrow" or None', got=repr(lane))
        self._pipeline, self._lane = pipeline, None if lane is None else lane_name(lane)
        self._folder = Path(tempfile.mkdtemp(prefix="millstream-drive-"))
        self._environment = _DriveEnvironment(self._folder / "checkpoint")
        self._seen: dict[tuple[str, str], int] = {}
        try:
            self._engine = self._open()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _open(self) -> Engine:
        self._environment.outputs = self._pipeline.outputs
        checkpoint = Checkpoint(self._folder / "checkpoint")
        no_java = self._pipeline.engine == "driver" and without_spark(cut(self._pipeline.outputs))
        spark = Spark(session) if no_java else Spark.of(self._spark or session())
        if self._spark is not None:
            check_workers(self._spark)
        engine = Engine(self._pipeline, checkpoint, spark, self._environment,
                        lane=self._lane, sizing=Sizing(1.0, limited=False))  # fmt: skip
        engine.open()
        return engine

    def feed(
        self,
        source: str,
        rows: Iterable[Mapping[str, Any] | bytes | None],
        partition: int = 0,
        timestamp: Time | None = None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Append records to a topic in memory: dicts as JSON, bytes unchanged, None for no value.

        `timestamp`, `key` and `headers` are set on each record. Feeding a partition creates it,
        even without rows.
        """
        self._named(source, "feed")
        if type(partition) is not int or partition < 0:
            raise InvalidInput("feed needs a partition from 0 on", got=repr(partition))
        stamp = None if timestamp is None else micros_of(timestamp)
        record = {
            "key": key,
            "timestamp": stamp,
            "headers": None if headers is None else [{"key": k, "value": v} for k, v in headers],
        }
        self._environment.log.partition(source, partition)
        for row in rows:
            value = row if isinstance(row, bytes) or row is None else as_json(row, "feed")
            self._environment.log.append(source, partition, {**record, "value": value})

    def _named(self, source: str, step: str) -> list[str]:
        """The names of a topic's reads; a topic may be read more than once."""
        reads = self._engine.typed.stages.reads
        found = [name for name, read in reads.items() if read.source.name == source]
        if not found:
            known = ", ".join(dict.fromkeys(read.source.name for read in reads.values()))
            raise InvalidInput(f"{step} needs a source of the pipeline", got=repr(source),
                               do=f"name one of {known}")  # fmt: skip
        return found

    def step(self) -> Facts:
        """Run one batch over everything fed so far; returns its facts."""
        facts = self._engine.step(always=True)
        assert facts is not None
        return facts

    def watermark(self, source: str, time: Time) -> None:
        """Declare a source's watermark, from the next step on."""
        for name in self._named(source, "watermark"):
            self._engine.declared[name] = micros_of(time)

    def clock(self, time: Time) -> None:
        """Set the batch clock; it starts at the epoch and never goes back.

        The first move away from the epoch does not count as idle time.
        """
        now = micros_of(time)
        if now < self._environment.now:
            raise InvalidInput("the batch clock needs a time that is not behind it", got=repr(time))
        if self._environment.now == 0 and now > _DAY:
            self._engine.rebase(now)
        self._environment.now = now

    def rows(self, output: str) -> list[dict[str, Any]]:
        """The rows emitted to an output since the last call, by batch, key and window."""
        if output not in {o.name for o in self._pipeline.outputs}:
            known = ", ".join(o.name for o in self._pipeline.outputs)
            raise InvalidInput("rows needs an output of the pipeline", got=repr(output),
                               do=f"name one of {known}")  # fmt: skip
        return self._new_rows("result", output)

    def late(self) -> list[dict[str, Any]]:
        """The late rows since the last call, with origin, watermark and windows."""
        return self._new_rows("late", None)

    def dead(self) -> list[dict[str, Any]]:
        """The bad rows since the last call, raw, with the reason."""
        return self._new_rows("dead", None)

    def _new_rows(self, kind: str, output: str | None) -> list[dict[str, Any]]:
        key, batches = (kind, output or ""), self._environment.emitted
        new = batches[self._seen.get(key, 0) :]
        self._seen[key] = len(batches)
        return [
            row
            for batch in new
            for part in batch
            if part.kind == kind and output in (None, part.output)
            for row in part.rows
        ]

    def restart(self, pipeline: Pipeline | None = None) -> None:
        """Restart from the checkpoint, optionally with a changed pipeline. A batch that failed
        runs first."""
        if pipeline is not None:
            _need_pipeline(pipeline)
            self._pipeline = pipeline
        declared = self._engine.declared
        self._engine.close()
        self._engine = self._open()
        self._engine.declared = declared

    def finish(self) -> Facts:
        """End the input: every watermark goes to the end of time, and everything closes."""
        facts = self._engine.step(finish=True)
        assert facts is not None
        return facts

    def close(self) -> None:
        """Remove the checkpoint; the Spark session stays open."""
        self._engine.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _DriveEnvironment:
    """Topics in memory, other sources unchanged, sinks that record rows, and a manual clock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = MemoryLog()
        self.now = 0
        self.ledger: dict[str, str] = {}
        self.emitted: list[list[Emitted]] = []
        self.outputs: tuple[Output, ...] = ()

    def reader(self, name: str, read: Read) -> Reader:
        if isinstance(read.source, OpenSource) and log_name(read.source) is None:
            notes = SourceNotes(self._folder, name, lambda: None)
            return read.source.reader(
                SourceOpening(notes, self.clock, eager=True, spark=session, folder=notes.folder)
            )
        return MemoryReader(self.log, read.source.name)

    def writer_of(self, sink: Sink) -> str:
        return "drive"

    def writer(self, name: str, job: str) -> Writer:
        return RecordingWriter(self.ledger, self.emitted, self.outputs)

    def clock(self) -> int:
        return self.now

    def ahead(self, read: Read) -> int | None:
        return None if log_name(read.source) is None else read.ahead


def micros_of(time: Time) -> int:
    """A time as microseconds: ISO text, a datetime, or epoch milliseconds; no zone is UTC."""
    if type(time) is int:
        return time * 1000
    try:
        at = datetime.fromisoformat(time) if isinstance(time, str) else time
    except ValueError:
        at = None
    if not isinstance(at, datetime):
        raise InvalidInput("a time needs ISO text, a datetime or epoch milliseconds",
                           got=repr(time), do='write "2026-01-01 00:00:30"')  # fmt: skip
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    gap = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (gap.days * 86_400 + gap.seconds) * 1_000_000 + gap.microseconds


def _need_pipeline(pipeline: Pipeline) -> None:
    from millstream.api.pipeline import Pipeline

    if not isinstance(pipeline, Pipeline):
        raise InvalidInput("Drive needs a Pipeline", got=repr(pipeline),
                           do="write Drive(ms.Pipeline(name, stream.to(…)))")  # fmt: skip
