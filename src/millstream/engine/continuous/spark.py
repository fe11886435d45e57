"""Continuous mode by Spark's real-time mode, which decodes, runs the steps, and sends.

The driver reports progress, sends the bad rows to the dead topic, and stops the queries.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

from millstream.engine.continuous.continuous import Continuous
from millstream.engine.continuous.dead import BadRowFinder
from millstream.engine.continuous.frames import STOPPED, SourceFrame, output_frame
from millstream.engine.continuous.positions import FOLDER
from millstream.engine.continuous.query import Query, records, start
from millstream.engine.continuous.rules import INTERVAL_SECONDS, MODE, reads_of
from millstream.engine.spark.session import cores, parallelism, session, ui_address
from millstream.errors import InvalidSpec, UserCodeFailed
from millstream.plan.names import folder_name
from millstream.plan.side_outputs import dead_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from millstream.engine.continuous.query import QueryProgress
    from millstream.plan.graph import Node, Output
    from millstream.sources.spec import Extent, Offsets

_GRACE = 5.0
_SPARE_SLOTS = 1
_BAD = re.compile(re.escape(STOPPED) + r" ([\w.-]+)/(\d+)/(\d+)")


class RealTime(Continuous):
    """Runs a query of Spark's real-time mode for each output; the driver only monitors them."""

    where = "spark"

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._names = {id(read): name for name, read in self._reads.items()}
        self._queries: list[Query] = []
        self._dead: dict[str, BadRowFinder] = {}
        self._since: dict[str, int] | None = None
        self._deadline = 0.0

    def _begin(self, extents: Mapping[str, Extent]) -> None:
        spark = self._session(extents)
        self.found, self.spark_ui = spark, ui_address(spark)
        self._start(spark)

    def _session(self, extents: Mapping[str, Extent]) -> SparkSession:
        """A session with a slot for every partition of every output, and one to find bad rows."""
        self._phase("starting Spark")
        slots = _SPARE_SLOTS + sum(
            len(extents[name].end)
            for output in self._pipeline.outputs for name in self._sources(output).values()
        )  # fmt: skip
        master = os.environ.get("MILLSTREAM_SPARK_MASTER")
        spark = session(None if master else f"local[{max(slots, cores())}]")
        if parallelism(spark) < slots:
            raise InvalidSpec(
                f'mode="{MODE}" needs {slots} tasks at once: one per partition and output, '
                "and one spare",
                got=f"a Spark with {parallelism(spark)}",
                do="give Spark more cores, or read topics with fewer partitions",
            )
        return spark

    def _sources(self, output: Output) -> dict[str, str]:
        """The names of an output's sources, by their topics."""
        return {read.source.name: self._names[id(read)] for read in reads_of(output)}

    def _start(self, spark: SparkSession) -> None:
        self._phase("checking the types of the pipeline")
        address = self._cluster.address
        frames: dict[Node, DataFrame] = {}
        for number, (name, read) in enumerate(self._reads.items()):
            source = SourceFrame(name, read, number, self._pipeline.on_bad == "stop")
            offsets = self._positions.of[name].offsets
            frames[read] = source.rows(records(spark, address, read.source.name, offsets))
            self._dead[name] = BadRowFinder(
                source, self._readers[name], self._writer,
                topic=dead_topic(self._pipeline), spark=spark,
            )  # fmt: skip
        made = [(output, output_frame(output, frames)) for output in self._pipeline.outputs]
        for output, frame in made:
            folder = self._checkpoint.folder / FOLDER / "outputs" / folder_name(output.name)
            name = f"{self._pipeline.name}/{output.name}"
            query = start(frame, output.sink.name, address, folder, name)
            self._queries.append(Query(output, query, self._sources(output)))

    # -- monitoring -------------------------------------------------------------------------

    def _reached(self, ends: Mapping[str, Offsets]) -> bool:
        return all(query.idle or query.reached(ends) for query in self._queries)

    def _settled(self) -> bool:
        """Whether every query has stored its positions since the stop, or has nothing to do."""
        if self._since is None:
            self._since = {query.output.name: query.number for query in self._queries}
            self._deadline = time.monotonic() + INTERVAL_SECONDS + _GRACE
        if time.monotonic() > self._deadline:
            return True
        if all(query.number > self._since[query.output.name] for query in self._queries):
            return True
        ends = {name: reader.extent().end for name, reader in self._readers.items()}
        return all(query.reached(ends) for query in self._queries)

    def _poll(self) -> None:
        for query in self._queries:
            self._check(query)
            for progress in query.new_progress():
                self._take(query, progress)
        if self._queries and self._reporter.has_news(self._queries[0].number):
            self._reporter.report(self._queries[0].number, self._lag())

    def _check(self, query: Query) -> None:
        try:
            query.check()
        except UserCodeFailed as error:
            bad = _BAD.search(str(error))
            if bad is None:
                raise
            topic, partition, offset = bad.groups()
            name = query.sources[topic]
            raise self._dead[name].stopped(int(partition), int(offset)) from error

    def _take(self, query: Query, progress: QueryProgress) -> None:
        """Send the bad rows of a query's progress to the dead topic, then count and store it."""
        self._reporter.wrote(query.output.name, progress.written, progress.seconds)
        for topic, name in query.sources.items():
            if query is not self._first(name):
                continue
            counted = progress.counted.get(name, {})
            position, after = self._positions.of[name], progress.after.get(topic, {})
            before = progress.before.get(topic, {})
            gap = any(position.offsets.get(p, at) < at for p, at in before.items())
            dead = counted.get("bad", 0)
            if dead or gap or not counted:
                dead = self._dead[name].send_bad(position.offsets, after)
            moved = any(at > position.offsets.get(p, -1) for p, at in after.items())
            position.offsets.update(after)
            self._reporter.read(name, counted, dead)
            if moved:
                self._positions.store()
                self._readers[name].progress(after)

    def _first(self, name: str) -> Query:
        """The query whose progress decides when a source's bad rows are sent."""
        return next(query for query in self._queries if name in query.sources.values())

    def _close(self) -> None:
        for query in self._queries:
            query.stop()
        super()._close()
