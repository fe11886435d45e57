"""Where the dead rows of a job are, for those who look after them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.dead_letters.files import DeadFiles
from millstream.engine.dead_letters.kept_rows import KeptRows
from millstream.engine.dead_letters.side_outputs import SideOutputs, kept_in
from millstream.engine.dead_letters.topic import DeadRows
from millstream.engine.redirected_sinks import with_suffix
from millstream.errors import InvalidInput
from millstream.plan.side_outputs import uses_kafka
from millstream.sources.files.files import Files
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.api.pipeline import Pipeline
    from millstream.engine.dead_letters.rows import DeadLetters
    from millstream.kafka.settings import Cluster
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
    sink = with_suffix(sink, suffix) if suffix else sink
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
