"""The lane and the size of a batch: by what waits, and by whether Spark has started.

Spark starts when more waits than the driver processes in the time Spark takes to start. Until it
is ready, batches stay small and run on the driver.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.engine.lanes.narrow import NarrowLane
from millstream.engine.lanes.planner import choose_lane, choose_ranges, narrowed, worth_spark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.engine.checkpoint.protocol import Intent
    from millstream.engine.lanes.planner import Sizing
    from millstream.engine.lanes.work import Lane
    from millstream.engine.spark.session import Spark
    from millstream.sources.spec import Ranges


class Lanes:
    """The lanes of a run; `forced` names the lane of all batches."""

    def __init__(self, spark: Spark, sizing: Sizing, *, forced: str | None) -> None:
        self._spark, self._sizing, self._forced = spark, sizing, forced
        self._made: dict[str, Lane] = {"narrow": NarrowLane(spark)}

    def choose(self, waiting: Mapping[str, Ranges]) -> tuple[str, dict[str, Ranges], bool]:
        """The lane and the ranges of a batch, and whether something is left over."""
        chosen, limited = choose_ranges(waiting, self._sizing)
        lane = self._forced or choose_lane(chosen, self._sizing)
        if lane == "wide" and not self._forced and self._sizing.limited and not self._spark.ready:
            if worth_spark(waiting, self._sizing):
                self._spark.start()
            chosen, limited = choose_ranges(waiting, narrowed(self._sizing))
            lane = "narrow"
        return lane, chosen, limited

    def soonest(self, intent: Intent) -> Intent:
        """An intent of a previous run, in the lane that can run it first.

        Both lanes give the same results, and none were sent to sinks yet. The planner of that run
        has bounded its bytes.
        """
        if self._forced or self._spark.ready:
            return intent
        return replace(intent, lane="narrow")

    def lane(self, name: str) -> Lane:
        """A lane by its name; the wide one waits for Spark."""
        if name not in self._made:
            from millstream.engine.lanes.wide import WideLane

            self._made[name] = WideLane(self._spark)
        return self._made[name]
