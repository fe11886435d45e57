"""Offsets kept beside one's own result, in the same transaction: exactly once without Kafka.

offsets = SqlOffsets(sqlite3.connect("totals.db"), "totals")
with Consumer("bids", delivery="exactly_once", offsets=offsets) as consumer:
    for batch in consumer.batches():
        with offsets.connection:
            ...                     # what the batch changes
            consumer.commit()       # and how far it reaches
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
    """A place of one's own for positions."""

    def positions(self, slots: Sequence[Slot]) -> Mapping[Slot, int]:
        """Where to go on in these partitions; those never kept are left out."""

    def advance(self, moves: Mapping[Slot, tuple[int | None, int]]) -> None:
        """Keep where to go on, in the transaction that holds the result.

        Each move is from the position that was kept before (None where there was none) to the
        one now.

        Raises:
            Fenced: another reader has kept a position since; the transaction must not commit.
        """


class SqlOffsets:
    """Positions in a table of SQLite or PostgreSQL, one row per partition.

    `connection` is a `sqlite3` or `psycopg` connection, the one the results are written with;
    `reader` is the name the positions are kept under, one for each result. The table is made
    when it is missing.
    """

    def __init__(self, connection: Any, reader: str, table: str = "millstream_offsets") -> None:
        kind = type(connection).__module__.partition(".")[0]
        if kind not in ("sqlite3", "psycopg"):
            raise InvalidInput(
                "offsets beside a result need a connection of sqlite3 or psycopg",
                got=f"one of {kind}",
                do="write a class with `positions` and `advance` for another database",
            )
        if not isinstance(reader, str) or not reader:
            raise InvalidInput("offsets need the name of their reader", got=repr(reader))
        if not isinstance(table, str) or not _NAME.fullmatch(table):
            raise InvalidInput("offsets need a table named by letters and digits", got=repr(table))
        self.connection = connection
        self._reader, self._table = reader, table
        self._mark = "?" if kind == "sqlite3" else "%s"
        self._made = False

    def positions(self, slots: Sequence[Slot]) -> Mapping[Slot, int]:
        idle = self._idle()
        self._make()
        found = self._run(
            f"SELECT topic, partition, next FROM {self._table} WHERE reader = ?",  # noqa: S608
            (self._reader,),
        ).fetchall()
        if idle:
            self.connection.commit()
        kept = {(str(topic), int(partition)): int(at) for topic, partition, at in found}
        return {slot: kept[slot] for slot in slots if slot in kept}

    def advance(self, moves: Mapping[Slot, tuple[int | None, int]]) -> None:
        self._make()
        for slot, (before, now) in sorted(moves.items()):
            if self._moved(slot, before, now) != 1:
                raise Fenced(
                    f"the reader {self._reader!r} needs to be the only one of "
                    f"{slot[0]}/{slot[1]}, which it left at {before}",
                    got="another that has gone on from there",
                    do="let the transaction be rolled back, and read again from what is kept",
                )

    def _moved(self, slot: Slot, before: int | None, now: int) -> int:
        """How many rows took it: one, or none when another reader was there first."""
        if before is None:
            text = f"INSERT INTO {self._table} VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608
            return int(self._run(text, (self._reader, *slot, now)).rowcount)
        text = (
            f"UPDATE {self._table} SET next = ? "  # noqa: S608
            "WHERE reader = ? AND topic = ? AND partition = ? AND next = ?"
        )
        return int(self._run(text, (now, self._reader, *slot, before)).rowcount)

    def _make(self) -> None:
        if not self._made:
            self._run(
                f"CREATE TABLE IF NOT EXISTS {self._table} (reader TEXT, topic TEXT, "
                "partition INTEGER, next BIGINT NOT NULL, PRIMARY KEY (reader, topic, partition))",
                (),
            )
            self._made = True

    def _idle(self) -> bool:
        """Whether no transaction of the user is open."""
        if self._mark == "?":
            return not self.connection.in_transaction
        return bool(self.connection.info.transaction_status == 0)

    def _run(self, text: str, values: Iterable[object]) -> Any:
        return self.connection.execute(text.replace("?", self._mark), tuple(values))
