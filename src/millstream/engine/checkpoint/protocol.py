"""The three records of a batch: intent, prepared, commit.

`Intent` fixes everything a batch depends on. `Prepared` names the files of the accepted
attempt and everything that follows from it. `Commit` is what the next batch starts from; it
is a function of the other two.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.metrics.facts import lane_name
from millstream.state.runs.manifest import Change, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.fingerprint import Fingerprint
    from millstream.sources.spec import Ranges
    from millstream.state.runs.runs import Run

Ends = dict[str, dict[int, int]]


def ends_of(body: dict[str, dict[str, int]] | None) -> Ends | None:
    """The ends of sources per partition, from JSON, whose keys are text."""
    if body is None:
        return None
    return {name: {int(p): o for p, o in ends.items()} for name, ends in body.items()}


@dataclass(frozen=True, slots=True)
class Rewound:
    """That a job was rewound, by the batch of that number.

    `suffix` is the suffix of its outputs; `marks` are the offsets up to which each source had been
    read: rows below them are sent again; `finished` says that they had been finished, too.
    """

    batch: int
    suffix: str = ""
    marks: Ends = field(default_factory=dict)
    finished: bool = False

    @classmethod
    def from_json(cls, body: dict[str, Any] | None) -> Self | None:
        """From JSON, whose keys are text."""
        return None if body is None else cls(**{**body, "marks": ends_of(body["marks"]) or {}})

    def up_to_marks(
        self, waiting: dict[str, Ranges], beyond: Callable[[Ends], Ends]
    ) -> dict[str, Ranges]:
        """The part of these ranges below the marks (`beyond` may raise them), or all of them if
        none is below."""
        marks = beyond(self.marks)
        below = {
            name: {p: (a, max(a, min(b, marks.get(name, {}).get(p, a))))
                   for p, (a, b) in ranges.items()}
            for name, ranges in waiting.items()
        }  # fmt: skip
        return below if any(a < b for r in below.values() for a, b in r.values()) else waiting

    def again(self, waiting: dict[str, Ranges], *, finish: bool) -> int | None:
        """The number of the rewind, if a batch that starts here sends rows again."""
        below = any(
            a < self.marks.get(name, {}).get(p, a)
            for name, ranges in waiting.items()
            for p, (a, _) in ranges.items()
        )
        return self.batch if below or (finish and self.finished) else None


@dataclass(frozen=True, slots=True)
class SourceIntent:
    """The ranges of one source in a batch, and its event time before the batch.

    `skips` are records, by partition and offset, that a step cannot process: which step, and why.
    """

    ranges: dict[int, tuple[int, int]]
    idle: tuple[int, ...] = ()
    drift: int = MIN_TIME
    declared: int = MIN_TIME
    identity: str | None = None
    skips: dict[int, dict[int, tuple[str, str]]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        """From JSON, whose keys are text and whose pairs are lists."""
        return cls(
            ranges={int(p): (r[0], r[1]) for p, r in body["ranges"].items()},
            idle=tuple(body["idle"]),
            drift=body["drift"],
            declared=body["declared"],
            identity=body["identity"],
            skips={int(p): {int(o): (why[0], why[1]) for o, why in some.items()}
                   for p, some in body.get("skips", {}).items()},
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch to be run, written before any of it runs.

    `ends` are the final offsets of its sources, once a run is to finish them; `again` the rewind
    after which its rows are sent again; `table_ends` the ends of lookup tables at the job's first
    start.
    """

    id: str
    batch: int
    parent: int
    incarnation: int
    clock: int
    lane: str
    finish: bool
    sources: dict[str, SourceIntent]
    ends: Ends | None = None
    again: int | None = None
    table_ends: Ends = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        sources = {name: SourceIntent.from_json(part) for name, part in body["sources"].items()}
        return cls(**{**body, "lane": lane_name(body["lane"]), "sources": sources,
                      "ends": ends_of(body.get("ends")),
                      "table_ends": ends_of(body.get("table_ends")) or {}})  # fmt: skip


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """The staged rows of one output of a batch: `kind` is result, late or dead."""

    output: str
    kind: str
    rows: int
    files: tuple[str, ...]

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        kind = body.get("kind") or body["door"]  # earlier versions
        return cls(body["output"], kind, body["rows"], tuple(body["files"]))


@dataclass(frozen=True, slots=True)
class SourceState:
    """How far a source has been read, in offsets and event time."""

    next: dict[int, int]
    times: dict[int, int]
    watermark: int = MIN_TIME
    identity: str | None = None

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        return cls(
            next={int(p): o for p, o in body["next"].items()},
            times={int(p): t for p, t in body["times"].items()},
            watermark=body["watermark"],
            identity=body["identity"],
        )


