"""What time alone does: how far it moves watermarks, and whether something closes by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.checkpoint.protocol import SourceState, StepState
from millstream.engine.reach import Reach
from millstream.event_time.batch_time import MIN_TIME
from millstream.event_time.watermark import advance, before
from millstream.operators.kernel import dues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from millstream.engine.checkpoint.protocol import Head
    from millstream.engine.kernels.kernels import Typed
    from millstream.event_time.watermark import Quiet
    from millstream.plan.graph import Read, Stateful
    from millstream.sources.spec import Extent, Ranges


def at_least(
    reads: Mapping[str, Read], declared: Mapping[str, int], clock: int, ended: Collection[str]
) -> dict[str, int]:
    """The watermark each source has at least: as it was declared, or, of a table whose log is
    read to its end, the batch clock less its delay. A quiet table holds nobody."""
    least = {name: declared.get(name, MIN_TIME) for name in reads}
    for name, read in reads.items():
        if read.changes is not None and name in ended:
            least[name] = max(least[name], before(clock, read.delay))
    return least


def reads_all(chosen: Ranges, waiting: Ranges, extent: Extent) -> bool:
    """Whether a batch over these ranges leaves nothing unread that is there now."""
    return all(chosen.get(p, (a, a))[1] >= extent.end[p] for p, (a, _) in waiting.items())


def something_due(
    typed: Typed, head: Head, quiet: Mapping[str, Quiet], declared: Mapping[str, int], clock: int
) -> bool:
    """Whether the clock alone, or a declared watermark, lets something close or fire."""
    if any(state.wake <= clock for state in head.steps.values()):
        return True
    names, moved = typed.stages.names, {}
    for name, read in typed.stages.reads.items():
        known = head.sources.get(name, SourceState({}, {}))
        moved[name] = advance(known.watermark, known.times, known.next, delay=read.delay,
                              quiet=quiet[name], declared=declared[name])  # fmt: skip

    def idle(read: Read) -> bool:
        known = head.sources.get(names[read], SourceState({}, {})).next
        return bool(known) and known.keys() <= quiet[names[read]].idle

    return _rows_due(typed, head, moved, idle)


def _rows_due(
    typed: Typed, head: Head, moved: Mapping[str, int], idle: Callable[[Read], bool]
) -> bool:
    """Whether a step holds rows that leave once its sources' watermarks have moved so far."""
    names = typed.stages.names
    given: dict[Stateful, int] = {}
    reach = Reach(lambda read: moved[names[read]], given.__getitem__, idle)
    for stage in typed.stages.stages:
        if stage.step is None:
            continue
        known = head.steps.get(stage.name, StepState())
        before = known.of_sides(len(stage.sides))
        after = reach.sides(stage.trees, before)
        given[stage.step] = min(after)
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
