"""The end of a job: which pipelines have one, and what a finished job does when it is run again.

It does nothing, or stops if its input or pipeline changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.continuous.rules import MODE as CONTINUOUS
from millstream.errors import AlreadyFinished, DataGone, InvalidSpec
from millstream.operators.windows.spec import Everything
from millstream.plan.fingerprint import differences
from millstream.plan.graph import Aggregated, ancestry

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.api.pipeline import Pipeline
    from millstream.engine.checkpoint.protocol import Head
    from millstream.engine.engine import Engine
    from millstream.plan.fingerprint import Fingerprint

_NEW = (
    "another --checkpoint DIR (checkpoint=…) starts a new job: give the pipeline "
    "another name and other outputs, or let it take these over (--take-over, take_over=True)"
)
_AGAIN = (
    "`millstream rewind FILE --to start` processes everything again, with --again (the same "
    "outputs) or --into SUFFIX (new ones); " + _NEW
)
_SHOWN = 5


def refuse_another_pipeline(folder: Path, head: Head, now: Fingerprint) -> None:
    """Stop before anything is opened if another pipeline finished the job.

    Raises:
        AlreadyFinished: with the changes and the choices.
    """
    if not head.finished or head.ended is None:
        return
    found = differences(head.ended, now)
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise _stopped(folder, "the pipeline that finished it",
                       f"another pipeline: {', '.join(found[:_SHOWN])}{more}", _AGAIN)  # fmt: skip


def refuse_more_after_the_end(engine: Engine) -> None:
    """Stop if the sources have changed since the job finished.

    Raises:
        AlreadyFinished: with the changes and the choices.
    """
    folder = engine.checkpoint.folder
    try:
        engine.check_sources()
        waiting = engine.waiting()
    except DataGone as error:
        raise _stopped(folder, "unchanged input", f"{error.need}: {error.got}", _NEW) from error
    # Offsets, not records: transaction markers take one each.
    new = {name: sum(b - a for a, b in ranges.values()) for name, ranges in waiting.items()}
    if any(new.values()):
        found = ", ".join(f"up to {count} in {name}" for name, count in new.items() if count)
        raise _stopped(folder, "no more input", f"new records: {found}", _AGAIN)


def nothing_done(folder: Path) -> str:
    """The message of a run that found nothing to do."""
    return f"the job in {folder} is finished and has no new input: nothing was done"


def _stopped(folder: Path, need: str, got: str, do: str) -> AlreadyFinished:
    return AlreadyFinished(f"the job in {folder} is finished: it needs {need}", got=got, do=do)


def refuse_batch_options(pipeline: Pipeline, until: str | None, lane: str | None) -> None:
    """A continuous run has no lanes and never finishes: it has nothing to close. The driver alone
    has no wide lane.

    Raises:
        InvalidSpec: it was given a lane, or an end.
    """
    if lane == "wide" and pipeline.engine == "driver":
        raise InvalidSpec('the wide lane needs engine="spark"', got='engine="driver"')
    if pipeline.mode != CONTINUOUS:
        return
    if lane is not None:
        raise InvalidSpec(f'mode="{CONTINUOUS}" needs no lane', got=repr(lane), do="leave it out")
    if until == "finished":
        raise InvalidSpec(f'mode="{CONTINUOUS}" needs an end that rows can reach',
                          got='until="finished"',
                          do='use "caught_up": it has no windows to close')  # fmt: skip


def refuse_endless(pipeline: Pipeline, until: str | None) -> None:
    """A window over everything emits only by a trigger or at the finish.

    Raises:
        InvalidSpec: the pipeline has one, and it has neither.
    """
    if until == "finished":
        return
    for node in ancestry(pipeline.outputs):
        if isinstance(node, Aggregated) and isinstance(node.window, Everything):
            trigger = node.policy.trigger if node.policy else None
            if trigger is None or trigger.early is None:
                raise InvalidSpec(
                    "everything() needs a trigger, or a run until it is finished",
                    got=f"neither for {node.label}",
                    do='write .trigger(early=ms.every("1 second")), or run(until="finished")',
                )
