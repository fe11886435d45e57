"""A running pipeline: started, watched, stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from millstream.errors import InvalidSpec, MillstreamError
from millstream.runtime.checkpoint import Checkpoint
from millstream.runtime.engine import Engine
from millstream.runtime.session import session
from millstream.runtime.world import KafkaWorld
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from millstream.log.settings import Cluster
    from millstream.pipeline import Pipeline
    from millstream.runtime.facts import Facts

Until = Literal["caught_up", "finished"] | None
_POLL = 0.02
_BEAT = 2.0


class Job:
    """One run of a pipeline in this process.

    `stop()` ends it after the batch in hand; nothing is lost or repeated either way.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        until: Until = None,
        kafka: str | Cluster | None = None,
        checkpoint: str | Path | None = None,
        lane: Literal["wide", "short"] | None = None,
        take_over: bool = False,
        on_batch: Callable[[Facts, dict[str, int]], None] | None = None,
    ) -> None:
        if until not in (None, "caught_up", "finished"):
            raise InvalidSpec('until needs "caught_up", "finished" or None', got=repr(until))
        folder = Path(checkpoint) if checkpoint else home_folder() / "jobs" / pipeline.name
        self._until, self._on_batch, self._take_over = until, on_batch, take_over
        self._checkpoint = Checkpoint(folder)
        self._world = KafkaWorld(pipeline.name, kafka, take_over=take_over)
        self._pipeline, self._lane = pipeline, lane
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run until the end that was asked for, or until `stop()`."""
        engine = Engine(self._pipeline, self._checkpoint, session(), self._world, lane=self._lane)
        engine.open(take_over=self._take_over)
        beating = threading.Thread(target=self._beat, daemon=True)
        beating.start()
        try:
            self._loop(engine)
        finally:
            self._stop.set()
            engine.close()

    def _loop(self, engine: Engine) -> None:
        if self._until is not None:
            ends = {name: {p: b for p, (_, b) in ranges.items()}
                    for name, ranges in engine.waiting().items()}  # fmt: skip
            if engine.finished():
                _refuse_more_after_the_end(engine)
                return
            engine.ends = ends
        while not self._stop.is_set():
            facts = engine.step()
            if facts is not None:
                self._tell(engine, facts)
            elif self._until == "caught_up":
                return
            elif self._until == "finished":
                facts = engine.step(finish=True)
                assert facts is not None
                self._tell(engine, facts)
                return
            else:
                self._stop.wait(_POLL)

    def _tell(self, engine: Engine, facts: Facts) -> None:
        if self._on_batch is not None:
            lag = {
                name: sum(b - a for a, b in ranges.values())
                for name, ranges in engine.waiting().items()
            }
            self._on_batch(facts, lag)

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT):
            self._checkpoint.beat()

    def start(self) -> None:
        """Run in a thread of this process."""
        self._thread = threading.Thread(target=self._guarded, name=self._pipeline.name, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error

    def stop(self) -> None:
        """End after the batch in hand."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended; raises what it raised."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._thread is not None:
            self._thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if self._thread.is_alive():
                raise TimeoutError(f"{self._pipeline.name} is still running")
        if self._error is not None:
            raise self._error


def _refuse_more_after_the_end(engine: Engine) -> None:
    waiting = sum(b - a for ranges in engine.waiting().values() for a, b in ranges.values())
    if waiting:
        raise MillstreamError(
            "a finished job needs its input to have ended",
            got=f"{waiting} new records",
            do="use another --checkpoint to run over everything again",
        )


def run(pipeline: Pipeline, *, until: Until = None, **options: object) -> None:
    """Run a pipeline here and now.

    Options: `kafka`, `checkpoint`, `lane`, `take_over`, `on_batch`, as Job takes them.
    """
    Job(pipeline, until=until, **options).run()  # type: ignore[arg-type]


def start(pipeline: Pipeline, **options: object) -> Job:
    """Run a pipeline in the background of this process."""
    job = Job(pipeline, **options)  # type: ignore[arg-type]
    job.start()
    return job
