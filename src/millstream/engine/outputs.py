"""Where rows go: outputs, late rows and dead rows, each with its sink and writer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
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
    """Every sink of a pipeline, with their writers for one run."""

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
        """Append this suffix to the topic, table or path of every sink from now on."""
        self._suffix = suffix

    def sinks(self) -> dict[str, list[Sink]]:
        """Every sink that the pipeline names, per writer, in the order they are listed."""
        pipeline = self._pipeline
        named = named_sinks(pipeline.outputs, pipeline.dead)
        found: dict[str, list[Sink]] = {}
        for sink in (*(output.sink for output in pipeline.outputs), *named):
            placed = self._placed(sink)
            found.setdefault(self._environment.writer_of(placed), []).append(placed)
        return found

    def defaults(self) -> dict[str, list[Sink]]:
        """The default sinks of late and bad rows, per writer."""
        found: dict[str, list[Sink]] = {}
        for sink in map(self._placed, self._side.defaults()):
            found.setdefault(self._environment.writer_of(sink), []).append(sink)
        return found

    def _placed(self, sink: Sink) -> Sink:
        return with_suffix(sink, self._suffix) if self._suffix else sink

    def open(self, job: str, written: Mapping[str, str]) -> None:
        """Open the writers of the outputs: fence earlier runs and read the ledgers.

        The default sinks of late and bad rows are opened with their first row.
        """
        self._job, self._expected = job, dict(written)
        named = self.sinks()
        self._places = {name: place for place, name in enumerate(named)}
        for name in [*named, *(name for name in self.defaults() if name in written)]:
            self._writer(name)

    def _writer(self, name: str) -> Writer:
        if name not in self._last:
            if name in self._writers:  # its recovery failed: try again with a fresh one
                self._writers.pop(name).close()
            writer = self._writers[name] = self._environment.writer(name, self._job)
            self._last[name] = writer.recover(self._expected.get(name))
        return self._writers[name]

    def send(self, intent: Intent, prepared: Prepared, folder: Path) -> dict[str, str]:
        """Send a prepared batch to every writer that does not have it yet, in the order of the
        outputs; returns the intent that each writer has.

        Only `exactly_once` stores that in the commit, and compares it with the ledgers.

        Raises:
            Damaged: a ledger names a batch that is not in the checkpoint.
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
        """Checks for rows that the sinks of outputs can never accept."""
        found = []
        for name, output in self._outputs.items():
            sink = self._placed(output.sink)
            writer = self._writer(self._environment.writer_of(sink))
            check = writer.check(sink, output.keys) if isinstance(writer, RejectsRows) else None
            if check is not None:
                found.append(Guard(name, check))
        return tuple(found)

    def refresh(self) -> None:
        """Refresh ledgers before they expire."""
        for writer in self._writers.values():
            if isinstance(writer, RefreshesLedger):
                writer.refresh()

    def _refuse_unknown(self, name: str) -> None:
        """Stop if a ledger is ahead of the checkpoint: rows would be written twice."""
        if self._last[name] not in (None, self._expected.get(name)):
            raise Damaged(
                f"the checkpoint needs the records of every batch that {name} has taken",
                got=f"a ledger that names the intent {self._last[name]}, which is not in it",
                do="restore the newest copy of the checkpoint: this one would "
                "write rows again; `millstream rewind … --into SUFFIX` writes to new outputs; "
                "a job that has run at_most_once needs a fresh --checkpoint",
            )

    def sink_of(self, staged: StagedFiles) -> Sink:
        """Where staged rows go: an output's sink, a step's `rest`, `dead`, or a default."""
        if staged.kind == "dead":
            return self._placed(self._side.dead())
        if staged.kind == "late":
            rest = self._rests[staged.output]
            assert not isinstance(rest, Discard)
            return self._placed(self._side.late(rest))
        return self._placed(self._outputs[staged.output].sink)

    def _staged(self, staged: StagedFiles, sink: Sink, folder: Path) -> Staged:
        output = self._outputs[staged.output] if staged.kind == "result" else None
        keys, table = (output.keys, output.table) if output else ((), False)
        whole = accepts_retractions(sink) or table
        name = staged.output + self._suffix
        parts = tuple(_StagedRows(folder, entry, whole) for entry in staged.files)
        return Staged(name, staged.kind, sink, keys, staged.rows,
                      lambda: chain.from_iterable(part() for part in parts), is_table=table,
                      parts=parts)  # fmt: skip

    def close(self) -> None:
        """Close all writers."""
        for writer in self._writers.values():
            writer.close()


@dataclass(frozen=True, slots=True)
class _StagedRows:
    """The rows of one staged file; if not `whole`, without unmarked retractions."""

    folder: Path
    entry: str
    whole: bool

    def __call__(self) -> Iterator[pa.Table]:
        for table in unstage(self.folder, self.entry):
            yield table if self.whole else _without_retractions(table)


def _without_retractions(rows: pa.Table) -> pa.Table:
    """Rows for a sink that only appends: retractions only if a column marks them (`retract`).

    Unmarked ones are panes of windows whose start has moved (merged sessions, windows of rows).
    Any other stream with retractions is refused while building (`plan/sink_checks.py`).
    """
    if "_sign" not in rows.column_names or "retract" in rows.column_names:
        return rows
    signs = rows["_sign"].to_numpy()
    return rows if (signs > 0).all() else rows.filter(pa.array(signs > 0))