@dataclass(frozen=True, slots=True)
class StepChange:
    """The change of one stateful step by a batch: its tables, and its watermarks afterwards.

    `wake` is the batch clock at which it may emit rows without input; `sides` are the watermarks
    of its inputs, if there are several.
    """

    changes: dict[str, Change]
    watermark: int
    out: int
    wake: int = END_OF_TIME
    sides: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        changes = {table: change.to_json() for table, change in self.changes.items()}
        return {"changes": changes, "watermark": self.watermark, "out": self.out,
                "wake": self.wake, "sides": list(self.sides)}  # fmt: skip

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        changes = {table: Change.from_json(part) for table, part in body["changes"].items()}
        return cls(changes, body["watermark"], body["out"], body["wake"],
                   tuple(body.get("sides", ())))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prepared:
    """The accepted attempt: the files it wrote, and the positions and state after its commit."""

    batch: int
    intent: str
    attempt: str
    outputs: tuple[StagedFiles, ...]
    sources: dict[str, SourceState]
    steps: dict[str, StepChange]
    facts: dict[str, Any] = field(default_factory=dict)
    ended: Fingerprint | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "intent": self.intent,
            "attempt": self.attempt,
            "outputs": [asdict(staged) for staged in self.outputs],
            "sources": {name: asdict(state) for name, state in self.sources.items()},
            "steps": {name: step.to_json() for name, step in self.steps.items()},
            "facts": self.facts,
            "ended": self.ended,
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        return cls(
            batch=body["batch"],
            intent=body["intent"],
            attempt=body["attempt"],
            outputs=tuple(StagedFiles.from_json(part) for part in body["outputs"]),
            sources={name: SourceState.from_json(part) for name, part in body["sources"].items()},
            steps={name: StepChange.from_json(part) for name, part in body["steps"].items()},
            facts=body["facts"],
            ended=body.get("ended"),
        )


@dataclass(frozen=True, slots=True)
class StepState:
    """A stateful step between batches."""

    manifests: dict[str, Manifest] = field(default_factory=dict)
    watermark: int = MIN_TIME
    out: int = MIN_TIME
    wake: int = END_OF_TIME
    sides: tuple[int, ...] = ()

    def of_sides(self, count: int) -> tuple[int, ...]:
        """The watermark of each of `count` inputs."""
        return self.sides if len(self.sides) == count else (self.watermark,) * count

    def manifest(self, table: str) -> Manifest:
        """The manifest of one of its tables."""
        return self.manifests.get(table, Manifest())

    @property
    def runs(self) -> list[Run]:
        """All runs of all its tables."""
        return [run for manifest in self.manifests.values() for run in manifest.runs]

    def then(self, step: StepChange) -> StepState:
        """The state after one more batch."""
        changed = {table: self.manifest(table).apply(change)
                   for table, change in step.changes.items()}  # fmt: skip
        return StepState({**self.manifests, **changed}, step.watermark, step.out, step.wake,
                         step.sides)  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """As JSON for a full commit."""
        manifests = {table: one.to_json() for table, one in self.manifests.items()}
        return {"manifests": manifests, "watermark": self.watermark, "out": self.out,
                "wake": self.wake, "sides": list(self.sides)}  # fmt: skip

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        manifests = {table: Manifest.from_json(one) for table, one in body["manifests"].items()}
        return cls(manifests, body["watermark"], body["out"], body["wake"],
                   tuple(body.get("sides", ())))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Head:
    """The last commit of a job, added up with all earlier ones.

    `ended` is the fingerprint of the pipeline of a finished job.
    """

    batch: int = 0
    intent: str | None = None
    clock: int = MIN_TIME
    sources: dict[str, SourceState] = field(default_factory=dict)
    steps: dict[str, StepState] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    finished: bool = False
    ends: Ends | None = None
    rewound: Rewound | None = None
    table_ends: Ends = field(default_factory=dict)
    ended: Fingerprint | None = None

    def then(self, intent: Intent, prepared: Prepared, written: dict[str, str]) -> Head:
        """The head after a batch: a function of its records alone."""
        steps = dict(self.steps)
        for name, change in prepared.steps.items():
            steps[name] = steps.get(name, StepState()).then(change)
        return Head(
            batch=intent.batch,
            intent=intent.id,
            clock=intent.clock,
            sources={**self.sources, **prepared.sources},
            steps=steps,
            written={**self.written, **written},
            finished=intent.finish,
            ends=intent.ends,
            rewound=self.rewound,
            table_ends={**self.table_ends, **intent.table_ends},
            ended=prepared.ended if intent.finish else None,
        )
