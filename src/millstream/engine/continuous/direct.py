"""Continuous mode without Spark, if Arrow can run every step: rows pass through this process.

A thread per source processes its rows. Every few seconds, meanwhile, this class sends bad rows to
the dead topic, stores positions and reports facts.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.engine.continuous.continuous import Continuous
from millstream.engine.continuous.dead import DeadTopicWriter
from millstream.engine.continuous.rules import INTERVAL_SECONDS
from millstream.engine.continuous.source_thread import Callbacks, Route, SourceThread
from millstream.engine.kernels.kernels import decoder_of
from millstream.engine.spark.arrow_steps import compiled
from millstream.formats.json.decode import check
from millstream.kafka.ping import system_at
from millstream.plan.graph import Read
from millstream.plan.side_outputs import dead_topic
from millstream.schema import Schema
from millstream.sources.extent import check_extent
from millstream.sources.kafka import errors as troubles
from millstream.sql.arrow.values import ArrowSteps, Filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.engine.continuous.source_thread import Progress
    from millstream.plan.stages import Side
    from millstream.sources.decode import RecordDecoder
    from millstream.sources.spec import Extent, Offsets


class Direct(Continuous):
    """Processes rows in this process, piece by piece."""

    where = "driver"

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._threads: dict[str, SourceThread] = {}
        self._dead: dict[str, DeadTopicWriter] = {}
        self._due = 0.0

    def _begin(self, extents: Mapping[str, Extent]) -> None:
        routes: dict[str, list[Route]] = {name: [] for name in self._reads}
        decoders = {name: self._decoder(name) for name in self._reads}
        for stage in self._stages.stages:
            (side,) = stage.sides
            (read,) = side.leaves
            assert isinstance(read, Read)
            name = self._stages.names[read]
            steps = _steps(side, decoders[name].columns())
            routes[name] += [Route(output, steps) for output in stage.outputs]
        dead = dead_topic(self._pipeline)
        for name, read in self._reads.items():
            reader, at = self._readers[name], self._positions.of[name].offsets
            self._dead[name] = DeadTopicWriter(name, read, reader, self._writer, dead)
            self._threads[name] = SourceThread(
                reader, self._new_writer(), decoders[name], routes[name], at, self._callbacks(name)
            )
        for thread in self._threads.values():
            thread.start()
        self._due = time.monotonic() + INTERVAL_SECONDS

    def _callbacks(self, name: str) -> Callbacks:
        topic, address = self._reads[name].source.name, self._cluster.address
        return Callbacks(
            on_bad=partial(self._refuse, name) if self._pipeline.on_bad == "stop" else _ignore,
            on_wait=lambda why: self._listener.on_wait(troubles.waiting(address, why)),
            on_answer=lambda: self._listener.on_answer(system_at(address)),
            unavailable=partial(troubles.unavailable, topic, address),
        )

    def _refuse(self, name: str, bad: pa.Table) -> None:
        first = bad.slice(0, 1).to_pylist()[0]
        raise self._dead[name].stopped(first["partition"], first["offset"], first["reason"])

    def _decoder(self, name: str) -> RecordDecoder:
        ahead = self._reads[name].ahead
        return decoder_of(self._stages, name, ahead)

    def _poll(self) -> None:
        for thread in self._threads.values():
            thread.check()
        if time.monotonic() >= self._due:
            self._store()

    def _store(self) -> None:
        """Send the bad rows of the processed ranges, store the positions, and report them."""
        now = time.monotonic()
        seconds, self._due = now - self._due + INTERVAL_SECONDS, now + INTERVAL_SECONDS
        moved = [self._take(name, thread.take(), seconds)
                 for name, thread in self._threads.items()]  # fmt: skip
        if any(moved):
            self._positions.store()
        for name, reader in self._readers.items():
            reader.progress(self._positions.of[name].offsets)
        if self._reporter.has_news(self._positions.number):
            self._reporter.report(self._positions.number, self._lag())

    def _take(self, name: str, progress: Progress, seconds: float) -> bool:
        """Send and count the progress of a source; whether there was any."""
        position = self._positions.of[name]
        dead = sum(self._dead[name].send(bad) for bad in progress.bad)
        moved, position.offsets = position.offsets != progress.at, progress.at
        self._reporter.read(name, progress.counted, dead)
        for output, rows in progress.written.items():
            self._reporter.wrote(output, rows, seconds)
        extent = self._readers[name].extent()
        check_extent(position.topic, extent, position.offsets, position.identity)
        self._threads[name].add_partitions(extent.first)
        return moved

    def _reached(self, ends: Mapping[str, Offsets]) -> bool:
        if not all(thread.reached(ends[name]) for name, thread in self._threads.items()):
            return False
        return self._settled()

    def _settled(self) -> bool:
        """End after the current pieces and store their positions, so that no row is repeated."""
        for thread in self._threads.values():
            thread.end()
        self._store()
        for thread in self._threads.values():
            thread.check()
        return True

    def _close(self) -> None:
        for thread in self._threads.values():
            thread.end()
        super()._close()


def _ignore(bad: pa.Table) -> None:
    """Bad rows are sent later, when positions are stored."""


def _steps(side: Side, columns: pa.Schema) -> ArrowSteps | None:
    """The steps of a route, without origins, which no row needs after them; checks that the rows
    have a JSON form."""
    steps = None if side.bare else compiled(side, columns)
    assert side.bare or steps is not None
    gives = columns if steps is None else steps.columns
    user = pa.schema([one for one in gives if _users(one.name)])
    check(Schema.from_arrow(user))
    return None if steps is None else _without_origins(steps)


def _without_origins(steps: ArrowSteps) -> ArrowSteps:
    filters = (Filter(one.condition, tuple(filter(_users, one.keeps))) for one in steps.filters)
    leaving = [place for place, name in enumerate(steps.columns.names) if _users(name)]
    opened = steps.exploded
    return ArrowSteps(
        tuple(filters),
        tuple(steps.values[place] for place in leaving),
        pa.schema([steps.columns.field(place) for place in leaving]),
        None if opened is None else replace(opened, steps=_without_origins(opened.steps)),
    )


def _users(name: str) -> bool:
    return not name.startswith("_")
