"""Tables of one database: a batch's rows and their mark in the ledger, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from millstream.sinks.retries import persist
from millstream.sinks.tables.ledger import Ownership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.sinks.retries import Told
    from millstream.sinks.spec import Check, Opening, Sink, Staged
    from millstream.sinks.tables.ledger import Entry


class TableSink(Protocol):
    """The table a sink writes to."""

    @property
    def table(self) -> str:
        """Its name, as the user wrote it."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; empty for a table that only appends."""


class Database(Protocol):
    """What a kind of database does; it raises its own `errors`, which `told` explains.

    Between `begin` and `commit` everything is one transaction.
    """

    where: str
    errors: tuple[type[Exception], ...]

    def connect(self) -> None:
        """A new connection, in the place of an older one; makes the ledger's table."""

    def backend(self) -> str:
        """How the database knows this connection."""

    def target(self, sink: TableSink) -> str:
        """The table of a sink by its full name, as the ledger has it."""

    def entries(self, targets: Sequence[str]) -> list[Entry]:
        """What the ledger holds of these tables, as committed."""

    def fence(self, backends: Iterable[str]) -> None:
        """End these connections, and wait until they are gone."""

    def begin(self) -> None:
        """Begin a transaction."""

    def begin_claim(self, targets: Sequence[str]) -> None:
        """Begin a transaction in which nobody else can claim these tables."""

    def locked(self, targets: Sequence[str]) -> list[Entry]:
        """What the ledger holds, with nobody else able to change it until the end."""

    def save(self, entries: Iterable[Entry]) -> None:
        """Write entries of the ledger."""

    def put(self, sink: TableSink, staged: Staged, entry: Entry | None) -> int:
        """Send one output's rows; returns how many. A missing table is made."""

    def has(self, target: str) -> bool:
        """Whether there is such a table."""

    def commit(self) -> None:
        """End the transaction for good."""

    def rollback(self) -> None:
        """Let go of a transaction, whatever state it is in."""

    def told(self, error: Exception) -> Told:
        """What an error of the database says, and the sentence to stop with if it cannot heal."""

    def close(self) -> None:
        """Let go of the connection."""


@runtime_checkable
class Limited(Protocol):
    """A database that knows which rows its tables can never take."""

    def limits(self, sink: TableSink) -> Check:
        """What holds for a table now, or as it was known last where nobody can be asked."""


class TableWriter:
    """One database opened for one run; all its tables commit together."""

    def __init__(self, database: Database, opening: Opening) -> None:
        self._database, self._opening = database, opening
        self._owns = Ownership(opening, database.where)
        self._targets: list[str] = []
        self._last: str | None = None
        self._connected = False

    def recover(self, expected: str | None) -> str | None:
        """Take the tables: earlier runs are shut out, the ledger is read.

        With `at_least_once` there is no ledger: what the last commit says is believed.
        """
        if self._opening.delivery == "at_least_once":
            self._persist(self._database.connect, "open")
            self._connected, self._last = True, expected
        else:
            self._persist(lambda: self._take(expected), "open")
        return self._last

    def existing(self) -> list[str]:
        """Its tables that are there already, or that the ledger knows."""
        found: list[str] = []

        def look() -> None:
            self._database.connect()
            named = self._all_targets()
            known = {entry.target for entry in self._database.entries(named)}
            found[:] = [name for name in named if name in known or self._database.has(name)]

        self._persist(look, "open")
        return [f"the table {name!r} in {self._database.where}" for name in found]

    def _take(self, expected: str | None, *, again: bool = False) -> None:
        """Connect, end the connections of earlier runs, and put this run into the ledger.

        `again`: in the middle of a run, whose tables are its own or have been taken from it.
        """
        database, owns = self._database, self._owns
        self._connected = False
        database.connect()
        self._targets = self._all_targets()
        found = database.entries(self._targets)
        self._refuse(found, again=again)
        database.fence({entry.backend for entry in found if entry.backend is not None})
        database.begin_claim(self._targets)
        found = database.locked(self._targets)
        self._refuse(found, again=again)
        last = owns.last(found, expected)
        database.save(owns.claimed(found, self._targets, last, database.backend()))
        database.commit()
        self._last = None if last is None else last.intent
        self._connected = True

    def _all_targets(self) -> list[str]:
        return sorted({self._database.target(_table(sink)) for sink in self._opening.sinks})

    def _refuse(self, found: list[Entry], *, again: bool) -> None:
        if again:
            self._owns.refuse_any_change(found, self._targets)
        self._owns.refuse_strangers(found)
        self._owns.refuse_newer(found)

    def check(self, sink: Sink, keys: tuple[str, ...]) -> Check | None:
        """As `RejectsRows.check`, where the database knows."""
        database = self._database
        return database.limits(_table(sink)) if isinstance(database, Limited) else None

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """All rows of a batch and their mark; tried again while the database may come back."""
        self._persist(lambda: self._attempt(intent, batch, outputs), f"take batch {batch}")
        self._last = intent

    def _attempt(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        if not self._connected:
            self._reconnect(intent)
            if self._last == intent:
                return
        self._database.begin()
        counts = self._put(outputs)
        if self._opening.delivery != "at_least_once":
            self._mark(intent, batch, counts)
        self._opening.on_step("before a sink's commit")
        self._database.commit()
        self._opening.on_step("after a sink's commit")

    def _reconnect(self, intent: str) -> None:
        """After a failure: whether the batch is in is settled by the ledger, never guessed."""
        if self._opening.delivery == "at_least_once":
            self._database.connect()
            self._connected = True
            return
        before = self._last
        self._opening.check_owned()
        self._take(before, again=True)
        if self._last not in (before, intent):
            raise self._owns.fenced()

    def _put(self, outputs: Sequence[Staged]) -> dict[str, int]:
        """Lock the ledger first, then send the rows."""
        database = self._database
        entries: dict[str, Entry] = {}
        if self._opening.delivery != "at_least_once":
            found = database.locked(self._targets)
            self._owns.refuse_any_change(found, self._targets)
            entries = {entry.target: entry for entry in found}
        counts: dict[str, int] = {}
        for staged in outputs:
            sink = _table(staged.sink)
            target = database.target(sink)
            counts[target] = counts.get(target, 0) + database.put(sink, staged, entries.get(target))
        return counts

    def _mark(self, intent: str, batch: int, counts: dict[str, int]) -> None:
        entries = self._database.locked(self._targets)
        self._database.save(
            replace(e, intent=intent, batch=batch, rows=e.rows + counts.get(e.target, 0))
            for e in entries
        )

    def _persist(self, attempt: Callable[[], None], what: str) -> None:
        """Try while the database may come back; a failure lets go of its transaction."""

        def tried() -> None:
            try:
                attempt()
            except BaseException:
                self._connected = False
                self._database.rollback()
                raise

        persist(
            tried, what, where=self._database.where, opening=self._opening,
            errors=self._database.errors, told=self._database.told,
        )  # fmt: skip

    def close(self) -> None:
        """Let go of the connection; a transaction that is open is rolled back."""
        self._database.close()


def _table(sink: Sink) -> TableSink:
    return cast("TableSink", sink)
