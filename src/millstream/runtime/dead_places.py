"""Where the dead rows of a job are, for those who look after them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidInput
from millstream.plan.side_outputs import uses_kafka
from millstream.runtime.dead import DeadRows
from millstream.runtime.dead_files import DeadFiles
from millstream.runtime.kept_rows import KeptRows
from millstream.runtime.side_outputs import SideOutputs, kept_in
from millstream.sinks.elsewhere import elsewhere
from millstream.sources.files import Files
from millstream.sources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.log.settings import Cluster
    from millstream.pipeline import Pipeline
    from millstream.runtime.dead_letters import DeadLetters
    from millstream.sinks.spec import Sink


def dead_letters(
    pipeline: Pipeline, folder: Path, cluster: Callable[[], Cluster], suffix: str
) -> DeadLetters:
    """The dead rows of a pipeline whose checkpoint is that folder.

    Raises:
        InvalidInput: they go to a sink that only its own tools can read.
    """
    sink = SideOutputs(pipeline, folder).dead()
    if not isinstance(sink, Topic | Files):
        raise _elsewhere(sink)
    sink = elsewhere(sink, suffix) if suffix else sink
    if isinstance(sink, Topic):
        return DeadRows(pipeline.name, cluster(), topic=sink.name)
    assert isinstance(sink, Files)
    kept = KeptRows(sink, "dead")
    if uses_kafka(pipeline.outputs, pipeline.dead):
        return DeadRows(pipeline.name, cluster(), suffix, kept=kept)
    return DeadFiles(kept)


def dead_letters_of(
    name: str, folder: Path, cluster: Callable[[], Cluster], suffix: str
) -> DeadLetters:
    """The dead rows of a pipeline of which only the name is known, in a default place."""
    kept = KeptRows(kept_in(folder, "dead", suffix), "dead")
    if kept.folder.exists():
        return DeadFiles(kept)
    return DeadRows(name, cluster(), suffix)


def _elsewhere(sink: Sink) -> InvalidInput:
    return InvalidInput("millstream dead reads topics and files", got=f"dead={sink!r}",
                        do="look there: its rows have the columns reason, step, topic, partition, "
                        "offset, key, value, headers, timestamp")  # fmt: skip
