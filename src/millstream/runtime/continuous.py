"""A pipeline in continuous mode: rows pass one by one, positions are kept every few seconds.

One query of Spark's real-time mode per output. The driver only watches: it tells what was done,
parts the bad rows, and stops the queries when it should.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec, UserCodeFailed
from millstream.plan.names import folder_name
from millstream.plan.stages import cut
from millstream.runtime.continuous_dead import DeadRows
from millstream.runtime.continuous_frames import STOPPED, Taking, output_frame
from millstream.runtime.continuous_places import FOLDER, Places, refuse_other_mode
from millstream.runtime.continuous_query import Query, records, started
from millstream.runtime.continuous_rules import INTERVAL_SECONDS, MODE, reads_of
from millstream.runtime.continuous_told import Told
from millstream.runtime.session import cores, parallelism, session
from millstream.sinks.spec import Staged
from millstream.sinks.topic_plain import PlainTopicWriter
from millstream.sources.topic_reader import TopicReader

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from millstream.log.settings import Cluster
    from millstream.pipeline import Pipeline
    from millstream.plan.graph import Node, Output
    from millstream.runtime.checkpoint import Checkpoint
    from millstream.runtime.continuous_query import Kept
    from millstream.runtime.facts import Facts
    from millstream.sources.spec import Extent, Offsets

_LOOK = 0.1
_GRACE = 5.0
_TO_SPARE = 1
_BAD = re.compile(re.escape(STOPPED) + r" ([\w.-]+)/(\d+)/(\d+)")


class Continuous:
    """One run of a continuous pipeline in this process; `turn` is called as it comes round."""

    def __init__(
        self, pipeline: Pipeline, checkpoint: Checkpoint, cluster: Cluster,
        *, told: Callable[[Facts, dict[str, int]], None],
        phase: Callable[[str], None], turn: Callable[[], None], stop: threading.Event,
    ) -> None:  # fmt: skip
        self._pipeline, self._checkpoint, self._cluster = pipeline, checkpoint, cluster
        self._phase, self._turn, self._stop = phase, turn, stop
        stages = cut(pipeline.outputs)
        self._reads = stages.reads
        self._names = {id(read): name for name, read in self._reads.items()}
        self._told = Told(told, stages, pipeline.bad_above)
        self._readers: dict[str, TopicReader] = {}
        self._places = Places(checkpoint)
        self._queries: list[Query] = []
        self._dead: dict[str, DeadRows] = {}
        self._writer: PlainTopicWriter | None = None

    def run(self, *, take_over: bool, caught_up: bool) -> bool:
        """Run until stopped, or until all that is there now is through; whether it was that."""
        self._phase("opening the checkpoint")
        self._checkpoint.open(self._pipeline.name, self._pipeline.buckets, take_over=take_over)
        try:
            refuse_other_mode(self._checkpoint, continuous=True)
            extents = self._opened()
            ends = {name: extent.end for name, extent in extents.items()}
            self._start(self._session(extents))
            self._phase("running")
            return self._watch(ends if caught_up else None)
        finally:
            self._close()

    def _opened(self) -> dict[str, Extent]:
        group = f"millstream.{self._pipeline.name}"
        for name, read in self._reads.items():
            self._readers[name] = TopicReader(self._cluster, read.source.name, group)
        extents = {name: reader.extent() for name, reader in self._readers.items()}
        self._places.open({name: read.source.name for name, read in self._reads.items()}, extents)
        self._writer = PlainTopicWriter(self._cluster, self._pipeline.name, self._checkpoint.job,
                                        owned=self._checkpoint.owned)  # fmt: skip
        self._writer.recover(None)
        nothing = [Staged(output.name, "result", output.sink, (), 0, lambda: iter(()))
                   for output in self._pipeline.outputs]  # fmt: skip
        self._writer.write("the topics of the outputs", 0, nothing)
        return extents

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
        assert self._writer is not None
        for number, (name, read) in enumerate(self._reads.items()):
            taking = Taking(name, read, number, self._pipeline.on_bad == "stop")
            start = self._places.of[name].parted
            frames[read] = taking.rows(records(spark, address, read.source.name, start))
            self._dead[name] = DeadRows(taking, self._readers[name], self._writer,
                                        pipeline=self._pipeline.name, spark=spark)  # fmt: skip
        made = [(output, output_frame(output, frames)) for output in self._pipeline.outputs]
        for output, frame in made:
            folder = self._checkpoint.folder / FOLDER / "outputs" / folder_name(output.name)
            name = f"{self._pipeline.name}/{output.name}"
            query = started(frame, output.sink.name, address, folder, name)
            self._queries.append(Query(output, query, self._sources(output)))

    # -- watching ---------------------------------------------------------------------------

    def _watch(self, ends: Mapping[str, Offsets] | None) -> bool:
        since: dict[str, int] | None = None
        deadline = 0.0
        while True:
            self._turn()
            self._checkpoint.owned()
            self._take_news()
            if ends is not None and all(q.still or q.reached(ends) for q in self._queries):
                return True
            if self._stop.is_set():
                if since is None:
                    since = {query.output.name: query.number for query in self._queries}
                    deadline = time.monotonic() + INTERVAL_SECONDS + _GRACE
                if self._settled(since) or time.monotonic() > deadline:
                    return False
                time.sleep(_LOOK)
            self._stop.wait(_LOOK)

    def _settled(self, since: Mapping[str, int]) -> bool:
        """Whether every query has kept its positions since, or has nothing in hand."""
        if all(query.number > since[query.output.name] for query in self._queries):
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
        self._told.wrote(query.output.name, kept)
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

    def _lag(self) -> dict[str, int]:
        lag = {}
        for name, reader in self._readers.items():
            at = self._places.of[name].parted
            lag[name] = sum(max(0, end - at.get(p, 0)) for p, end in reader.extent().end.items())
        return lag

    def positions(self) -> dict[str, dict[int, int]] | None:
        """What has been read and kept: the next offset per source and partition."""
        of = dict(self._places.of)
        return {name: dict(place.parted) for name, place in of.items()} or None

    def _close(self) -> None:
        for query in self._queries:
            query.stop()
        if self._writer is not None:
            self._writer.close()
        for reader in self._readers.values():
            reader.close()
        self._checkpoint.close()
