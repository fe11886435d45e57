"""Writes a batch to the tables of one database: rows and ledger entries in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from millstream.errors import DataGone, InvalidSpec
from millstream.outages import Watched
from millstream.schema import Schema
from millstream.sinks.ownership import START_OVER
from millstream.sinks.retries import retry
from millstream.sinks.rows import appended, changes
from millstream.sinks.tables.ledger import Ownership

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import pyarrow as pa

    from millstream.outages import Ping
    from millstream.schema import Field
    from millstream.sinks.retries import Diagnosis
    from millstream.sinks.rows import Changes
    from millstream.sinks.spec import Check, Opening, Sink, Staged
    from millstream.sinks.tables.ledger import Entry


class TableSink(Protocol):
    """The table a sink writes to."""

    @property
    def table(self) -> str:
        """The table name, as the user wrote it."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; empty for a table that only appends."""


class Database(Protocol):
    """A database client; it raises `errors`, which `classify_error` explains.

    Everything between `begin` and `commit` is one transaction.
    """

    where: str
    errors: tuple[type[Exception], ...]

    def connect(self) -> None:
        """Replace the connection by a new one, and create the ledger table if it is missing."""

    def backend(self) -> str:
        """Return the identity of this connection; empty if connections cannot be ended."""

    def target(self, sink: TableSink) -> str:
        """Return the full name of a sink's table, as the ledger has it."""

    def entries(self, targets: Sequence[str]) -> list[Entry]:
        """Return the committed ledger entries of these tables."""

    def fence(self, backends: Iterable[str]) -> None:
        """End these connections, and wait until they are closed."""

    def begin(self) -> None:
        """Begin a transaction."""

    def begin_claim(self, targets: Sequence[str]) -> None:
        """Begin a transaction in which no other run can claim these tables."""

    def locked(self, targets: Sequence[str]) -> list[Entry]:
        """Return the ledger entries, locked until the end of the transaction."""

    def save(self, entries: Iterable[Entry]) -> None:
        """Write ledger entries."""

    def columns(self, target: str) -> list[str]:
        """Return the names of a table's columns; empty if the table does not exist."""

    def has_column(self, columns: Collection[str], name: str) -> bool:
        """Whether a name is among these column names."""

    def add_column(self, target: str, column: Field) -> str:
        """Return the statement that adds a column, for a message."""

    def create(self, sink: TableSink, schema: Schema) -> None:
        """Create the table of a sink."""

    def append(self, sink: TableSink, table: pa.Table) -> None:
        """Append rows."""

    def apply(self, sink: TableSink, change: Changes) -> None:
        """Apply upserts and deletes by key."""

    def commit(self) -> None:
        """Commit the transaction."""

    def rollback(self) -> None:
        """Roll back the transaction, if any."""

    def classify_error(self, error: Exception) -> Diagnosis:
        """Return what an error says, and the error to stop with if no retry can succeed."""

    def close(self) -> None:
        """Close the connection."""


@runtime_checkable
class Limited(Protocol):
    """A database that can tell in advance which rows its tables can never take."""

    def limits(self, sink: TableSink) -> Check:
        """Return the check for a table, from the last known columns if the database is down."""


