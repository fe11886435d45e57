"""The query of one output in Spark's real-time mode: start, progress, stop."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.engine.continuous.rules import INTERVAL_SECONDS
from millstream.errors import MillstreamError, UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.plan.graph import Output
    from millstream.sources.spec import Offsets

_CAUSE = re.compile(r"\[(?!STREAM_FAILED)([A-Z][A-Z_.0-9]+)\] ([^\n]*)")
_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_ADVICE = re.compile(r" (?:If necessary set|To return NULL instead).*| SQLSTATE:.*")


@dataclass(frozen=True)
class QueryProgress:
    """What a query did up to stored positions: per topic the ranges, rows out, seconds, and per
    source the counts."""

    number: int
    before: dict[str, Offsets]
    after: dict[str, Offsets]
    rows: int
    written: int
    seconds: float
    counted: dict[str, dict[str, int]]


@dataclass
class Query:
    """The query of one output and its positions; `sources` are names by topic."""

    output: Output
    query: StreamingQuery
    sources: dict[str, str]
    at: dict[str, Offsets] = field(default_factory=dict)
    idle: bool = False
    number: int = 0

    def new_progress(self) -> list[QueryProgress]:
        """The progress since the last call, which also updates `number`, `at` and `idle`."""
        found = []
        for reported in self.query.recentProgress:
            progress = self._parse(reported)
            if progress.number > self.number:
                self.number, self.idle = progress.number, progress.rows == 0
                self.at.update(progress.after)
                found.append(progress)
        return found

    def reached(self, ends: Mapping[str, Offsets]) -> bool:
        """Whether positions at or after these ends, by source, are stored."""
        return all(
            topic in self.at
            and all(self.at[topic].get(p, 0) >= end for p, end in ends[name].items())
            for topic, name in self.sources.items()
        )

    def _parse(self, progress: Any) -> QueryProgress:
        before: dict[str, Offsets] = {}
        after: dict[str, Offsets] = {}
        for source in progress["sources"]:
            before.update(_offsets(source["startOffset"]))
            after.update(_offsets(source["endOffset"]))
        observed = progress["observedMetrics"]
        return QueryProgress(
            number=int(progress["batchId"]) + 1,
            before=before,
            after=after,
            rows=int(progress["numInputRows"]),
            written=max(0, int(progress["sink"]["numOutputRows"])),
            seconds=float(progress["batchDuration"]) / 1000,
            counted={
                name: observed[name].asDict() for name in self.sources.values() if name in observed
            },
        )

    def check(self) -> None:
        """Raise the error that ended the query, if it has ended.

        Raises:
            UserCodeFailed: Spark's message, with the output's name.
        """
        if self.query.isActive:
            return
        error = self.query.exception()
        text = str(error) if error is not None else ""
        causes = _CAUSE.findall(text)
        if not causes:
            raise MillstreamError(
                f"the output {self.output.name!r} needs its query to run",
                got=text.strip().splitlines()[0] if text.strip() else "an end without a reason",
                do="look at the broker and at libraries.log, then start again: the job continues",
            ) from error
        name, message = causes[-1]
        why = _ADVICE.sub("", f"[{name}] {message}")
        raise UserCodeFailed(
            f"a step on the way to {self.output.name!r} raised {why}",
            do="use a function that returns null instead (try_divide, try_cast, …): in continuous "
            "mode such a row stops the job; micro-batch mode isolates it",
        ) from error

    def stop(self) -> None:
        """Stop the query; rows sent since it last stored its positions are sent again later."""
        self.query.stop()


def _offsets(text: str | None) -> dict[str, Offsets]:
    found = json.loads(text) if text and text != "null" else {}
    return {topic: {int(p): int(at) for p, at in parts.items()} for topic, parts in found.items()}


def records(spark: SparkSession, address: str, topic: str, start: Mapping[int, int]) -> DataFrame:
    """A topic as a stream of records, from these offsets unless Spark's checkpoint has others."""
    options = {
        "kafka.bootstrap.servers": address,
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {str(p): at for p, at in start.items()}}),
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": "20",
        "kafka.check.crcs": "true",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
    }
    return spark.readStream.format("kafka").options(**options).load()


def start(frame: DataFrame, topic: str, address: str, folder: Path, name: str) -> StreamingQuery:
    """Start a query that sends a frame's records to a topic.

    The default checkpoint writer of Spark starts twenty processes for each checkpoint on a local
    disk.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    frame.sparkSession.conf.set("spark.sql.streaming.checkpointFileManagerClass", _FILES)
    options = {
        "kafka.bootstrap.servers": address,
        "kafka.acks": "all",
        "kafka.linger.ms": "0",
        "topic": topic,
        "checkpointLocation": str(folder),
    }
    writing: Any = frame.writeStream.format("kafka").options(**options).outputMode("update")
    query: StreamingQuery = (
        writing.queryName(name).trigger(realTime=f"{INTERVAL_SECONDS} seconds").start()
    )
    return query
