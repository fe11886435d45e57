"""The doors rows leave by: outputs, late rows and dead rows, each with its sink and writer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.engine.checkpoint.staging import unstage
from millstream.engine.dead_letters.refused import Guard
from millstream.engine.dead_letters.side_outputs import SideOutputs
from millstream.engine.redirected_sinks import with_suffix
from millstream.errors import Damaged
from millstream.plan.side_outputs import named_sinks
from millstream.sinks.keys import accepts_retractions
from millstream.sinks.spec import Discard, RefreshesLedger, RejectsRows, Sink, Staged, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from millstream.api.pipeline import Pipeline
    from millstream.engine.checkpoint.protocol import Intent, Prepared, StagedFiles
    from millstream.engine.environment import Environment
    from millstream.plan.stages import Stages


class Outputs:
    """Every sink of a pipeline, with the writers that serve them for one run."""

    def __init__(
        self, pipeline: Pipeline, stages: Stages, environment: Environment, folder: Path
    ) -> None:
        self._pipeline, self._environment = pipeline, environment
        self._side = SideOutputs(pipeline, folder)
        self._outputs = {output.name: output for output in pipeline.outputs}
        self._rests = {name: node.rest for name, node in stages.steps.items()}
        self._writers: dict[str, Writer] = {}
        self._last: dict[str, str | None] = {}
        self._expected: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self._job = self._suffix = ""

    def into(self, suffix: str) -> None:
        """From now on every sink has this at the end of its topic, table or path."""
        self._suffix = suffix

    def sinks(self) -> dict[str, list[Sink]]:
        """Every sink that the pipeline names by its writer, in the order they are listed."""
        pipeline = self._pipeline
        named = named_sinks(pipeline.outputs, pipeline.dead)
        found: dict[str, list[Sink]] = {}
        for sink in (*(output.sink for output in pipeline.outputs), *named):
            placed = self._placed(sink)
            found.setdefault(self._environment.writer_of(placed), []).append(placed)
        return found

    def defaults(self) -> dict[str, list[Sink]]:
        """The sinks of late and bad rows for which none was named, by their writers."""
        found: dict[str, list[Sink]] = {}
        for sink in map(self._placed, self._side.defaults()):
            found.setdefault(self._environment.writer_of(sink), []).append(sink)
        return found

    def _placed(self, sink: Sink) -> Sink:
        return with_suffix(sink, self._suffix) if self._suffix else sink

    def open(self, job: str, written: Mapping[str, str]) -> None:
        """Open the writers of the outputs: earlier runs are shut out, ledgers read.

        The default places of late and bad rows are opened when something goes there.
        """
        self._job, self._expected = job, dict(written)
        named = self.sinks()
        self._places = {name: place for place, name in enumerate(named)}
        for name in [*named, *(name for name in self.defaults() if name in written)]:
            self._writer(name)

    def _writer(self, name: str) -> Writer:
        if name not in self._last:
            if name in self._writers:  # one that could not recover, tried again
                self._writers.pop(name).close()
            writer = self._writers[name] = self._environment.writer(name, self._job)
            self._last[name] = writer.recover(self._expected.get(name))
        return self._writers[name]

    def send(self, intent: Intent, prepared: Prepared, folder: Path) -> dict[str, str]:
        """Send a prepared batch to every writer that lacks it, in the order the outputs are
        listed; returns who has which intent.

        Only `exactly_once` says so in the commit, and compares it with what it finds.

        Raises:
            Damaged: a writer has taken a batch that the checkpoint knows nothing of.
        """
        parts: dict[str, list[Staged]] = {}
        for staged in prepared.outputs:
            sink = self.sink_of(staged)
            part = replace(self._staged(staged, sink, folder), again=intent.again)
            parts.setdefault(self._environment.writer_of(sink), []).append(part)
        for name in sorted(parts, key=lambda name: self._places.get(name, len(self._places))):
            writer = self._writer(name)
            if self._last[name] != intent.id:
                if self._pipeline.delivery == "exactly_once":
                    self._refuse_unknown(name)
                writer.write(intent.id, intent.batch, parts[name])
            self._last[name] = self._expected[name] = intent.id
        return dict.fromkeys(parts, intent.id) if self._pipeline.delivery == "exactly_once" else {}

    def guards(self) -> tuple[Guard, ...]:
        """What is known of the rows that the sinks of outputs can never take."""
        found = []
        for name, output in self._outputs.items():
            sink = self._placed(output.sink)
            writer = self._writer(self._environment.writer_of(sink))
            check = writer.check(sink, output.keys) if isinstance(writer, RejectsRows) else None
            if check is not None:
                found.append(Guard(name, check))
        return tuple(found)

    def refresh(self) -> None:
        """Keep ledgers alive that nothing has been written to for long."""
        for writer in self._writers.values():
            if isinstance(writer, RefreshesLedger):
                writer.refresh()

    def _refuse_unknown(self, name: str) -> None:
        """What was written last is what the last commit says, or rows would be written again."""
        if self._last[name] not in (None, self._expected.get(name)):
            raise Damaged(
                f"the checkpoint needs the records of every batch that {name} has taken",
                got=f"a ledger that names the intent {self._last[name]}, which is not in it",
                do="restore the newest copy of the checkpoint: going on from this one would "
                "write rows again; `millstream rewind … --into SUFFIX` writes to new outputs; "
                "a job that has run at_most_once begins anew with another "
                "--checkpoint",
            )

    def sink_of(self, staged: StagedFiles) -> Sink:
        """Where staged rows go: an output's sink, a step's `rest`, `dead`, or a default place."""
        if staged.kind == "dead":
            return self._placed(self._side.dead())
        if staged.kind == "late":
            rest = self._rests[staged.output]
            assert not isinstance(rest, Discard)
            return self._placed(self._side.late(rest))
        return self._placed(self._outputs[staged.output].sink)

    def _staged(self, staged: StagedFiles, sink: Sink, folder: Path) -> Staged:
        def tables() -> Iterator[pa.Table]:
            for entry in staged.files:
                for table in unstage(folder, entry):
                    yield table if replaces else _given(table)

        output = self._outputs[staged.output] if staged.kind == "result" else None
        keys, table = (output.keys, output.table) if output else ((), False)
        replaces = accepts_retractions(sink) or table
        name = staged.output + self._suffix
        return Staged(name, staged.kind, sink, keys, staged.rows, tables, is_table=table)

    def close(self) -> None:
        """Let go of all writers."""
        for writer in self._writers.values():
            writer.close()


def _given(rows: pa.Table) -> pa.Table:
    """The panes of a window for a sink that only appends: it cannot take back what it has.

    A row that is retracted goes there only where its stream marks it so (`retract`). What comes
    here without that mark are windows that begin elsewhere now (sessions absorbed by others,
    windows of rows): any other stream that takes rows back is refused while building
    (`plan/sink_checks.py`).
    """
    if "_sign" not in rows.column_names or "retract" in rows.column_names:
        return rows
    signs = rows["_sign"].to_numpy()
    return rows if (signs > 0).all() else rows.filter(pa.array(signs > 0))
