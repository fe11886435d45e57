"""Where a batch runs: its lane and its size, by what waits, and by whether Spark has started.

spark    small batches in one task (narrow), large ones in many (wide)
bridge   while Spark starts: small batches, in the driver
driver   with engine="driver": every batch in the driver
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.engine.checkpoint.fault_points import ON_SPARK, reached
from millstream.engine.lanes.narrow import NarrowLane
from millstream.engine.lanes.planner import choose_lane, choose_ranges, narrowed
from millstream.engine.stage_runs import StageRuns, Where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.engine.checkpoint.protocol import Head, Intent
    from millstream.engine.dead_letters.refused import Guard
    from millstream.engine.lanes.narrow_tasks import NarrowTasks
    from millstream.engine.lanes.planner import Sizing
    from millstream.engine.lanes.prefetch import Prefetcher
    from millstream.engine.lanes.wide import WideLane
    from millstream.engine.lanes.work import Lane
    from millstream.engine.spark.session import Spark
    from millstream.engine.stage_runs import RunPlan, StageRunner
    from millstream.sources.spec import Ranges, Reader


class Lanes:
    """The lanes of a run.

    `forced` names the lane of all batches. With `on_driver` the driver runs them all; with
    `patient` a batch that is for the wide lane waits for Spark.
    """

    def __init__(
        self,
        spark: Spark,
        sizing: Sizing,
        *,
        forced: str | None,
        on_driver: bool = False,
        patient: bool = False,
    ) -> None:
        self._spark, self._sizing, self._forced = spark, sizing, forced
        self._on_driver, self._patient = on_driver, patient
        self._narrow = NarrowLane(spark)
        self._wide: dict[int | None, WideLane] = {}
        self._tasks: NarrowTasks | None = None

    def open(self, plan: RunPlan, readers: Mapping[str, Reader]) -> None:
        """Learn what batches run, and on which sources."""
        self._plan, self._readers = plan, readers

    def close(self) -> None:
        """End the threads that run Spark jobs."""
        if self._tasks is not None:
            self._tasks.close()
        for lane in self._wide.values():
            lane.end()

    def choose(self, waiting: Mapping[str, Ranges]) -> tuple[str, dict[str, Ranges], bool]:
        """The lane and the ranges of a batch, and whether something is left over."""
        chosen, limited = choose_ranges(waiting, self._sizing)
        lane = self._forced or choose_lane(chosen, self._sizing)
        if lane == "narrow" or self._forced or not self._sizing.limited:
            return lane, chosen, limited
        if self._patient and not self._on_driver:
            self._spark.get()
        if not self._on_spark():
            chosen, limited = choose_ranges(waiting, narrowed(self._sizing))
            lane = "narrow"
        return lane, chosen, limited

    def soonest(self, intent: Intent) -> Intent:
        """An intent of a previous run, in the lane that can run it first.

        Both lanes give the same results, and none were sent to sinks yet. The planner of that run
        has bounded its bytes.
        """
        if self._forced or self._on_spark():
            return intent
        return replace(intent, lane="narrow")

    def _on_spark(self) -> bool:
        return not self._on_driver and self._spark.ready

    def runner(
        self, intent: Intent, head: Head, attempt: str, guards: tuple[Guard, ...],
        prefetcher: Prefetcher | None = None,
    ) -> StageRunner:  # fmt: skip
        """What runs the stages of an attempt; `prefetcher` if rows may be read before batches."""
        if intent.lane == "narrow" and self._on_spark() and self._plan.typed.in_arrow:
            from millstream.engine.lanes.narrow_tasks import TaskRuns

            if prefetcher is not None:
                prefetcher.stop()
            return TaskRuns(self._narrow_tasks(intent.batch), intent, head, attempt, guards,
                            prefetch=prefetcher is not None)  # fmt: skip
        here = intent.lane == "narrow" and not self._on_spark()
        where: Where = "spark" if not here else "driver" if self._on_driver else "bridge"
        lane = self._lane(intent.lane)
        return StageRuns(self._plan, intent, head, attempt, self._readers, lane, where, guards,
                         prefetcher if here else None)  # fmt: skip

    def _narrow_tasks(self, batch: int) -> NarrowTasks:
        from millstream.engine.lanes.narrow_tasks import NarrowTasks

        if self._tasks is None:
            reached(ON_SPARK, batch)
            self._tasks = NarrowTasks(self._spark, self._plan, self._readers)
        return self._tasks

    def _lane(self, name: str) -> Lane:
        """A lane by its name; the wide one waits for Spark."""
        if name == "narrow" and not self._on_spark():
            return self._narrow
        parallel = 1 if name == "narrow" else None
        if parallel not in self._wide:
            from millstream.engine.lanes.wide import WideLane

            self._wide[parallel] = WideLane(self._spark, self._readers, parallel=parallel)
        return self._wide[parallel]
