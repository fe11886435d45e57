"""Rewind: a job starts again from an earlier commit.

    check     the commit and its state exist, the log holds the records after it, and every output
              can be rewound too, or gets a new topic, table or path
    begin     the record of the rewind: from here on it is completed, if need be by the next run
    sinks     what later batches wrote is removed where possible; the ledgers are read
    commit    the record of a commit: the earlier state, under a new number

A kill before `begin` leaves the job as it was; after a kill later on, the next run completes the
rewind.
"""

from __future__ import annotations

import re
import uuid
from bisect import bisect_right
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol, cast

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.protocol import Ends, Head, Intent, Prepared, Rewound
from millstream.engine.outputs import Outputs
from millstream.engine.recovery.unfinished_rewind import Rewind, finish, last_written
from millstream.errors import Damaged, InvalidInput, NotFound
from millstream.event_time.batch_time import MIN_TIME
from millstream.outages import Listener
from millstream.plan.stages import cut
from millstream.sinks.function import Function
from millstream.sinks.keys import Keyed
from millstream.sinks.spark.foreach_batch import ForeachBatch
from millstream.sinks.spec import Rewindable
from millstream.sources.extent import check_extent
from millstream.sources.kafka.topic import Topic
from millstream.sources.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from millstream.api.pipeline import Pipeline
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.environment import Environment
    from millstream.kafka.settings import Cluster
    from millstream.sinks.spec import Sink, Writer
    from millstream.sources.spec import Ranges

