"""Finds the dead rows of a job, in a topic or in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.dead_letters.files import FileDeadLetters
from millstream.engine.dead_letters.kept_rows import KeptRows
from millstream.engine.dead_letters.side_outputs import SideOutputs, kept_in
from millstream.engine.dead_letters.topic import TopicDeadLetters
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
    """The dead rows of a pipeline with a checkpoint in `folder`.

    Raises:
        InvalidInput: they go to a sink that Millstream cannot read.
    """
    sink = SideOutputs(pipeline, folder).dead()
    if not isinstance(sink, Topic | Files):
        raise _unreadable(sink)
    sink = with_suffix(sink, suffix) if suffix else sink
    if isinstance(sink, Topic):
        return TopicDeadLetters(pipeline.name, cluster(), topic=sink.name)
    assert isinstance(sink, Files)
    kept = KeptRows(sink, "dead")
    if uses_kafka(pipeline.outputs, pipeline.dead):
        return TopicDeadLetters(pipeline.name, cluster(), suffix, kept=kept)
    return FileDeadLetters(kept)


def dead_letters_of(
    name: str, folder: Path, cluster: Callable[[], Cluster], suffix: str
) -> DeadLetters:
    """The dead rows of a pipeline known only by name, in the default topic or folder."""
    kept = KeptRows(kept_in(folder, "dead", suffix), "dead")
    if kept.folder.exists():
        return FileDeadLetters(kept)
    return TopicDeadLetters(name, cluster(), suffix)


def _unreadable(sink: Sink) -> InvalidInput:
    return InvalidInput("millstream dead reads topics and files", got=f"dead={sink!r}",
                        do="read them in that sink: the columns are reason, step, topic, "
                        "partition, offset, key, value, headers, timestamp")  # fmt: skip
