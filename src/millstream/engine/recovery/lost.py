"""Continuing without records that are lost or damaged: only on request, and always reported.

The positions of the job move to the first records that its sources still hold, or past the damaged
record batches, by one commit that reads nothing. State stays as it is; watermarks do not go back.
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


Skipped = tuple["SourceState", list[str]]  # a source's new position, and what was skipped


def skip_lost(pipeline: Pipeline, checkpoint: Checkpoint, environment: Environment) -> list[str]:
    """Move the job past records that its sources no longer hold; returns what was skipped.

    Raises:
        InvalidInput: a batch is pending whose rows may have reached outputs.
    """

    def skipped(topic: str, known: SourceState | None, reader: Reader) -> Skipped | None:
        return None if known is None else _past_lost(topic, known, reader.extent())

    return _skip(pipeline, checkpoint, environment, skipped, "--skip-lost")


def skip_damaged(pipeline: Pipeline, checkpoint: Checkpoint, environment: Environment) -> list[str]:
    """Move the job past the damaged record batches at its positions; returns what was skipped.

    Raises:
        InvalidInput: a batch is pending whose rows may have reached outputs.
    """
    return _skip(pipeline, checkpoint, environment, _past_damage, "--skip-damaged")


def _skip(
    pipeline: Pipeline, checkpoint: Checkpoint, environment: Environment,
    skipped: Callable[[str, SourceState | None, Reader], Skipped | None], option: str,
) -> list[str]:  # fmt: skip
    checkpoint.open(pipeline.name, pipeline.buckets)
    try:
        return _commit_skip(pipeline, checkpoint, environment, skipped, option)
    finally:
        checkpoint.close()


def _commit_skip(
    pipeline: Pipeline, checkpoint: Checkpoint, environment: Environment,
    skipped: Callable[[str, SourceState | None, Reader], Skipped | None], option: str,
) -> list[str]:  # fmt: skip
    head = checkpoint.head()
    lines: list[str] = []
    sources = dict(head.sources)
    for name, read in cut(pipeline.outputs).reads.items():
        reader = environment.reader(name, read)
        try:
            found = skipped(read.source.name, head.sources.get(name), reader)
        finally:
            reader.close()
        if found is not None:
            sources[name], of_source = found
            lines += of_source
    if not lines:
        return []
    pending = checkpoint.pending(head)
    if pending is not None and pending[1] is not None:
        raise InvalidInput(
            f"{option} needs a job without a pending batch",
            got=f"batch {pending[0].batch}, which was computed and not committed",
            do=f"run the job once without {option}: that commits the batch",
        )
    number = checkpoint.next_batch()
    after = replace(head, batch=number, intent=uuid.uuid4().hex, sources=sources)
    facts = Facts(
        number, 0, 0, 0, "skip",
        watermarks={name: moment_of(state.watermark) for name, state in sources.items()},
    )  # fmt: skip
    checkpoint.commit_rewind(head.batch, after, facts.body())
    return lines


def _past_damage(topic: str, known: SourceState | None, reader: Reader) -> Skipped | None:
    """A source's position after the damaged record batches that are next in its partitions."""
    if not isinstance(reader, ChecksRecords):
        return None
    extent = reader.extent()
    state = known or SourceState({}, {}, identity=extent.identity)
    lines, positions = [], dict(state.next)
    for partition, offset in following(extent, state.next).items():
        end = extent.end[partition]
        after = reader.offset_after_damage(partition, offset, end) if offset < end else None
        if after is not None:
            positions[partition] = after
            lines.append(f"{topic}/{partition}: damaged offsets {offset} to {after - 1} (up to "
                         f"{after - offset} records) are skipped")  # fmt: skip
    return (replace(state, next=positions), lines) if lines else None


def _past_lost(topic: str, known: SourceState, extent: Extent) -> Skipped:
    """A source's position at the first records that its log still holds."""
    if None not in (known.identity, extent.identity) and known.identity != extent.identity:
        lines = [f"{topic!r} was recreated: it is read from its beginning"]
        return replace(known, next={}, times={}, identity=extent.identity), lines
    lines, positions, times = [], dict(known.next), dict(known.times)
    for partition, offset in known.next.items():
        if partition not in extent.first:
            del positions[partition]
            times.pop(partition, None)
            lines.append(f"{topic}/{partition} no longer exists")
        elif offset < extent.first[partition]:
            positions[partition] = extent.first[partition]
            lines.append(f"{topic}/{partition}: {extent.first[partition] - offset} records from "
                         f"offset {offset} on are skipped")  # fmt: skip
    return replace(known, next=positions, times=times), lines


def skip(
    pipeline: Pipeline, kafka: str | Cluster | None, folder: Path,
    *, what: Literal["lost", "damaged"] = "lost",
) -> list[str]:  # fmt: skip
    """`skip_lost` or `skip_damaged` on a cluster; does nothing for a job that has not started."""
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.kafka_environment import KafkaEnvironment

    if not (folder / "job").exists():
        return []
    opened = Checkpoint(folder)
    environment = KafkaEnvironment(pipeline.name, kafka, folder=folder, owned=opened.owned)
    return (skip_lost if what == "lost" else skip_damaged)(pipeline, opened, environment)
