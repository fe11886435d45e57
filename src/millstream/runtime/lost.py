"""Going on without what is gone: only when somebody has said so, and never in silence.

The positions of the job are moved to where its sources begin now, by one commit that reads
nothing. What had been computed stays; watermarks do not go back.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.errors import InvalidInput
from millstream.plan.stages import cut
from millstream.runtime.facts import Facts, moment_of

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.log.settings import Cluster
    from millstream.pipeline import Pipeline
    from millstream.runtime.checkpoint import Checkpoint
    from millstream.runtime.outside import World
    from millstream.runtime.protocol import SourceState
    from millstream.sources.spec import Extent


def skip_lost(pipeline: Pipeline, checkpoint: Checkpoint, world: World) -> list[str]:
    """Move the job past what its sources no longer hold; gives what was skipped, in words.

    Raises:
        InvalidInput: a batch is in hand that outputs may have taken already.
    """
    checkpoint.open(pipeline.name, pipeline.buckets)
    try:
        return _skipped(pipeline, checkpoint, world)
    finally:
        checkpoint.close()


def _skipped(pipeline: Pipeline, checkpoint: Checkpoint, world: World) -> list[str]:
    head = checkpoint.head()
    told: list[str] = []
    sources = dict(head.sources)
    for name, read in cut(pipeline.outputs).reads.items():
        if name in head.sources:
            reader = world.reader(name, read)
            try:
                extent = reader.extent()
            finally:
                reader.close()
            sources[name], words = _moved(read.source.name, head.sources[name], extent)
            told += words
    if not told:
        return []
    pending = checkpoint.pending(head)
    if pending is not None and pending[1] is not None:
        raise InvalidInput(
            "--skip-lost needs a job without a batch in hand",
            got=f"batch {pending[0].batch}, which was computed and not committed",
            do="run it once without --skip-lost: that brings it to its end, whatever is gone",
        )
    number = checkpoint.next_batch()
    after = replace(head, batch=number, intent=uuid.uuid4().hex, sources=sources)
    facts = Facts(
        number, 0, 0, 0, "skip",
        watermarks={name: moment_of(state.watermark) for name, state in sources.items()},
    )  # fmt: skip
    checkpoint.commit_rewind(head.batch, after, facts.body())
    return told


def _moved(topic: str, known: SourceState, extent: Extent) -> tuple[SourceState, list[str]]:
    """A source's position where its log still has something, and what lies between."""
    if None not in (known.identity, extent.identity) and known.identity != extent.identity:
        words = f"{topic!r} was made anew: it is read from its beginning"
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


def skip(pipeline: Pipeline, kafka: str | Cluster | None, folder: Path) -> list[str]:
    """As `skip_lost`, on a cluster; a job that has not begun has lost nothing."""
    from millstream.runtime.checkpoint import Checkpoint
    from millstream.runtime.world import KafkaWorld

    if not (folder / "job").exists():
        return []
    opened = Checkpoint(folder)
    world = KafkaWorld(pipeline.name, kafka, folder=folder, owned=opened.owned)
    return skip_lost(pipeline, opened, world)
