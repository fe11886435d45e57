"""The sinks of the late and bad rows of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan.side_outputs import uses_kafka
from millstream.sources.files.files import Files
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.api.pipeline import Pipeline
    from millstream.plan.side_outputs import SideOutput
    from millstream.sinks.spec import Sink


class SideOutputs:
    """The sinks of a pipeline for rows that are not results; `folder` is its checkpoint."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self._pipeline, self._folder = pipeline, folder
        self._kafka = uses_kafka(pipeline.outputs, pipeline.dead)

    def dead(self) -> Sink:
        """The sink of bad rows."""
        return self._pipeline.dead or self.default("dead")

    def late(self, rest: Sink | None) -> Sink:
        """The sink of the late rows of a step with this `rest=`."""
        return rest or self.default("late")

    def default(self, kind: SideOutput) -> Sink:
        """The sink for late or bad rows unless the pipeline names another."""
        if self._kafka:
            return Topic(f"{self._pipeline.name}.{kind}")
        return kept_in(self._folder, kind)

    def defaults(self) -> tuple[Sink, ...]:
        """The sinks that are opened only when a row goes there."""
        late = self.default("late")
        return (late,) if self._pipeline.dead else (late, self.default("dead"))


def kept_in(folder: Path, kind: SideOutput, suffix: str = "") -> Files:
    """The files for late or bad rows in a checkpoint."""
    return Files(folder / f"{kind}{suffix}", format="json")
