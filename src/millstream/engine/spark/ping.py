"""Whether Spark is there: its Java process answers, and it runs the tasks it has been given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SYSTEM = "Spark"
_PINGS = 3  # for which a stage may have no task that runs, before it counts as waiting


class SparkPing:
    """Asks the session of a run, once there is one."""

    def __init__(self, session: Callable[[], SparkSession | None], lost: type[Unavailable]) -> None:
        self._session, self._lost = session, lost
        self._without_task = 0

    def ask(self) -> None:
        """Return if Spark is there, or has not started yet.

        Raises:
            Unavailable: no executor runs its tasks, or its Java process is gone.
        """
        session = self._session()
        if session is None:
            return
        from py4j.protocol import Py4JError, Py4JNetworkError

        try:
            waiting = self._tasks_that_wait(session)
        except (Py4JNetworkError, OSError) as error:
            raise self._gone("Spark's Java process has ended") from error
        except (Py4JError, AttributeError) as error:
            raise self._gone("its Spark session was stopped") from error
        self._without_task = self._without_task + 1 if waiting else 0
        if self._without_task >= _PINGS:
            raise Unavailable(f"{waiting} tasks need an executor", got="no executor runs its tasks",
                              do="see the Spark UI")  # fmt: skip

    def _gone(self, got: str) -> Unavailable:
        return self._lost("the run needs its Spark session", got=got,
                          do="start it again; it continues where it was")  # fmt: skip

    @staticmethod
    def _tasks_that_wait(session: SparkSession) -> int:
        """How many tasks wait, if none of any stage runs; in local mode none waits for long."""
        context = session.sparkContext
        if str(context.master).startswith("local"):
            context._jsc.defaultParallelism()  # one call, to which a stopped context has no answer
            return 0
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
        active = {int(stage) for job in jobs if job is not None for stage in job.stageIds}
        stages = [tracker.getStageInfo(stage) for stage in active & {*tracker.getActiveStageIds()}]
        known = [stage for stage in stages if stage is not None]
        if any(stage.numActiveTasks for stage in known):
            return 0
        return sum(stage.numTasks - stage.numCompletedTasks for stage in known)
