"""Results that a sink rejects: found while they are staged, and staged separately.

All outputs of a stage share its staged files. An output whose sink rejects some rows of a file
gets a separate file without them. The rejected rows go to another file, each with the reason and,
if known, the record it came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from millstream.engine.checkpoint.staging import StagedFile
from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.sinks.spec import Check

REASON = "_reason"
_ORIGIN = ("_source", "_partition", "_offset")


@dataclass(frozen=True, slots=True)
class Guard:
    """The check of one output's sink."""

    output: str
    check: Check


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Rows of a staged file that the sink of one output rejects.

    `file` is the entry of the whole file, `kept` a file of its other rows (None if there are
    none), `rows` a file of the rejected ones.
    """

    output: str
    file: str
    kept: StagedFile | None
    rows: StagedFile

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        kept = None if body["kept"] is None else StagedFile(*body["kept"])
        return cls(body["output"], body["file"], kept, StagedFile(*body["rows"]))


@dataclass
class _Sieve:
    """Checks rows while they are staged, and collects the rejected ones."""

    guard: Guard
    found: list[pa.Table] = field(default_factory=list)

    def observe(self, leaving: pa.Table, rows: pa.Table) -> None:
        reasons = self.guard.check(leaving)
        if reasons is None or reasons.null_count == len(reasons):
            return
        bad = pc.is_valid(reasons)
        kept = leaving.filter(bad).append_column(REASON, reasons.filter(bad))
        for name in _ORIGIN:
            if name in rows.column_names and name not in kept.column_names:
                kept = kept.append_column(name, rows[name].filter(bad))
        self.found.append(kept)


def staged(
    stage: Callable[[str, Iterable[pa.Table]], StagedFile | None],
    read: Callable[[str], Iterable[pa.Table]],
    guards: Iterable[Guard],
    rows: Iterable[tuple[pa.Table, pa.Table]],
) -> tuple[StagedFile | None, list[RefusedRows]]:
    """Stage results; `rows` has each table as it is emitted, and with the columns of its origin.

    Returns the file for all outputs, and the rows of it that each output rejects.
    """
    sieves = [_Sieve(guard) for guard in guards]

    def passing() -> Iterator[pa.Table]:
        for leaving, known in rows:
            for sieve in sieves:
                if leaving.num_rows:
                    sieve.observe(leaving, known)
            yield leaving

    whole = stage("results", passing())
    refused = []
    for sieve in sieves:
        if sieve.found and whole is not None:
            kept = stage("results", (_without(table, sieve.guard.check)
                                     for table in read(whole.entry)))  # fmt: skip
            found = stage("refused", sieve.found)
            assert found is not None
            refused.append(RefusedRows(sieve.guard.output, whole.entry, kept, found))
    return whole, refused


def _without(table: pa.Table, check: Check) -> pa.Table:
    reasons = check(table)
    return table if reasons is None else table.filter(pc.is_null(reasons))


def stop(output: str, first: pa.Table) -> InvalidInput:
    """The error of a pipeline with `on_bad="stop"` for the first rejected row."""
    return InvalidInput(
        f'the output {output!r} needs rows that its sink accepts (on_bad="stop")',
        got=first[REASON][0].as_py(),
        do="change the row with .with_columns(…) or the limits of the sink, or send such rows to "
        'the dead-letter topic with on_bad="dead"',
    )
