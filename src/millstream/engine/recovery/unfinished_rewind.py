"""Completing a rewind that was started: by the command itself, or by the next run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.protocol import Ends, Head, Rewound, ends_of
from millstream.engine.outputs import Outputs
from millstream.metrics.facts import Facts, moment_of
from millstream.plan.stages import cut
from millstream.sinks.spec import Rewindable

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.pipeline import Pipeline
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.environment import Environment
    from millstream.sinks.spec import Writer

POINTS = ("before rewind", "after rewind", "a sink was rewound", "before commit", "after commit")
_RENAMED = {"asked": "writers", "told": "gaps"}  # names in records of earlier versions


@dataclass(frozen=True)
class Rewind:
    """A rewind that was started, with all that is needed to complete it.

    `written` are the positions of the outputs at the last commit, `writers` those that may have
    written something; `gaps` says which sources now begin later than the job did, because the log
    no longer holds the records; `table_ends` are the ends of lookup tables at the job's first
    start.
    """

    batch: int
    incarnation: int
    to: int
    id: str
    clock: int
    new_outputs: bool
    suffix: str
    marks: Ends = field(default_factory=dict)
    finished: bool = False
    written: dict[str, str] = field(default_factory=dict)
    writers: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    table_ends: Ends = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        """From JSON, whose keys are text; also as earlier versions wrote it."""
        body = {_RENAMED.get(name, name): value for name, value in body.items()}
        marks = ends_of(body["marks"]) or {}
        return cls(**{**body, "marks": marks, "writers": tuple(body["writers"]),
                      "gaps": tuple(body["gaps"]),
                      "table_ends": ends_of(body.get("table_ends")) or {}})  # fmt: skip


def finish(checkpoint: Checkpoint, pipeline: Pipeline, environment: Environment) -> Rewind | None:
    """Complete a rewind that was started; None if there is none."""
    commits, started = checkpoint.batches("commit"), checkpoint.batches("rewind")
    if not started or started[-1] <= max(commits, default=0):
        return None
    rewind = Rewind.from_json(checkpoint.read(started[-1], "rewind"))
    target = checkpoint.head(rewind.to) if rewind.to else Head()
    checkpoint.restore_state(target)
    written = _rewind_sinks(checkpoint, pipeline, environment, rewind, target)
    after = replace(
        target,
        batch=rewind.batch,
        intent=rewind.id,
        clock=rewind.clock,
        written=written if pipeline.delivery == "exactly_once" else {},
        ends=None,
        rewound=Rewound(rewind.batch, rewind.suffix, rewind.marks, rewind.finished),
        table_ends=rewind.table_ends,
    )
    facts = Facts(
        batch=rewind.batch,
        rows=0,
        late=0,
        dead=0,
        lane="rewind",
        watermarks={name: moment_of(state.watermark) for name, state in after.sources.items()},
        state_rows=sum(run.rows for step in after.steps.values() for run in step.runs),
        state_bytes=sum(run.bytes for step in after.steps.values() for run in step.runs),
    )
    checkpoint.commit_rewind(target.batch, after, facts.body())
    return rewind


def _rewind_sinks(
    checkpoint: Checkpoint, pipeline: Pipeline, environment: Environment, rewind: Rewind,
    target: Head,
) -> dict[str, str]:  # fmt: skip
    """Rewind the sinks that can be; returns what each ledger holds as written last."""
    outputs = Outputs(pipeline, cut(pipeline.outputs), environment, checkpoint.folder)
    outputs.into(rewind.suffix)

    def rewound(name: str, writer: Writer, last: str | None) -> str | None:
        if not rewind.new_outputs and isinstance(writer, Rewindable):
            last = writer.rewind(target.batch, target.written.get(name), rewind.id)
        reached("a sink was rewound", rewind.batch)
        return last

    return last_written(checkpoint, environment, outputs, rewind, rewound)


def last_written(
    checkpoint: Checkpoint,
    environment: Environment,
    outputs: Outputs,
    rewind: Rewind,
    then: Callable[[str, Writer, str | None], str | None] = lambda name, writer, last: last,
) -> dict[str, str]:
    """Open every writer as a run would: this fences earlier runs and reads the ledgers.

    New outputs have no rows yet. But they may share a ledger with the old ones, as all topics of a
    cluster do, and the next run must find the entry that it expects there.
    """
    outputs.sinks(), outputs.defaults()  # registers them in the environment before writers open
    written: dict[str, str] = {}
    for name in rewind.writers:
        writer = environment.writer(name, checkpoint.job)
        try:
            last = writer.recover(None if rewind.new_outputs else rewind.written.get(name))
            last = then(name, writer, last)
        finally:
            writer.close()
        if last is not None:
            written[name] = last
    return written
