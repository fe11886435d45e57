"""The engine: one job, batch after batch, from the records of its checkpoint.

    plan → intent → run → prepared → sinks → commit

Every batch starts from a commit. After a crash before `prepared`, the batch runs again with
the same ranges and clock. After `prepared` nothing is computed again: the staged rows go to the
sinks that do not have them yet.
"""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.engine.batch import BatchRun
from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.housekeeping import Housekeeping
from millstream.engine.checkpoint.protocol import (
    Ends,
    Head,
    Intent,
    Prepared,
    SourceIntent,
    SourceState,
)
from millstream.engine.dead_letters.isolation import bad_rows, only, pieces_of, without
from millstream.engine.finished import refuse_another_pipeline
from millstream.engine.inspection.compare import refuse_changes
from millstream.engine.kernels.kernels import Typed, decoder_of
from millstream.engine.lanes.choice import Lanes
from millstream.engine.lanes.cutting import CutShort, cut_by, shortened
from millstream.engine.lanes.planner import Sizing, fills_a_batch
from millstream.engine.lanes.prefetch import Prefetcher
from millstream.engine.open_sources import OpenSources, waiting
from millstream.engine.outputs import Outputs
from millstream.engine.pace.arrivals import Arrivals
from millstream.engine.recovery.unfinished_rewind import finish as finish_rewind
from millstream.engine.stage_runs import CheckpointFiles, RunPlan
from millstream.engine.tables_first import TablesFirst
from millstream.engine.watermarks import declared_by_clock, reads_all, something_due
from millstream.errors import DamagedLog, UserCodeFailed
from millstream.event_time.batch_time import MIN_TIME
from millstream.event_time.watermark import Idleness, IdleTracker
from millstream.metrics.batch_report import BatchReporter
from millstream.plan.fingerprint import fingerprint
from millstream.plan.graph import Read
from millstream.plan.stages import cut
from millstream.state.runs.merge import Merger

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from millstream.api.pipeline import Pipeline
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.dead_letters.isolation import Piece
    from millstream.engine.environment import Environment
    from millstream.engine.spark.session import Spark
    from millstream.metrics.facts import Facts
    from millstream.plan.stages import Stage
    from millstream.sources.spec import Ranges, Reader


ROUNDS = 3
ON_DRIVER = 20_000  # records; smaller trials run in the narrow lane


