"""The ledger of a database: who writes each table, and which batch it has taken last.

One row per table, in the same database and the same transaction as the rows: a batch is
there with its mark, or neither is. A run that has been shut out finds a higher epoch, or
another job, and stops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.errors import AlreadyRunning, DataGone, Fenced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.sinks.spec import Opening

TABLE = "millstream_ledger"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the ledger holds of one table.

    `rows` counts what it has been sent since the job's first batch; `backend` is how the
    database knows the connection that may be writing, where it knows such a thing.
    """

    target: str
    pipeline: str
    job: str
    epoch: int
    intent: str | None = None
    batch: int = 0
    rows: int = 0
    backend: str | None = None


@dataclass(frozen=True, slots=True)
class Ownership:
    """One run's claim to its tables, and how it reads the ledger."""

    opening: Opening
    where: str

    def refuse_strangers(self, entries: Iterable[Entry]) -> None:
        """Before anything is touched: no table of another job, unless it may be taken over."""
        for entry in entries:
            if entry.job != self.opening.job and not self.opening.take_over:
                raise AlreadyRunning(
                    f"one job at a time writes to the table {entry.target!r} in {self.where}",
                    got=f"job {entry.job[:8]} of the pipeline {entry.pipeline!r}, "
                    "with another checkpoint",
                    do="name another table, or say --take-over to end that job's writing",
                )

    def refuse_newer(self, entries: Iterable[Entry]) -> None:
        """A run with a higher number has been here: this one is a zombie."""
        for entry in entries:
            if entry.job == self.opening.job and entry.epoch > self.opening.epoch:
                raise self.fenced()

    def refuse_any_change(self, entries: Iterable[Entry], targets: Iterable[str]) -> None:
        """In the middle of a run every table is still this run's."""
        mine = {e.target for e in entries
                if (e.job, e.epoch) == (self.opening.job, self.opening.epoch)}  # fmt: skip
        if mine != set(targets):
            raise self.fenced()

    def last(self, entries: Iterable[Entry], expected: str | None) -> Entry | None:
        """The entry of this job that was written last.

        Raises:
            DataGone: the last commit says that something was written, and there is no trace.
        """
        entries = list(entries)
        mine = [e for e in entries if e.job == self.opening.job and e.intent is not None]
        if mine:
            return max(mine, key=lambda entry: entry.batch)
        if expected is not None:
            others = sorted({e.job[:8] for e in entries if e.job != self.opening.job})
            raise DataGone(
                f"the job needs its entry in the table {TABLE} of {self.where}",
                got=f"that of job {', '.join(others)}, which has taken the writing over since"
                if others
                else "none, though an earlier batch wrote one",
                do="restore the database as that batch left it, or begin anew with another "
                "--checkpoint",
            )
        return None

    def claimed(
        self, entries: Iterable[Entry], targets: Iterable[str], last: Entry | None, backend: str
    ) -> list[Entry]:
        """The entries with which this run takes its tables."""
        known = {entry.target: entry for entry in entries if entry.job == self.opening.job}
        opening = self.opening
        fresh = Entry("", opening.pipeline, opening.job, opening.epoch)
        return [
            replace(
                known.get(target, fresh),
                target=target,
                pipeline=opening.pipeline,
                epoch=opening.epoch,
                backend=backend,
                intent=last.intent if last else None,
                batch=last.batch if last else 0,
            )
            for target in targets
        ]

    def fenced(self) -> Fenced:
        """The sentence of a run that has been shut out."""
        opening = self.opening
        return Fenced(
            f"the job {opening.job[:8]} needs to be the only one writing to the tables of "
            f"{opening.pipeline!r} in {self.where}",
            got="a newer run, which has taken them over",
            do="let that one work; this one stops, and nothing it had begun is visible",
        )
