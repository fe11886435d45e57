"""Continuous mode without Spark, where Arrow runs every step: rows pass through this process.

A thread for each source passes its rows; here positions are kept, bad rows sent away and facts
told, every few seconds, while rows go on passing.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.engine.continuous.continuous import Continuous
from millstream.engine.continuous.dead import DeadTopic
from millstream.engine.continuous.passing import Heard, Passing, Way
from millstream.engine.continuous.rules import INTERVAL_SECONDS
from millstream.engine.kernels.kernels import decoder_of
from millstream.engine.spark.arrow_steps import compiled
from millstream.formats.json.decode import check
from millstream.plan.graph import Read
from millstream.plan.side_outputs import dead_topic
from millstream.schema import Schema
from millstream.sources.extent import check_extent
from millstream.sources.kafka import errors as troubles
from millstream.sql.arrow.values import ArrowSteps, Filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.engine.continuous.passing import Passed
    from millstream.plan.stages import Side
    from millstream.sources.decode import RecordDecoder
    from millstream.sources.spec import Extent, Offsets


class Direct(Continuous):
    """Rows pass through this process, piece by piece."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._passing: dict[str, Passing] = {}
        self._dead: dict[str, DeadTopic] = {}
        self._due, self._waited = 0.0, False

    def _begin(self, extents: Mapping[str, Extent]) -> None:
        ways: dict[str, list[Way]] = {name: [] for name in self._reads}
        decoders = {name: self._decoder(name) for name in self._reads}
        for stage in self._stages.stages:
            (side,) = stage.sides
            (read,) = side.leaves
            assert isinstance(read, Read)
            name = self._stages.names[read]
            steps = _steps(side, decoders[name].columns())
            ways[name] += [Way(output, steps) for output in stage.outputs]
        dead = dead_topic(self._pipeline)
        for name, read in self._reads.items():
            reader, at = self._readers[name], self._places.of[name].parted
            self._dead[name] = DeadTopic(name, read, reader, self._writer, dead)
            self._passing[name] = Passing(reader, self._made_writer(), decoders[name], ways[name],
                                          at, self._heard(name))  # fmt: skip
        for passing in self._passing.values():
            passing.start()
        self._due = time.monotonic() + INTERVAL_SECONDS

    def _heard(self, name: str) -> Heard:
        topic, address = self._reads[name].source.name, self._cluster.address
        return Heard(
            bad=partial(self._refuse, name) if self._pipeline.on_bad == "stop" else _let_pass,
            waiting=lambda why: self._wait_for(troubles.waiting(address, why)),
            gone=partial(troubles.unavailable, topic, address),
        )

    def _refuse(self, name: str, bad: pa.Table) -> None:
        first = bad.slice(0, 1).to_pylist()[0]
        raise self._dead[name].stopped(first["partition"], first["offset"], first["reason"])

    def _wait_for(self, why: str) -> None:
        self._waited = True
        self._phase(why)

    def _decoder(self, name: str) -> RecordDecoder:
        ahead = self._reads[name].ahead
        return decoder_of(self._stages, name, ahead)

    def _take_news(self) -> None:
        for passing in self._passing.values():
            passing.check()
        if time.monotonic() >= self._due:
            self._keep()

    def _keep(self) -> None:
        """Send the bad rows of what has passed away, keep its positions, and tell of it."""
        now = time.monotonic()
        seconds, self._due = now - self._due + INTERVAL_SECONDS, now + INTERVAL_SECONDS
        moved = [self._took(name, passing.take(), seconds)
                 for name, passing in self._passing.items()]  # fmt: skip
        if any(moved):
            self._places.keep()
        for name, reader in self._readers.items():
            reader.progress(self._places.of[name].parted)
        if self._told.waiting(self._places.number):
            self._told.tell(self._places.number, self._lag())
        if self._waited:
            self._waited = False
            self._phase("running")

    def _took(self, name: str, passed: Passed, seconds: float) -> bool:
        """Whether there was anything."""
        place = self._places.of[name]
        dead = sum(self._dead[name].send(bad) for bad in passed.bad)
        moved, place.parted = place.parted != passed.at, passed.at
        self._told.read(name, passed.counted, dead)
        for output, rows in passed.written.items():
            self._told.wrote(output, rows, seconds)
        extent = self._readers[name].extent()
        check_extent(place.topic, extent, place.parted, place.identity)
        self._passing[name].widen(extent.first)
        return moved

    def _reached(self, ends: Mapping[str, Offsets]) -> bool:
        if not all(passing.reached(ends[name]) for name, passing in self._passing.items()):
            return False
        return self._settled()

    def _settled(self) -> bool:
        """End behind the piece in hand, and keep where that is: nothing comes again."""
        for passing in self._passing.values():
            passing.end()
        self._keep()
        for passing in self._passing.values():
            passing.check()
        return True

    def _close(self) -> None:
        for passing in self._passing.values():
            passing.end()
        super()._close()


def _let_pass(bad: pa.Table) -> None:
    """Bad rows are sent away later, when positions are kept."""


def _steps(side: Side, columns: pa.Schema) -> ArrowSteps | None:
    """The steps of a way, whose rows must have a JSON form; no row needs its origin behind them."""
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
