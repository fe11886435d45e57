"""A running pipeline: how it is started, waited for and stopped."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.folders import checkpoint_folder, in_memory
from millstream.engine.checkpoint.temporary import TemporaryCheckpoint
from millstream.engine.continuous.positions import refuse_other_mode
from millstream.engine.continuous.rules import MODE as CONTINUOUS
from millstream.engine.engine import Engine
from millstream.engine.finished import (
    nothing_done,
    refuse_another_pipeline,
    refuse_batch_options,
    refuse_endless,
    refuse_more_after_the_end,
)
from millstream.engine.health.health import RUNNING, Health
from millstream.engine.inspection.sql_placement import in_java
from millstream.engine.inspection.types import explain_type_errors
from millstream.engine.inspection.without_spark import without_spark
from millstream.engine.kafka_environment import KafkaEnvironment
from millstream.engine.pace.garbage import frozen_objects
from millstream.engine.pace.idle_time import IdleTime
from millstream.engine.pace.lag import Lag
from millstream.engine.pace.pace import Pace
from millstream.engine.set_aside import SetAside
from millstream.engine.spark.rdd_jobs import check_workers, warmed_up
from millstream.engine.spark.session import (
    Spark,
    check_startable,
    existing_session,
    session,
)
from millstream.errors import InvalidSpec, MillstreamError
from millstream.metrics.facts import lane_name
from millstream.outages import Notice
from millstream.plan.side_outputs import on_spark
from millstream.plan.stages import cut
from millstream.toolchain.folders import refuse_file_above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from millstream.api.pipeline import Pipeline
    from millstream.engine.continuous.continuous import Continuous
    from millstream.kafka.settings import Cluster
    from millstream.metrics.facts import Facts
    from millstream.outages import Outage

LOG = logging.getLogger("millstream.job")
Until = Literal["caught_up", "finished"] | None
_BEAT = 2.0


class _StoppedWaiting(Exception):
    """The job was stopped while it waited for another system."""


class Job:
    """One run of a pipeline in this process.

    `stop()` ends it after the current batch; nothing is lost or repeated either way.
    `folder` is its checkpoint: the given one, the pipeline's default, or, if all sources and
    sinks are `Memory`, one that is removed when the run ends. `late` and `dead` count the late
    and bad rows of this run; `warn` is called with a summary of them at its end.
    `on_batch` is called with each batch's facts and the lag per source, from the run's own thread;
    `on_phase` with what the run does next or waits for, and `on_outage` when a system goes away or
    is back, from any thread. `outages` are the systems that are down; the run waits for them for
    `patience` seconds, by default for two minutes, and at its start only for a moment.
    `last_poll` is when (seconds since the epoch) the run last looked for work.
    """

    environment: ClassVar[type[KafkaEnvironment]] = KafkaEnvironment

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        until: Until = None,
        kafka: str | Cluster | None = None,
        checkpoint: str | Path | None = None,
        lane: Literal["wide", "narrow"] | None = None,
        take_over: bool = False,
        spark: SparkSession | None = None,
        on_batch: Callable[[Facts, dict[str, int]], None] | None = None,
        on_phase: Callable[[str], None] | None = None,
        on_outage: Callable[[], None] = lambda: None,
        patience: float | None = None,
        warn: Callable[[str], None] = LOG.warning,
    ) -> None:
        if until not in (None, "caught_up", "finished"):
            raise InvalidSpec('until needs "caught_up", "finished" or None', got=repr(until))
        refuse_endless(pipeline, until)
        refuse_batch_options(pipeline, until, lane)
        alone = checkpoint is None and in_memory(pipeline)
        self.temporary = TemporaryCheckpoint(pipeline) if alone else None
        self.folder = self.temporary.folder if self.temporary else _folder(pipeline, checkpoint)
        refuse_file_above(self.folder, "a checkpoint")
        self._aside, self._warn = SetAside(pipeline), warn
        self._until, self._on_batch, self._take_over = until, on_batch, take_over
        self._health = Health(on_phase or (lambda phase: None), on_outage)
        self._listener = self._health.listener(self._wait, patience)
        self._checkpoint, self._idle_time = Checkpoint(self.folder), IdleTime()
        self._environment = self.environment(
            pipeline.name, kafka, folder=self.folder,
            take_over=take_over, owned=self._checkpoint.owned,
            epoch=lambda: self._checkpoint.incarnation,
            delivery=pipeline.delivery, idle_seconds=self._idle_time.seconds,
            spark=self._started, listener=self._listener,
        )  # fmt: skip
        self._lane = None if lane is None else lane_name(lane)
        self._session = Spark.of(spark, self._wait) if spark else Spark(session)
        self._given = spark is not None
        self._pipeline, self._waited = pipeline, False
        self._stop, self._over = threading.Event(), threading.Event()
        self._pace = Pace(pipeline.latency / 1e6, self._stop)
        self._lag = Lag()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.reached_end = self.finished_before = False
        self.last_poll = time.time()
        self._engine: Engine | None = None
        self._continuous: Continuous | None = None

    @property
    def spark_ui(self) -> str | None:
        """The address of Spark's own page, once Spark has started; None if that page is off."""
        return (self._continuous or self._session).spark_ui

    @property
    def outages(self) -> tuple[Outage, ...]:
        """The systems that are down now, the oldest outage first."""
        return self._health.outages

    @property
    def continuous(self) -> bool:
        """Whether the pipeline runs in continuous mode."""
        return self._pipeline.mode == CONTINUOUS

    def run(self) -> None:
        """Run to the end that `until` names, or until `stop()`.

        Afterwards `reached_end` says whether the run reached that end.
        """
        self._health.watch_spark(lambda: (self._continuous or self._session).found)
        try:
            if self.continuous:
                self._run_continuous()
                return
            self._run_batches()
        finally:
            self._health.close()
            kept = self.folder if self.temporary is None else self.temporary.end()
            if (summary := self._aside.summary(kept)) is not None:
                self._warn(summary)

    def _run_batches(self) -> None:
        if self.temporary is not None:
            self.temporary.begin()
        with suppress(_StoppedWaiting):
            self._session = self._spark()
        if self._stop.is_set():
            return
        spark = self._session
        self._health.phase("checking the types of the pipeline")
        with explain_type_errors(spark, self._pipeline):
            engine = Engine(self._pipeline, self._checkpoint, spark, self._environment,
                            lane=self._lane, patient=self._until == "finished")  # fmt: skip
        self._engine = engine
        with self._beating(), suppress(_StoppedWaiting):
            self._run(engine)

    def _spark(self) -> Spark:
        """The session of this run: given, or started, beside the first batches if possible."""
        if self._given:
            check_workers(self._session.get())
            return self._session
        name, outputs = self._pipeline.name, self._pipeline.outputs
        stages = cut(outputs)
        sql, here = in_java(stages), without_spark(stages)
        sql = sql or bool(on_spark(outputs, self._pipeline.dead))
        spark = Spark(lambda: warmed_up(session(sql=sql, name=name)), self._wait)
        if here and self._pipeline.engine == "driver":
            return spark
        running = existing_session() is not None
        if not running:
            check_startable(self._wait)
        if here and self._lane != "wide" and not running:
            spark.start()
        else:
            self._health.phase("starting Spark")
            spark.get()
        return spark

    def _started(self) -> SparkSession:
        return self._session.get()

    @contextmanager
    def _beating(self) -> Iterator[None]:
        """Send heartbeats during the block."""
        beating = threading.Thread(target=self._beat, name="beat", daemon=True)
        beating.start()
        try:
            yield
        finally:
            self._over.set()
            beating.join()

    def _run_continuous(self) -> None:
        from millstream.engine.continuous.choice import runner

        reads = cut(self._pipeline.outputs).reads.values()
        self._environment.watch_kafka(*(read.source.name for read in reads))
        self._continuous = runner(self._pipeline, self._checkpoint)(
            self._pipeline, self._checkpoint, self._environment.cluster,
            on_facts=self._facts, phase=self._health.phase, listener=self._listener,
            turn=self._turn, stop=self._stop,
        )  # fmt: skip
        with self._beating(), frozen_objects(), suppress(_StoppedWaiting):
            self.reached_end = self._continuous.run(
                take_over=self._take_over, caught_up=self._until == "caught_up"
            )

    def _turn(self) -> None:
        self.last_poll = time.time()
        self._health.check()

    def _facts(self, facts: Facts, lag: dict[str, int]) -> None:
        self._health.progressed()
        if self._on_batch is not None:
            self._on_batch(facts, lag)

    def _run(self, engine: Engine) -> None:
        self._health.phase("opening the checkpoint")
        refuse_other_mode(self._checkpoint, continuous=False)
        try:
            recovered = engine.open(take_over=self._take_over)
        except BaseException:
            self._checkpoint.close()
            raise
        try:
            if recovered is not None:
                self._report(engine, recovered)
            self._health.phase(RUNNING)
            with frozen_objects():
                self.reached_end = self._loop(engine, recovered=recovered is not None)
        finally:
            engine.close()

    def _loop(self, engine: Engine, *, recovered: bool) -> bool:
        if engine.head.finished:
            refuse_another_pipeline(self.folder, engine.head, engine.fingerprint)
            self.finished_before = not recovered
            if self.finished_before:
                refuse_more_after_the_end(engine)
            return True
        if self._until is not None:
            engine.end_here(final=self._until == "finished")
        while not self._stop.is_set():
            self._turn()
            self._pace.begin()
            facts = engine.step()
            self._idle_time.looked(found=facts is not None)
            if self._waited:
                self._waited = False
                self._health.progressed()
                self._health.phase(RUNNING)
            if facts is not None:
                self._report(engine, facts)
                if self._until is None and engine.caught_up:
                    self._pace.wait(engine.full)
            elif self._until == "caught_up":
                return True
            elif self._until == "finished":
                facts = engine.step(finish=True)
                assert facts is not None
                self._report(engine, facts)
                return True
            else:
                self._pace.idle(watched=engine.watch_sources(self._pace.wake))
        return False

    def _wait(self, why: str) -> None:
        """Report why the run waits for another system; the end of the next step ends the wait.

        A stopped job does not wait: it leaves the current batch as a crash would, and the next run
        continues with it.
        """
        if self._stop.is_set() and not (isinstance(why, Notice) and why.kind == "degraded"):
            raise _StoppedWaiting
        self._waited = True
        self._health.hear(why)

    @property
    def late(self) -> int:
        """How many rows of this run were late."""
        return self._aside.late

    @property
    def dead(self) -> int:
        """How many rows of this run were bad."""
        return self._aside.dead

    def _report(self, engine: Engine, facts: Facts) -> None:
        self._aside.count(facts)
        self._facts(facts, {} if self._on_batch is None else self._lag.of(engine))

    def positions(self) -> dict[str, dict[int, int]] | None:
        """The next offset per source and partition, as committed."""
        if self._continuous is not None:
            return self._continuous.positions()
        head = None if self._engine is None else self._engine.head
        if head is None or not head.batch:
            return None
        return {name: dict(state.next) for name, state in head.sources.items()}

    def _beat(self) -> None:
        while not self._over.wait(_BEAT):
            if self._checkpoint.incarnation:
                self._checkpoint.beat()

    def start(self) -> None:
        """Run in a thread of this process."""
        if self._thread is not None:
            raise MillstreamError("a job starts once", got="a second start()",
                                  do="start another with pipeline.start()")  # fmt: skip
        self._thread = threading.Thread(target=self._guarded, name=self._pipeline.name, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error

    def stop(self) -> None:
        """End after the current batch, or at once if it waits for another system."""
        self._stop.set()
        self._pace.wake.set()

    def ended(self, timeout: float = 0.0) -> bool:
        """Whether a started job has ended; waits up to `timeout` seconds for it."""
        if self._thread is None:
            return False
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended; raises the error that ended it.

        Raises:
            TimeoutError: it is still running after `timeout` seconds.
        """
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(f"the pipeline {self._pipeline.name} is still running")
        if self._error is not None:
            raise self._error


def _folder(pipeline: Pipeline, checkpoint: str | Path | None) -> Path:
    return Path(checkpoint) if checkpoint else checkpoint_folder(pipeline.name)


def run(pipeline: Pipeline, *, until: Until = None, **options: object) -> None:
    """Run a pipeline in this thread.

    Options: `kafka`, `checkpoint`, `lane`, `take_over`, `on_batch`, `on_phase`, as for Job.
    """
    job = Job(pipeline, until=until, **options)  # type: ignore[arg-type]
    job.run()
    if job.finished_before:
        LOG.warning(nothing_done(job.folder))


def start(pipeline: Pipeline, **options: object) -> Job:
    """Run a pipeline in the background of this process."""
    job = Job(pipeline, **options)  # type: ignore[arg-type]
    job.start()
    return job
