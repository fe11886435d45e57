"""A pipeline in continuous mode: rows are processed at once, positions stored every few seconds.

There are two implementations with the same results. `Direct` processes rows in this process; if
Spark has to run SQL or a function, `RealTime` has a query of Spark's real-time mode for each
output. Both deliver at least once, and store a position only when all rows before it are
acknowledged.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from millstream.engine.continuous.positions import Positions, refuse_other_mode
from millstream.engine.continuous.reporter import Reporter
from millstream.plan.stages import cut
from millstream.sinks.kafka.plain_writer import PlainTopicWriter
from millstream.sinks.spec import PATIENCE, Opening, Staged
from millstream.sources.kafka.reader import TopicReader

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from millstream.api.pipeline import Pipeline
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.stage_runs import Where
    from millstream.kafka.settings import Cluster
    from millstream.metrics.facts import Facts
    from millstream.outages import Listener
    from millstream.sources.spec import Extent, Offsets

LOOK = 0.1


class Continuous(ABC):
    """One run of a continuous pipeline in this process; `turn` is called in each loop.

    `where` is what processes the rows, as in the facts of a batch; `found` the Spark session that
    does, and `spark_ui` the address of Spark's own page.
    """

    where: ClassVar[Where]
    found: SparkSession | None = None
    spark_ui: str | None = None

    def __init__(
        self, pipeline: Pipeline, checkpoint: Checkpoint, cluster: Cluster,
        *, on_facts: Callable[[Facts, dict[str, int]], None],
        phase: Callable[[str], None], listener: Listener, turn: Callable[[], None],
        stop: threading.Event,
    ) -> None:  # fmt: skip
        self._pipeline, self._checkpoint, self._cluster = pipeline, checkpoint, cluster
        self._phase, self._turn, self._stop = phase, turn, stop
        self._listener = listener
        self._stages = cut(pipeline.outputs)
        self._reads = self._stages.reads
        self._reporter = Reporter(on_facts, self._stages, pipeline.bad_above,
                                  self.where)  # fmt: skip
        self._readers: dict[str, TopicReader] = {}
        self._positions = Positions(checkpoint)
        self._writer = self._new_writer()

    def _new_writer(self) -> PlainTopicWriter:
        listener = self._listener
        opening = Opening(
            self._pipeline.name,
            "",
            0,
            (),
            check_owned=self._checkpoint.owned,
            on_wait=listener.on_wait,
            on_answer=listener.on_answer,
            patience=PATIENCE if listener.patience is None else listener.patience,
        )
        return PlainTopicWriter(self._cluster, opening)

    def run(self, *, take_over: bool, caught_up: bool) -> bool:
        """Run until stopped, or with `caught_up` to the current ends; True if it reached them."""
        self._phase("opening the checkpoint")
        self._checkpoint.open(self._pipeline.name, self._pipeline.buckets, take_over=take_over)
        try:
            refuse_other_mode(self._checkpoint, continuous=True)
            extents = self._opened()
            ends = {name: extent.end for name, extent in extents.items()}
            self._begin(extents)
            self._phase("running")
            return self._watch(ends if caught_up else None)
        finally:
            self._close()

    def _opened(self) -> dict[str, Extent]:
        group = f"millstream.{self._pipeline.name}"
        for name, read in self._reads.items():
            self._readers[name] = TopicReader(self._cluster, read.source.name, group,
                                              waiting=self._listener.on_wait,
                                              answered=self._listener.on_answer,
                                              patience=self._listener.patience)  # fmt: skip
        extents = {name: reader.extent() for name, reader in self._readers.items()}
        self._positions.open(
            {name: read.source.name for name, read in self._reads.items()}, extents
        )
        self._writer.recover(None)
        nothing = [Staged(output.name, "result", output.sink, (), 0, lambda: iter(()))
                   for output in self._pipeline.outputs]  # fmt: skip
        self._writer.write("the topics of the outputs", 0, nothing)
        return extents

    @abstractmethod
    def _begin(self, extents: Mapping[str, Extent]) -> None:
        """Start processing from the stored positions."""

    def _watch(self, ends: Mapping[str, Offsets] | None) -> bool:
        while True:
            self._turn()
            self._checkpoint.owned()
            self._poll()
            if ends is not None and self._reached(ends):
                return True
            if self._stop.is_set():
                if self._settled():
                    return False
                time.sleep(LOOK)
            self._stop.wait(LOOK)

    @abstractmethod
    def _poll(self) -> None:
        """Store and report progress; raise the errors of threads and queries."""

    @abstractmethod
    def _reached(self, ends: Mapping[str, Offsets]) -> bool:
        """Whether positions at or after these ends are stored."""

    @abstractmethod
    def _settled(self) -> bool:
        """Whether a run that is to stop can end now without repeating much."""

    def _lag(self) -> dict[str, int]:
        lag = {}
        for name, reader in self._readers.items():
            at = self._positions.of[name].offsets
            lag[name] = sum(max(0, end - at.get(p, 0)) for p, end in reader.extent().end.items())
        return lag

    def positions(self) -> dict[str, dict[int, int]] | None:
        """The stored positions: the next offset per source and partition."""
        of = dict(self._positions.of)
        return {name: dict(position.offsets) for name, position in of.items()} or None

    def _close(self) -> None:
        self._writer.close()
        for reader in self._readers.values():
            reader.close()
        self._checkpoint.close()