To = int | datetime | Literal["start"]
_SUFFIX = re.compile(r"[A-Za-z0-9_-]{1,50}\Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FindsExisting(Protocol):
    """An environment that can check whether new outputs already exist."""

    def existing(self, sinks: Sequence[Sink]) -> list[str]:
        """The names of those that already exist."""


@dataclass(frozen=True)
class _Now:
    """The job before the rewind: its newest readable commit and the pending batch.

    `lost` says that a newer record cannot be read.
    """

    head: Head
    pending: Intent | None
    lost: bool

    @property
    def clock(self) -> int:
        return max(self.head.clock, self.pending.clock if self.pending else MIN_TIME)

    def marks(self, ends: Ends) -> Ends:
        """The offsets up to which rows may have reached the outputs."""
        known: list[Ends] = [{name: state.next for name, state in self.head.sources.items()}]
        if self.head.rewound is not None:
            known.append(self.head.rewound.marks)
        if self.pending is not None:
            known.append({name: {p: end for p, (_, end) in source.ranges.items()}
                          for name, source in self.pending.sources.items()})  # fmt: skip
        if self.lost:
            known.append(ends)
        return {
            name: {p: max(at.get(name, {}).get(p, 0) for at in known)
                   for p in {p for at in known for p in at.get(name, {})}}
            for name in {name for at in known for name in at}
        }  # fmt: skip

    @property
    def table_ends(self) -> Ends:
        """The ends of lookup tables at the first start."""
        return {**(self.pending.table_ends if self.pending else {}), **self.head.table_ends}

    @property
    def finished(self) -> bool:
        return bool(
            self.head.finished
            or (self.head.rewound and self.head.rewound.finished)
            or (self.pending and self.pending.finish)
        )


class Rewinder:
    """Rewinds one job, whose checkpoint it locks meanwhile."""

    def __init__(
        self, pipeline: Pipeline, checkpoint: Checkpoint, environment: Environment
    ) -> None:
        self._pipeline, self._checkpoint, self._environment = pipeline, checkpoint, environment
        self._stages = cut(pipeline.outputs)

    def rewind(self, to: To, *, into: str | None = None, again: bool = False) -> Rewind:
        """Rewind to a commit, by its number or the newest one at a time, or to the start.

        Raises:
            AlreadyRunning: a run of the job is alive.
            NotFound: the commit does not exist, or no longer.
            DataGone: the log no longer holds the records after it.
            InvalidInput: an output cannot be rewound, or a new output already exists.
        """
        if (into is None) == (not again):
            raise InvalidInput("rewind needs one of --into SUFFIX and --again",
                               got="both" if again else "neither")  # fmt: skip
        if into is not None and not _SUFFIX.match(into):
            raise InvalidInput(
                "--into needs 1 to 50 letters, digits, dashes or underscores",
                got=repr(into), do="for example --into -2",
            )  # fmt: skip
        self._checkpoint.open(self._pipeline.name, self._pipeline.buckets, despite_damage=True)
        try:
            finish(self._checkpoint, self._pipeline, self._environment)
            plan = self._plan(to, into)
            self._checkpoint.begin_rewind(plan.batch, asdict(plan))
            finish(self._checkpoint, self._pipeline, self._environment)
        finally:
            self._checkpoint.close()
        return plan

    def _plan(self, to: To, into: str | None) -> Rewind:
        now = self._now()
        target = self._target(to)
        self._check_state(target)
        ends, gaps = self._check_sources(target)
        suffix = into or (now.head.rewound.suffix if now.head.rewound else "")
        outputs = Outputs(self._pipeline, self._stages, self._environment, self._checkpoint.folder)
        outputs.into(suffix)
        own = self._defaults_used(outputs, now)
        if into is None:
            self._check_outputs({**own, **outputs.sinks()}, target)
        else:
            self._check_new(outputs)
        plan = Rewind(
            batch=self._checkpoint.next_batch(),
            incarnation=self._checkpoint.incarnation,
            to=target.batch,
            id=uuid.uuid4().hex,
            clock=now.clock,
            new_outputs=into is not None,
            suffix=suffix,
            marks={} if into is not None else now.marks(ends),
            finished=into is None and now.finished,
            written={} if now.lost else now.head.written,
            writers=tuple(dict.fromkeys([*outputs.sinks(), *own])),
            gaps=gaps,
            table_ends=now.table_ends,
        )
        last_written(self._checkpoint, self._environment, outputs, plan)
        return plan

    def _now(self) -> _Now:
        commits, lost = self._checkpoint.batches("commit"), False
        head = Head()
        for number in reversed(commits):
            try:
                head = self._checkpoint.head(number)
                break
            except Damaged:
                lost = True
        later = [batch for batch in self._checkpoint.batches("intent") if batch > head.batch]
        pending = None
        for number in later[-1:]:
            try:
                pending = self._intent(number)
            except Damaged:
                lost = True
        lost = lost or self._checkpoint.damage_after(head.batch) is not None
        if not commits and not later:
            raise NotFound("rewind needs a job that has read something", got="no batch yet",
                           do="run it first")  # fmt: skip
        return _Now(head, pending, lost)

    def _intent(self, number: int) -> Intent:
        return Intent.from_json(self._checkpoint.read(number, "intent"))

    def _defaults_used(self, outputs: Outputs, now: _Now) -> dict[str, list[Sink]]:
        """The default sinks of late and dead rows that may hold rows, by writer."""
        defaults = outputs.defaults()
        if self._pending_for_defaults(now):
            return defaults
        return {name: sinks for name, sinks in defaults.items() if name in now.head.written}

    def _pending_for_defaults(self, now: _Now) -> bool:
        """Whether the pending batch may send late or dead rows."""
        batch = now.pending.batch if now.pending else 0
        if not self._checkpoint.has(batch, "prepared"):
            return False
        try:
            staged = Prepared.from_json(self._checkpoint.read(batch, "prepared")).outputs
        except Damaged:
            return True
        return any(one.kind in ("late", "dead") for one in staged)

    # -- checks ----------------------------------------------------------------------

    def _target(self, to: To) -> Head:
        if to == "start":
            return Head()
        kept = self._checkpoint.lineage()
        if isinstance(to, datetime):
            at = (to - _EPOCH) // timedelta(microseconds=1)
            place = bisect_right(kept, at, key=lambda n: self._checkpoint.read_commit(n)["clock"])
            found = kept[place - 1] if place else None
        else:
            found = to if to in kept else None
        if found is None:
            raise NotFound(
                f"rewind needs a commit of the job: {to}",
                got=_reachable(kept, to if isinstance(to, int) else None),
                do="see `millstream commits`; --to start reads everything again; "
                "Pipeline(history=…) keeps commits longer",
            )
        return self._checkpoint.head(found)

    def _check_state(self, target: Head) -> None:
        self._checkpoint.restore_state(target)
        for step, state in target.steps.items():
            for table, manifest in state.manifests.items():
                folder = self._checkpoint.state_folder(step, table)
                for name in manifest.files:
                    if not (folder / name).exists():
                        raise durable.damaged(folder / name, "no such file")

    def _check_sources(self, target: Head) -> tuple[Ends, tuple[str, ...]]:
        """Check that the log holds the records after the commit; returns its ends, and any gaps."""
        ends: Ends = {}
        gaps: list[str] = []
        first = self._first_ranges() if not target.batch else {}
        for name, read in self._stages.reads.items():
            reader = self._environment.reader(name, read)
            try:
                extent = reader.extent()
            finally:
                reader.close()
            ends[name] = dict(extent.end)
            if name in target.sources:
                state = target.sources[name]
                check_extent(read.source.name, extent, state.next, state.identity)
            elif name in first:
                starts = {p: a for p, (a, _) in first[name][0].items()}
                check_extent(read.source.name, extent, starts, first[name][1])
            elif not target.batch:
                gaps += [f"{read.source.name}/{p} begins at offset {offset}"
                         for p, offset in extent.first.items() if offset]  # fmt: skip
        return ends, tuple(gaps)

    def _first_ranges(self) -> dict[str, tuple[Ranges, str | None]]:
        """The ranges of the job's first batch, if its intent still exists."""
        for number in self._checkpoint.batches("intent")[:1]:
            intent = self._intent(number)
            if not intent.parent:
                return {name: (source.ranges, source.identity)
                        for name, source in intent.sources.items()}  # fmt: skip
        return {}

    def _check_outputs(self, writers: Mapping[str, Sequence[Sink]], target: Head) -> None:
        for name, sinks in writers.items():
            writer = self._environment.writer(name, self._checkpoint.job)
            why = _why_not(writer, sinks, target, name)
            if why is not None:
                raise InvalidInput(
                    "rewind --again needs outputs that can be rewound or rewritten", got=why,
                    do="give it a key=, or rewind with --into SUFFIX" if "appends" in why
                    else "choose another batch, or rewind with --into SUFFIX",
                )  # fmt: skip

    def _check_new(self, outputs: Outputs) -> None:
        sinks = [sink for some in outputs.sinks().values() for sink in some]
        taken = cast("FindsExisting", self._environment).existing(sinks)
        if taken:
            raise InvalidInput("rewind --into needs outputs that do not exist yet",
                               got=", ".join(taken), do="choose another suffix")  # fmt: skip


def _reachable(kept: Sequence[int], wanted: int | None) -> str:
    """The commits that the job can be rewound to, and those nearest to the wanted one."""
    if not kept:
        return "none"
    span = f"batches {kept[0]} to {kept[-1]}"
    if wanted is None or not kept[0] < wanted < kept[-1]:
        return f"{span} (numbers may be left out)"
    place = bisect_right(kept, wanted)
    return f"{span}, of which the nearest are {kept[place - 1]} and {kept[place]}"


def _why_not(writer: Writer, sinks: Sequence[Sink], target: Head, name: str) -> str | None:
    """Why an output can neither be rewound nor accept rows again; None if it can."""
    if isinstance(writer, Rewindable):
        return writer.rewind_obstacle(target.batch, target.written.get(name))
    for sink in sinks:
        keyed = isinstance(sink, Keyed) and bool(sink.keys)
        if not keyed and not isinstance(sink, Topic | Memory | Function | ForeachBatch):
            return f"{sink!r}, which only appends: its rows would be duplicated"
    return None


def suffix_of(folder: Path) -> str:
    """The suffix of a job's outputs after a rewind with --into, or nothing."""
    from millstream.engine.inspection.inspect import ReadOnlyCheckpoint

    checkpoint = ReadOnlyCheckpoint(folder)
    for newest in checkpoint.batches("commit")[-1:]:
        rewound = Rewound.from_json(checkpoint.read_commit(newest).get("rewound"))
        return rewound.suffix if rewound else ""
    return ""


def rewind(
    pipeline: Pipeline,
    to: To,
    *,
    into: str | None = None,
    again: bool = False,
    kafka: str | Cluster | None = None,
    checkpoint: Path | None = None,
    on_wait: Callable[[str], None] = lambda why: None,
) -> Rewind:
    """Rewind a pipeline's job on a cluster; see `Rewinder.rewind`."""
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.checkpoint.folders import checkpoint_folder
    from millstream.engine.inspection.inspect import open_checkpoint
    from millstream.engine.kafka_environment import KafkaEnvironment

    folder = checkpoint or checkpoint_folder(pipeline.name)
    open_checkpoint(folder)
    opened = Checkpoint(folder)
    environment = KafkaEnvironment(
        pipeline.name, kafka, folder=folder, owned=opened.owned,
        epoch=lambda: opened.incarnation, delivery=pipeline.delivery,
        listener=Listener(on_wait),
    )  # fmt: skip
    return Rewinder(pipeline, opened, environment).rewind(to, into=into, again=again)
