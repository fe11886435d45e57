"""A rewind that was begun, brought to its end: by the command itself, or by the next run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from millstream.engine.checkpoint import durable
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

POINTS = ("before rewind", "after rewind", "a sink has gone back", "before commit", "after commit")


@dataclass(frozen=True)
class Going:
    """A rewind that was begun: all that is needed to bring it to its end.

    `written` is what the last commit said of the outputs, `asked` are the writers that may have
    taken something; `told` is where sources begin later than the job once did, because the log no
    longer holds it; `table_ends` where the tables of lookups ended at the job's first start.
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
    asked: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    table_ends: Ends = field(default_factory=dict)

    @classmethod
    def of(cls, body: dict[str, Any]) -> Self:
        """From JSON, whose keys are text."""
        marks = ends_of(body["marks"]) or {}
        return cls(**{**body, "marks": marks, "asked": tuple(body["asked"]),
                      "told": tuple(body["told"]),
                      "table_ends": ends_of(body.get("table_ends")) or {}})  # fmt: skip


def finish(checkpoint: Checkpoint, pipeline: Pipeline, environment: Environment) -> Going | None:
    """Bring a rewind that was begun to its end; None if there is none."""
    commits, begun = checkpoint.batches("commit"), checkpoint.batches("rewind")
    if not begun or begun[-1] <= max(commits, default=0):
        return None
    body = durable.read(checkpoint.path(begun[-1], "rewind"), "rewind")
    going = Going.of(body)
    target = checkpoint.head(going.to) if going.to else Head()
    written = _gone_back(checkpoint, pipeline, environment, going, target)
    after = replace(
        target,
        batch=going.batch,
        intent=going.id,
        clock=going.clock,
        written=written if pipeline.delivery == "exactly_once" else {},
        ends=None,
        rewound=Rewound(going.batch, going.suffix, going.marks, going.finished),
        table_ends=going.table_ends,
    )
    facts = Facts(
        batch=going.batch,
        rows=0,
        late=0,
        dead=0,
        lane="rewind",
        watermarks={name: moment_of(state.watermark) for name, state in after.sources.items()},
        state_rows=sum(run.rows for step in after.steps.values() for run in step.runs),
        state_bytes=sum(run.bytes for step in after.steps.values() for run in step.runs),
    )
    checkpoint.commit_rewind(target.batch, after, facts.body())
    return going


def _gone_back(
    checkpoint: Checkpoint, pipeline: Pipeline, environment: Environment, going: Going, target: Head
) -> dict[str, str]:
    """Take away what can be taken away; what every ledger says was written last."""
    doors = Outputs(pipeline, cut(pipeline.outputs), environment, checkpoint.folder)
    doors.into(going.suffix)

    def back(name: str, writer: Writer, last: str | None) -> str | None:
        if not going.new_outputs and isinstance(writer, Rewindable):
            last = writer.rewind(target.batch, target.written.get(name), going.id)
        reached("a sink has gone back", going.batch)
        return last

    return last_written(checkpoint, environment, doors, going, back)


def last_written(
    checkpoint: Checkpoint,
    environment: Environment,
    doors: Outputs,
    going: Going,
    then: Callable[[str, Writer, str | None], str | None] = lambda name, writer, last: last,
) -> dict[str, str]:
    """Open every writer as a run would: earlier runs are shut out, ledgers read.

    New outputs have taken nothing yet; but a system that they share with the old ones, as all
    topics of a cluster do, has a mark that must not surprise the next run.
    """
    doors.sinks(), doors.defaults()  # the world hears of them before their writers are opened
    written: dict[str, str] = {}
    for name in going.asked:
        writer = environment.writer(name, checkpoint.job)
        try:
            last = writer.recover(None if going.new_outputs else going.written.get(name))
            last = then(name, writer, last)
        finally:
            writer.close()
        if last is not None:
            written[name] = last
    return written
