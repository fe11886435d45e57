"""Offsets stored next to the result in a database, in the same transaction: exactly once.

offsets = SqlOffsets(sqlite3.connect("totals.db"), "totals")
with Consumer("bids", delivery="exactly_once", offsets=offsets) as consumer:
    for batch in consumer.batches():
        with offsets.connection:
            ...                     # write the result of the batch
            consumer.commit()       # and its offsets
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from millstream.errors import Fenced, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.kafka.positions import Slot

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class Offsets(Protocol):
    """A store of offsets; implement it for a database that `SqlOffsets` does not support."""

    def positions(self, slots: Sequence[Slot]) -> Mapping[Slot, int]:
        """The next offset of each of these partitions, without those never stored."""

    def advance(self, moves: Mapping[Slot, tuple[int | None, int]]) -> None:
        """Store the next offsets in the transaction that writes the result.

        Each move is from the offset stored before (None if there was none) to the new one.

        Raises:
            Fenced: another reader has stored an offset since; the transaction must not commit.
        """


class SqlOffsets:
    """Offsets in a table of SQLite or PostgreSQL, one row per partition.

    `connection` is a `sqlite3` or `psycopg` connection, the one that writes the results; `reader`
    is the name under which the offsets are stored, one for each result. The table is created if
    it does not exist.
    """

    def __init__(self, connection: Any, reader: str, table: str = "millstream_offsets") -> None:
        kind = type(connection).__module__.partition(".")[0]
        if kind not in ("sqlite3", "psycopg"):
            raise InvalidInput(
                "SqlOffsets needs a connection of sqlite3 or psycopg",
                got=f"one of {kind}",
                do="write a class with `positions` and `advance` for another database",
            )
        if not isinstance(reader, str) or not reader:
            raise InvalidInput("SqlOffsets needs the name of a reader", got=repr(reader))
        if not isinstance(table, str) or not _NAME.fullmatch(table):
            raise InvalidInput(
                "SqlOffsets needs a table name of letters, digits and _", got=repr(table)
            )
        self.connection = connection
        self._reader, self._table = reader, table
        self._mark = "?" if kind == "sqlite3" else "%s"
        self._created = False

    def positions(self, slots: Sequence[Slot]) -> Mapping[Slot, int]:
        idle = self._idle()
        self._create_table()
        found = self._run(
            f"SELECT topic, partition, next FROM {self._table} WHERE reader = ?",  # noqa: S608
            (self._reader,),
        ).fetchall()
        if idle:
            self.connection.commit()
        stored = {(str(topic), int(partition)): int(at) for topic, partition, at in found}
        return {slot: stored[slot] for slot in slots if slot in stored}

    def advance(self, moves: Mapping[Slot, tuple[int | None, int]]) -> None:
        self._create_table()
        for slot, (before, now) in sorted(moves.items()):
            if self._update(slot, before, now) != 1:
                raise Fenced(
                    f"{slot[0]}/{slot[1]} needs {self._reader!r} to be its only reader",
                    got=f"another that has continued from offset {before}",
                    do="roll the transaction back, and read again from the stored offsets",
                )

    def _update(self, slot: Slot, before: int | None, now: int) -> int:
        """The number of rows changed: one, or none if another reader was first."""
        if before is None:
            text = f"INSERT INTO {self._table} VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608
            return int(self._run(text, (self._reader, *slot, now)).rowcount)
        text = (
            f"UPDATE {self._table} SET next = ? "  # noqa: S608
            "WHERE reader = ? AND topic = ? AND partition = ? AND next = ?"
        )
        return int(self._run(text, (now, self._reader, *slot, before)).rowcount)

    def _create_table(self) -> None:
        if not self._created:
            self._run(
                f"CREATE TABLE IF NOT EXISTS {self._table} (reader TEXT, topic TEXT, "
                "partition INTEGER, next BIGINT NOT NULL, PRIMARY KEY (reader, topic, partition))",
                (),
            )
            self._created = True

    def _idle(self) -> bool:
        """Whether no transaction of the user is open."""
        if self._mark == "?":
            return not self.connection.in_transaction
        return bool(self.connection.info.transaction_status == 0)

    def _run(self, text: str, values: Iterable[object]) -> Any:
        return self.connection.execute(text.replace("?", self._mark), tuple(values))