class TableWriter:
    """One database, opened for one run; all its tables commit together."""

    def __init__(self, database: Database, opening: Opening) -> None:
        self._database, self._opening = database, opening
        self._owns = Ownership(opening, database.where)
        self._targets: list[str] = []
        self._last: str | None = None
        self._connected = False
        self._prepared: dict[str, list[str]] = {}

    def recover(self, expected: str | None) -> str | None:
        """Claim the tables, fence earlier runs and read the ledger.

        With `at_least_once` there is no ledger: trust the last commit.
        """
        if self._opening.delivery == "at_least_once":
            self._retry(self._database.connect, "open")
            self._connected, self._last = True, expected
        else:
            self._retry(lambda: self._claim(expected), "open")
        return self._last

    def pings(self) -> Sequence[Ping]:
        """Whether the database is there, if it is a server."""
        return self._database.pings() if isinstance(self._database, Watched) else ()

    def existing(self) -> list[str]:
        """Return its tables that exist or have a ledger entry."""
        found: list[str] = []

        def list_tables() -> None:
            self._database.connect()
            named = self._all_targets()
            known = {entry.target for entry in self._database.entries(named)}
            found[:] = [name for name in named if name in known or self._database.columns(name)]

        self._retry(list_tables, "open")
        return [f"the table {name!r} in {self._database.where}" for name in found]

    def _claim(self, expected: str | None, *, again: bool = False) -> None:
        """Connect, end the connections of earlier runs, and claim the tables in the ledger.

        With `again`, the run has claimed its tables before and must still own them.
        """
        database, owns = self._database, self._owns
        self._disconnect()
        database.connect()
        self._targets = self._all_targets()
        found = database.entries(self._targets)
        self._refuse(found, again=again)
        database.fence({entry.backend for entry in found if entry.backend is not None})
        database.begin_claim(self._targets)
        found = database.locked(self._targets)
        self._refuse(found, again=again)
        last = owns.last(found, expected)
        database.save(owns.claims(found, self._targets, last, database.backend()))
        database.commit()
        self._last = None if last is None else last.intent
        self._connected = True

    def _all_targets(self) -> list[str]:
        return sorted({self._database.target(_table(sink)) for sink in self._opening.sinks})

    def _refuse(self, found: list[Entry], *, again: bool) -> None:
        if again:
            self._owns.refuse_any_change(found, self._targets)
        self._owns.refuse_other_jobs(found)
        self._owns.refuse_newer(found)

    def check(self, sink: Sink, keys: tuple[str, ...]) -> Check | None:
        """As `RejectsRows.check`, if the database supports it."""
        database = self._database
        return database.limits(_table(sink)) if isinstance(database, Limited) else None

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Write a batch and its ledger entries; retry while the database is unavailable."""
        self._retry(lambda: self._attempt(intent, batch, outputs), f"take batch {batch}")
        self._last = intent

    def _attempt(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        if not self._connected:
            self._reconnect(intent)
            if self._last == intent:
                return
        self._database.begin()
        counts = self._put_all(outputs)
        if self._opening.delivery != "at_least_once":
            self._update_ledger(intent, batch, counts)
        self._opening.on_step("before a sink's commit")
        self._database.commit()
        self._opening.on_step("after a sink's commit")

    def _reconnect(self, intent: str) -> None:
        """Reconnect after a failure; the ledger tells whether the batch was committed."""
        if self._opening.delivery == "at_least_once":
            self._database.connect()
            self._connected = True
            return
        before = self._last
        self._opening.check_owned()
        self._claim(before, again=True)
        if self._last not in (before, intent):
            raise self._owns.fenced()

    def _put_all(self, outputs: Sequence[Staged]) -> dict[str, int]:
        """Lock the ledger, then write the rows."""
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
            counts[target] = counts.get(target, 0) + self._put(sink, staged, entries.get(target))
        return counts

    def _put(self, sink: TableSink, staged: Staged, entry: Entry | None) -> int:
        """Write the rows of one output and return their number."""
        count = 0
        if not sink.keys:
            for table in appended(staged):
                self._prepare(sink, table.schema, entry)
                self._database.append(sink, table)
                count += table.num_rows
            return count
        for change in changes(staged, sink.keys):
            self._prepare(sink, change.upserts.schema, entry)
            self._database.apply(sink, change)
            count += change.upserts.num_rows + change.deletes.num_rows
        return count

    def _prepare(self, sink: TableSink, schema: pa.Schema, entry: Entry | None) -> None:
        """Create the table if it is missing, otherwise check its columns."""
        database = self._database
        target = database.target(sink)
        if self._prepared.get(target) == schema.names:
            return
        found, fields = database.columns(target), Schema.from_arrow(schema)
        if not found:
            if entry is not None and entry.rows:
                raise DataGone(
                    f"the table {target!r} in {database.where} needs the rows of earlier batches",
                    got="no such table", do=f"restore it, or {START_OVER}",
                )  # fmt: skip
            database.create(sink, fields)
        for field in fields if found else ():
            if not database.has_column(found, field.name):
                raise InvalidSpec(
                    f"the table {target!r} in {database.where} needs the column {field.name!r}",
                    got=f"columns {', '.join(found)}", do=database.add_column(target, field),
                )  # fmt: skip
        self._prepared[target] = schema.names

    def _update_ledger(self, intent: str, batch: int, counts: dict[str, int]) -> None:
        entries = self._database.locked(self._targets)
        self._database.save(
            replace(e, intent=intent, batch=batch, rows=e.rows + counts.get(e.target, 0))
            for e in entries
        )

    def _retry(self, attempt: Callable[[], None], what: str) -> None:
        """Retry while the database is unavailable; a failed attempt is rolled back."""

        def attempt_or_roll_back() -> None:
            try:
                attempt()
            except BaseException:
                self._disconnect()
                self._database.rollback()
                raise

        retry(
            attempt_or_roll_back, what, where=self._database.where, opening=self._opening,
            errors=self._database.errors, classify_error=self._database.classify_error,
        )  # fmt: skip

    def _disconnect(self) -> None:
        self._connected, self._prepared = False, {}

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._database.close()


def _table(sink: Sink) -> TableSink:
    return cast("TableSink", sink)
