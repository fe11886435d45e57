"""The thread that runs a lane's Spark jobs, while the thread of the run looks after them.

What Spark's UI shows of a job (its description, and a call site that the user can read) and the
group by which it is cancelled belong to the thread that starts it.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from millstream.engine.spark.rdd_jobs import CALL_SITE, describe, own_call_site
from millstream.engine.spark.shared import shared_place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.engine.spark.session import Spark
    from millstream.plan.stages import Stage
    from millstream.sources.spec import Reader

T = TypeVar("T")
_GROUP = "spark.jobGroup.id"
_DETAILS = "callSite.long"
_POOL = "spark.scheduler.pool"  # jobs of one pool wait for each other, pools take turns


@dataclass(frozen=True)
class CallSite:
    """What Spark's UI shows as the code of a job: steps of the pipeline, and their lines."""

    short: str
    long: str

    @classmethod
    def of(cls, stages: Sequence[Stage]) -> CallSite:
        """Of jobs that run these stages: the lines on which the user wrote the steps."""
        lines = [(stage.name, (stage.step or stage.trees[0]).at) for stage in stages]
        shown = [name if at is None else f"{name} at {at}" for name, at in lines]
        names = ", ".join(name for name, _ in lines)
        last = lines[-1][1]
        return cls(names if last is None else f"{names} at {Path(last).name}", "\n".join(shown))


class JobThread:
    """Runs Spark jobs, one at a time. While one takes long, the ends of the sources are read,
    and a topic reports that it waits for Kafka."""

    def __init__(self, spark: Spark, readers: Mapping[str, Reader]) -> None:
        self._spark, self._readers = spark, readers
        self._context = spark.get().sparkContext
        self._group = f"millstream-{uuid.uuid4().hex}"
        self._site: CallSite | None = None
        self._thread = ThreadPoolExecutor(1, "spark-jobs", initializer=self._name_jobs)

    def run(
        self, jobs: Callable[[], T], description: str, site: CallSite, label: str,
        properties: Mapping[str, str] | None = None,
    ) -> T:  # fmt: skip
        """The result of a function that runs jobs; `label` says what waits while they take long."""
        future = self._thread.submit(self._described, jobs, description, site, properties or {})
        return self._spark.wait_for(
            future, f"{label} waits for its Spark tasks", self._check_sources, self._cancel
        )

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _name_jobs(self) -> None:
        self._context.setLocalProperty(_GROUP, self._group)
        if shared_place() is not None:
            self._context.setLocalProperty(_POOL, self._group)

    def _described(
        self, jobs: Callable[[], T], description: str, site: CallSite, properties: Mapping[str, str]
    ) -> T:
        describe(self._spark.get(), description)
        if site != self._site:
            self._context.setLocalProperty(CALL_SITE, site.short)
            self._context.setLocalProperty(_DETAILS, site.long)
            self._site = site
        for name, value in properties.items():
            self._context.setLocalProperty(name, value)
        with own_call_site():
            return jobs()

    def _check_sources(self) -> None:
        for reader in self._readers.values():
            reader.extent()

    def _cancel(self) -> None:
        self._context.cancelJobGroup(self._group)
