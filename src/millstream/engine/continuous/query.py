"""One output's query in real-time mode: started, watched, stopped."""

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
class Kept:
    """What a query did up to positions it has kept: per topic from where to where, rows out,
    seconds, and per source what was counted."""

    number: int
    before: dict[str, Offsets]
    after: dict[str, Offsets]
    rows: int
    written: int
    seconds: float
    counted: dict[str, dict[str, int]]


@dataclass
class Query:
    """The query of one output, and how far it has come; `sources` are names by their topics."""

    output: Output
    query: StreamingQuery
    sources: dict[str, str]
    at: dict[str, Offsets] = field(default_factory=dict)
    still: bool = False
    number: int = 0

    def news(self) -> list[Kept]:
        """What it has kept since it was last asked; `number` is the last, `at` up to where,
        and `still` says that nothing came meanwhile."""
        made = []
        for progress in self.query.recentProgress:
            kept = self._kept(progress)
            if kept.number > self.number:
                self.number, self.still = kept.number, kept.rows == 0
                self.at.update(kept.after)
                made.append(kept)
        return made

    def reached(self, ends: Mapping[str, Offsets]) -> bool:
        """Whether it has kept positions at or behind these ends, by source."""
        return all(
            topic in self.at
            and all(self.at[topic].get(p, 0) >= end for p, end in ends[name].items())
            for topic, name in self.sources.items()
        )

    def _kept(self, progress: Any) -> Kept:
        before: dict[str, Offsets] = {}
        after: dict[str, Offsets] = {}
        for source in progress["sources"]:
            before.update(_offsets(source["startOffset"]))
            after.update(_offsets(source["endOffset"]))
        observed = progress["observedMetrics"]
        return Kept(
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
        """Raise what it has ended of, if it has.

        Raises:
            UserCodeFailed: Spark's own sentence, with the output's name.
        """
        if self.query.isActive:
            return
        error = self.query.exception()
        text = str(error) if error is not None else ""
        causes = _CAUSE.findall(text)
        if not causes:
            raise MillstreamError(
                f"the output {self.output.name!r} needs its query to go on",
                got=text.strip().splitlines()[0] if text.strip() else "an end without a reason",
                do="look at the broker and at the log of libraries; started again, the job goes on",
            ) from error
        name, said = causes[-1]
        why = _ADVICE.sub("", f"[{name}] {said}")
        raise UserCodeFailed(
            f"a step on the way to {self.output.name!r} raised {why}",
            do="use a function that gives null instead (try_divide, try_cast, …): in continuous "
            "mode such a row stops the job; micro-batch mode parts it from the others",
        ) from error

    def stop(self) -> None:
        """End it here; rows it has sent since it last kept its positions come again."""
        self.query.stop()


def _offsets(text: str | None) -> dict[str, Offsets]:
    found = json.loads(text) if text and text != "null" else {}
    return {topic: {int(p): int(at) for p, at in parts.items()} for topic, parts in found.items()}


def records(spark: SparkSession, address: str, topic: str, start: Mapping[int, int]) -> DataFrame:
    """A topic as a stream of records, from these offsets on where Spark knows no others."""
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


def started(frame: DataFrame, topic: str, address: str, folder: Path, name: str) -> StreamingQuery:
    """A query that sends a frame's records to a topic as they come.

    Spark's usual way to write a checkpoint on a local disk starts twenty processes each time.
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
