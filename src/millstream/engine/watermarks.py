"""How a batch advances the watermarks of its sources, and of everything computed from them.

    intent, largest event times of each source --> source_after --> watermarks of sources
    these and the watermarks of earlier steps --> NodeWatermarks --> inputs of a step

Idle sources do not delay others: an idle side of a union is left out of the minimum, and an idle
input of a step advances with the other inputs. All functions here are pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.engine.checkpoint.protocol import SourceState, StepState
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.event_time.watermark import Idleness, advance, before
from millstream.operators.kernel import dues
from millstream.plan.graph import HIDDEN_TIME, Node, Read, Stateful, Union

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from millstream.engine.checkpoint.protocol import Head, Intent
    from millstream.engine.kernels.kernels import Typed
    from millstream.sources.spec import Extent, Ranges


def source_after(
    known: SourceState, intent: Intent, name: str, times: Mapping[int, int], *, delay: int
) -> SourceState:
    """A source after a batch; `times` has the largest event time of each partition read."""
    planned = intent.sources[name]
    largest = dict(known.times)
    for partition, time in times.items():
        largest[partition] = max(time, largest.get(partition, time))
    following = {**known.next, **{p: end for p, (_, end) in planned.ranges.items()}}
    watermark = advance(
        known.watermark,
        largest,
        following,
        delay=delay,
        idleness=Idleness(frozenset(planned.idle), planned.drift),
        declared=END_OF_TIME if intent.finish else planned.declared,
    )
    if not following and watermark == MIN_TIME:
        watermark = known.watermark
    return SourceState(following, largest, watermark, planned.identity)


@dataclass(frozen=True)
class NodeWatermarks:
    """Watermarks of nodes, from those of sources (`source`) and of steps' results (`emitted`)."""

    source: Callable[[Read], int]
    emitted: Callable[[Stateful], int]
    idle: Callable[[Read], bool]

    def of(self, node: Node) -> int:
        """The watermark of a node's rows."""
        if isinstance(node, Read):
            return self.source(node)
        if isinstance(node, Stateful):
            return self.emitted(node)
        if isinstance(node, Union):
            awake = [side for side in node.sides if not self.silent(side)]
            return min(self.of(side) for side in awake or node.sides)
        return self.of(node.inputs[0])

    def sides(self, trees: Sequence[Node], before: Sequence[int]) -> tuple[int, ...]:
        """The watermark of each input of a step: never less than its watermark `before`.

        An input that was idle may resume behind the others. A table, whose watermark follows the
        clock, does not advance idle streams.
        """
        reached = [self.of(tree) for tree in trees]
        awake = [at for tree, at in zip(trees, reached, strict=True)
                 if not self.silent(tree) and tree.time != HIDDEN_TIME]  # fmt: skip
        least = min(awake, default=MIN_TIME)
        return tuple(
            max(had, at, least) if self.silent(tree) else max(had, at)
            for tree, at, had in zip(trees, reached, before, strict=True)
        )

    def silent(self, node: Node) -> bool:
        """Whether all sources of a node are idle."""
        if isinstance(node, Read):
            return self.idle(node)
        return bool(node.inputs) and all(self.silent(below) for below in node.inputs)


def declared_by_clock(
    reads: Mapping[str, Read], declared: Mapping[str, int], clock: int, ended: Collection[str]
) -> dict[str, int]:
    """The least watermark of each source: the declared one, or, for a table whose log is read to
    its end, the batch clock minus its delay, so that an idle table does not delay others."""
    least = {name: declared.get(name, MIN_TIME) for name in reads}
    for name, read in reads.items():
        if read.changes is not None and name in ended:
            least[name] = max(least[name], before(clock, read.delay))
    return least


def reads_all(chosen: Ranges, waiting: Ranges, extent: Extent) -> bool:
    """Whether a batch over these ranges reads the source to its current end."""
    return all(chosen.get(p, (a, a))[1] >= extent.end[p] for p, (a, _) in waiting.items())


def something_due(
    typed: Typed,
    head: Head,
    idleness: Mapping[str, Idleness],
    declared: Mapping[str, int],
    clock: int,
) -> bool:
    """Whether the clock or a declared watermark alone lets a step close or fire."""
    if any(state.wake <= clock for state in head.steps.values()):
        return True
    names, moved = typed.stages.names, {}
    for name, read in typed.stages.reads.items():
        known = head.sources.get(name, SourceState({}, {}))
        moved[name] = advance(known.watermark, known.times, known.next, delay=read.delay,
                              idleness=idleness[name], declared=declared[name])  # fmt: skip

    def idle(read: Read) -> bool:
        known = head.sources.get(names[read], SourceState({}, {})).next
        return bool(known) and known.keys() <= idleness[names[read]].idle

    return _rows_due(typed, head, moved, idle)


def _rows_due(
    typed: Typed, head: Head, moved: Mapping[str, int], idle: Callable[[Read], bool]
) -> bool:
    """Whether a step holds rows that it emits at these watermarks of its sources."""
    names = typed.stages.names
    emitted: dict[Stateful, int] = {}
    watermarks = NodeWatermarks(lambda read: moved[names[read]], emitted.__getitem__, idle)
    for stage in typed.stages.stages:
        if stage.step is None:
            continue
        known = head.steps.get(stage.name, StepState())
        before = known.of_sides(len(stage.sides))
        after = watermarks.sides(stage.trees, before)
        emitted[stage.step] = min(after)
        if after != before and _holds_rows_below(typed, stage.step, known, after):
            return True
    return False


def _holds_rows_below(
    typed: Typed, step: Stateful, known: StepState, after: tuple[int, ...]
) -> bool:
    below = dues(typed.kernels[step], after).items()
    manifests = [(known.manifest(table), due) for table, due in below]
    return any(
        segment.least < due
        for manifest, due in manifests
        if manifest.floor < due
        for run in manifest.runs
        for segment in run.segments
    )
