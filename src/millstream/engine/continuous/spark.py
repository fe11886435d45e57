"""Continuous mode by Spark's real-time mode: it decodes, runs the steps, and sends.

The driver tells what was done, parts the bad rows, and stops the queries when it should.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

from millstream.engine.continuous.continuous import Continuous
from millstream.engine.continuous.dead import DeadRows
from millstream.engine.continuous.frames import STOPPED, Taking, output_frame
from millstream.engine.continuous.positions import FOLDER
from millstream.engine.continuous.query import Query, records, started
from millstream.engine.continuous.rules import INTERVAL_SECONDS, MODE, reads_of
from millstream.engine.spark.session import cores, parallelism, session
from millstream.errors import InvalidSpec, UserCodeFailed
from millstream.plan.names import folder_name
from millstream.plan.side_outputs import dead_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from millstream.engine.continuous.query import Kept
    from millstream.plan.graph import Node, Output
    from millstream.sources.spec import Extent, Offsets

_GRACE = 5.0
_TO_SPARE = 1
_BAD = re.compile(re.escape(STOPPED) + r" ([\w.-]+)/(\d+)/(\d+)")


class RealTime(Continuous):
    """A query of Spark's real-time mode for each output; the driver only watches them."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._names = {id(read): name for name, read in self._reads.items()}
        self._queries: list[Query] = []
        self._dead: dict[str, DeadRows] = {}
        self._since: dict[str, int] | None = None
        self._deadline = 0.0

    def _begin(self, extents: Mapping[str, Extent]) -> None:
        self._start(self._session(extents))

    def _session(self, extents: Mapping[str, Extent]) -> SparkSession:
        """A session with a slot for every partition of every output, and one to part bad rows."""
        self._phase("starting Spark")
        slots = _TO_SPARE + sum(
            len(extents[name].end)
            for output in self._pipeline.outputs for name in self._sources(output).values()
        )  # fmt: skip
        elsewhere = os.environ.get("MILLSTREAM_SPARK_MASTER")
        spark = session(None if elsewhere else f"local[{max(slots, cores())}]")
        if parallelism(spark) < slots:
            raise InvalidSpec(
                f'mode="{MODE}" needs {slots} tasks at once: one per partition and output, '
                "and one to spare",
                got=f"a Spark with {parallelism(spark)}",
                do="give Spark more cores, or read topics of fewer partitions",
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
            taking = Taking(name, read, number, self._pipeline.on_bad == "stop")
            start = self._places.of[name].parted
            frames[read] = taking.rows(records(spark, address, read.source.name, start))
            self._dead[name] = DeadRows(taking, self._readers[name], self._writer,
                                        topic=dead_topic(self._pipeline), spark=spark)  # fmt: skip
        made = [(output, output_frame(output, frames)) for output in self._pipeline.outputs]
        for output, frame in made:
            folder = self._checkpoint.folder / FOLDER / "outputs" / folder_name(output.name)
            name = f"{self._pipeline.name}/{output.name}"
            query = started(frame, output.sink.name, address, folder, name)
            self._queries.append(Query(output, query, self._sources(output)))

    # -- watching ---------------------------------------------------------------------------

    def _reached(self, ends: Mapping[str, Offsets]) -> bool:
        return all(query.still or query.reached(ends) for query in self._queries)

    def _settled(self) -> bool:
        """Whether every query has kept its positions since the stop, or has nothing in hand."""
        if self._since is None:
            self._since = {query.output.name: query.number for query in self._queries}
            self._deadline = time.monotonic() + INTERVAL_SECONDS + _GRACE
        if time.monotonic() > self._deadline:
            return True
        if all(query.number > self._since[query.output.name] for query in self._queries):
            return True
        ends = {name: reader.extent().end for name, reader in self._readers.items()}
        return all(query.reached(ends) for query in self._queries)

    def _take_news(self) -> None:
        for query in self._queries:
            self._check(query)
            for kept in query.news():
                self._take(query, kept)
        if self._queries and self._told.waiting(self._queries[0].number):
            self._told.tell(self._queries[0].number, self._lag())

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

    def _take(self, query: Query, kept: Kept) -> None:
        """Part the bad rows of what was kept, then say that it is done."""
        self._told.wrote(query.output.name, kept.written, kept.seconds)
        for topic, name in query.sources.items():
            if query is not self._first(name):
                continue
            counted = kept.counted.get(name, {})
            place, after = self._places.of[name], kept.after.get(topic, {})
            begun = kept.before.get(topic, {})
            gap = any(place.parted.get(p, at) < at for p, at in begun.items())
            dead = counted.get("bad", 0)
            if dead or gap or not counted:
                dead = self._dead[name].part(place.parted, after)
            moved = any(at > place.parted.get(p, -1) for p, at in after.items())
            place.parted.update(after)
            self._told.read(name, counted, dead)
            if moved:
                self._places.keep()
                self._readers[name].progress(after)

    def _first(self, name: str) -> Query:
        """The query that answers for a source's bad rows."""
        return next(query for query in self._queries if name in query.sources.values())

    def _close(self) -> None:
        for query in self._queries:
            query.stop()
        super()._close()
