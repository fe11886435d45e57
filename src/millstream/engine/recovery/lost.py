"""Going on without what is gone or damaged: only by an explicit word, and never in silence.

The positions of the job are moved to where its sources begin now, or behind the damaged record
batches it has come to, by one commit that reads nothing. What had been computed stays; watermarks
do not go back.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from millstream.engine.checkpoint.protocol import SourceState
from millstream.engine.lanes.cutting import ChecksRecords
from millstream.engine.lanes.planner import following
from millstream.errors import InvalidInput
from millstream.metrics.facts import Facts, moment_of
from millstream.plan.stages import cut

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.api.pipeline import Pipeline
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.environment import Environment
    from millstream.kafka.settings import Cluster
    from millstream.sources.spec import Extent, Reader


Moved = tuple["SourceState", list[str]]


def skip_lost(pipeline: Pipeline, checkpoint: Checkpoint, environment: Environment) -> list[str]:
    """Move the job past what its sources no longer hold; gives what was skipped, in words.

    Raises:
        InvalidInput: a batch is in hand that outputs may have taken already.
    """

    def moved(topic: str, known: SourceState | None, reader: Reader) -> Moved | None:
        return None if known is None else _moved(topic, known, reader.extent())

    return _opened(pipeline, checkpoint, environment, moved, "--skip-lost")


def skip_damaged(pipeline: Pipeline, checkpoint: Checkpoint, environment: Environment) -> list[str]:
    """Move the job behind the damaged record batches it has come to; gives what was passed over,
    in words.

    Raises:
        InvalidInput: a batch is in hand that outputs may have taken already.
    """
    return _opened(pipeline, checkpoint, environment, _behind, "--skip-damaged")


def _opened(
    pipeline: Pipeline, checkpoint: Checkpoint, environment: Environment,
    moved: Callable[[str, SourceState | None, Reader], Moved | None], word: str,
) -> list[str]:  # fmt: skip
    checkpoint.open(pipeline.name, pipeline.buckets)
    try:
        return _skipped(pipeline, checkpoint, environment, moved, word)
    finally:
        checkpoint.close()


def _skipped(
    pipeline: Pipeline, checkpoint: Checkpoint, environment: Environment,
    moved: Callable[[str, SourceState | None, Reader], Moved | None], word: str,
) -> list[str]:  # fmt: skip
    head = checkpoint.head()
    told: list[str] = []
    sources = dict(head.sources)
    for name, read in cut(pipeline.outputs).reads.items():
        reader = environment.reader(name, read)
        try:
            found = moved(read.source.name, head.sources.get(name), reader)
        finally:
            reader.close()
        if found is not None:
            sources[name], words = found
            told += words
    if not told:
        return []
    pending = checkpoint.pending(head)
    if pending is not None and pending[1] is not None:
        raise InvalidInput(
            f"{word} needs a job without a batch in hand",
            got=f"batch {pending[0].batch}, which was computed and not committed",
            do=f"run it once without {word}: that brings it to its end, whatever is gone",
        )
    number = checkpoint.next_batch()
    after = replace(head, batch=number, intent=uuid.uuid4().hex, sources=sources)
    facts = Facts(
        number, 0, 0, 0, "skip",
        watermarks={name: moment_of(state.watermark) for name, state in sources.items()},
    )  # fmt: skip
    checkpoint.commit_rewind(head.batch, after, facts.body())
    return told


def _behind(topic: str, known: SourceState | None, reader: Reader) -> Moved | None:
    """A source's position behind the damaged record batches that are next in its partitions."""
    if not isinstance(reader, ChecksRecords):
        return None
    extent = reader.extent()
    state = known or SourceState({}, {}, identity=extent.identity)
    told, moved = [], dict(state.next)
    for partition, offset in following(extent, state.next).items():
        end = extent.end[partition]
        after = reader.behind_damage(partition, offset, end) if offset < end else None
        if after is not None:
            moved[partition] = after
            told.append(f"{topic}/{partition}: offsets {offset} to {after - 1} ({after - offset} "
                        "records at most), which are damaged, are passed over")  # fmt: skip
    return (replace(state, next=moved), told) if told else None


def _moved(topic: str, known: SourceState, extent: Extent) -> tuple[SourceState, list[str]]:
    """A source's position where its log still has something, and what lies between."""
    if None not in (known.identity, extent.identity) and known.identity != extent.identity:
        words = f"{topic!r} was recreated: it is read from its beginning"
        return replace(known, next={}, times={}, identity=extent.identity), [words]
    told, moved, times = [], dict(known.next), dict(known.times)
    for partition, offset in known.next.items():
        if partition not in extent.first:
            del moved[partition]
            times.pop(partition, None)
            told.append(f"{topic}/{partition} is gone")
        elif offset < extent.first[partition]:
            moved[partition] = extent.first[partition]
            told.append(f"{topic}/{partition}: {extent.first[partition] - offset} records, from "
                        f"offset {offset} on, are skipped")  # fmt: skip
    return replace(known, next=moved, times=times), told


def skip(
    pipeline: Pipeline, kafka: str | Cluster | None, folder: Path,
    *, what: Literal["lost", "damaged"] = "lost",
) -> list[str]:  # fmt: skip
    """As `skip_lost` or `skip_damaged`, on a cluster; a job that has not begun has met nothing."""
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.kafka_environment import KafkaEnvironment

    if not (folder / "job").exists():
        return []
    opened = Checkpoint(folder)
    environment = KafkaEnvironment(pipeline.name, kafka, folder=folder, owned=opened.owned)
    return (skip_lost if what == "lost" else skip_damaged)(pipeline, opened, environment)