class Engine:
    """One job, opened for one run."""

    def __init__(
        self,
        pipeline: Pipeline,
        checkpoint: Checkpoint,
        spark: Spark,
        environment: Environment,
        *,
        lane: str | None = None,
        patient: bool = False,
        sizing: Sizing | None = None,
    ) -> None:
        self.pipeline, self.checkpoint, self._environment = pipeline, checkpoint, environment
        self.typed = Typed(cut(pipeline.outputs), spark.get() if spark.ready else None)
        self.outputs = Outputs(pipeline, self.typed.stages, environment, checkpoint.folder)
        self.head, self.fingerprint = Head(), fingerprint(pipeline)
        self.declared: dict[str, int] = {}
        self.ends: Ends | None = None
        self._final = False
        self._reporter = BatchReporter(self.typed.stages, pipeline.bad_above)
        self._sizing = sizing or Sizing(pipeline.batch / 1e6)
        self._lanes = Lanes(spark, self._sizing, forced=lane, patient=patient,
                            on_driver=pipeline.engine == "driver")  # fmt: skip
        self._tables = TablesFirst.of(pipeline.outputs, self.typed.stages)
        self._limited = self._left = self._prefetches = False
        self._attempts = 0
        self._idle_at: dict[str, Ranges] = {}
        self._begun: Intent | None = None
        self._resources = ExitStack()

    def open(self, *, take_over: bool = False) -> Facts | None:
        """Take the checkpoint's lock, fence earlier runs, and finish their last batch.

        Returns the facts of that batch if it was unfinished. On an error everything is closed.
        """
        try:
            return self._opened(take_over=take_over)
        except BaseException:
            self.close()
            raise

    def _opened(self, *, take_over: bool) -> Facts | None:
        self._resources.callback(self.checkpoint.close)
        self.checkpoint.open(self.pipeline.name, self.pipeline.buckets, take_over=take_over)
        finish_rewind(self.checkpoint, self.pipeline, self._environment)
        self.head = self.checkpoint.head()
        refuse_another_pipeline(self.checkpoint.folder, self.head, self.fingerprint)
        refuse_changes(self.checkpoint, self.typed)
        reads = self.typed.stages.reads
        self._readers = {name: self._reader(name, read) for name, read in reads.items()}
        self._sources = OpenSources(self._readers, reads)
        self._decoders = {name: decoder_of(self.typed.stages, name, self._environment.ahead(read))
                          for name, read in reads.items()}  # fmt: skip
        self._idle_trackers = {name: IdleTracker(read.idle) for name, read in reads.items()}
        self._prefetcher = Prefetcher(self._readers, self._decoders)
        self._resources.callback(self._prefetcher.close)
        self._arrivals = Arrivals(self._readers)
        self._resources.callback(self._arrivals.close)
        self._merger = Merger(str(self.checkpoint.incarnation), of=self.checkpoint.buckets)
        self._resources.callback(self._merger.close)
        self._housekeeping = Housekeeping(self.checkpoint, self.pipeline.history, self._merger)
        self._resources.callback(self._housekeeping.close)
        self.outputs.into(self.head.rewound.suffix if self.head.rewound else "")
        self._next = self.checkpoint.next_batch()
        self._resources.callback(self.outputs.close)
        self.outputs.open(self.checkpoint.job, self.head.written)
        files = CheckpointFiles.of(self.checkpoint)
        self._run_plan = RunPlan(self.pipeline.name, self.typed, self._decoders, files)
        self._lanes.open(self._run_plan, self._readers)
        self._resources.callback(self._lanes.close)
        pending = self.checkpoint.pending(self.head)
        facts = None
        if pending is not None:
            intent, prepared = pending
            began = time.perf_counter()
            if prepared is None:
                self._sources.check_ranges(intent)
                intent, prepared = self._prepared(self._lanes.soonest(intent))
            facts = self._finish(intent, prepared, began, {})
        self._housekeeping.at_start(self.head)
        return facts

    def close(self) -> None:
        """Close everything in reverse order; the next run continues from the last commit."""
        self._resources.close()

    def _reader(self, name: str, read: Read) -> Reader:
        reader = self._environment.reader(name, read)
        self._resources.callback(reader.close)
        return reader

    @property
    def caught_up(self) -> bool:
        """Whether the last batch took everything that was waiting."""
        return not self._left

    def full(self) -> bool:
        """Whether as much waits as a batch may have."""
        return fills_a_batch(self.waiting(), self._sizing)

    def watch_sources(self, wake: threading.Event) -> bool:
        """After a step with nothing to do: set `wake` when records arrive. False if that is found
        out only by another step."""
        return self._arrivals.expect(self._idle_at, wake)

    def step(self, *, finish: bool = False, always: bool = False) -> Facts | None:
        """Run one batch; None if there is nothing to read, close or fire.

        After a failed step, the next step retries that batch with the same intent.
        """
        began = time.perf_counter()
        self.outputs.refresh()
        intent = self._begun or self._plan(finish=finish, always=always)
        if intent is None:
            return None
        phases = {"plan": time.perf_counter() - began}
        mark = time.perf_counter()
        intent = self._begun = self.checkpoint.intend(intent)
        phases["intent"] = time.perf_counter() - mark
        mark = time.perf_counter()
        intent, prepared = self._prepared(intent)
        phases["run"] = time.perf_counter() - mark
        return self._finish(intent, prepared, began, phases)

    # -- plan -----------------------------------------------------------------

    def end_here(self, *, final: bool) -> None:
        """Read no further than the current ends of the sources.

        With `final`, the ends are part of every intent, so that later runs keep them; ends that
        an earlier run fixed are kept.
        """
        now = {name: {p: b for p, (_, b) in ranges.items()}
               for name, ranges in self.waiting().items()}  # fmt: skip
        fixed = self.head.ends if final else None
        self.ends, self._final = {**now, **(fixed or {})}, final
        self._prefetcher.stop()

    def waiting(self) -> dict[str, Ranges]:
        """The ranges that are not read yet, per source and partition."""
        return waiting(self._sources.extents(), self.head, self.ends)

    def check_sources(self) -> None:
        """Check the sources against the last commit.

        Raises:
            DataGone: a source was recreated, or no longer has the records to read next.
        """
        self._sources.check(self._sources.extents(), self.head)

    def _plan(self, *, finish: bool, always: bool) -> Intent | None:
        extents = self._sources.extents()
        self._sources.check(extents, self.head)
        clock = max(self._environment.clock(), self.head.clock)
        unread = self._idle_at = waiting(extents, self.head, self.ends)
        idleness = {name: self._observe(name, clock, unread[name]) for name in unread}
        rewound = self.head.rewound
        self._tables.find(self.head.table_ends, unread)
        now = unread if rewound is None else rewound.up_to_marks(unread, self._tables.marks)
        (lane, chosen, self._limited), held = self._tables.choose(self._lanes.choose, now, unread)
        some, self._left = any(chosen.values()), self._limited or bool(held)
        finish = finish and not self._left and now is unread
        ended = {name for name in unread
                 if reads_all(chosen[name], unread[name], extents[name])}  # fmt: skip
        declared = declared_by_clock(self.typed.stages.reads, self.declared, clock, ended)
        due = something_due(self.typed, self.head, idleness, declared, clock)
        if not (some or finish or always or due):
            return None
        sources = {
            name: SourceIntent(
                ranges={p: chosen[name].get(p, (a, a)) for p, (a, _) in unread[name].items()},
                idle=tuple(sorted(idleness[name].idle)),
                drift=idleness[name].drift,
                declared=declared[name],
                identity=extents[name].identity,
            )
            for name in unread
        }
        batch, self._next = self._next, self._next + 1
        self._prefetches = lane == "narrow" and self.ends is None and not (self._left or finish)
        if not self._prefetches:
            self._prefetcher.stop()
        return Intent(uuid.uuid4().hex, batch, self.head.batch, self.checkpoint.incarnation,
                      clock, lane, finish, sources, self.ends if self._final else None,
                      rewound.again(unread, finish=finish) if rewound else None,
                      self._tables.ends)  # fmt: skip

    def _observe(self, name: str, clock: int, waiting: Ranges) -> Idleness:
        unread = {p: b > a for p, (a, b) in waiting.items()}
        state = self.head.sources.get(name, SourceState({}, {}))
        delay = self.typed.stages.reads[name].delay
        return self._idle_trackers[name].observe(clock, state.watermark, unread,
                                         times=state.times, delay=delay)  # fmt: skip

    # -- run, sinks, commit ----------------------------------------------------

    def _prepared(self, intent: Intent) -> tuple[Intent, Prepared]:
        """Run an intent; if not all of it can be read, a shorter one instead."""
        while True:
            try:
                return self._accepted(intent)
            except (CutShort, DamagedLog) as error:
                cut = cut_by(error, self.typed.stages, self._readers, intent)
            name = self.typed.stages.names[cut.read]
            shorter = shortened(intent, name, cut, declared=self.declared.get(name, MIN_TIME))
            shorter = self._tables.held_back(intent, shorter, self.declared)
            self._limited, self._prefetches = True, False
            self._prefetcher.stop()
            intent = self._again(shorter)

    def _again(self, intent: Intent) -> Intent:
        """Replace the current intent, of which nothing was prepared yet."""
        batch, self._next = self._next, self._next + 1
        new = replace(intent, id=uuid.uuid4().hex, batch=batch,
                      incarnation=self.checkpoint.incarnation)  # fmt: skip
        self._begun = self.checkpoint.intend(new)
        return self._begun

    def _accepted(self, intent: Intent) -> tuple[Intent, Prepared]:
        """Run an intent; if user code raises, run it again without the rows at fault."""
        for _ in range(ROUNDS):
            run = self._batch(intent)
            try:
                return intent, self._complete(intent, run)
            except UserCodeFailed as error:
                if self.pipeline.on_bad == "stop" or run.failed is None:
                    raise
                intent = self._without_bad(intent, run.failed, error)
        return intent, self._complete(intent, self._batch(intent))

    def _complete(self, intent: Intent, run: BatchRun) -> Prepared:
        prepared = run.run()
        if intent.finish:
            prepared = replace(prepared, ended=self.fingerprint)
        return self.checkpoint.prepare(prepared)

    def _without_bad(self, intent: Intent, stage: Stage, error: UserCodeFailed) -> Intent:
        """A new intent that skips the rows for which a stage raises."""

        def trial(pieces: Sequence[Piece]) -> None:
            size = sum(piece.size for piece in pieces)
            lane = "narrow" if size <= ON_DRIVER else intent.lane
            self._batch(replace(only(intent, pieces), lane=lane)).runner.try_stage(stage)

        reads = [self.typed.stages.names[leaf] for leaf in stage.leaves if isinstance(leaf, Read)]
        found = bad_rows(pieces_of(intent, reads), trial, error)
        return self._again(without(intent, found, stage.name))

    def _batch(self, intent: Intent) -> BatchRun:
        self._attempts += 1
        attempt = f"{self._attempts}"
        prefetcher = self._prefetcher if self._prefetches else None
        return BatchRun(
            intent=intent,
            head=self.head,
            plan=self._run_plan,
            runner=self._lanes.runner(
                intent, self.head, attempt, self.outputs.guards(), prefetcher
            ),
            readers=self._readers,
            merger=self._merger,
            attempt=attempt,
            stop_at_bad=self.pipeline.on_bad == "stop",
        )

    def _finish(
        self, intent: Intent, prepared: Prepared, began: float, phases: dict[str, float]
    ) -> Facts:
        first = self.pipeline.delivery == "at_most_once"
        written = {} if first else self._sent(intent, prepared, phases)
        after = self.head.then(intent, prepared, written)
        facts = self._reporter.facts(intent, prepared, after, time.perf_counter() - began, phases)
        facts = replace(facts, checkpoint=self._housekeeping.facts())
        self.checkpoint.commit(self.head, after, prepared, facts.body())
        if first:
            self.head, self._begun = after, None
            self._sent(intent, prepared, phases)
        seconds = time.perf_counter() - began
        self._learn(prepared, seconds)
        self._settle(intent, prepared, after)
        self.head, self._begun = after, None
        reached("after all", intent.batch)
        self._reporter.refuse_too_many_bad(intent.clock, facts)
        return replace(facts, seconds=seconds)

    def _sent(self, intent: Intent, prepared: Prepared, phases: dict[str, float]) -> dict[str, str]:
        mark = time.perf_counter()
        self.checkpoint.owned()
        written = self.outputs.send(intent, prepared, self.checkpoint.staged)
        phases["sinks"] = time.perf_counter() - mark
        return written

    def _learn(self, prepared: Prepared, seconds: float) -> None:
        sizes = {name: tuple(pair) for name, pair in prepared.facts.get("sizes", {}).items()}
        self._sizing.learn(sizes, seconds, limited=self._limited)

    def _settle(self, intent: Intent, prepared: Prepared, after: Head) -> None:
        for name, planned in intent.sources.items():
            if any(b > a for a, b in planned.ranges.values()):
                self._idle_trackers[name].restart_drift(intent.clock, after.sources[name].watermark)
            self._readers[name].progress(after.sources[name].next)
        for node, kernel in self.typed.kernels.items():
            name = self.typed.stages.names[node]
            for table, spec in kernel.tables.items():
                folder = self.checkpoint.state_folder(name, table)
                manifest = after.steps[name].manifest(table)
                self._merger.offer((name, table), folder, spec, manifest, batch=intent.batch)
        self._housekeeping.after(prepared, after)

    def rebase(self, clock: int) -> None:
        """Count idle time from this clock on (when `Drive` first sets its clock)."""
        for tracker in self._idle_trackers.values():
            tracker.restart(clock)
