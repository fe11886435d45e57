"""The ledger of a database: which run writes each table, and which batch it wrote last.

It has one row per table, updated in the same transaction as the table's rows. A fenced run finds
a higher epoch or another job there, and stops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.sinks.ownership import claimed_by, fenced, missing_entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.errors import Fenced
    from millstream.sinks.spec import Opening

TABLE = "millstream_ledger"


@dataclass(frozen=True, slots=True)
class Entry:
    """The ledger entry of one table.

    `rows` counts the rows written since the job's first batch. `backend` identifies the
    connection that may be writing, if the database can end connections.
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
    """The claim of one run to its tables."""

    opening: Opening
    where: str

    def refuse_other_jobs(self, entries: Iterable[Entry]) -> None:
        """Raise `AlreadyRunning` if a table belongs to another job and may not be taken over."""
        for entry in entries:
            if entry.job != self.opening.job and not self.opening.take_over:
                where = f"the table {entry.target!r} in {self.where}"
                raise claimed_by(entry.job, entry.pipeline, where, other="choose another table")

    def refuse_newer(self, entries: Iterable[Entry]) -> None:
        """Raise `Fenced` if a run with a higher epoch has claimed a table."""
        for entry in entries:
            if entry.job == self.opening.job and entry.epoch > self.opening.epoch:
                raise self.fenced()

    def refuse_any_change(self, entries: Iterable[Entry], targets: Iterable[str]) -> None:
        """Raise `Fenced` unless this run still owns every table."""
        mine = {e.target for e in entries
                if (e.job, e.epoch) == (self.opening.job, self.opening.epoch)}  # fmt: skip
        if mine != set(targets):
            raise self.fenced()

    def last(self, entries: Iterable[Entry], expected: str | None) -> Entry | None:
        """Return this job's entry with the highest batch.

        Raises:
            DataGone: there is none, although the last commit names a written intent.
        """
        entries = list(entries)
        mine = [e for e in entries if e.job == self.opening.job and e.intent is not None]
        if mine:
            return max(mine, key=lambda entry: entry.batch)
        if expected is not None:
            others = sorted({e.job[:8] for e in entries if e.job != self.opening.job})
            raise missing_entry(f"the table {TABLE} of {self.where}", ", ".join(others) or None,
                                restore="restore the database as that batch left it")  # fmt: skip
        return None

    def claims(
        self, entries: Iterable[Entry], targets: Iterable[str], last: Entry | None, backend: str
    ) -> list[Entry]:
        """Return the entries by which this run claims its tables."""
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
        """The error of a run that a newer run has fenced."""
        return fenced(self.opening.job, f"the tables of {self.opening.pipeline!r} in {self.where}")
